//! Retries, delays, and timeouts of nodes and runs.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::tables::{EFFECTS, TOOL_CALLS};
use chimera_core::tool::EffectKind;
use chimera_engine::flow;
use chimera_engine::flow::port::{CheckResult, ToolError};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, RecordedCall, ScriptedTool, chain, shown, stage, until, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SILENT: Level = Level::ExecuteSilent;

fn one(tool: &str) -> Air {
    workflow("w").function("a", tool, json!({"to": "ops"}))
}

/// The delays between attempts, in milliseconds.
fn waits(made: &[RecordedCall]) -> Vec<u128> {
    made.windows(2).map(|pair| (pair[1].at - pair[0].at).as_millis()).collect()
}

/// CONTENT-143, CONTENT-144, CONTENT-147
#[tokio::test(start_paused = true)]
async fn a_call_that_always_fails_is_tried_four_times_and_then_no_more() {
    for reach in [EffectKind::Pure, EffectKind::Read, EffectKind::Write] {
        let tool = ScriptedTool::new("down", reach).failing_at(&[1, 2, 3, 4, 5, 6]);
        let asked = tool.asked();
        let stage = stage(3).tool(tool.build()).open().await;
        let run = stage.run(&one("down"), SILENT).await;
        let shown = stage.ended(run).await;
        assert_eq!((&shown["status"], &shown["error_message"]), (&json!("failed"), &json!("not now")));
        let waits = waits(&asked.all());
        assert_eq!(waits.len(), 3);
        for (wait, base) in waits.iter().zip([1_000, 2_000, 4_000]) {
            assert!((base * 8 / 10..=base * 12 / 10 + 2).contains(wait), "{reach:?}: {waits:?}");
        }
    }
}

/// CONTENT-142
#[tokio::test(start_paused = true)]
async fn an_error_that_is_not_retryable_is_final_at_once() {
    let tool = ScriptedTool::new("no", EffectKind::Read)
        .answers(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "never")));
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("no"), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "failed");
    assert_eq!(asked.count("execute"), 1);
}

/// CONTENT-145
#[tokio::test(start_paused = true)]
async fn the_other_side_may_ask_for_a_longer_wait_and_not_for_a_shorter_one() {
    for (asks, least) in [(60, 60_000), (1, 1_600)] {
        let tool = ScriptedTool::new("busy", EffectKind::Read).answers(move |ctx, _| match ctx.attempt {
            1 | 2 => Err(ToolError::not_sent(Code::RateLimited, "slow down").retry_after(asks)),
            _ => Ok(json!({})),
        });
        let asked = tool.asked();
        let stage = stage(1).tool(tool.build()).open().await;
        let run = stage.run(&one("busy"), SILENT).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        let second = waits(&asked.all())[1];
        assert!(second >= least && second <= least.max(2_400) + 1_100, "{second}");
    }
}

/// CONTENT-148, CORE-120
#[tokio::test(start_paused = true)]
async fn every_try_has_the_same_effect_and_key_and_a_call_row_of_its_own() {
    let tool = ScriptedTool::new("mail", EffectKind::Write).failing_at(&[1, 2]);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("mail"), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let made = asked.of("execute");
    assert_eq!(made.iter().map(|made| made.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(made.iter().all(|one| (one.effect, &one.key) == (made[0].effect, &made[0].key)));
    let effects = stage.rows_of(&EFFECTS, run);
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0].uuid("id"), made[0].effect);
    assert_eq!((effects[0].text("status"), effects[0].text("idempotency_key")), ("succeeded", made[0].key.as_str()));
    let mut calls = stage.rows_of(&TOOL_CALLS, run);
    calls.sort_by_key(|row| row.int("attempt"));
    let outcomes: Vec<_> = calls.iter().map(|row| (row.int("attempt"), row.text("outcome"))).collect();
    assert_eq!(outcomes, [(1, "failed"), (2, "failed"), (3, "succeeded")]);
    assert!(calls.iter().all(|row| row.text("idempotency_key") == made[0].key));
}

/// CONTENT-146
#[tokio::test(start_paused = true)]
async fn each_retry_is_told_with_its_number_and_its_delay() {
    let tool = ScriptedTool::new("mail", EffectKind::Write).failing_at(&[1]);
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("mail"), SILENT).await;
    stage.ended(run).await;
    let events = flow::events(&stage.flow, &stage.permit("admin"), run, 0, 100).await.unwrap();
    let retry = shown(events.iter().find(|event| event.event_type == "step.retry_scheduled").unwrap());
    assert_eq!(retry["data"]["attempt"], 1);
    assert!((800..=1_200).contains(&retry["data"]["delay_ms"].as_i64().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_node_may_ask_for_fewer_tries() {
    for max in [0, 1, 3] {
        let tool = ScriptedTool::new("down", EffectKind::Read).failing_at(&[1, 2, 3, 4]);
        let asked = tool.asked();
        let stage = stage(1).tool(tool.build()).open().await;
        let run = stage.run(&one("down").with_node_member("retry", json!({"max": max})), SILENT).await;
        assert_eq!(stage.ended(run).await["status"], "failed");
        assert_eq!(asked.count("execute"), max + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_waited_before_the_node_starts_and_outlives_the_process() {
    let mark = ScriptedTool::new("mark", EffectKind::Read);
    let (asked, began) = (mark.asked(), tokio::time::Instant::now());
    let mark = mark.build();
    let air = chain("w", &[("a", "pure"), ("b", "mark")]).with_node_member("delay_seconds", json!(3_600));
    let first = stage(1).tool(Arc::clone(&mark)).open().await;
    let run = first.run(&air, SILENT).await;
    first.step(run, "b", "pending").await;
    assert_eq!(first.flow.active_runs(), 0, "a run that waits is not kept in memory");
    let second = first.restart(stage(1).tool(mark)).await;
    assert_eq!(second.ended(run).await["status"], "completed");
    let waited = (asked.all()[0].at - began).as_secs();
    assert!((3_600..3_603).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_try_that_takes_too_long_is_dropped_and_tried_again() {
    let tool = ScriptedTool::new("slow", EffectKind::Read).on_execute(|ctx, _| async move {
        if ctx.attempt == 1 {
            std::future::pending::<()>().await;
        }
        Ok(json!({"left": ctx.time_left.as_secs()}))
    });
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("slow").with_node_member("timeout_seconds", json!(9)), SILENT).await;
    assert_eq!(stage.ended(run).await["result"]["a"]["left"], 9);
    let waited = waits(&asked.all())[0];
    assert!((9_800..=10_250).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_never_answers_is_left_to_a_person() {
    let tool = ScriptedTool::new("mail", EffectKind::Write).on_execute(|_, _| std::future::pending());
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("mail").with_node_member("timeout_seconds", json!(2)), SILENT).await;
    stage.step(run, "a", "outcome_unknown").await;
    assert_eq!(asked.count("execute"), 1);
    assert_eq!(stage.rows_of(&EFFECTS, run)[0].text("status"), "unknown");
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_write_is_sent_again_and_left_to_a_person_when_no_try_is_left() {
    let lost = |_: &_, _: &Value| Err(ToolError::maybe_sent(Code::ExternalServiceUnavailable, "the answer was lost"));
    let tool = ScriptedTool::new("put", EffectKind::Write)
        .with_declaration(|tool| tool.metadata.idempotent = true)
        .answers(lost);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("put"), SILENT).await;
    stage.step(run, "a", "outcome_unknown").await;
    assert_eq!(asked.count("execute"), 4, "it may have happened, so nobody calls it failed");
}

#[tokio::test(start_paused = true)]
async fn a_check_that_finds_nothing_makes_the_try_a_failed_one_and_the_next_one_waits() {
    let tool = ScriptedTool::new("put", EffectKind::Write)
        .answers(|ctx, _| match ctx.attempt {
            1 | 2 => Err(ToolError::maybe_sent(Code::ExternalServiceUnavailable, "lost")),
            3 => Err(ToolError::not_sent(Code::ExternalServiceError, "not now")),
            _ => Ok(json!({})),
        })
        .on_check(|_| Ok(CheckResult::DidNotHappen));
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("put"), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let order: Vec<_> = asked.all().iter().map(|made| made.kind).collect();
    assert_eq!(order, ["execute", "check", "execute", "check", "execute", "execute"]);
    let waits = waits(&asked.of("execute"));
    assert!(waits[0] >= 800 && waits[1] >= 1_600 && waits[2] >= 3_200, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_check_that_finds_it_gives_the_output_of_the_lost_answer() {
    let tool = ScriptedTool::new("put", EffectKind::Write)
        .answers(|_, _| Err(ToolError::maybe_sent(Code::ExternalServiceUnavailable, "lost")))
        .on_check(|_| Ok(CheckResult::Happened(json!({"id": 7}))));
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("put"), SILENT).await;
    assert_eq!(stage.ended(run).await["result"]["a"]["id"], 7);
    assert_eq!((asked.count("execute"), asked.count("check")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_fails_and_its_call_is_told_to_stop() {
    let told = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&told);
    let tool = ScriptedTool::new("slow", EffectKind::Read).on_execute(move |mut ctx, _| {
        let seen = Arc::clone(&seen);
        async move {
            ctx.cancel.cancelled().await;
            seen.store(true, Ordering::SeqCst);
            Err(ToolError::not_sent(Code::Cancelled, "stopped"))
        }
    });
    let began = tokio::time::Instant::now();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&one("slow").with("timeout_seconds", json!(10)), SILENT).await;
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("REQUEST_TIMEOUT")));
    assert!(told.load(Ordering::SeqCst));
    assert_eq!(began.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn sends_that_a_crash_cost_are_no_retries() {
    let tool = ScriptedTool::new("fragile", EffectKind::Write).with_declaration(|spec| spec.metadata.idempotent = true);
    let tool = tool.on_execute(|ctx, _| async move {
        match ctx.attempt {
            1..=5 => std::future::pending().await,
            6 | 7 => Err(ToolError::not_sent(Code::ExternalServiceUnavailable, "not now")),
            _ => Ok(json!({})),
        }
    });
    let (asked, tool) = (tool.asked(), tool.build());
    let mut stage = stage(5).tool(Arc::clone(&tool)).open().await;
    let run = stage.run(&one("fragile"), SILENT).await;
    for sent in 1..=5 {
        until("the call is sent", || asked.count("execute") >= sent).await;
        stage = stage.restart(chimera_testkit::flow::stage(5).tool(Arc::clone(&tool))).await;
    }
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 8);
}
