//! Replays: frozen, as a shadow, and for real from a node on.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::flow::tables::{EFFECTS, NOTIFICATIONS, RUNS, STEPS};
use chimera_core::tool::EffectKind;
use chimera_engine::EngineError;
use chimera_engine::flow::port::ToolError;
use chimera_engine::flow::{self, ReplayOptions, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, CallLog, EngineFixture, ScriptedTool, chain, code_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

async fn replay(stage: &EngineFixture, of: Uuid, mode: ReplayMode, from: Option<&str>) -> Result<Uuid, EngineError> {
    let replay = Replay { of, mode, from: from.map(str::to_owned) };
    Ok(flow::replay(&stage.flow, &stage.permit("user_bob"), replay, ReplayOptions::default()).await?.run_id)
}

async fn again(stage: &EngineFixture, of: Uuid, mode: ReplayMode, from: Option<&str>) -> Uuid {
    replay(stage, of, mode, from).await.unwrap()
}

/// Three tools of each reach, and which of them were called.
fn tools() -> (Vec<ScriptedTool>, Vec<CallLog>) {
    let tools = vec![
        ScriptedTool::new("calc", EffectKind::Pure),
        ScriptedTool::new("fetch", EffectKind::Read),
        ScriptedTool::new("write", EffectKind::Write),
    ];
    let asked = tools.iter().map(ScriptedTool::asked).collect();
    (tools, asked)
}

fn total(asked: &[CallLog]) -> usize {
    asked.iter().map(|asked| asked.all().len()).sum()
}

/// Everything at once: tools, a person, a child, a map, a delay, a branch that failed.
fn everything() -> Air {
    workflow("all")
        .function("a", "calc", json!({"n": "${inputs.n}"}))
        .function("b", "fetch", json!({"n": "${nodes.a.outputs.echo.n}"}))
        .with_node_member("delay_seconds", json!(600))
        .node(json!({"id": "ask", "type": "hitl"}))
        .child("c", "leaf", json!({"n": 1}))
        .map("m", json!([1, 2, 3]), "write", json!({"n": "${item}"}))
        .in_parallel(2)
        .function("broken", "broken", json!({}))
        .function("d", "write", json!({"by": "${nodes.ask.outputs.approved_by}"}))
        .edge("a", "b")
        .edge("b", "ask")
        .edge("ask", "c")
        .edge("c", "m")
        .edge("m", "broken")
        .edge_if("broken", "d", "${nodes.broken.outputs.success == false}")
}

async fn all_done() -> (EngineFixture, Uuid, Vec<CallLog>) {
    let (tools, mut asked) = tools();
    let broken = ScriptedTool::new("broken", EffectKind::Write)
        .answers(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "no")));
    asked.push(broken.asked());
    let setup = tools.into_iter().fold(stage(1), |setup, tool| setup.tool(tool.build())).tool(broken.build());
    let stage = setup.open().await;
    stage.apply(&chain("leaf", &[("x", "write")])).await;
    stage.apply(&everything()).await;
    let notify = Some(json!({"webhook": "https://hooks.example/1"}));
    let run = stage.start(StartRun { notify, ..StartRun::of("all", json!({"n": 7})) }).await;
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    (stage, run, asked)
}

/// INTENT-026
#[tokio::test(start_paused = true)]
async fn a_frozen_replay_makes_no_call_and_gives_the_same() {
    let (stage, run, asked) = all_done().await;
    let (before, runs, effects) = (total(&asked), stage.rows(&RUNS).len(), stage.rows(&EFFECTS).len());
    let began = tokio::time::Instant::now();
    let frozen = again(&stage, run, ReplayMode::Freeze, None).await;
    let (first, second) = (stage.show(run).await, stage.ended(frozen).await);
    assert_eq!((&second["status"], &second["result"]), (&json!("completed"), &first["result"]));
    assert_eq!(stage.step_statuses(frozen).await, stage.step_statuses(run).await);
    assert_eq!(total(&asked), before, "nothing outside was called");
    assert_eq!((stage.rows(&RUNS).len(), stage.rows(&EFFECTS).len()), (runs + 1, effects), "no child was started");
    assert!(began.elapsed() < Duration::from_secs(1), "nothing is waited for");
    assert_eq!(stage.rows_of(&NOTIFICATIONS, run).len(), 2, "that it waited, and that it ended");
    assert!(stage.rows_of(&NOTIFICATIONS, frozen).is_empty(), "nobody is told of what did not happen");
    assert_eq!((&second["replay_of"], &second["actor"]), (&json!(run), &json!("user_bob")));
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_recording_ends_the_replay_whatever_the_graph_says() {
    let stage = stage(1).open().await;
    let air = workflow("w").node(json!({"id": "a", "type": "hitl"})).function("rescue", "again", json!({})).edge_if(
        "a",
        "rescue",
        "${nodes.a.outputs.success == false}",
    );
    let run = stage.run(&air, SILENT).await;
    stage.asks(run).await;
    let early = replay(&stage, run, ReplayMode::Freeze, None).await;
    assert_eq!(code_of(early), "INVALID_TRANSITION", "it may still come to a recording");
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    stage.ended(run).await;
    let frozen = again(&stage, run, ReplayMode::Freeze, None).await;
    let shown = stage.ended(frozen).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("NOT_RECORDED")));
    assert_eq!(shown["error"]["details"]["node"], "a");
    assert!(stage.world.outside.sent().is_empty());
}

/// A tool that returns another value each time.
fn ticket() -> ScriptedTool {
    let count = Arc::new(AtomicUsize::new(0));
    ScriptedTool::new("ticket", EffectKind::Read)
        .answers(move |_, _| Ok(json!({"ticket": count.fetch_add(1, Ordering::SeqCst)})))
}

fn shop() -> Air {
    workflow("shop")
        .function("look", "ticket", json!({}))
        .function("buy", "write", json!({"ticket": "${nodes.look.outputs.ticket}"}))
        .function("same", "pure", json!({"n": 1}))
        .edge("look", "buy")
        .edge("buy", "same")
}

#[tokio::test(start_paused = true)]
async fn a_shadow_reads_anew_writes_nothing_and_tells_the_differences() {
    let (ticket, write) = (ticket(), ScriptedTool::new("write", EffectKind::Write));
    let (looked, written) = (ticket.asked(), write.asked());
    let stage = stage(1).tool(ticket.build()).tool(write.build()).open().await;
    let run = stage.run(&shop(), SILENT).await;
    stage.ended(run).await;
    let shadow = again(&stage, run, ReplayMode::Shadow, None).await;
    let result = stage.ended(shadow).await["result"].clone();
    assert_eq!((looked.count("execute"), written.count("execute")), (2, 1));
    let found: Vec<(&Value, &Value)> =
        result["differences"].as_array().unwrap().iter().map(|line| (&line["node"], &line["what"])).collect();
    assert_eq!(found, [(&json!("look"), &json!("output")), (&json!("buy"), &json!("input"))]);
    assert_eq!(result["differences"][0]["before"]["ticket"], 0);
    assert_eq!(result["differences"][0]["after"]["ticket"], 1);
    assert!(result["result"]["same"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_fails_tells_the_differences_too() {
    let tool = ScriptedTool::new("moody", EffectKind::Read);
    let tries = Arc::new(AtomicUsize::new(0));
    let tool = tool.answers(move |_, _| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(json!({})),
        _ => Err(ToolError::not_sent(Code::ValidationFailed, "gone")),
    });
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "moody"), ("b", "pure")]), SILENT).await;
    stage.ended(run).await;
    let shadow = again(&stage, run, ReplayMode::Shadow, None).await;
    let shown = stage.ended(shadow).await;
    assert_eq!(shown["status"], "failed");
    let words: Vec<_> =
        shown["result"]["differences"].as_array().unwrap().iter().map(|line| line["what"].clone()).collect();
    assert_eq!(words, ["output", "not_reached"]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_from_a_node_keeps_what_lies_before_and_does_the_rest_under_new_keys() {
    let (ticket, write) = (ticket(), ScriptedTool::new("write", EffectKind::Write));
    let (looked, written) = (ticket.asked(), write.asked());
    let stage = stage(1).tool(ticket.build()).tool(write.build()).open().await;
    let run = stage.run(&shop(), SILENT).await;
    stage.ended(run).await;
    let retried = again(&stage, run, ReplayMode::Retry, Some("buy")).await;
    assert_eq!(stage.ended(retried).await["status"], "completed");
    assert_eq!(looked.count("execute"), 1);
    let written = written.of("execute");
    assert_eq!(written.len(), 2);
    assert_eq!(written[0].input, written[1].input, "it works on what was found before");
    assert!(written[0].key != written[1].key && written[0].effect != written[1].effect);
    assert_eq!(code_of(replay(&stage, run, ReplayMode::Retry, Some("nowhere")).await), "MALFORMED_ARGS");
}

#[tokio::test(start_paused = true)]
async fn a_retry_does_what_never_came_to_an_end_though_it_lies_elsewhere() {
    let down = ScriptedTool::new("down", EffectKind::Write).failing_at(&[1, 2, 3, 4]);
    let healed = ScriptedTool::new("down", EffectKind::Write);
    let air = workflow("w")
        .function("a", "again", json!({"n": "a"}))
        .function("b", "down", json!({}))
        .function("c", "again", json!({"n": "c"}))
        .with_node_member("delay_seconds", json!(600))
        .edge("a", "b")
        .edge("a", "c");
    let first = stage(1).tool(down.build()).open().await;
    let run = first.run(&air, SILENT).await;
    assert_eq!(first.ended(run).await["status"], "failed");
    let second = first.restart(stage(1).tool(healed.build())).await;
    let retried = again(&second, run, ReplayMode::Retry, Some("b")).await;
    assert_eq!(second.ended(retried).await["status"], "completed");
    let sent: Vec<_> = second.world.outside.sent().iter().map(|sent| sent.input["n"].clone()).collect();
    assert_eq!(sent, ["a", "c"], "what was done stays done, what was not is done");
}

#[tokio::test(start_paused = true)]
async fn a_real_retry_at_l1_is_drafted_and_approved_like_any_plan() {
    let write = ScriptedTool::new("write", EffectKind::Write);
    let asked = write.asked();
    let stage = stage(1).tool(ticket().build()).tool(write.build()).open().await;
    let run = stage.run(&shop(), Level::Draft).await;
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let retried = again(&stage, run, ReplayMode::Retry, Some("buy")).await;
    let request = stage.asks(retried).await.remove(0);
    let lines = request["action"]["plan"]["steps"].as_array().unwrap();
    assert_eq!((&lines[0]["status"], &lines[1]["input"]), (&json!("recorded"), &json!({"ticket": 0})));
    assert_eq!(asked.count("execute"), 1);
    stage.approve("user_bob", retried).await;
    assert_eq!(stage.ended(retried).await["status"], "completed");
    assert_eq!(asked.count("execute"), 2);
}

#[tokio::test(start_paused = true)]
async fn what_has_not_ended_or_was_only_dry_is_not_done_again() {
    let stage = stage(1).open().await;
    let run = stage.run(&workflow("w").node(json!({"id": "ask", "type": "hitl"})), SILENT).await;
    stage.asks(run).await;
    assert_eq!(code_of(replay(&stage, run, ReplayMode::Retry, None).await), "INVALID_TRANSITION");
    stage.apply(&chain("v", &[("a", "again")])).await;
    let dry = stage.start(StartRun { dry_run: true, ..StartRun::of("v", json!({})) }).await;
    stage.ended(dry).await;
    assert_eq!(code_of(replay(&stage, dry, ReplayMode::Retry, None).await), "INVALID_TRANSITION");
    assert_eq!(code_of(replay(&stage, Uuid::from_u128(7), ReplayMode::Freeze, None).await), "NOT_FOUND");
}

#[tokio::test(start_paused = true)]
async fn a_replay_goes_on_after_a_restart() {
    let (ticket, write) = (ticket(), ScriptedTool::new("write", EffectKind::Write));
    let written = write.asked();
    let (ticket, write) = (ticket.build(), write.build());
    let setup = || stage(1).tool(Arc::clone(&ticket)).tool(Arc::clone(&write));
    let first = setup().open().await;
    let air = workflow("asks")
        .function("look", "ticket", json!({}))
        .node(json!({"id": "ask", "type": "hitl"}))
        .function("buy", "write", json!({"ticket": "${nodes.look.outputs.ticket}"}))
        .edge("look", "ask")
        .edge("ask", "buy");
    let run = first.run(&air, SILENT).await;
    first.approve("user_ann", run).await;
    first.ended(run).await;
    let retried = again(&first, run, ReplayMode::Retry, Some("ask")).await;
    first.asks(retried).await;
    let second = first.restart(setup()).await;
    second.approve("user_ann", retried).await;
    assert_eq!(second.ended(retried).await["status"], "completed");
    assert_eq!(written.count("execute"), 2);
}

/// The nodes that a run made calls for, in order.
fn sent_by(stage: &EngineFixture, run: Uuid) -> Vec<String> {
    let own = format!("{}:", run.simple());
    let keys = stage.world.outside.sent().into_iter().map(|sent| sent.key);
    keys.filter_map(|key| key.strip_prefix(&own).map(str::to_owned)).collect()
}

async fn three(stage: &EngineFixture) -> Uuid {
    let run = stage.run(&chain("w", &[("a", "again"), ("b", "again"), ("c", "again")]), SILENT).await;
    stage.ended(run).await;
    run
}

async fn undo(stage: &EngineFixture, run: Uuid, node: Option<&str>) {
    let ann = stage.permit("user_ann");
    let steps = match node {
        Some(node) => Some(vec![flow::find_step(&stage.flow, &ann, run, node).await.unwrap()]),
        None => None,
    };
    flow::rollback(&stage.flow, &ann, run, steps, None).await.unwrap();
    stage.until(run, |run| run["rollback"]["ended"] == true).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_builds_on_nothing_that_was_undone() {
    let stage = stage(1).open().await;
    let run = three(&stage).await;
    undo(&stage, run, Some("b")).await;
    let retried = again(&stage, run, ReplayMode::Retry, Some("c")).await;
    stage.ended(retried).await;
    assert_eq!(sent_by(&stage, retried), ["b", "c"], "and what lies behind it");

    let whole = three(&stage).await;
    let taken = again(&stage, whole, ReplayMode::Retry, Some("c")).await;
    stage.ended(taken).await;
    assert_eq!(sent_by(&stage, taken), ["c"]);
    undo(&stage, whole, None).await;
    let retried = again(&stage, taken, ReplayMode::Retry, Some("c")).await;
    stage.ended(retried).await;
    assert_eq!(sent_by(&stage, retried), ["a", "b", "c"], "what it took over is gone too");

    let marked = three(&stage).await;
    undo(&stage, marked, Some("c")).await;
    flow::mark_rolled_back(&stage.flow, &stage.permit("user_ann"), marked, None).await.unwrap();
    stage.status(marked, "rolled_back").await;
    let retried = again(&stage, marked, ReplayMode::Retry, Some("c")).await;
    stage.ended(retried).await;
    assert_eq!(sent_by(&stage, retried), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_not_retried_while_it_is_undone_and_a_replay_is_neither_undone_nor_retried() {
    let stage = stage(1).open().await;
    let run = three(&stage).await;
    let ann = stage.permit("user_ann");
    let frozen = again(&stage, run, ReplayMode::Freeze, None).await;
    stage.ended(frozen).await;
    assert_eq!(code_of(flow::rollback(&stage.flow, &ann, frozen, None, None).await), "INVALID_TRANSITION");
    assert_eq!(code_of(replay(&stage, frozen, ReplayMode::Retry, None).await), "INVALID_TRANSITION");
    flow::rollback(&stage.flow, &ann, run, None, None).await.unwrap();
    assert_eq!(code_of(replay(&stage, run, ReplayMode::Retry, Some("c")).await), "INVALID_TRANSITION");
    stage.status(run, "rolled_back").await;
    assert_eq!(code_of(replay(&stage, run, ReplayMode::Retry, Some("c")).await), "none");
}

/// An approved read runs as it was approved.
#[tokio::test(start_paused = true)]
async fn a_shadow_asks_about_a_read_that_has_another_input_now() {
    let turns = AtomicUsize::new(0);
    let drifts = ScriptedTool::new("drifts", EffectKind::Read);
    let drifts = drifts.answers(move |_, _| Ok(json!({"n": turns.fetch_add(1, Ordering::SeqCst)})));
    let reads = ScriptedTool::new("reads", EffectKind::Read);
    let made = reads.asked();
    let stage = stage(1).tool(drifts.build()).tool(reads.build()).open().await;
    let first = workflow("w").function("a", "drifts", json!({}));
    let air = first.function("b", "reads", json!({"n": "${nodes.a.outputs.n}"})).edge("a", "b");
    let run = stage.run(&air, Level::Draft).await;
    stage.approve("user_ann", run).await;
    assert_eq!((stage.ended(run).await["status"].as_str(), made.count("execute")), (Some("completed"), 1));
    let replay = Replay { of: run, mode: ReplayMode::Shadow, from: None };
    let again =
        flow::replay(&stage.flow, &stage.permit("user_ann"), replay, ReplayOptions::default()).await.unwrap().run_id;
    let asked = stage.asks(again).await.remove(0);
    assert_eq!(asked["action"]["reason"], "the original run made this call with another input");
    assert_eq!((&asked["node_id"], made.count("execute")), (&json!("b"), 1));
    stage.approve("user_ann", again).await;
    assert_eq!((stage.ended(again).await["status"].as_str(), made.count("execute")), (Some("completed"), 2));
}

/// A read, in this version.
fn reads(version: &'static str) -> ScriptedTool {
    ScriptedTool::new("reads", EffectKind::Read).with_declaration(|tool| tool.version = version)
}

/// Only the tool version that was approved and made the call may repeat it.
#[tokio::test(start_paused = true)]
async fn a_shadow_asks_about_a_read_whose_tool_has_changed() {
    for (version, asks) in [("1", false), ("1+changed", true)] {
        let first = stage(1).tool(reads("1").build()).open().await;
        let run = first.run(&chain("w", &[("a", "reads")]), Level::Draft).await;
        first.approve("user_ann", run).await;
        assert_eq!(first.ended(run).await["status"], "completed");
        let tool = reads(version);
        let made = tool.asked();
        let stage = first.restart(stage(1).tool(tool.build())).await;
        let shadow = again(&stage, run, ReplayMode::Shadow, None).await;
        if asks {
            let asked = stage.asks(shadow).await.remove(0);
            assert_eq!(asked["action"]["reason"], "the original run made this call with another version of the tool");
            assert_eq!(made.count("execute"), 0);
            stage.approve("user_ann", shadow).await;
        }
        assert_eq!(stage.ended(shadow).await["status"], "completed", "{version}");
        assert_eq!(made.count("execute"), 1, "{version}");
    }
}

/// What counts is the version that made the call, not the one when its step started.
#[tokio::test(start_paused = true)]
async fn a_shadow_compares_with_the_version_that_made_the_call() {
    let air = workflow("w").function("a", "reads", json!({})).with_node_member("requires_approval", json!({}));
    let first = stage(1).tool(reads("1").build()).open().await;
    let run = first.run(&air, SILENT).await;
    let old = first.asks(run).await.remove(0);
    let second = first.restart(stage(1).tool(reads("2").build())).await;
    let stale = second.decide("user_ann", run, chimera_engine::flow::Decision::Approve, Some(&old)).await;
    assert_eq!(code_of(stale), "STALE_APPROVAL");
    second.until(run, |shown| shown["approvals"][0]["action"]["tool_version"] == "2").await;
    second.approve("user_ann", run).await;
    assert_eq!(second.ended(run).await["status"], "completed");
    assert_eq!(second.rows_of(&STEPS, run)[0].text("tool_version"), "2");
}
