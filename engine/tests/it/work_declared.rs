//! Declared tools that workers execute, and that change while runs go on.

use crate::work::{SILENT, ask, claim, complete, lease, worker};
use chimera_core::access::{Guest, SharedResources};
use chimera_engine::access::port::Tenancy;
use chimera_engine::flow::work::{self, ClaimRequest};
use chimera_engine::flow::{self, StartRun, reload_tools};
use chimera_testkit::flow::{Air, EngineFixture, ScriptedSource, code_of, stage, workflow};
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;

/// `print` is called after an approval.
fn asks_first() -> Air {
    workflow("w")
        .node(json!({"id": "ask", "type": "hitl", "prompt": "now?"}))
        .function("a", "print", json!({}))
        .edge("ask", "a")
}

/// Its calls go to the queue `desk`, and its output has a member `a`.
fn first_definition() -> ScriptedSource {
    let source = ScriptedSource::default();
    source.declare_worker(None, ("print", "1+a"), "desk", "a");
    source
}

/// Its calls go to the queue `press`, and its output has a member `b`.
fn declare_second(source: &ScriptedSource) {
    source.declare_worker(None, ("print", "1+b"), "press", "b");
}

async fn waiting(fixture: &EngineFixture) -> Uuid {
    let run = fixture.run(&asks_first(), SILENT).await;
    fixture.status(run, "awaiting_approval").await;
    run
}

/// What the workers of this queue can claim now.
async fn claimable(fixture: &EngineFixture, queue: &str) -> Vec<Uuid> {
    let request = ClaimRequest { queue: queue.to_owned(), ..ask(10, 0) };
    let claimed = work::claim(&fixture.flow, &worker(fixture), &request).await.unwrap();
    claimed.into_iter().map(|claimed| claimed.run_id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_to_the_workers_of_the_definition_that_its_run_began_with() {
    let source = first_definition();
    let stage = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let run = waiting(&stage).await;
    declare_second(&source);
    assert!(reload_tools(&stage.flow).await.unwrap().is_changed);
    let later = waiting(&stage).await;
    stage.approve("user_ann", run).await;
    stage.approve("user_ann", later).await;
    stage.step(later, "a", "running").await;
    let claimed = claim(&stage).await;
    assert_eq!(claimed.run_id, run);
    assert_eq!(code_of(complete(&stage, &claimed, json!({"b": 1})).await), "VALIDATION_FAILED");
    complete(&stage, &claimed, json!({"a": 1})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(claimable(&stage, "press").await, [later], "a new run uses the newest definition");
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_call_still_goes_to_the_workers_of_the_first_definition() {
    let source = first_definition();
    let first = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let run = waiting(&first).await;
    let elsewhere = source.elsewhere();
    declare_second(&elsewhere);
    let second = first.restart(stage(1).declared_by(Arc::new(elsewhere))).await;
    second.approve("user_ann", run).await;
    let claimed = claim(&second).await;
    complete(&second, &claimed, json!({"a": 1})).await.unwrap();
    assert_eq!(second.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_removed_tool_of_workers_serves_the_runs_that_began_with_it() {
    let source = first_definition();
    let stage = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let run = waiting(&stage).await;
    source.remove(None, "print");
    reload_tools(&stage.flow).await.unwrap();
    let refused = flow::start(&stage.flow, &stage.permit("user_ann"), StartRun::of("w", json!({}))).await;
    assert_eq!(code_of(refused), "VALIDATION_FAILED");
    stage.approve("user_ann", run).await;
    let claimed = claim(&stage).await;
    complete(&stage, &claimed, json!({"a": 1})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_disabled_tool_of_workers_is_called_by_nobody() {
    let source = first_definition();
    let stage = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let (queued, later) = (waiting(&stage).await, waiting(&stage).await);
    stage.approve("user_ann", queued).await;
    stage.step(queued, "a", "running").await;
    source.disable("print", "it prints too much");
    reload_tools(&stage.flow).await.unwrap();
    assert!(claimable(&stage, "desk").await.is_empty(), "what waits in the queue stays there");
    let asked = stage.asks(later).await.remove(0);
    stage.decide("user_ann", later, flow::Decision::Approve, Some(&asked)).await.unwrap();
    let ended = stage.ended(later).await;
    assert_eq!(ended["error"]["code"], "TOOL_UNAVAILABLE");
    assert!(ended["error"]["message"].as_str().unwrap().contains("it prints too much"), "{ended:#}");
    source.enable("print");
    reload_tools(&stage.flow).await.unwrap();
    assert_eq!(claimable(&stage, "desk").await, [queued]);
}

/// Acme is the default tenant, and nothing is shared with the other.
struct Two;

impl Tenancy for Two {
    fn guest(&self, tenant: &str) -> Option<Arc<Guest>> {
        let guest = || Guest { id: tenant.to_owned(), slug: tenant.to_owned(), shared: SharedResources::default() };
        (tenant != "acme").then(|| Arc::new(guest()))
    }

    fn id_of_slug(&self, slug: &str) -> Option<String> {
        (slug == "other").then(|| slug.to_owned())
    }

    fn is_shared(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenants_own_tool_is_executed_by_the_workers_of_the_tenant_alone() {
    let source = first_definition();
    source.declare_worker(Some("other"), ("tenant.print", "1+o"), "desk", "o");
    let stage = stage(1).tenancy(Arc::new(Two)).declared_by(Arc::new(source.clone())).open().await;
    let air = workflow("own").function("a", "tenant.print", json!({})).document().to_string();
    let refused = stage.flow.workflows().apply(&stage.permit("user_ann"), "own", &air).await;
    assert_eq!(code_of(refused), "VALIDATION_FAILED");
    let guest = stage.permit_of("other", "user_bob");
    stage.flow.workflows().apply(&guest, "own", &air).await.unwrap();
    let ask_own = StartRun { level: SILENT, ..StartRun::of("own", json!({})) };
    let run = flow::start(&stage.flow, &guest, ask_own).await.unwrap().run_id;
    source.declare_worker(Some("other"), ("tenant.print", "1+p"), "press", "p");
    reload_tools(&stage.flow).await.unwrap();
    assert!(claimable(&stage, "desk").await.is_empty(), "another tenant's worker");
    let own_worker = stage.permit_of("other", "worker_1");
    let claimed = work::claim(&stage.flow, &own_worker, &ask(1, 20)).await.unwrap().remove(0);
    assert_eq!(claimed.run_id, run);
    let wrong = work::complete(&stage.flow, &own_worker, &lease(&claimed), json!({"p": 1})).await;
    assert_eq!(code_of(wrong), "VALIDATION_FAILED");
    work::complete(&stage.flow, &own_worker, &lease(&claimed), json!({"o": 1})).await.unwrap();
    stage.wait_for_in("other", run, |shown| shown["status"] == "completed").await;
}
