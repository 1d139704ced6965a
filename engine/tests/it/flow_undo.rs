//! Rollbacks: in reverse order, as far as possible, and again after a failure or crash.

use chimera_core::access::Level;
use chimera_core::act::risk;
use chimera_core::error::Code;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::flow::tables::EFFECTS;
use chimera_core::tool::{EffectKind, Rollback, Spec};
use chimera_engine::act::rules::Rules;
use chimera_engine::flow::port::{Tool, ToolError};
use chimera_engine::flow::{self, OutcomeReport};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{
    Air, EngineFixture, ScriptedTool, chain, code_of, id_of, shown as as_json, stage, until, workflow,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// A tool that records, in a shared list, whose work it undid.
fn writes(name: &'static str, undone: &Arc<Mutex<Vec<String>>>) -> ScriptedTool {
    let undone = Arc::clone(undone);
    ScriptedTool::new(name, EffectKind::Write).on_rollback(move |_, done| {
        undone.lock().unwrap().push(done.input["n"].as_str().unwrap().to_owned());
        Ok(json!({}))
    })
}

async fn roll_back(stage: &EngineFixture, run: Uuid, steps: Option<Vec<Uuid>>) -> Value {
    let before = stage.show(run).await["state_version"].as_i64();
    flow::rollback(&stage.flow, &stage.permit("user_ann"), run, steps, Some("mistake".to_owned())).await.unwrap();
    let over = |shown: &Value| shown["state_version"].as_i64() > before && shown["rollback"]["ended"] == true;
    stage.until(run, over).await
}

fn nodes(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|line| line["node"].as_str().unwrap().to_owned()).collect()
}

/// CORE-142
#[tokio::test(start_paused = true)]
async fn what_was_done_is_undone_in_reverse_order_of_completion() {
    let undone = Arc::default();
    let stage = stage(1).tool(writes("write", &undone).build()).open().await;
    let run = stage.run(&chain("w", &[("a", "write"), ("p", "pure"), ("b", "write"), ("c", "write")]), SILENT).await;
    stage.ended(run).await;
    let shown = roll_back(&stage, run, None).await;
    assert_eq!(shown["status"], "rolled_back");
    assert_eq!(*undone.lock().unwrap(), ["c", "b", "a"]);
    assert_eq!(stage.step_statuses(run).await, "a=rolled_back p=completed b=rolled_back c=rolled_back");
    let undoing = stage.rows_of(&EFFECTS, run).into_iter().filter(|row| row.text("kind") == "compensation");
    assert!(undoing.map(|row| row.text("status").to_owned()).eq(vec!["succeeded"; 3]), "each is a recorded effect");
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_is_rolled_back_as_far_as_it_came() {
    let undone = Arc::default();
    let broken = ScriptedTool::new("broken", EffectKind::Write)
        .answers(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "no")));
    let stage = stage(1).tool(writes("write", &undone).build()).tool(broken.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "write"), ("b", "broken"), ("c", "write")]), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "failed");
    assert_eq!(roll_back(&stage, run, None).await["status"], "rolled_back");
    assert_eq!(*undone.lock().unwrap(), ["a"]);
}

/// CORE-137
#[tokio::test(start_paused = true)]
async fn what_can_not_be_undone_is_left_and_said_and_the_status_stays() {
    let undone = Arc::default();
    let mail =
        ScriptedTool::new("mail", EffectKind::Write).with_declaration(|tool| tool.rollback = Rollback::Unsupported);
    let sent = mail.asked();
    let stage = stage(1).tool(writes("write", &undone).build()).tool(mail.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "write"), ("b", "mail"), ("c", "write")]), SILENT).await;
    stage.ended(run).await;
    let shown = roll_back(&stage, run, None).await;
    assert_eq!(shown["status"], "completed");
    assert_eq!(nodes(&shown["rollback"]["left"]), ["b"]);
    assert_eq!(shown["rollback"]["left"][0]["reason"], "mail does not support rollback");
    assert_eq!(
        (nodes(&shown["rollback"]["undone"]), sent.count("rollback")),
        (vec!["c".to_owned(), "a".to_owned()], 0)
    );
}

#[tokio::test(start_paused = true)]
async fn some_steps_may_be_undone_and_the_rest_later() {
    let undone = Arc::default();
    let stage = stage(1).tool(writes("write", &undone).build()).open().await;
    let run = stage.run(&chain("w", &[("a", "write"), ("b", "write")]), SILENT).await;
    stage.ended(run).await;
    let step = flow::find_step(&stage.flow, &stage.permit("user_ann"), run, "a").await.unwrap();
    assert_eq!(roll_back(&stage, run, Some(vec![step])).await["status"], "completed");
    assert_eq!(stage.step_statuses(run).await, "a=rolled_back b=completed");
    assert_eq!(roll_back(&stage, run, None).await["status"], "rolled_back");
    assert_eq!(*undone.lock().unwrap(), ["a", "b"]);
    let ann = stage.permit("user_ann");
    assert_eq!(code_of(flow::rollback(&stage.flow, &ann, run, None, None).await), "INVALID_TRANSITION");
    let other = stage.run(&chain("v", &[("a", "write")]), SILENT).await;
    stage.ended(other).await;
    assert_eq!(code_of(flow::rollback(&stage.flow, &ann, other, Some(vec![step]), None).await), "NOT_FOUND");
}

#[tokio::test(start_paused = true)]
async fn an_undoing_that_fails_is_tried_again_and_may_be_asked_for_anew() {
    let (tries, broken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (count, down) = (Arc::clone(&tries), Arc::clone(&broken));
    let tool = ScriptedTool::new("write", EffectKind::Write).on_rollback(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        match down.load(Ordering::SeqCst) {
            true => Err(ToolError::not_sent(Code::ExternalServiceError, "not now")),
            false => Ok(json!({})),
        }
    });
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "write")]), SILENT).await;
    stage.ended(run).await;
    let shown = roll_back(&stage, run, None).await;
    assert_eq!((&shown["status"], nodes(&shown["rollback"]["left"])), (&json!("completed"), vec!["a".to_owned()]));
    assert_eq!(tries.load(Ordering::SeqCst), 4);
    broken.store(false, Ordering::SeqCst);
    assert_eq!(roll_back(&stage, run, None).await["status"], "rolled_back");
}

/// A tool whose first undo of `b` never ends.
fn hangs(stuck: &Arc<AtomicBool>, undone: &Arc<Mutex<Vec<String>>>) -> Arc<dyn Tool> {
    struct HangingUndo(Arc<dyn Tool>, Arc<AtomicBool>);
    #[async_trait::async_trait]
    impl Tool for HangingUndo {
        fn spec(&self) -> &Arc<Spec> {
            self.0.spec()
        }
        async fn execute(
            &self,
            ctx: &chimera_engine::flow::port::CallContext,
            input: &Value,
        ) -> Result<Value, ToolError> {
            self.0.execute(ctx, input).await
        }
        async fn rollback(
            &self,
            ctx: &chimera_engine::flow::port::CallContext,
            done: &chimera_engine::flow::port::CompletedCall,
        ) -> Result<Value, ToolError> {
            if done.input["n"] == "b" && self.1.swap(false, Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            self.0.rollback(ctx, done).await
        }
    }
    Arc::new(HangingUndo(writes("write", undone).build(), Arc::clone(stuck)))
}

#[tokio::test(start_paused = true)]
async fn a_rollback_goes_on_after_a_crash_in_its_middle() {
    let (stuck, undone) = (Arc::new(AtomicBool::new(true)), Arc::default());
    let first = stage(1).tool(hangs(&stuck, &undone)).open().await;
    let run = first.run(&chain("w", &[("a", "write"), ("b", "write"), ("c", "write")]), SILENT).await;
    first.ended(run).await;
    flow::rollback(&first.flow, &first.permit("user_ann"), run, None, None).await.unwrap();
    first.step(run, "c", "rolled_back").await;
    let second = first.restart(stage(1).tool(hangs(&stuck, &undone))).await;
    let shown = second.status(run, "rolled_back").await;
    assert_eq!(*undone.lock().unwrap(), ["c", "b", "a"]);
    assert_eq!(shown["rollback"]["undone"].as_array().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_knows_is_settled_before_anything_is_undone() {
    let lost = ScriptedTool::new("lost", EffectKind::Write)
        .answers(|_, _| Err(ToolError::maybe_sent(Code::ExternalServiceUnavailable, "lost")));
    let stage = stage(1).tool(lost.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "lost")]), SILENT).await;
    let step = stage.step(run, "a", "outcome_unknown").await;
    let ann = stage.permit("user_ann");
    assert_eq!(code_of(flow::rollback(&stage.flow, &ann, run, None, None).await), "INVALID_TRANSITION");
    flow::report_outcome(
        &stage.flow,
        &ann,
        run,
        OutcomeReport::happened(id_of(&step["step_id"]), Some(json!({"id": 1}))),
    )
    .await
    .unwrap();
    stage.ended(run).await;
    assert_eq!(roll_back(&stage, run, None).await["status"], "rolled_back");
}

struct NoUndo(Rules, AtomicBool);

impl Policy for NoUndo {
    fn evaluate(&self, _: &Action<'_>) -> PolicyVerdict {
        let denied = || PolicyVerdict::Deny { rule: "frozen".to_owned(), reason: "nothing changes today".to_owned() };
        // The first call is the original, the next one its undo.
        if self.1.swap(false, Ordering::SeqCst) { PolicyVerdict::Allow } else { denied() }
    }

    fn score_call(&self, tool: &Spec, input: &Value) -> Score {
        self.0.score_call(tool, input)
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }
}

#[tokio::test(start_paused = true)]
async fn an_undoing_passes_the_rules_of_the_moment() {
    let undone = Arc::default();
    let rules = NoUndo(Rules::default(), AtomicBool::new(true));
    let stage = stage(1).policy(rules).tool(writes("write", &undone).build()).open().await;
    let run = stage.run(&chain("w", &[("a", "write")]), SILENT).await;
    stage.ended(run).await;
    let shown = roll_back(&stage, run, None).await;
    assert_eq!(shown["rollback"]["left"][0]["reason"], "nothing changes today");
    assert!(undone.lock().unwrap().is_empty());
}

/// A map over `x`, `y` and `z`, one item at a time.
fn mapped(tool: &str) -> Air {
    workflow("w").map("m", json!(["x", "y", "z"]), tool, json!({"n": "${item}"}))
}

/// The items in the entries of a rollback.
fn items(list: &Value) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|line| line["item"].as_i64().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_items_of_a_map_are_undone_one_by_one_the_last_first() {
    let undone = Arc::default();
    let stage = stage(1).tool(writes("write", &undone).build()).open().await;
    let run = stage.run(&mapped("write"), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let shown = roll_back(&stage, run, None).await;
    assert_eq!(shown["status"], "rolled_back");
    assert_eq!(*undone.lock().unwrap(), ["z", "y", "x"]);
    assert_eq!(items(&shown["rollback"]["undone"]), [2, 1, 0]);
    let standing = stage.step_statuses(run).await;
    assert_eq!(standing, "m=completed m[0]=rolled_back m[1]=rolled_back m[2]=rolled_back");
}

#[tokio::test(start_paused = true)]
async fn an_item_that_can_not_be_undone_is_named_and_the_others_are_undone() {
    let undone: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&undone);
    let tool = ScriptedTool::new("write", EffectKind::Write).on_rollback(move |_, done| {
        let n = done.input["n"].as_str().unwrap().to_owned();
        if n == "y" {
            return Err(ToolError::not_sent(Code::ValidationFailed, "y stays"));
        }
        seen.lock().unwrap().push(n);
        Ok(json!({}))
    });
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&mapped("write"), SILENT).await;
    stage.ended(run).await;
    let shown = roll_back(&stage, run, None).await;
    assert_eq!(shown["status"], "completed", "one item stands");
    assert_eq!(*undone.lock().unwrap(), ["z", "x"]);
    assert_eq!((items(&shown["rollback"]["undone"]), items(&shown["rollback"]["left"])), (vec![2, 0], vec![1]));
    assert_eq!(shown["rollback"]["left"][0]["reason"], "y stays");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_of_a_map_goes_on_after_a_crash_and_still_names_its_items() {
    let (stuck, undone) = (Arc::new(AtomicBool::new(true)), Arc::default());
    let first = stage(1).tool(hangs(&stuck, &undone)).open().await;
    let air = workflow("w").map("m", json!(["a", "b", "c"]), "write", json!({"n": "${item}"}));
    let run = first.run(&air, SILENT).await;
    first.ended(run).await;
    flow::rollback(&first.flow, &first.permit("user_ann"), run, None, None).await.unwrap();
    until("an undoing hangs", || !stuck.load(Ordering::SeqCst)).await;
    let second = first.restart(stage(1).tool(hangs(&stuck, &undone))).await;
    let shown = second.status(run, "rolled_back").await;
    assert_eq!(*undone.lock().unwrap(), ["c", "b", "a"]);
    let mut items = items(&shown["rollback"]["undone"]);
    items.sort_unstable();
    assert_eq!(items, [0, 1, 2]);
}

fn child(tool: &str) -> Air {
    workflow("inner").function("x", tool, json!({"n": "x"})).function("y", tool, json!({"n": "y"})).edge("x", "y")
}

fn parent() -> Air {
    workflow("outer")
        .function("a", "write", json!({"n": "a"}))
        .child("c", "inner", json!({}))
        .function("b", "write", json!({"n": "b"}))
        .edge("a", "c")
        .edge("c", "b")
}

#[tokio::test(start_paused = true)]
async fn a_parent_rolls_its_children_back_in_their_turn() {
    let undone = Arc::default();
    let stage = stage(1).tool(writes("write", &undone).build()).open().await;
    stage.apply(&child("write")).await;
    let run = stage.run(&parent(), SILENT).await;
    stage.ended(run).await;
    let inner = id_of(&stage.step(run, "c", "completed").await["child_run_id"]);
    assert_eq!(roll_back(&stage, run, None).await["status"], "rolled_back");
    assert_eq!(*undone.lock().unwrap(), ["b", "y", "x", "a"]);
    assert_eq!(stage.show(inner).await["status"], "rolled_back");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_can_not_be_undone_as_a_whole_leaves_its_parent_partial_and_may_be_tried_again() {
    let (undone, down) = (Arc::default(), Arc::new(AtomicBool::new(true)));
    let broken = Arc::clone(&down);
    let fragile =
        ScriptedTool::new("fragile", EffectKind::Write).on_rollback(move |_, _| match broken.load(Ordering::SeqCst) {
            true => Err(ToolError::not_sent(Code::ValidationFailed, "no")),
            false => Ok(json!({})),
        });
    let stage = stage(1).tool(writes("write", &undone).build()).tool(fragile.build()).open().await;
    stage.apply(&child("fragile")).await;
    let run = stage.run(&parent(), SILENT).await;
    stage.ended(run).await;
    let shown = roll_back(&stage, run, None).await;
    assert_eq!((&shown["status"], nodes(&shown["rollback"]["left"])), (&json!("completed"), vec!["c".to_owned()]));
    assert_eq!(*undone.lock().unwrap(), ["b", "a"]);
    down.store(false, Ordering::SeqCst);
    assert_eq!(roll_back(&stage, run, None).await["status"], "rolled_back");
}

/// CORE-141
#[tokio::test(start_paused = true)]
async fn a_person_may_say_that_a_run_was_undone_by_hand_and_nothing_is_called() {
    let undone = Arc::default();
    let down = ScriptedTool::new("down", EffectKind::Read).failing_at(&[1, 2, 3, 4]);
    let stage = stage(1).tool(writes("write", &undone).build()).tool(down.build()).open().await;
    let (ann, robot) = (stage.permit("user_ann"), stage.permit("service_chatbot"));
    let waits = stage.run(&chain("v", &[("a", "write")]), Level::Ask).await;
    stage.asks(waits).await;
    assert_eq!(code_of(flow::mark_rolled_back(&stage.flow, &ann, waits, None).await), "INVALID_TRANSITION");
    let run = stage.run(&chain("w", &[("a", "write"), ("b", "down")]), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "failed");
    assert_eq!(code_of(flow::mark_rolled_back(&stage.flow, &robot, run, None).await), "RBAC_FORBIDDEN");
    flow::mark_rolled_back(&stage.flow, &ann, run, Some("deleted in their console".to_owned())).await.unwrap();
    stage.status(run, "rolled_back").await;
    let events = flow::events(&stage.flow, &ann, run, 0, 100).await.unwrap();
    let marked = as_json(events.iter().find(|event| event.event_type == "run.rolled_back").expect("an entry"));
    assert_eq!(
        (&marked["actor_id"], &marked["data"]["reason"]),
        (&json!("user_ann"), &json!("deleted in their console"))
    );
    assert_eq!(code_of(flow::mark_rolled_back(&stage.flow, &ann, run, None).await), "INVALID_TRANSITION");
    assert!(undone.lock().unwrap().is_empty());
}

/// CORE-141
#[tokio::test(start_paused = true)]
async fn what_did_not_fail_is_not_marked_as_undone_unless_a_rollback_left_something() {
    let undone = Arc::default();
    let stuck = ScriptedTool::new("stuck", EffectKind::Write)
        .on_rollback(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "it can't be undone here")));
    let stage = stage(1).tool(writes("write", &undone).build()).tool(stuck.build()).open().await;
    let ann = stage.permit("user_ann");
    let done = stage.run(&chain("x", &[("a", "write")]), SILENT).await;
    stage.ended(done).await;
    let stopped = stage.run(&chain("y", &[("a", "write")]), Level::Ask).await;
    stage.asks(stopped).await;
    flow::cancel(&stage.flow, &ann, stopped, None).await.unwrap();
    stage.ended(stopped).await;
    for (run, status) in [(done, "completed"), (stopped, "cancelled")] {
        assert_eq!(
            code_of(flow::mark_rolled_back(&stage.flow, &ann, run, None).await),
            "INVALID_TRANSITION",
            "{status}"
        );
        assert_eq!(stage.ended(run).await["status"], status);
    }
    let left = stage.run(&chain("z", &[("a", "stuck")]), SILENT).await;
    stage.ended(left).await;
    assert_eq!(roll_back(&stage, left, None).await["status"], "completed");
    flow::mark_rolled_back(&stage.flow, &ann, left, None).await.unwrap();
    stage.status(left, "rolled_back").await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_of_parent_and_child_goes_on_after_a_crash_in_the_child() {
    let (stuck, undone) = (Arc::new(AtomicBool::new(true)), Arc::default());
    let first = stage(1).tool(hangs(&stuck, &undone)).open().await;
    first.apply(&workflow("inner").function("b", "write", json!({"n": "b"}))).await;
    let air = workflow("outer").function("a", "write", json!({"n": "a"})).child("c", "inner", json!({})).edge("a", "c");
    let run = first.run(&air, SILENT).await;
    first.ended(run).await;
    flow::rollback(&first.flow, &first.permit("user_ann"), run, None, None).await.unwrap();
    until("an undoing hangs", || !stuck.load(Ordering::SeqCst)).await;
    let second = first.restart(stage(1).tool(hangs(&stuck, &undone))).await;
    second.status(run, "rolled_back").await;
    assert_eq!(*undone.lock().unwrap(), ["b", "a"]);
}
