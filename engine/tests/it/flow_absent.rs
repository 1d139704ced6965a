//! Runs whose tool is no longer configured: they can be viewed and stopped, and calls of the missing tool fail.

use chimera_core::access::Level;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::tool::{EffectKind, Rollback};
use chimera_engine::EngineError;
use chimera_engine::flow::{self, OutcomeReport, ReplayOptions, StartRun};
use chimera_testkit::flow::{Air, EngineFixture, EngineSetup, ScriptedTool, code_of, id_of, stage, workflow};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// A process with the tool `gone`, whose calls can be undone.
fn with_gone() -> EngineSetup {
    let tool =
        ScriptedTool::new("gone", EffectKind::Write).with_declaration(|tool| tool.rollback = Rollback::Repeatable);
    stage(1).tool(tool.build())
}

/// `gone` is called after an approval.
fn asks_first() -> Air {
    workflow("w")
        .node(json!({"id": "ask", "type": "hitl", "prompt": "now?"}))
        .function("a", "gone", json!({"n": 1}))
        .edge("ask", "a")
}

/// Starts a run while the tool exists, and continues without it.
async fn start_then_remove_tool(air: &Air) -> (EngineFixture, Uuid) {
    let first = with_gone().open().await;
    let run = first.run(air, SILENT).await;
    first.status(run, "awaiting_approval").await;
    (first.restart(stage(1)).await, run)
}

async fn retry(stage: &EngineFixture, of: Uuid) -> Result<Uuid, EngineError> {
    let replay = Replay { of, mode: ReplayMode::Retry, from: None };
    Ok(flow::replay(&stage.flow, &stage.permit("user_ann"), replay, ReplayOptions::default()).await?.run_id)
}

/// The step of a node.
async fn node(stage: &EngineFixture, run: Uuid, id: &str) -> Value {
    let steps = stage.steps(run).await;
    steps.as_array().unwrap().iter().find(|step| step["node_id"] == id).unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_tool_is_gone_is_shown_and_can_be_cancelled() {
    let (stage, run) = start_then_remove_tool(&asks_first()).await;
    let shown = stage.show(run).await;
    assert_eq!((&shown["status"], &shown["plan"]["steps"][0]["tool"]), (&json!("awaiting_approval"), &json!("gone")));
    assert_eq!(node(&stage, run, "a").await["tool"], "gone");
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_tool_is_gone_fails_when_its_turn_comes() {
    let (stage, run) = start_then_remove_tool(&asks_first()).await;
    stage.approve("user_ann", run).await;
    let shown = stage.ended(run).await;
    assert_eq!(
        (&shown["status"], &shown["error"]["code"]),
        (&json!("failed"), &json!("TOOL_UNAVAILABLE")),
        "{shown:#}"
    );
    let step = node(&stage, run, "a").await;
    assert_eq!((&step["status"], &step["tool_calls"]), (&json!("failed"), &json!([])), "nothing was sent");
    let back = stage.restart(with_gone()).await;
    let again = retry(&back, run).await.unwrap();
    back.approve("user_ann", again).await;
    assert_eq!(back.ended(again).await["status"], "completed");
}

/// A cached output would only be looked up if the tool could be called.
#[tokio::test(start_paused = true)]
async fn a_node_that_keeps_the_answers_of_a_tool_that_is_gone_can_be_read() {
    let first = stage(1).tool(ScriptedTool::new("gone", EffectKind::Read).build()).open().await;
    let air = asks_first().with_node_member("cache", json!({"ttl_seconds": 60}));
    let run = first.run(&air, SILENT).await;
    first.status(run, "awaiting_approval").await;
    let second = first.restart(stage(1)).await;
    second.approve("user_ann", run).await;
    assert_eq!(second.ended(run).await["error"]["code"], "TOOL_UNAVAILABLE");
}

#[tokio::test(start_paused = true)]
async fn nothing_can_be_applied_started_or_repeated_with_a_tool_that_is_gone() {
    let (stage, run) = start_then_remove_tool(&asks_first()).await;
    let ann = stage.permit("user_ann");
    let text = asks_first().document().to_string();
    assert_eq!(code_of(stage.flow.workflows().apply(&ann, "w", &text).await), "VALIDATION_FAILED");
    assert_eq!(code_of(flow::start(&stage.flow, &ann, StartRun::of("w", json!({}))).await), "VALIDATION_FAILED");
    flow::cancel(&stage.flow, &ann, run, None).await.unwrap();
    stage.ended(run).await;
    assert_eq!(code_of(retry(&stage, run).await), "VALIDATION_FAILED");
}

/// Its effect is unknown, so the worst is assumed.
#[tokio::test(start_paused = true)]
async fn a_call_that_a_crash_cut_is_in_doubt_when_its_tool_is_gone() {
    let tool = ScriptedTool::new("gone", EffectKind::Read).with_delay(|_| Duration::from_secs(3_600));
    let asked = tool.asked();
    let first = stage(1).tool(tool.build()).open().await;
    let run = first.run(&workflow("w").function("a", "gone", json!({})), SILENT).await;
    chimera_testkit::flow::until("the tool is called", || asked.count("execute") == 1).await;
    let second = first.restart(stage(1)).await;
    let step = id_of(&second.step(run, "a", "outcome_unknown").await["step_id"]);
    flow::report_outcome(&second.flow, &second.permit("user_ann"), run, OutcomeReport::happened(step, Some(json!({}))))
        .await
        .unwrap();
    assert_eq!(second.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_leaves_what_a_tool_did_that_is_gone_and_says_why() {
    let first = with_gone().open().await;
    let run = first.run(&workflow("w").function("a", "gone", json!({})), SILENT).await;
    assert_eq!(first.ended(run).await["status"], "completed");
    let second = first.restart(stage(1)).await;
    flow::rollback(&second.flow, &second.permit("user_ann"), run, None, None).await.unwrap();
    let shown = second.until(run, |shown| shown["rollback"]["ended"] == true).await;
    assert_eq!(shown["rollback"]["left"][0]["reason"], "the tool gone is not configured in this process", "{shown:#}");
}
