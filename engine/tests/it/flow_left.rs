//! Edits to another actor's run don't outlive their author's rights: a call that somebody edited or added is judged by
//! what they may do when it is made. Authors of workflows have no such part in their calls.

use crate::flow_four_eyes::{approve, asked_at, gated, newer, started, strict, strict_less};
use chimera_core::access::Level;
use chimera_core::act::risk;
use chimera_core::error::Code;
use chimera_core::flow::call::ToolError;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::tool::{EffectKind, Spec};
use chimera_engine::flow::{self, PatchRequest};
use chimera_testkit::flow::{EngineFixture, EngineSetup, ScriptedTool, id_of, stage, workflow};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use uuid::Uuid;

/// Actors who lost their rights; contributors are judged by rules alone, and there are none.
#[derive(Clone, Default)]
pub(crate) struct DepartedPolicy(Arc<Mutex<BTreeSet<String>>>);

impl DepartedPolicy {
    pub(crate) fn leaves(&self, who: &str) {
        self.0.lock().unwrap().insert(who.to_owned());
    }
}

impl Policy for DepartedPolicy {
    fn evaluate(&self, action: &Action<'_>) -> PolicyVerdict {
        let (rule, reason) = ("actor.disabled".to_owned(), "the actor is disabled".to_owned());
        let left = self.0.lock().unwrap().contains(action.actor);
        if left { PolicyVerdict::Deny { rule, reason } } else { PolicyVerdict::Allow }
    }

    fn may_decide(&self, _: &str, person: &str, _: &str) -> bool {
        !self.0.lock().unwrap().contains(person)
    }

    fn evaluate_contributor(&self, _: &Action<'_>) -> PolicyVerdict {
        PolicyVerdict::Allow
    }

    fn score_call(&self, _: &Spec, _: &Value) -> Score {
        Score::default()
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }
}

/// The run ended without the call.
async fn refused(stage: &EngineFixture, run: Uuid) {
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("POLICY_DENIED")), "{shown}");
}

/// A run of `user_ann` in progress when `user_mal` adds these nodes in sequence.
async fn patched(setup: EngineSetup, nodes: &[Value]) -> (EngineFixture, Uuid) {
    let stage = setup.open().await;
    stage.apply(&workflow("inner").node(strict("x"))).await;
    let run = stage.run(&workflow("w").function("g", "gated", json!({})), Level::ExecuteNotify).await;
    stage.step(run, "g", "running").await;
    let before = std::iter::once(json!("g")).chain(nodes.iter().map(|node| node["id"].clone()));
    let edges: Vec<Value> = before.zip(nodes).map(|(from, to)| json!({"from": from, "to": to["id"]})).collect();
    let document = json!({"patch_version": "0.1", "justification": "more", "add_nodes": nodes, "add_edges": edges});
    flow::patch(&stage.flow, &stage.permit("user_mal"), PatchRequest::new(run, document)).await.unwrap();
    stage.until(run, |shown| shown["patches"][0]["status"] == "applied").await;
    (stage, run)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_somebody_added_who_left_is_not_made() {
    let (gate, left) = (Arc::new(Notify::new()), DepartedPolicy::default());
    let (stage, run) = patched(gated(&gate).policy(left.clone()), &[strict_less("a")]).await;
    left.leaves("user_mal");
    gate.notify_one();
    refused(&stage, run).await;
}

/// The first call made its author a contributor to what follows.
#[tokio::test(start_paused = true)]
async fn a_second_call_that_somebody_added_who_left_is_not_made() {
    let (gate, left) = (Arc::new(Notify::new()), DepartedPolicy::default());
    let (first, run) = patched(gated(&gate).policy(left.clone()), &[strict_less("a"), strict("c")]).await;
    gate.notify_one();
    let asked = asked_at(&first, run, "c").await;
    left.leaves("user_mal");
    let second = first.restart(stage(1).policy(left)).await;
    assert_eq!(approve(&second, "user_cat", run, &asked).await, "none");
    refused(&second, run).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_run_inside_that_somebody_added_who_left_is_not_made() {
    let (gate, left) = (Arc::new(Notify::new()), DepartedPolicy::default());
    let node = json!({"id": "a", "type": "workflow", "workflow_id": "inner", "inputs": {}});
    let (first, run) = patched(gated(&gate).policy(left.clone()), &[node]).await;
    gate.notify_one();
    let child = id_of(&first.step(run, "a", "running").await["child_run_id"]);
    let asked = asked_at(&first, child, "x").await;
    left.leaves("user_mal");
    let second = first.restart(stage(1).policy(left)).await;
    assert_eq!(approve(&second, "user_cat", child, &asked).await, "none");
    refused(&second, run).await;
}

/// Edits of two steps: the first made its author a contributor to what follows.
#[tokio::test(start_paused = true)]
async fn a_call_that_somebody_edited_who_left_is_not_made() {
    for restarts in [false, true] {
        for edits in [&["a"][..], &["b"], &["a", "b"]] {
            let left = DepartedPolicy::default();
            let mut stages = vec![stage(1).policy(left.clone()).open().await];
            let air = workflow("w").node(strict("a")).node(strict("b")).edge("a", "b");
            let run = stages[0].run(&air, Level::ExecuteNotify).await;
            for node in ["a", "b"] {
                let stage = &stages[0];
                let mut asked = asked_at(stage, run, node).await;
                if edits.contains(&node) {
                    let step = id_of(&asked["step_id"]);
                    flow::edit_step(&stage.flow, &stage.permit("user_mal"), run, step, json!({"n": "mal"}))
                        .await
                        .unwrap();
                    asked = newer(stage, run, &asked).await;
                }
                if node == "b" {
                    left.leaves("user_mal");
                    if restarts {
                        let next = stage.restart(chimera_testkit::flow::stage(1).policy(left.clone())).await;
                        stages.insert(0, next);
                    }
                }
                assert_eq!(approve(&stages[0], "user_cat", run, &asked).await, "none", "{node}");
            }
            match edits.contains(&"b") {
                true => refused(&stages[0], run).await,
                // Their call was made while they were allowed to; it is only an input of this one.
                false => assert_eq!(stages[0].ended(run).await["status"], "completed", "{restarts} {edits:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_of_a_plan_that_somebody_edited_who_left_is_not_carried_out() {
    let left = DepartedPolicy::default();
    let first = stage(1).policy(left.clone()).open().await;
    let run = first.run(&workflow("w").node(strict_less("a")), Level::Draft).await;
    let asked = first.asks(run).await.remove(0);
    flow::edit_planned(&first.flow, &first.permit("user_mal"), run, "a", json!({"n": "mal"})).await.unwrap();
    let asked = newer(&first, run, &asked).await;
    left.leaves("user_mal");
    let second = first.restart(stage(1).policy(left)).await;
    assert_eq!(approve(&second, "user_cat", run, &asked).await, "none");
    refused(&second, run).await;
}

/// Workflows outlive their authors.
#[tokio::test(start_paused = true)]
async fn calls_of_a_workflow_are_made_after_its_author_left() {
    let left = DepartedPolicy::default();
    let first = stage(1).policy(left.clone()).open().await;
    first.apply_as("user_eve", &workflow("inner").node(strict("x"))).await;
    first.apply_as("user_mal", &workflow("w").child("c", "inner", json!({})).node(strict("b")).edge("c", "b")).await;
    let run = started(&first, "user_ann", "w").await;
    let child = id_of(&first.step(run, "c", "running").await["child_run_id"]);
    let asked = asked_at(&first, child, "x").await;
    left.leaves("user_mal");
    left.leaves("user_eve");
    let second = first.restart(stage(1).policy(left)).await;
    assert_eq!(approve(&second, "user_cat", child, &asked).await, "none");
    let asked = asked_at(&second, run, "b").await;
    assert_eq!(approve(&second, "user_cat", run, &asked).await, "none");
    assert_eq!(second.ended(run).await["status"], "completed");
}

/// The requester of a rollback loses their rights after its first undo: the other undos are refused, with the reason.
#[tokio::test(start_paused = true)]
async fn what_is_left_to_undo_stays_once_whoever_asked_for_it_may_not_any_more() {
    let (left, undone) = (DepartedPolicy::default(), Arc::new(Mutex::new(Vec::new())));
    let tool = ScriptedTool::new("write", EffectKind::Write).on_rollback({
        let (left, undone) = (left.clone(), Arc::clone(&undone));
        move |_, done| {
            left.leaves("user_mal");
            undone.lock().unwrap().push(done.input["n"].clone());
            Ok(json!({}))
        }
    });
    let stage = stage(1).policy(left).tool(tool.build()).open().await;
    let air = workflow("w").map("m", json!(["x", "y", "z"]), "write", json!({"n": "${item}"}));
    let run = stage.run(&air, Level::ExecuteSilent).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    flow::rollback(&stage.flow, &stage.permit("user_mal"), run, None, None).await.unwrap();
    let shown = stage.until(run, |run| run["rollback"]["left"].as_array().is_some_and(|left| left.len() == 2)).await;
    assert_eq!(shown["rollback"]["left"][0]["reason"], "the actor is disabled");
    assert_eq!(*undone.lock().unwrap(), [json!("z")]);
}

/// The retry of an undo is judged like the first attempt: by the current rights of its requester and of the run's
/// actor.
#[tokio::test(start_paused = true)]
async fn an_undo_is_not_tried_again_once_somebody_of_it_may_not_act_any_more() {
    for leaver in ["user_mal", "user_ann"] {
        let (left, tries) = (DepartedPolicy::default(), Arc::new(Mutex::new(0)));
        let tool = ScriptedTool::new("write", EffectKind::Write).on_rollback({
            let (left, tries) = (left.clone(), Arc::clone(&tries));
            move |_, _| {
                left.leaves(leaver);
                *tries.lock().unwrap() += 1;
                Err(ToolError::not_sent(Code::ExternalServiceUnavailable, "not now"))
            }
        });
        let stage = stage(1).policy(left).tool(tool.build()).open().await;
        let run = stage.run(&workflow("w").function("a", "write", json!({})), Level::ExecuteSilent).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        flow::rollback(&stage.flow, &stage.permit("user_mal"), run, None, None).await.unwrap();
        let shown = stage.until(run, |run| run["rollback"]["ended"] == true).await;
        assert_eq!(shown["rollback"]["left"][0]["reason"], "the actor is disabled", "{leaver}");
        assert_eq!(*tries.lock().unwrap(), 1, "{leaver}");
    }
}
