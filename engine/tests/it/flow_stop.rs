//! Cancelling, pausing and resuming a run in every state.

use chimera_core::access::{Actor, Level};
use chimera_core::error::Code;
use chimera_core::flow::run::{Signal, SignalKind};
use chimera_core::flow::tables::{APPROVAL_REQUESTS, EFFECTS, RUN_SIGNALS, RUNS};
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::record::Tx;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::ToolError;
use chimera_engine::flow::{self, OutcomeReport, StartRun};
use chimera_engine::port::Records;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, ScriptedTool, chain, code_of, id_of, stage, workflow};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

async fn cancel(stage: &EngineFixture, run: Uuid) {
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, Some("enough".to_owned())).await.unwrap();
}

/// A tool that works until it is cancelled.
fn patient(name: &'static str, reach: EffectKind) -> ScriptedTool {
    ScriptedTool::new(name, reach).on_execute(|mut ctx, _| async move {
        ctx.cancel.cancelled().await;
        Err(ToolError::not_sent(Code::Cancelled, "stopped before anything was sent"))
    })
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_running_tool() {
    for reach in [EffectKind::Pure, EffectKind::Read, EffectKind::Write] {
        let tool = patient("patient", reach);
        let stage = stage(1).tool(tool.build()).open().await;
        let run = stage.run(&chain("w", &[("a", "patient"), ("b", "again")]), SILENT).await;
        let began = tokio::time::Instant::now();
        cancel(&stage, run).await;
        let shown = stage.ended(run).await;
        assert_eq!((&shown["status"], &shown["error_message"]), (&json!("cancelled"), &json!("enough")));
        assert_eq!(stage.step_statuses(run).await, "a=cancelled b=cancelled");
        assert!(began.elapsed() < Duration::from_secs(1));
        assert!(stage.world.outside.sent().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_does_not_listen_is_dropped_and_a_write_is_left_to_a_person() {
    let deaf = |name, reach| ScriptedTool::new(name, reach).on_execute(|_, _| std::future::pending());
    let stage = stage(1)
        .tool(deaf("reads", EffectKind::Read).build())
        .tool(deaf("writes", EffectKind::Write).build())
        .open()
        .await;
    let run = stage.run(&chain("r", &[("a", "reads")]), SILENT).await;
    cancel(&stage, run).await;
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    let run = stage.run(&chain("w", &[("a", "writes")]), SILENT).await;
    cancel(&stage, run).await;
    let step = stage.step(run, "a", "outcome_unknown").await;
    assert_eq!(stage.show(run).await["status"], "running", "it has not ended before somebody knows");
    let ann = stage.permit("user_ann");
    flow::report_outcome(&stage.flow, &ann, run, OutcomeReport::did_not_happen(id_of(&step["step_id"]))).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    assert_eq!(stage.rows_of(&EFFECTS, run)[0].text("status"), "failed");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_person_is_cancelled_and_its_question_is_void() {
    let stage = stage(1).open().await;
    for level in [Level::Ask, Level::Draft] {
        let run = stage.run(&chain("w", &[("a", "again")]), level).await;
        stage.asks(run).await;
        cancel(&stage, run).await;
        assert_eq!(stage.ended(run).await["status"], "cancelled");
    }
    assert!(stage.rows(&APPROVAL_REQUESTS).iter().all(|row| row.text("status") == "cancelled"));
    assert!(stage.world.outside.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_retry_or_a_delay_is_cancelled_at_once() {
    let stage =
        stage(1).tool(ScriptedTool::new("down", EffectKind::Write).failing_at(&[1, 2, 3, 4]).build()).open().await;
    let began = tokio::time::Instant::now();
    let run = stage.run(&chain("retry", &[("a", "down")]), SILENT).await;
    stage.step(run, "a", "retry_wait").await;
    cancel(&stage, run).await;
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    let run = stage.run(&chain("delay", &[("a", "again")]).with_node_member("delay_seconds", json!(600)), SILENT).await;
    stage.step(run, "a", "pending").await;
    cancel(&stage, run).await;
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_draft_is_cancelled_while_a_tool_is_asked_what_it_would_do() {
    let slow = ScriptedTool::new("slow", EffectKind::Write).with_dry_run_delay(Duration::from_secs(3));
    let asked = slow.asked();
    let stage = stage(1).tool(slow.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "slow"), ("b", "slow")]), Level::Draft).await;
    cancel(&stage, run).await;
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    assert_eq!(asked.count("dry"), 1, "nothing more is asked");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_can_not_be_cancelled_paused_or_resumed() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "pure")]), SILENT).await;
    stage.ended(run).await;
    let ann = stage.permit("user_ann");
    assert_eq!(code_of(flow::cancel(&stage.flow, &ann, run, None).await), "INVALID_TRANSITION");
    assert_eq!(code_of(flow::pause(&stage.flow, &ann, run).await), "INVALID_TRANSITION");
    assert_eq!(code_of(flow::resume(&stage.flow, &ann, run).await), "INVALID_TRANSITION");
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_ends_what_is_under_way_and_starts_nothing_until_it_is_resumed() {
    let gate = Arc::new(Notify::new());
    let open = Arc::clone(&gate);
    let tool = ScriptedTool::new("gated", EffectKind::Read).on_execute(move |_, _| {
        let open = Arc::clone(&open);
        async move {
            open.notified().await;
            Ok(json!({}))
        }
    });
    let first = stage(1).tool(tool.clone().build()).open().await;
    let run = first.run(&chain("w", &[("a", "gated"), ("b", "again")]), SILENT).await;
    let ann = first.permit("user_ann");
    flow::pause(&first.flow, &ann, run).await.unwrap();
    first.until(run, |shown| shown["paused"] == true).await;
    assert_eq!(code_of(flow::pause(&first.flow, &ann, run).await), "INVALID_TRANSITION");
    gate.notify_one();
    first.step(run, "a", "completed").await;
    first.pass(Duration::from_secs(60)).await;
    assert_eq!(first.flow.active_runs(), 0);
    assert!(first.world.outside.sent().is_empty());
    let second = first.restart(stage(1).tool(tool.build())).await;
    second.pass(Duration::from_secs(60)).await;
    assert!(second.world.outside.sent().is_empty(), "it is still paused after a restart");
    flow::resume(&second.flow, &ann, run).await.unwrap();
    assert_eq!(second.ended(run).await["status"], "completed");
    assert_eq!(second.world.outside.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_wide_run_fits_in_its_transactions() {
    let stage = stage(1).open().await;
    let air = (0..1_500).fold(workflow("wide").function("root", "pure", json!({})), |air, n| {
        let id = format!("n{n}");
        air.function(&id, "again", json!({})).with_node_member("delay_seconds", json!(600)).edge("root", &id)
    });
    let run = stage.run(&air, SILENT).await;
    stage.step(run, "n1499", "pending").await;
    cancel(&stage, run).await;
    assert_eq!(stage.ended(run).await["status"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_run_takes_in_more_than_one_turn_can_hold() {
    let stage = stage(1).open().await;
    let run = stage.run(&workflow("w").node(json!({"id": "ask", "type": "hitl"})), SILENT).await;
    stage.asks(run).await;
    let by = || Actor::person("user_ann");
    let told =
        (0..1_200).map(|n| if n % 2 == 0 { SignalKind::Pause { by: by() } } else { SignalKind::Resume { by: by() } });
    let signals = told.enumerate().map(|(n, told)| Signal::new(Uuid::from_u128(n as u128 + 1), told));
    let rows: Vec<_> = signals.map(|signal| signal.row("acme", run, stage.world.clock.now()).unwrap()).collect();
    stage.records.commit(Tx { inserts: rows, ..Tx::default() }).await.unwrap();
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert!(stage.rows(&RUN_SIGNALS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_under_way_ends_before_the_engine_does_and_is_not_in_doubt() {
    let gate = Arc::new(Notify::new());
    let opened = Arc::clone(&gate);
    let once = ScriptedTool::new("gated", EffectKind::Write).on_execute(move |_, _| {
        let gate = Arc::clone(&opened);
        async move {
            gate.notified().await;
            Ok(json!({}))
        }
    });
    let asked = once.asked();
    let first = stage(1).tool(once.build()).open().await;
    let run = first.run(&chain("w", &[("a", "gated"), ("b", "gated")]), Level::ExecuteSilent).await;
    first.step(run, "a", "running").await;
    first.flow.drain();
    let refused = flow::start(&first.flow, &first.permit("user_ann"), StartRun::of("w", json!({}))).await;
    assert_eq!(code_of(refused), "OVERLOADED", "nothing new begins");
    gate.notify_one();
    first.step(run, "a", "completed").await;
    first.pass(Duration::from_secs(60)).await;
    assert_eq!((first.flow.active_runs(), asked.count("execute")), (0, 1), "the next step waits for the next engine");

    let second = first.restart(stage(1).tool(ScriptedTool::new("gated", EffectKind::Write).build())).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_person_may_make_the_pause_of_a_service_their_own() {
    let stage = stage(1).tool(patient("slow", EffectKind::Read).build()).open().await;
    let run = stage.run(&chain("w", &[("a", "slow")]), SILENT).await;
    let (robot, ann) = (stage.permit("service_bot"), stage.permit("user_ann"));
    flow::pause(&stage.flow, &robot, run).await.unwrap();
    stage.until(run, |run| run["paused"] == true).await;
    assert_eq!(code_of(flow::pause(&stage.flow, &robot, run).await), "INVALID_TRANSITION");
    flow::pause(&stage.flow, &ann, run).await.unwrap();
    while stage.events(run).await.iter().filter(|event| *event == "run.paused").count() < 2 {
        stage.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(code_of(flow::resume(&stage.flow, &robot, run).await), "RBAC_FORBIDDEN");
    assert_eq!(code_of(flow::pause(&stage.flow, &ann, run).await), "INVALID_TRANSITION");
    flow::resume(&stage.flow, &ann, run).await.unwrap();
    stage.until(run, |run| run["paused"] == false).await;
}

/// Who cancelled a run, and why, survives a crash.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_read_again_between_its_cancel_and_its_end_names_whoever_cancelled_it() {
    let deaf = || ScriptedTool::new("writes", EffectKind::Write).on_execute(|_, _| std::future::pending());
    let first = stage(1).tool(deaf().build()).open().await;
    let run = first.run(&chain("w", &[("a", "writes")]), SILENT).await;
    cancel(&first, run).await;
    let step = first.step(run, "a", "outcome_unknown").await;
    assert_eq!(first.show(run).await["error"], json!(null), "it has not ended");
    first.flow.stop();
    let second = first.restart(stage(1).tool(deaf().build())).await;
    let bob = second.permit("user_bob");
    flow::report_outcome(&second.flow, &bob, run, OutcomeReport::did_not_happen(id_of(&step["step_id"])))
        .await
        .unwrap();
    let shown = second.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["message"]), (&json!("cancelled"), &json!("enough")));
    let entries = second.rows(&AUDIT_LOG_ENTRIES);
    let ended = entries.iter().find(|entry| entry.text("event_type") == "run.cancelled").expect("an entry");
    assert_eq!((ended.text("actor_id"), ended.text("actor_type")), ("user_ann", "human"));
    assert_eq!(ended.get("data_json").as_json().unwrap().value().unwrap()["reason"], "enough");
}

/// A run that is failing can't be resumed.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_read_again_after_its_time_was_up_fails_for_that() {
    let deaf = || ScriptedTool::new("writes", EffectKind::Write).on_execute(|_, _| std::future::pending());
    let first = stage(1).tool(deaf().build()).open().await;
    let air = chain("w", &[("a", "writes"), ("b", "writes")]).with("timeout_seconds", json!(10));
    let run = first.run(&air, SILENT).await;
    let step = first.step(run, "a", "outcome_unknown").await;
    let row = &first.rows(&RUNS)[0];
    assert_eq!(row.get("error_data").as_json().unwrap().value().unwrap()["error"]["code"], "REQUEST_TIMEOUT");
    assert_eq!(first.show(run).await["error"], json!(null));
    first.flow.stop();
    let second = first.restart(stage(1).tool(deaf().build())).await;
    let bob = second.permit("user_bob");
    flow::report_outcome(&second.flow, &bob, run, OutcomeReport::happened(id_of(&step["step_id"]), None))
        .await
        .unwrap();
    assert_eq!(second.ended(run).await["error"]["code"], "REQUEST_TIMEOUT");
}
