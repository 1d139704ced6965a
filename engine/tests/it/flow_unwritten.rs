//! Turns that can't be stored: responses from outside are kept, and nothing is retried forever.

use crate::work::{by_workers, claim, complete, start};
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::tables::{EFFECTS, RUN_SIGNALS, TOOL_CALLS, tool_calls};
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::limits;
use chimera_core::record::Tx;
use chimera_core::tool::{EffectKind, Rollback};
use chimera_engine::commit::BatchOutcome;
use chimera_engine::flow;
use chimera_engine::flow::port::ToolError;
use chimera_engine::port::{Outage, Unavailable};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, ScriptedTool, chain, stage, until, workflow};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const SILENT: Level = Level::ExecuteSilent;

/// Refuses every transaction that matches, until it is switched off.
fn refuse(stage: &EngineFixture, refused: impl Fn(&Tx) -> bool + Send + 'static) -> Arc<AtomicBool> {
    let refuses = Arc::new(AtomicBool::new(true));
    let on = Arc::clone(&refuses);
    stage.records.inject_batch_fault(Box::new(move |batch| {
        let hit = on.load(Ordering::SeqCst) && batch.txs.iter().any(&refused);
        hit.then(|| BatchOutcome::Refused("a rule of the database".to_owned()))
    }));
    refuses
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_leaves_many_steps_ends_and_can_be_finished_by_hand() {
    let stage = stage(1).tool(
        ScriptedTool::new("post", EffectKind::Write)
            .with_declaration(|tool| tool.rollback = Rollback::Unsupported)
            .build(),
    );
    let stage = stage.open().await;
    let list: Vec<usize> = (0..600).collect();
    let air = workflow("w").map("m", json!("${inputs.list}"), "post", json!({"n": "${item}"})).in_parallel(50);
    let run = stage.run_with(&air, SILENT, json!({"list": list})).await;
    stage.ended(run).await;
    let ann = stage.permit("user_ann");
    flow::rollback(&stage.flow, &ann, run, None, None).await.unwrap();
    let shown = stage.until(run, |shown| shown["rollback"]["ended"] == true).await;
    assert_eq!(shown["rollback"]["left"].as_array().unwrap().len(), 600);
    let entries = stage.rows(&AUDIT_LOG_ENTRIES);
    let ended = entries.iter().find(|entry| entry.text("event_type") == "run.rollback_ended").expect("an entry");
    let data = ended.get("data_json").as_json().unwrap().value().unwrap();
    assert_eq!(data["left_count"], 600);
    assert!(data["left"].as_array().unwrap().len() < 600);
    flow::mark_rolled_back(&stage.flow, &ann, run, None).await.unwrap();
    stage.status(run, "rolled_back").await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_when_the_step_behind_it_fails_with_more_words_than_an_entry_takes() {
    let post = ScriptedTool::new("post", EffectKind::Write).answers(|_, _| Ok(json!({"id": 7})));
    let asked = post.asked();
    let stage = stage(1).tool(post.build()).open().await;
    let air = workflow("w")
        .function("a", "post", json!({}))
        .function("b", "pure", json!({"v": "${nodes.a.outputs[inputs.t]}"}))
        .edge("a", "b");
    let run = stage.run_with(&air, SILENT, json!({"t": "x".repeat(100_000)})).await;
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("VALIDATION_FAILED")));
    assert!(shown["error"]["message"].as_str().unwrap().chars().count() <= limits::ERROR_MESSAGE_CHARS_MAX + 1);
    assert_eq!(stage.step(run, "a", "completed").await["outputs"]["id"], 7);
    assert_eq!((stage.rows_of(&EFFECTS, run)[0].text("status"), asked.count("execute")), ("succeeded", 1));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_stays_certain_whatever_characters_it_is_told_with() {
    let mail = ScriptedTool::new("mail", EffectKind::Write)
        .answers(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "550 no su\0ch user").with("a\0", "\0")));
    let stage = stage(1).tool(mail.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "mail")]), SILENT).await;
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["message"]), (&json!("failed"), &json!("550 no su\u{fffd}ch user")));
    assert_eq!(stage.rows_of(&EFFECTS, run)[0].text("status"), "failed");
}

#[tokio::test(start_paused = true)]
async fn an_expression_with_a_character_that_no_store_takes_is_refused_when_it_is_applied() {
    let stage = stage(1).tool(ScriptedTool::new("look", EffectKind::Read).build()).open().await;
    let begin = |id: &str| workflow(id).function("a", "look", json!({}));
    let condition =
        begin("condition").function("b", "pure", json!({})).edge_if("a", "b", r"${nodes.a.outputs['q\u0000'] == true}");
    let prompt = begin("prompt").node(json!({"id": "h", "type": "hitl", "prompt": r"hi ${'\u0000'}"}));
    let list = begin("list").map("m", json!(r"${['\u0000']}"), "pure", json!({}));
    for air in [condition, prompt, list] {
        let text = air.document().to_string();
        let refused = stage.flow.workflows().apply(&stage.permit("user_ann"), &air.id(), &text).await.unwrap_err();
        assert_eq!(refused.body().code, Code::ValidationFailed.as_str());
        assert!(json!(refused.body()).to_string().contains("U+0000"), "{:?}", refused.body());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_turns_are_refused_fails_with_what_its_calls_gave() {
    let post = ScriptedTool::new("post", EffectKind::Write)
        .answers(|_, _| Ok(json!({"id": 7})))
        .with_delay(|_| Duration::from_secs(5));
    let slow = ScriptedTool::new("slow", EffectKind::Write).with_delay(|_| Duration::from_secs(20));
    let (posted, waited) = (post.asked(), slow.asked());
    let stage = stage(1).tool(post.build()).tool(slow.build()).open().await;
    let air = workflow("w")
        .function("a", "post", json!({}))
        .function("b", "slow", json!({}))
        .function("c", "post", json!({}))
        .edge("a", "c");
    let run = stage.run(&air, SILENT).await;
    until("both are sent", || posted.count("execute") + waited.count("execute") == 2).await;
    // Every turn that would send another call is refused.
    refuse(&stage, |tx| tx.inserts.iter().any(|row| row.table == &EFFECTS));
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("INTERNAL")));
    assert_eq!(stage.step(run, "a", "completed").await["outputs"]["id"], 7);
    stage.step(run, "b", "completed").await;
    assert_eq!((posted.count("execute"), waited.count("execute")), (1, 1));
    assert!(stage.rows_of(&EFFECTS, run).iter().all(|effect| effect.text("status") == "succeeded"));
}

/// A missing privilege is an outage of the store: however long it lasts, what the run could not store is kept.
#[tokio::test(start_paused = true)]
async fn a_run_outlasts_a_store_that_lacks_a_right_and_goes_on_with_what_its_calls_gave() {
    let post = ScriptedTool::new("post", EffectKind::Write)
        .answers(|_, _| Ok(json!({"id": 7})))
        .with_delay(|_| Duration::from_secs(5));
    let asked = post.asked();
    let stage = stage(1).tool(post.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "post"), ("b", "post")]), SILENT).await;
    until("it is sent", || asked.count("execute") == 1).await;
    let lacks = Arc::new(AtomicBool::new(true));
    let on = Arc::clone(&lacks);
    stage.records.inject_batch_fault(Box::new(move |batch| {
        let effects = |tx: &Tx| tx.updates.iter().any(|row| row.table == &EFFECTS);
        let hit = on.load(Ordering::SeqCst) && batch.txs.iter().any(effects);
        hit.then(|| BatchOutcome::Lacking(Unavailable::new(Outage::Unusable, "permission denied for table effects")))
    }));
    stage.pass(Duration::from_secs(120)).await;
    assert_eq!(
        (stage.flow.active_runs(), asked.count("execute")),
        (1, 1),
        "it keeps the answer and sends nothing more"
    );
    lacks.store(false, Ordering::SeqCst);
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]), (&json!("completed"), &json!(null)));
    assert_eq!(stage.step(run, "a", "completed").await["outputs"]["id"], 7);
    assert_eq!(asked.count("execute"), 2);
}

/// Turns that succeed on the way to the refused one must not make the run retry forever.
#[tokio::test(start_paused = true)]
async fn a_run_that_looks_for_a_recorded_output_before_each_refused_turn_fails_all_the_same() {
    let look = ScriptedTool::new("look", EffectKind::Read);
    let asked = look.asked();
    let stage = stage(1).tool(look.build()).open().await;
    let air = chain("w", &[("a", "look")])
        .with_node_member("delay_seconds", json!(2))
        .with_node_member("cache", json!({"ttl_seconds": 60}));
    let run = stage.run(&air, SILENT).await;
    refuse(&stage, |tx| tx.inserts.iter().any(|row| row.table == &TOOL_CALLS));
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("INTERNAL")));
    assert!(asked.count("execute") <= 2, "{}", asked.count("execute"));
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_was_answered_is_not_in_doubt_when_the_turn_behind_it_is_refused() {
    let post = ScriptedTool::new("post", EffectKind::Write).with_declaration(|tool| tool.rollback = Rollback::Once);
    let asked = post.asked();
    let stage = stage(1).tool(post.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "post"), ("b", "post")]), SILENT).await;
    stage.ended(run).await;
    // The turn that handles the first response and sends the second undo.
    refuse(&stage, |tx| {
        let settles = tx.updates.iter().any(|row| row.table == &EFFECTS);
        settles && tx.inserts.iter().any(|row| row.table == &EFFECTS)
    });
    flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
    let shown = stage.until(run, |shown| shown["rollback"]["ended"] == true).await;
    assert_eq!((shown["rollback"]["undone"][0]["node"].as_str(), asked.count("rollback")), (Some("b"), 1));
    assert_eq!(shown["rollback"]["left"][0]["node"], "a", "{shown}");
    assert_eq!(shown["doubts"], json!([]));
}

/// If the store refuses everything, the run waits with the response, without retrying all the time.
#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_a_store_that_takes_not_even_the_end_of_the_run() {
    let post = ScriptedTool::new("post", EffectKind::Write)
        .answers(|_, _| Ok(json!({"id": 7})))
        .with_delay(|_| Duration::from_secs(5));
    let asked = post.asked();
    let stage = stage(1).tool(post.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "post")]), SILENT).await;
    until("it is sent", || asked.count("execute") == 1).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let refuses = refuse(&stage, move |tx| {
        let settles = tx.updates.iter().any(|row| row.table == &EFFECTS);
        counted.fetch_add(usize::from(settles), Ordering::SeqCst);
        settles
    });
    stage.pass(Duration::from_secs(3_600)).await;
    assert!((3..100).contains(&tries.load(Ordering::SeqCst)), "{tries:?}");
    refuses.store(false, Ordering::SeqCst);
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("INTERNAL")));
    assert_eq!(stage.step(run, "a", "completed").await["outputs"]["id"], 7);
    assert_eq!((stage.rows_of(&EFFECTS, run)[0].text("status"), asked.count("execute")), ("succeeded", 1));
}

/// A signal can be what the store refuses. It is consumed in the end, so that the run and its other branches are not
/// held by it.
#[tokio::test(start_paused = true)]
async fn a_signal_that_can_not_be_stored_is_consumed_in_the_end() {
    let stage = by_workers().open().await;
    let run = start(&stage, "look").await;
    let claimed = claim(&stage).await;
    // Whatever applies the report is refused.
    refuse(&stage, |tx| {
        let mut calls = tx.updates.iter().filter(|update| update.table == &TOOL_CALLS);
        calls.any(|call| call.set.iter().any(|(column, _)| TOOL_CALLS.columns[*column].name == tool_calls::tool_output))
    });
    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    stage.pass(limits::RUN_WRITE_FAILED_PAUSE + Duration::from_secs(10)).await;
    assert!(stage.rows(&RUN_SIGNALS).is_empty(), "the report waits for ever");
    let events = stage.events(run).await;
    assert!(events.iter().any(|event| event == "run.signal_ignored"), "{events:?}");
}
