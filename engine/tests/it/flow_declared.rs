//! Declared tools that change while runs go on: a run calls the definitions that it began with.

use chimera_core::access::{Guest, Level, SharedResources};
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::flow::tables::{ToolDefinitionRow, tool_definitions};
use chimera_core::ledger::tables::EntryRow;
use chimera_core::record::{Scope, StoredRow};
use chimera_engine::access::port::Tenancy;
use chimera_engine::flow::{self, Decision, PatchRequest, ReplayOptions, StartRun, reload_tools};
use chimera_engine::port::Records;
use chimera_testkit::flow::{Air, EngineFixture, ScriptedSource, code_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// `desk` is called after an approval.
fn asks_first() -> Air {
    workflow("w")
        .node(json!({"id": "ask", "type": "hitl", "prompt": "now?"}))
        .function("a", "desk", json!({"n": 1}))
        .edge("ask", "a")
}

async fn waiting(fixture: &EngineFixture, air: &Air) -> Uuid {
    let run = fixture.run(air, SILENT).await;
    fixture.status(run, "awaiting_approval").await;
    run
}

async fn changed(fixture: &EngineFixture, source: &ScriptedSource, version: &str) {
    source.declare(None, "desk", version);
    assert!(reload_tools(&fixture.flow).await.unwrap().is_changed);
}

async fn finish(fixture: &EngineFixture, run: Uuid) -> Value {
    fixture.approve("user_ann", run).await;
    fixture.ended(run).await
}

#[tokio::test(start_paused = true)]
async fn a_run_calls_the_definition_that_it_began_with_and_a_new_run_the_newest() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let stage = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let run = waiting(&stage, &asks_first()).await;
    changed(&stage, &source, "1+b").await;
    let later = waiting(&stage, &asks_first()).await;
    assert_eq!(finish(&stage, run).await["status"], "completed");
    assert_eq!(finish(&stage, later).await["status"], "completed");
    assert_eq!(source.versions(), ["1+a", "1+b"]);
    let replay = Replay { of: run, mode: ReplayMode::Retry, from: Some("a".to_owned()) };
    let again =
        flow::replay(&stage.flow, &stage.permit("user_ann"), replay, ReplayOptions::default()).await.unwrap().run_id;
    stage.ended(again).await;
    assert_eq!(source.versions(), ["1+a", "1+b", "1+b"], "a retry is a new run");
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_run_still_calls_the_definition_that_it_began_with() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let first = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let run = waiting(&first, &asks_first()).await;
    let elsewhere = source.elsewhere().with("desk", "1+b");
    let second = first.restart(stage(1).declared_by(Arc::new(elsewhere))).await;
    assert_eq!(finish(&second, run).await["status"], "completed");
    assert_eq!(source.versions(), ["1+a"]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_nowhere_is_never_replaced_by_another() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let first = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let run = waiting(&first, &asks_first()).await;
    let elsewhere = source.elsewhere().with("desk", "1+b").forgetful();
    let second = first.restart(stage(1).declared_by(Arc::new(elsewhere))).await;
    let ended = finish(&second, run).await;
    let message = ended["error"]["message"].as_str().unwrap();
    assert_eq!(ended["error"]["code"], "TOOL_UNAVAILABLE");
    assert!(message.contains("1+a") && message.contains("1+b") && message.contains("retry"), "{message}");
    assert!(source.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_removed_tool_is_refused_to_new_runs_and_serves_those_that_began_with_it() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let stage = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let run = waiting(&stage, &asks_first()).await;
    source.remove(None, "desk");
    reload_tools(&stage.flow).await.unwrap();
    let refused = flow::start(&stage.flow, &stage.permit("user_ann"), StartRun::of("w", json!({}))).await;
    assert_eq!(code_of(refused), "VALIDATION_FAILED");
    assert_eq!(finish(&stage, run).await["status"], "completed");
    assert_eq!(source.versions(), ["1+a"]);
}

#[tokio::test(start_paused = true)]
async fn a_disabled_tool_is_called_by_nobody() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let stage = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let run = waiting(&stage, &asks_first()).await;
    source.disable("desk", "it deletes tickets");
    reload_tools(&stage.flow).await.unwrap();
    let ended = finish(&stage, run).await;
    assert_eq!(ended["error"]["code"], "TOOL_UNAVAILABLE");
    assert!(ended["error"]["message"].as_str().unwrap().contains("it deletes tickets"), "{ended:#}");
    let refused = flow::start(&stage.flow, &stage.permit("user_ann"), StartRun::of("w", json!({}))).await;
    assert_eq!(code_of(refused), "VALIDATION_FAILED");
    assert!(source.calls().is_empty());
}

/// ADR 9: an approval is bound to what would run.
#[tokio::test(start_paused = true)]
async fn an_approval_requested_before_a_reload_releases_exactly_what_was_shown() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let first = stage(1).declared_by(Arc::new(source.clone())).open().await;
    for (level, count) in [(Level::Ask, 1), (Level::Draft, 2)] {
        let run = first.run(&workflow("one").function("a", "desk", json!({})), level).await;
        first.status(run, "awaiting_approval").await;
        let before = first.show(run).await["approvals"].clone();
        changed(&first, &source, &format!("1+b{count}")).await;
        assert_eq!(first.show(run).await["approvals"], before, "the request stands");
        assert_eq!(finish(&first, run).await["status"], "completed");
        let called = source.calls();
        assert_eq!(called.len(), count);
        let shown = &before[0]["data"];
        let shown = shown["tool_version"].as_str().or(shown["plan"]["steps"][0]["tool_version"].as_str());
        if let Some(shown) = shown {
            assert_eq!(called[count - 1].version, shown);
        }
        assert_ne!(called[count - 1].version, format!("1+b{count}"), "what was approved is what runs");
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_outlived_a_restart_and_a_reload_releases_what_was_shown() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let first = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let run = first.run(&workflow("one").function("a", "desk", json!({})), Level::Ask).await;
    first.status(run, "awaiting_approval").await;
    let elsewhere = source.elsewhere().with("desk", "1+b");
    let second = first.restart(stage(1).declared_by(Arc::new(elsewhere))).await;
    assert_eq!(finish(&second, run).await["status"], "completed");
    assert_eq!(source.versions(), ["1+a"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_undone_by_the_definition_that_made_it() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let first = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let run = first.run(&workflow("one").function("a", "desk", json!({})), SILENT).await;
    first.ended(run).await;
    let elsewhere = source.elsewhere().with("desk", "1+b");
    let second = first.restart(stage(1).declared_by(Arc::new(elsewhere))).await;
    flow::rollback(&second.flow, &second.permit("user_ann"), run, None, None).await.unwrap();
    second.until(run, |shown| shown["rollback"]["ended"] == true).await;
    let calls: Vec<_> = source.calls().into_iter().map(|call| (call.kind, call.version)).collect();
    assert_eq!(calls, [("execute", "1+a".to_owned()), ("rollback", "1+a".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn the_tools_of_child_workflows_are_fixed_with_the_run() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let stage = stage(1).declared_by(Arc::new(source.clone())).open().await;
    stage.apply(&workflow("child").function("a", "desk", json!({}))).await;
    let air = workflow("w")
        .node(json!({"id": "ask", "type": "hitl", "prompt": "now?"}))
        .node(json!({"id": "sub", "type": "workflow", "workflow_id": "child"}))
        .edge("ask", "sub");
    let run = waiting(&stage, &air).await;
    changed(&stage, &source, "1+b").await;
    assert_eq!(finish(&stage, run).await["status"], "completed");
    assert_eq!(source.versions(), ["1+a"]);
}

/// No call of half a definition: every run calls one version, the one that it is pinned to.
#[tokio::test(start_paused = true)]
async fn under_load_every_run_sees_one_set_of_tools() {
    let source = ScriptedSource::default().with("desk", "1+0").with("chat", "1+0");
    let stage = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let air = workflow("two").function("a", "desk", json!({})).function("b", "chat", json!({})).edge("a", "b");
    stage.apply(&air).await;
    let mut runs = Vec::new();
    for round in 1..=20 {
        for _ in 0..5 {
            let started = flow::start(&stage.flow, &stage.permit("user_ann"), StartRun::of("two", json!({}))).await;
            runs.push(started.unwrap().run_id);
        }
        source.declare(None, "desk", &format!("1+{round}"));
        source.declare(None, "chat", &format!("1+{round}"));
        reload_tools(&stage.flow).await.unwrap();
    }
    for run in &runs {
        assert_eq!(stage.ended(*run).await["status"], "completed");
    }
    let calls = source.calls();
    assert_eq!(calls.len(), runs.len() * 2);
    for run in runs {
        let versions: Vec<&str> =
            calls.iter().filter(|call| call.run == run).map(|call| call.version.as_str()).collect();
        assert!(versions.len() == 2 && versions[0] == versions[1], "{versions:?}");
    }
}

/// The entries about tools, in order.
fn entries(fixture: &EngineFixture) -> Vec<String> {
    let entries = fixture.records.list::<EntryRow>().into_iter();
    entries.map(|entry| entry.event_type).filter(|kind| kind.starts_with("tool.")).collect()
}

#[tokio::test(start_paused = true)]
async fn every_change_is_in_the_ledger_once_although_two_nodes_notice_it() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let one = stage(1).shared().declared_by(Arc::new(source.clone())).open().await;
    let other_source = source.elsewhere().with("desk", "1+a");
    let setup = stage(2).shared().declared_by(Arc::new(other_source.clone()));
    let other = setup.open_on(Arc::clone(&one.records)).await;
    for version in ["1+b", "1+a"] {
        source.declare(None, "desk", version);
        other_source.declare(None, "desk", version);
        reload_tools(&one.flow).await.unwrap();
        reload_tools(&other.flow).await.unwrap();
    }
    source.remove(None, "desk");
    other_source.remove(None, "desk");
    let (first, second) = tokio::join!(reload_tools(&one.flow), reload_tools(&other.flow));
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(entries(&one), ["tool.added", "tool.changed", "tool.changed", "tool.removed"]);
    let select = ToolDefinitionRow::select(Scope::System).with(tool_definitions::name, "desk");
    assert_eq!(one.records.read(select).await.unwrap().rows.len(), 2);
}

/// Acme is the default tenant; the other has a tool of its own and nothing is shared with it.
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
async fn a_tenants_own_tool_is_seen_and_called_there_alone() {
    let source = ScriptedSource::default().with("desk", "1+a");
    source.declare(Some("other"), "tenant.desk", "1+o");
    source.declare(Some("nobody"), "tenant.desk", "1+n");
    let stage = stage(1).tenancy(Arc::new(Two)).declared_by(Arc::new(source.clone())).open().await;
    let reloaded = reload_tools(&stage.flow).await.unwrap();
    assert!(reloaded.problems.iter().any(|problem| problem.reason == "there is no tenant nobody"));
    let names = |tenant: &str| {
        let tools = flow::list_tools(&stage.flow, &stage.permit_of(tenant, "user_ann"));
        let declared = tools.into_iter().filter(|tool| tool.name.contains("desk"));
        declared.map(|tool| (tool.name, tool.version)).collect::<Vec<_>>()
    };
    assert_eq!(names("acme"), [("desk".to_owned(), "1+a".to_owned())]);
    assert_eq!(names("other"), [("tenant.desk".to_owned(), "1+o".to_owned())]);
    let air = workflow("own").function("a", "tenant.desk", json!({}));
    let refused = stage.flow.workflows().apply(&stage.permit("user_ann"), "own", &air.document().to_string()).await;
    assert_eq!(code_of(refused), "VALIDATION_FAILED");
    let guest = stage.permit_of("other", "user_bob");
    stage.flow.workflows().apply(&guest, "own", &air.document().to_string()).await.unwrap();
    let run =
        flow::start(&stage.flow, &guest, StartRun { level: SILENT, ..StartRun::of("own", json!({})) }).await.unwrap();
    let mut progress = run.progress;
    progress.wait_for(|progress| progress.ended.is_some()).await.unwrap();
    let calls: Vec<_> = source.calls().into_iter().map(|call| (call.tenant, call.version)).collect();
    assert_eq!(calls, [("other".to_owned(), "1+o".to_owned())]);
}

/// The run did not begin with the tool of the patch, so the newest definition is the one that it would call.
#[tokio::test(start_paused = true)]
async fn an_approval_of_a_patch_is_stale_once_its_tool_has_changed() {
    let source = ScriptedSource::default().with("desk", "1+a");
    let stage = stage(1).declared_by(Arc::new(source.clone())).open().await;
    let air = workflow("w").node(json!({"id": "ask", "type": "hitl", "prompt": "now?"}));
    let run = stage.run(&air, Level::Draft).await;
    stage.status(run, "awaiting_approval").await;
    stage.approve("user_ann", run).await;
    stage.step(run, "ask", "awaiting_approval").await;
    let node = json!({"id": "x", "type": "function", "fn": "desk", "inputs": {"n": 1}});
    let document = json!({
        "patch_version": "0.1", "justification": "more", "add_nodes": [node],
        "add_edges": [{"from": "ask", "to": "x"}],
    });
    flow::patch(&stage.flow, &stage.permit("user_ann"), PatchRequest::new(run, document)).await.unwrap();
    let of_patch = |shown: &Value| {
        let all = shown["approvals"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|asked| asked["action_type"] == "graph.patch")
    };
    let shown = stage.until(run, |shown| of_patch(shown).is_some()).await;
    changed(&stage, &source, "1+b").await;
    let stale = stage.decide("user_ann", run, Decision::Approve, of_patch(&shown).as_ref()).await;
    assert_eq!(code_of(stale), "STALE_APPROVAL");
    let renewed = stage.until(run, |now| of_patch(now).is_some_and(|asked| Some(asked) != of_patch(&shown))).await;
    stage.decide("user_ann", run, Decision::Approve, of_patch(&renewed).as_ref()).await.unwrap();
    finish(&stage, run).await;
    assert_eq!(source.versions(), ["1+b"]);
}
