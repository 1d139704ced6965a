//! Shared workflows: ownership, which version applies, and what remains when they are unshared.

use chimera_core::access::{Guest, Level, SharedResources};
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::flow::tables::{RUNS, STEPS, WORKFLOWS};
use chimera_core::tool::EffectKind;
use chimera_engine::access::Permit;
use chimera_engine::access::port::Tenancy;
use chimera_engine::flow::{self, Decide, Decision, ReplayOptions, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, EngineSetup, ScriptedTool, TENANT, code_of, shown, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// Shares one tool with every tenant but the default one.
struct OneSharedTool;

impl Tenancy for OneSharedTool {
    fn guest(&self, tenant: &str) -> Option<Arc<Guest>> {
        let shared = SharedResources { tools: vec!["sends".to_owned()], ..SharedResources::default() };
        (tenant != TENANT).then(|| Arc::new(Guest { id: tenant.to_owned(), slug: tenant.to_owned(), shared }))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

fn setup() -> EngineSetup {
    let tool = |name| ScriptedTool::new(name, EffectKind::Write).build();
    stage(1).tool(tool("sends")).tool(tool("hidden")).tenancy(Arc::new(OneSharedTool))
}

/// Requests approval, then calls a tool.
fn asks_first(id: &str, n: u32) -> Air {
    workflow(id)
        .node(json!({"id": "ask", "type": "hitl", "prompt": "now?"}))
        .function("a", "sends", json!({"n": n}))
        .edge("ask", "a")
}

async fn apply(stage: &EngineFixture, by: &Permit, air: &Air) -> i64 {
    stage.flow.workflows().apply(by, &air.id(), &air.document().to_string()).await.unwrap().version
}

fn of(id: &str) -> StartRun {
    StartRun { level: Level::ExecuteSilent, ..StartRun::of(id, json!({})) }
}

fn versioned(id: &str, version: i64) -> StartRun {
    StartRun { version: Some(version), ..of(id) }
}

async fn started(stage: &EngineFixture, by: &Permit, ask: StartRun) -> (Uuid, i64) {
    let run = flow::start(&stage.flow, by, ask).await.unwrap_or_else(|error| panic!("{:?}", error.body())).run_id;
    let row = stage.rows(&RUNS).into_iter().find(|row| row.uuid("id") == run).unwrap();
    (run, row.int("workflow_version"))
}

async fn approve(stage: &EngineFixture, by: &Permit, run: Uuid) -> Value {
    let shown = stage.wait_for_in(by.tenant(), run, |shown| shown["status"] == "awaiting_approval").await;
    let digest = shown["approvals"][0]["digest"].as_str().unwrap();
    let digest = chimera_core::json::Digest32::from_hex(digest);
    let decide = Decide { run, decision: Decision::Approve, approval: None, step: None, digest, reason: None };
    flow::decide(&stage.flow, by, decide).await.unwrap();
    stage.wait_for_in(by.tenant(), run, |shown| shown["status"] == "completed").await
}

/// The default tenant's operator, and somebody of another tenant.
fn people(stage: &EngineFixture) -> (Permit, Permit) {
    (stage.permit_of(TENANT, "admin"), stage.permit_of("other", "admin"))
}

#[tokio::test(start_paused = true)]
async fn only_an_operator_of_the_default_tenant_shares_and_only_what_is_there() {
    let stage = setup().open().await;
    let (own, other) = people(&stage);
    apply(&stage, &own, &asks_first("w", 1)).await;
    apply(&stage, &other, &asks_first("theirs", 1)).await;
    let plain = own.clone().narrowed(&["workflows.write", "workflows.read"]);
    for (by, id, code) in [
        (&plain, "w", "RBAC_FORBIDDEN"),
        (&other, "theirs", "RBAC_FORBIDDEN"),
        (&own, "theirs", "NOT_FOUND"),
        (&own, "act.0", "NOT_FOUND"),
    ] {
        assert_eq!(code_of(flow::share_workflow(&stage.flow, by, id, true).await), code, "{id}");
        assert_eq!(code_of(flow::share_workflow(&stage.flow, by, id, false).await), code, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_shared_any_more_is_not_started_and_runs_keep_what_they_began_with() {
    let first = setup().open().await;
    let (own, other) = people(&first);
    apply(&first, &own, &asks_first("w", 1)).await;
    assert_eq!(code_of(flow::start(&first.flow, &other, of("w")).await), "NOT_FOUND");
    flow::share_workflow(&first.flow, &own, "w", true).await.unwrap();
    let (run, version) = started(&first, &other, of("w")).await;
    assert_eq!(version, 1);
    assert_eq!(apply(&first, &own, &asks_first("w", 2)).await, 2);
    let (newer, version) = started(&first, &other, of("w")).await;
    assert_eq!(version, 2, "a new version of the owner counts at once");
    assert_eq!(started(&first, &other, versioned("w", 1)).await.1, 1);

    flow::share_workflow(&first.flow, &own, "w", false).await.unwrap();
    for ask in [of("w"), versioned("w", 1), versioned("w", 2)] {
        assert_eq!(code_of(flow::start(&first.flow, &other, ask).await), "NOT_FOUND");
    }
    assert_eq!(code_of(flow::show_workflow(&first.flow, &other, "w", Some(1)).await), "NOT_FOUND");
    assert_eq!(shown(flow::list_workflows(&first.flow, &other, 10, None).await.unwrap().items), json!([]));
    // Also in a process with a cold cache.
    let second = first.restart(setup()).await;
    let shown = approve(&second, &other, run).await;
    assert_eq!(shown["workflow_version"], 1);
    assert_eq!(approve(&second, &other, newer).await["workflow_version"], 2);
    let again =
        |mode| flow::replay(&second.flow, &other, Replay { of: run, mode, from: None }, ReplayOptions::default());
    assert_eq!(code_of(again(ReplayMode::Retry).await.map(drop)), "NOT_FOUND", "that would be a new start");
    assert!(again(ReplayMode::Freeze).await.is_ok(), "what was can be looked at");
    assert!(started(&second, &own, of("w")).await.1 == 2, "its own tenant goes on");
}

#[tokio::test(start_paused = true)]
async fn a_workflow_of_ones_own_goes_before_a_shared_one_and_never_gets_its_numbers() {
    let stage = setup().open().await;
    let (own, other) = people(&stage);
    apply(&stage, &own, &asks_first("w", 1)).await;
    apply(&stage, &own, &asks_first("w", 2)).await;
    flow::share_workflow(&stage.flow, &own, "w", true).await.unwrap();
    let (run, version) = started(&stage, &other, of("w")).await;
    assert_eq!(version, 2);
    // Even the same document becomes the tenant's own.
    assert_eq!(apply(&stage, &other, &asks_first("w", 2)).await, 3);
    assert_eq!(apply(&stage, &other, &asks_first("w", 3)).await, 4);
    assert_eq!(apply(&stage, &own, &asks_first("w", 9)).await, 3, "the owner's numbers are not touched");
    let (mine, version) = started(&stage, &other, of("w")).await;
    assert_eq!(version, 4);
    assert_eq!(
        code_of(flow::start(&stage.flow, &other, versioned("w", 2)).await),
        "NOT_FOUND",
        "theirs has no version 2"
    );
    let shown = shown(flow::show_workflow(&stage.flow, &other, "w", None).await.unwrap());
    assert_eq!(
        (&shown["version"], &shown["shared"], &shown["created_by"]),
        (&json!(4), &json!(false), &json!("admin"))
    );
    approve(&stage, &other, run).await;
    approve(&stage, &other, mine).await;
    let sent = |run: Uuid| {
        let steps = stage.rows_of(&STEPS, run);
        let row = steps.iter().find(|row| row.text("node_id") == "a").unwrap();
        row.get("input").as_json().unwrap().value().unwrap()["n"].clone()
    };
    assert_eq!((sent(run), sent(mine)), (json!(2), json!(3)), "each follows the document that it began with");
}

#[tokio::test(start_paused = true)]
async fn the_tenant_that_runs_it_decides_what_it_reaches() {
    let stage = setup().open().await;
    let (own, other) = people(&stage);
    apply(&stage, &own, &workflow("w").function("a", "hidden", json!({}))).await;
    apply(&stage, &own, &workflow("inner").function("a", "sends", json!({}))).await;
    apply(&stage, &own, &workflow("outer").child("c", "inner", json!({}))).await;
    for id in ["w", "outer"] {
        flow::share_workflow(&stage.flow, &own, id, true).await.unwrap();
    }
    assert_eq!(code_of(flow::start(&stage.flow, &other, of("w")).await), "VALIDATION_FAILED", "its tool is not shared");
    let outer = workflow("mine").child("c", "inner", json!({})).document().to_string();
    assert_eq!(code_of(stage.flow.workflows().check(&other, &outer).await), "VALIDATION_FAILED");
    flow::share_workflow(&stage.flow, &own, "inner", true).await.unwrap();
    assert!(stage.flow.workflows().check(&other, &outer).await.is_ok());
    assert!(stage.rows(&WORKFLOWS).iter().all(|row| row.text("tenant_id") == TENANT), "looking copies nothing");
    let (run, _) = started(&stage, &other, of("outer")).await;
    stage.wait_for_in("other", run, |shown| shown["status"] == "completed").await;
    let copies: Vec<_> = stage.rows(&WORKFLOWS).into_iter().filter(|row| row.text("tenant_id") == "other").collect();
    assert_eq!(copies.len(), 2, "what is inside is kept too");
    assert!(copies.iter().all(|row| row.text("created_by") == "system" && row.text("shared_from") == TENANT));
    assert!(stage.rows(&RUNS).iter().all(|row| row.text("tenant_id") == "other"));
    flow::share_workflow(&stage.flow, &own, "inner", false).await.unwrap();
    assert_eq!(
        code_of(flow::start(&stage.flow, &other, of("outer")).await.map(drop)).as_str(),
        "NOT_FOUND",
        "inside as well"
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_has_what_is_shared_in_its_place() {
    let stage = setup().open().await;
    let (own, other) = people(&stage);
    for id in ["a", "c", "d"] {
        apply(&stage, &own, &asks_first(id, 1)).await;
    }
    for id in ["b", "d"] {
        apply(&stage, &other, &asks_first(id, 1)).await;
    }
    for id in ["c", "d"] {
        flow::share_workflow(&stage.flow, &own, id, true).await.unwrap();
    }
    let listed = async |by: &Permit, limit: usize| {
        let (mut all, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = shown(flow::list_workflows(&stage.flow, by, limit, cursor.as_deref()).await.unwrap());
            let item = |item: &Value| (item["workflow_id"].as_str().unwrap().to_owned(), item["shared"] == true);
            all.extend(page["items"].as_array().unwrap().iter().map(item));
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                return all;
            }
        }
    };
    for limit in [1, 2, 10] {
        let (theirs, ours) = (listed(&other, limit).await, listed(&own, limit).await);
        let named = |all: &[(String, bool)]| {
            all.iter().map(|(id, shared)| format!("{id}{}", u8::from(*shared))).collect::<Vec<_>>()
        };
        assert_eq!(named(&theirs), ["b0", "c1", "d0"], "{limit}");
        assert_eq!(named(&ours), ["a0", "c1", "d1"], "{limit}");
    }
}
