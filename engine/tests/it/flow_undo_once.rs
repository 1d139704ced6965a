//! An undo that is not repeatable is sent once, whatever happens to its process.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::tables::{EFFECTS, STEPS};
use chimera_core::record::{Comparison, Condition, RowCount, Step, Tx};
use chimera_core::tool::{EffectKind, Rollback, Spec};
use chimera_engine::flow;
use chimera_engine::flow::port::{CallContext, CompletedCall, Tool, ToolError};
use chimera_engine::port::Records;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, EngineSetup, ScriptedTool, chain, code_of, id_of, stage, until};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

const LOST: &str = "the process that made this call is gone";
const RECORD_GONE: &str = "the record of this call is missing from the store";

/// A tool whose undo of `b` takes effect but never returns while `stuck`.
#[derive(Clone)]
struct Refund {
    spec: Arc<Spec>,
    stuck: Arc<AtomicBool>,
    undone: Arc<Mutex<Vec<String>>>,
}

impl Refund {
    fn new(rollback: Rollback) -> Self {
        let declared = chimera_testkit::flow::ScriptedTool::new("pay", EffectKind::Write)
            .with_declaration(|tool| tool.rollback = rollback);
        let spec = Arc::clone(declared.build().spec());
        Self { spec, stuck: Arc::new(AtomicBool::new(true)), undone: Arc::default() }
    }

    fn undone(&self) -> Vec<String> {
        self.undone.lock().unwrap().clone()
    }

    fn setup(&self) -> EngineSetup {
        stage(1).tool(Arc::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl Tool for Refund {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    async fn execute(&self, _: &CallContext, input: &Value) -> Result<Value, ToolError> {
        Ok(json!({"echo": input}))
    }

    async fn rollback(&self, _: &CallContext, done: &CompletedCall) -> Result<Value, ToolError> {
        let n = done.input["n"].as_str().unwrap().to_owned();
        self.undone.lock().unwrap().push(n.clone());
        if n == "b" && self.stuck.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(json!({}))
    }
}

/// A run with `c` undone and the undo of `b` in flight.
async fn undoing(stage: &EngineFixture, tool: &Refund) -> Uuid {
    let run = stage.run(&chain("w", &[("a", "pay"), ("b", "pay"), ("c", "pay")]), Level::ExecuteSilent).await;
    stage.ended(run).await;
    flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
    until("an undo hangs", || tool.undone().contains(&"b".to_owned())).await;
    run
}

async fn over(stage: &EngineFixture, run: Uuid, round: u64) -> Value {
    stage.until(run, |shown| shown["rollback"]["round"] == round && shown["rollback"]["ended"] == true).await
}

fn compensations(stage: &EngineFixture, run: Uuid) -> Vec<String> {
    let rows = stage.rows_of(&EFFECTS, run).into_iter().filter(|row| row.text("kind") == "compensation");
    rows.map(|row| row.text("status").to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_a_crash_cut_is_not_sent_again_but_left_to_a_person() {
    let tool = Refund::new(Rollback::Once);
    let first = tool.setup().open().await;
    let run = undoing(&first, &tool).await;
    let second = first.restart(tool.setup()).await;
    let shown = over(&second, run, 1).await;
    assert_eq!(tool.undone(), ["c", "b", "a"], "the others are undone, and nothing twice");
    assert_eq!(shown["status"], "completed");
    assert_eq!(
        (&shown["rollback"]["left"][0]["node"], &shown["rollback"]["left"][0]["reason"]),
        (&json!("b"), &json!(LOST))
    );
    assert_eq!((&shown["doubts"][0]["call"], &shown["doubts"][0]["reason"]), (&json!("undo"), &json!(LOST)));
    assert!(compensations(&second, run).contains(&"unknown".to_owned()));

    // A rollback of the whole run does not resolve an unknown outcome; naming the step does.
    let (ann, robot) = (second.permit("user_ann"), second.permit("service_chatbot"));
    let step = id_of(&shown["doubts"][0]["step_id"]);
    flow::rollback(&second.flow, &ann, run, None, None).await.unwrap();
    assert_eq!(over(&second, run, 2).await["rollback"]["left"][0]["node"], "b");
    assert_eq!(tool.undone().len(), 3);
    assert_eq!(code_of(flow::rollback(&second.flow, &robot, run, Some(vec![step]), None).await), "RBAC_FORBIDDEN");
    tool.stuck.store(false, Ordering::SeqCst);
    flow::rollback(&second.flow, &ann, run, Some(vec![step]), None).await.unwrap();
    let shown = over(&second, run, 3).await;
    assert_eq!((&shown["doubts"], tool.undone().len()), (&json!([]), 4));
}

/// The row of an undo in flight is deleted, and the run is loaded again. What the tool allows for a second undo applies
/// only to a known first one.
#[tokio::test(start_paused = true)]
async fn an_undo_whose_record_is_gone_is_in_doubt_and_not_sent_again() {
    for rollback in [Rollback::Once, Rollback::Repeatable] {
        let tool = Refund::new(rollback);
        let first = tool.setup().open().await;
        let run = undoing(&first, &tool).await;
        let rows = first.rows_of(&EFFECTS, run);
        let sent = rows.iter().find(|row| row.text("kind") == "compensation" && row.text("status") == "dispatched");
        let sent = sent.unwrap().uuid("id");
        let conditions = vec![Condition { column: "id", compare: Comparison::Is, value: sent.into() }];
        let gone = Step::Delete { table: &EFFECTS, conditions, rows: RowCount::Exactly(1) };
        first.records.commit(Tx { steps: vec![gone], ..Tx::default() }).await.unwrap();
        let second = first.restart(tool.setup()).await;
        let shown = over(&second, run, 1).await;
        assert_eq!(tool.undone(), ["c", "b", "a"], "{rollback:?}: the others are undone, and nothing twice");
        let left = &shown["rollback"]["left"];
        assert_eq!((&left[0]["node"], &left[0]["reason"], left.get(1)), (&json!("b"), &json!(RECORD_GONE), None));
        let doubt = &shown["doubts"][0];
        assert_eq!((&doubt["call"], &doubt["reason"]), (&json!("undo"), &json!(RECORD_GONE)));
        let kept = second.rows_of(&EFFECTS, run).into_iter().find(|row| row.uuid("id") == sent);
        assert_eq!(kept.unwrap().text("status"), "unknown", "it has its row and its id again");

        // A person who has checked names the step, and the first undo is no obstacle.
        tool.stuck.store(false, Ordering::SeqCst);
        let step = id_of(&doubt["step_id"]);
        flow::rollback(&second.flow, &second.permit("user_ann"), run, Some(vec![step]), None).await.unwrap();
        let shown = over(&second, run, 2).await;
        assert_eq!((&shown["doubts"], tool.undone().len()), (&json!([]), 4));
        assert!(second.rows_of(&STEPS, run).iter().all(|row| row.get("retry_at").is_null()));
    }
}

/// An undo that was certainly not sent leaves nothing behind that looks like one.
#[tokio::test(start_paused = true)]
async fn an_undo_that_failed_is_no_doubt_though_its_record_is_gone() {
    let puppet = ScriptedTool::new("pay", EffectKind::Write)
        .on_rollback(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "no")));
    let asked = puppet.asked();
    let first = stage(1).tool(puppet.build()).open().await;
    let run = first.run(&chain("w", &[("a", "pay")]), Level::ExecuteSilent).await;
    first.ended(run).await;
    for round in 1..=2 {
        flow::rollback(&first.flow, &first.permit("user_ann"), run, None, None).await.unwrap();
        let shown = over(&first, run, round).await;
        assert_eq!(shown["doubts"], json!([]));
        assert!(first.rows_of(&STEPS, run).iter().all(|row| row.get("retry_at").is_null()));
    }
    assert_eq!(asked.count("rollback"), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_found_out_that_it_was_undone_marks_the_run_by_hand() {
    let tool = Refund::new(Rollback::Once);
    let first = tool.setup().open().await;
    let run = undoing(&first, &tool).await;
    let second = first.restart(tool.setup()).await;
    over(&second, run, 1).await;
    flow::mark_rolled_back(&second.flow, &second.permit("user_ann"), run, Some("looked".to_owned())).await.unwrap();
    let shown = second.status(run, "rolled_back").await;
    assert_eq!((&shown["doubts"], tool.undone().len()), (&json!([]), 3));
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_changes_nothing_the_second_time_is_sent_again() {
    let tool = Refund::new(Rollback::Repeatable);
    let first = tool.setup().open().await;
    let run = undoing(&first, &tool).await;
    tool.stuck.store(false, Ordering::SeqCst);
    let second = first.restart(tool.setup()).await;
    second.status(run, "rolled_back").await;
    assert_eq!(tool.undone(), ["c", "b", "b", "a"]);
}

/// A takeover waits until the first node must have given up its call.
#[tokio::test(start_paused = true)]
async fn a_node_that_takes_a_rollback_over_waits_for_the_call_of_the_first() {
    let tool = Refund::new(Rollback::Repeatable);
    let first = tool.setup().shared().open().await;
    let run = undoing(&first, &tool).await;
    let deadline = first.rows_of(&EFFECTS, run).iter().filter_map(|row| row.get("deadline").as_time()).max();
    tool.stuck.store(false, Ordering::SeqCst);
    let second = first.restart(tool.setup().shared()).await;
    second.status(run, "rolled_back").await;
    assert!(deadline.is_some_and(|deadline| second.world.clock.steady() >= deadline), "sent again too early");
    assert_eq!(tool.undone(), ["c", "b", "b", "a"]);
}

/// An undo that was certainly not sent is retried; one that may have been sent is not.
#[tokio::test(start_paused = true)]
async fn only_an_undo_that_certainly_was_not_sent_is_tried_again() {
    let fails = |maybe: bool| {
        let error = if maybe { ToolError::maybe_sent } else { ToolError::not_sent };
        chimera_testkit::flow::ScriptedTool::new("pay", EffectKind::Write)
            .with_declaration(|tool| tool.rollback = Rollback::Once)
            .on_rollback(move |_, _| Err(error(Code::ExternalServiceError, "no")))
    };
    for (maybe, tries, doubts) in [(true, 1, 1), (false, 4, 0)] {
        let tool = fails(maybe);
        let asked = tool.asked();
        let stage = stage(1).tool(tool.build()).open().await;
        let run = stage.run(&chain("w", &[("a", "pay")]), Level::ExecuteSilent).await;
        stage.ended(run).await;
        flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
        let shown = over(&stage, run, 1).await;
        assert_eq!((asked.count("rollback"), shown["doubts"].as_array().unwrap().len()), (tries, doubts), "{maybe}");
    }
}

/// A crash while a refused undo waits for its retry does not put it in doubt.
#[tokio::test(start_paused = true)]
async fn an_undo_that_was_refused_before_a_crash_is_tried_again_after_it() {
    let down = Arc::new(AtomicBool::new(true));
    let tool = || {
        let down = Arc::clone(&down);
        chimera_testkit::flow::ScriptedTool::new("pay", EffectKind::Write)
            .with_declaration(|tool| tool.rollback = Rollback::Once)
            .on_rollback(move |_, _| match down.load(Ordering::SeqCst) {
                true => Err(ToolError::not_sent(Code::ExternalServiceError, "later").retry_after(600)),
                false => Ok(json!({})),
            })
    };
    let first = stage(1).tool(tool().build()).open().await;
    let run = first.run(&chain("w", &[("a", "pay")]), Level::ExecuteSilent).await;
    first.ended(run).await;
    flow::rollback(&first.flow, &first.permit("user_ann"), run, None, None).await.unwrap();
    first.pass(Duration::from_secs(5)).await;
    assert_eq!(compensations(&first, run), ["prepared"]);
    down.store(false, Ordering::SeqCst);
    let second = first.restart(stage(1).tool(tool().build())).await;
    second.status(run, "rolled_back").await;
}
