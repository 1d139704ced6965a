//! Resuming after a restore: nothing with side effects is sent before it is known that it was not sent already.

use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::tables::{EFFECTS, RUN_SIGNALS, RUNS};
use chimera_core::ledger::tables::STORE_STATE;
use chimera_core::record::{Insert, Tx};
use chimera_core::time::Timestamp;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::{CallContext, CheckResult, Sent, ToolError};
use chimera_engine::flow::{self, DoubtFilter, OutcomeReport, RestoreSurvey, ResumeOptions, StartRun};
use chimera_engine::port::{CommitError, Hold, Records};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{
    CallLog, EngineFixture, EngineSetup, ScriptedTool, chain, code_of, id_of, shown, stage, workflow,
};
use chimera_testkit::memory::MemoryRecords;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

fn hold() -> Hold {
    Hold { reason: "it was restored".to_owned(), since: Timestamp::from_micros(0) }
}

/// The engine stops, its store is restored as it is, and an operator resumes it.
async fn restored(stage: &EngineFixture, setup: EngineSetup) -> (EngineFixture, RestoreSurvey) {
    put_back(stage, Arc::clone(&stage.records), setup).await
}

/// The same with an earlier copy of the store.
async fn put_back(
    stage: &EngineFixture,
    records: Arc<MemoryRecords>,
    setup: EngineSetup,
) -> (EngineFixture, RestoreSurvey) {
    stage.flow.stop();
    let next = setup.world(stage.world.clone()).unkept().open_on(Arc::clone(&records)).await;
    let state = Insert::new(&STORE_STATE, vec![("id", 1.into())]).unwrap();
    // In a second restore it already exists.
    let _ = records.commit(Tx { inserts: vec![state], ..Tx::default() }).await;
    let survey = flow::survey_restored(&next.flow).await.unwrap();
    let resume = ResumeOptions { hold: &hold(), end_sign_ins: true };
    flow::resume_store(&next.flow, &next.permit("admin"), &survey, &resume).await.unwrap();
    let keeper = next.flow.clone();
    tokio::spawn(async move { flow::run_keeper(&keeper).await });
    (next, survey)
}

async fn resolve(stage: &EngineFixture, run: Uuid, node: &str, happened: bool) {
    let step = stage.step(run, node, "outcome_unknown").await;
    assert_eq!(step["error"]["code"], "OUTCOME_UNKNOWN");
    let output = happened.then(|| json!({"by": "hand"}));
    let ann = stage.permit("user_ann");
    flow::report_outcome(
        &stage.flow,
        &ann,
        run,
        OutcomeReport { step: id_of(&step["step_id"]), attempt: None, happened, output, notes: None },
    )
    .await
    .unwrap();
}

/// The calls of a tool across several engines.
fn pays() -> (impl Fn() -> EngineSetup, CallLog) {
    let made = ScriptedTool::new("pay", EffectKind::Write);
    let asked = made.asked();
    let tool = made.build();
    (move || stage(1).tool(Arc::clone(&tool)), asked)
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_is_given_again_pays_nothing_before_a_person_has_looked() {
    let (setup, asked) = pays();
    let first = setup().open().await;
    let air = workflow("w").node(json!({"id": "review", "type": "hitl", "prompt": "pay?"}));
    let air =
        air.function("one", "pay", json!({})).function("look", "pure", json!({})).function("two", "pay", json!({}));
    let air = air.edge("review", "one").edge("one", "look").edge("look", "two");
    let run = first.run(&air, SILENT).await;
    first.asks(run).await;
    let (stage, survey) = restored(&first, setup()).await;
    assert_eq!((survey.runs.len(), survey.runs[0].id, survey.runs[0].approvals), (1, run, 1));
    let nodes: Vec<&str> = survey.runs[0].unsure.iter().map(|step| step.node.as_str()).collect();
    assert_eq!(nodes, ["one", "two"], "what changes something and has no outcome");
    stage.approve("user_bob", run).await;
    resolve(&stage, run, "one", true).await;
    assert_eq!(asked.count("execute"), 0, "a person said that it was done");
    resolve(&stage, run, "two", false).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 1, "a person said that it was not done");
    let events = stage.events(run).await;
    assert!(events.iter().any(|event| event == "run.restored"), "{events:?}");
    assert!(events.iter().filter(|event| *event == "step.outcome_unknown").count() == 2, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_fires_again_and_a_retry_send_nothing() {
    let (setup, asked) = pays();
    let first = setup().open().await;
    let node = json!({"id": "a", "type": "function", "fn": "pay", "inputs": {}, "delay_seconds": 60});
    let run = first.run(&workflow("w").node(node), SILENT).await;
    first.until(run, |shown| shown["status"] == "running" || shown["status"] == "waiting").await;
    let (stage, _) = restored(&first, setup()).await;
    stage.pass(Duration::from_secs(120)).await;
    stage.step(run, "a", "outcome_unknown").await;
    assert_eq!(asked.count("execute"), 0);
    assert_eq!(stage.rows_of(&EFFECTS, run)[0].text("status"), "unknown");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_can_tell_is_asked_instead_of_a_person() {
    for (found, sent) in [(CheckResult::Happened(json!({"echo": {}})), 0), (CheckResult::DidNotHappen, 1)] {
        let tool = ScriptedTool::new("pay", EffectKind::Write).on_check(move |_| Ok(found.clone()));
        let asked = tool.asked();
        let tool = tool.build();
        let setup = || stage(1).tool(Arc::clone(&tool));
        let first = setup().open().await;
        let air = workflow("w").node(json!({"id": "review", "type": "hitl", "prompt": "pay?"}));
        let run = first.run(&air.function("a", "pay", json!({})).edge("review", "a"), SILENT).await;
        first.asks(run).await;
        let (stage, _) = restored(&first, setup()).await;
        stage.approve("user_bob", run).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        assert_eq!((asked.count("check"), asked.count("execute")), (1, sent));
        assert_eq!(stage.rows_of(&EFFECTS, run)[0].text("status"), "succeeded");
    }
}

/// A receiver that is asked about a call knows it by its original id.
#[tokio::test(start_paused = true)]
async fn a_tool_that_can_tell_is_asked_about_the_call_that_the_store_has_lost() {
    let tool = ScriptedTool::new("pay", EffectKind::Write);
    let (made, known) = (tool.asked(), tool.asked());
    let found = move |ctx: CallContext| {
        let mut done = known.of("execute").into_iter();
        let done = done.any(|done| done.effect == ctx.effect_id && done.key == ctx.idempotency_key);
        Ok(if done { CheckResult::Happened(json!({"echo": {}})) } else { CheckResult::DidNotHappen })
    };
    let tool = tool.on_check(found).build();
    let setup = || stage(1).tool(Arc::clone(&tool));
    let first = setup().open().await;
    let air = workflow("w").node(json!({"id": "review", "type": "hitl", "prompt": "pay?"}));
    let air = air.function("a", "pay", json!({})).map("each", json!([1, 2]), "pay", json!({})).in_parallel(2);
    let run = first.run(&air.edge("review", "a").edge("a", "each"), SILENT).await;
    first.asks(run).await;
    let backup = Arc::new(first.records.copy());
    first.approve("user_bob", run).await;
    assert_eq!(first.ended(run).await["status"], "completed");
    assert_eq!(made.count("execute"), 3);
    let (stage, _) = put_back(&first, backup, setup()).await;
    stage.approve("user_bob", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!((made.count("check"), made.count("execute")), (3, 3), "nothing is sent that was found");
}

/// An idempotent call is repeated after a crash; after a restore its key may be long expired.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_under_way_is_not_sent_again_even_if_the_tool_is_idempotent() {
    let never = Arc::new(Notify::new());
    let hangs = Arc::clone(&never);
    let tool =
        ScriptedTool::new("pay", EffectKind::Write).with_declaration(|declared| declared.metadata.idempotent = true);
    let tool = tool.on_execute(move |_, _| {
        let hangs = Arc::clone(&hangs);
        async move {
            hangs.notified().await;
            Ok(json!({}))
        }
    });
    let asked = tool.asked();
    let tool = tool.build();
    let setup = || stage(1).tool(Arc::clone(&tool));
    let first = setup().open().await;
    let run = first.run(&chain("w", &[("a", "pay")]), SILENT).await;
    first.step(run, "a", "running").await;
    first.pass(Duration::from_millis(10)).await;
    let (stage, survey) = restored(&first, setup()).await;
    assert_eq!(survey.runs[0].under_way, 1);
    stage.step(run, "a", "outcome_unknown").await;
    assert_eq!(asked.count("execute"), 1, "the one before the restore");
}

#[tokio::test(start_paused = true)]
async fn a_run_inside_is_not_started_a_second_time() {
    let (setup, asked) = pays();
    let first = setup().open().await;
    first.apply(&chain("inner", &[("b", "pay")])).await;
    let air = workflow("outer").node(json!({"id": "review", "type": "hitl", "prompt": "go?"}));
    let run = first.run(&air.child("a", "inner", json!({})).edge("review", "a"), SILENT).await;
    first.asks(run).await;
    let (stage, survey) = restored(&first, setup()).await;
    assert_eq!(survey.runs[0].unsure[0].tool, None);
    stage.approve("user_bob", run).await;
    stage.step(run, "a", "outcome_unknown").await;
    assert_eq!(stage.rows(&RUNS).len(), 1);
    resolve(&stage, run, "a", false).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!((stage.rows(&RUNS).len(), asked.count("execute")), (2, 1), "what it starts from here on is new");
}

#[tokio::test(start_paused = true)]
async fn a_run_inside_is_not_in_doubt_any_more_once_somebody_has_settled_it() {
    for happened in [true, false] {
        let (setup, _) = pays();
        let first = setup().open().await;
        first.apply(&chain("inner", &[("b", "pay")])).await;
        let air = workflow("outer").node(json!({"id": "review", "type": "hitl", "prompt": "go?"}));
        let run = first.run(&air.child("a", "inner", json!({})).edge("review", "a"), SILENT).await;
        first.asks(run).await;
        let (stage, _) = restored(&first, setup()).await;
        stage.approve("user_bob", run).await;
        let listed = || async {
            let filter = DoubtFilter { limit: 10, ..DoubtFilter::default() };
            shown(flow::list_doubts(&stage.flow, &stage.permit("admin"), filter).await.unwrap().items)
        };
        stage.step(run, "a", "outcome_unknown").await;
        assert_eq!(listed().await[0]["node_id"], "a");
        resolve(&stage, run, "a", happened).await;
        let shown = stage.ended(run).await;
        assert_eq!((&shown["status"], &shown["in_doubt_since"]), (&json!("completed"), &json!(null)), "{happened}");
        assert_eq!(listed().await, json!([]), "{happened}");
    }
}

/// A person reported that it was not started, and the run had not handled the signal when the backup was made.
#[tokio::test(start_paused = true)]
async fn what_a_person_said_about_a_run_inside_does_not_count_after_the_next_restore() {
    let (setup, _) = pays();
    let first = setup().open().await;
    first.apply(&chain("inner", &[("b", "pay")])).await;
    let air = workflow("outer").node(json!({"id": "review", "type": "hitl", "prompt": "go?"}));
    let run = first.run(&air.child("a", "inner", json!({})).edge("review", "a"), SILENT).await;
    first.asks(run).await;
    let (second, _) = restored(&first, setup()).await;
    second.approve("user_bob", run).await;
    second.step(run, "a", "outcome_unknown").await;
    flow::pause(&second.flow, &second.permit("user_ann"), run).await.unwrap();
    second.until(run, |run| run["paused"] == true).await;
    resolve(&second, run, "a", false).await;
    second.step(run, "a", "ready").await;
    let (third, _) = restored(&second, setup()).await;
    flow::resume(&third.flow, &third.permit("user_ann"), run).await.unwrap();
    third.step(run, "a", "outcome_unknown").await;
    assert_eq!(third.rows(&RUNS).len(), 1, "it may have been started after the backup");
    resolve(&third, run, "a", false).await;
    assert_eq!(third.ended(run).await["status"], "completed");
}

/// Senders of signals before the backup could not know what happened after it.
#[tokio::test(start_paused = true)]
async fn what_a_person_said_before_the_backup_sends_nothing_after_the_restore() {
    let tool = ScriptedTool::new("pay", EffectKind::Write).answers(|_, _| {
        let body = ErrorBody { retryable: false, ..ErrorBody::new(Code::ExternalServiceError, "no answer") };
        Err(ToolError { body: Box::new(body), sent: Sent::Maybe })
    });
    let asked = tool.asked();
    let tool = tool.build();
    let setup = || stage(1).tool(Arc::clone(&tool));
    let first = setup().open().await;
    let run = first.run(&chain("w", &[("a", "pay")]), SILENT).await;
    first.step(run, "a", "outcome_unknown").await;
    first.flow.stop();
    resolve(&first, run, "a", false).await;
    assert_eq!(first.rows_of(&RUN_SIGNALS, run).len(), 1, "nobody has taken it in");
    let (stage, survey) = restored(&first, setup()).await;
    stage.pass(Duration::from_secs(60)).await;
    assert_eq!((asked.count("execute"), stage.rows_of(&RUN_SIGNALS, run).len()), (1, 0));
    stage.step(run, "a", "outcome_unknown").await;
    let dropped: Vec<_> = survey.runs[0].lapsed.iter().map(|told| (told.kind, told.by.as_str())).collect();
    assert_eq!((survey.runs[0].id, dropped), (run, vec![("resolve", "user_ann")]));
    resolve(&stage, run, "a", true).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_was_asked_for_before_the_backup_undoes_nothing_after_the_restore() {
    let tool = ScriptedTool::new("pay", EffectKind::Write).on_rollback(|_, _| Ok(json!({})));
    let asked = tool.asked();
    let tool = tool.build();
    let setup = || stage(1).tool(Arc::clone(&tool));
    let first = setup().open().await;
    let run = first.run(&chain("w", &[("a", "pay")]), SILENT).await;
    assert_eq!(first.ended(run).await["status"], "completed");
    first.flow.stop();
    flow::rollback(&first.flow, &first.permit("user_ann"), run, None, None).await.unwrap();
    let (stage, survey) = restored(&first, setup()).await;
    stage.pass(Duration::from_secs(60)).await;
    assert_eq!((asked.count("rollback"), survey.runs.len()), (0, 1));
    assert_eq!(survey.runs[0].lapsed[0].kind, "rollback");
    let events = stage.events(run).await;
    assert!(events.iter().any(|event| event == "run.restored"), "{events:?}");
    flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
    stage.status(run, "rolled_back").await;
    assert_eq!(asked.count("rollback"), 1, "whoever asks now has looked");
}

#[tokio::test(start_paused = true)]
async fn a_store_is_resumed_however_much_is_in_doubt() {
    let (setup, asked) = pays();
    let first = setup().open().await;
    let steps: Vec<String> =
        (0..1_000).map(|n| format!("{}_{n}", "pays_somebody_who_waits_for_it".repeat(2))).collect();
    let review = workflow("w").node(json!({"id": "review", "type": "hitl", "prompt": "pay?"}));
    let air = steps.iter().fold(review, |air, step| air.function(step, "pay", json!({})).edge("review", step));
    let run = first.run(&air, SILENT).await;
    first.asks(run).await;
    let (stage, survey) = restored(&first, setup()).await;
    assert_eq!(survey.runs[0].unsure.len(), 1_000);
    stage.approve("user_bob", run).await;
    stage.step(run, &steps[999], "outcome_unknown").await;
    assert_eq!(asked.count("execute"), 0);
}

#[tokio::test(start_paused = true)]
async fn steps_that_change_nothing_go_on_and_new_runs_are_as_ever() {
    let (setup, asked) = pays();
    let first = setup().open().await;
    let air = workflow("w").node(json!({"id": "review", "type": "hitl", "prompt": "go?"}));
    let run = first.run(&air.function("a", "pure", json!({})).edge("review", "a"), SILENT).await;
    first.asks(run).await;
    let (stage, _) = restored(&first, setup()).await;
    stage.approve("user_bob", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let fresh = stage.run(&chain("fresh", &[("a", "pay")]), SILENT).await;
    assert_eq!(stage.ended(fresh).await["status"], "completed");
    assert_eq!(asked.count("execute"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_held_store_drives_nothing_and_refuses_every_change() {
    let (setup, asked) = pays();
    let stage = setup().open().await;
    let node = json!({"id": "a", "type": "function", "fn": "pay", "inputs": {}, "delay_seconds": 60});
    let air = workflow("w").node(node);
    let run = stage.run(&air, SILENT).await;
    stage.records.set_hold(Some(hold()));
    stage.pass(Duration::from_secs(600)).await;
    assert_eq!((asked.count("execute"), stage.flow.active_runs()), (0, 0));
    let again = StartRun { level: SILENT, ..StartRun::of("w", json!({})) };
    assert_eq!(code_of(flow::start(&stage.flow, &stage.permit("user_ann"), again).await), "STORE_HELD");
    assert_eq!(code_of(flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await), "STORE_HELD");
    assert!(matches!(stage.records.commit(Tx::default()).await, Err(CommitError::Blocked(_))));
    assert_eq!(stage.show(run).await["run_id"], json!(run), "reads work");
    stage.records.set_hold(None);
    assert_eq!(stage.ended(run).await["status"], "completed");
}
