//! A rule about an actor applies to everything that actor contributes to, also in another actor's run: edits, patches,
//! replays, rollbacks, and reports that a call never happened.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::call::ToolError;
use chimera_core::tool::EffectKind;
use chimera_engine::EngineError;
use chimera_engine::act::rules::{Beyond, Rule, Rules, Says};
use chimera_engine::flow::{self, Decide, Decision, OutcomeReport, PatchRequest};
use chimera_testkit::flow::{EngineFixture, EngineSetup, ScriptedTool, chain, code_of, id_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

fn rule(actor: &str, tool: &str, says: Says) -> Rules {
    Rules(vec![Rule {
        name: "r".to_owned(),
        tool: tool.to_owned(),
        actor: actor.to_owned(),
        tenant: "*".to_owned(),
        says,
        limits: Vec::new(),
        beyond: Beyond::Deny,
    }])
}

/// Somebody else must approve what `user_bob` asks this tool to do.
fn four_eyes(tool: &str) -> Rules {
    rule("user_bob", tool, Says::Ask { approvals: 1, approvers: Vec::new(), other_than_requester: true })
}

fn denied(tool: &str) -> Rules {
    rule("user_bob", tool, Says::Deny { reason: "not by bob".to_owned() })
}

/// A stage with a tool that works until it is released.
fn gated(gate: &Arc<Notify>) -> EngineSetup {
    let gate = Arc::clone(gate);
    let tool = ScriptedTool::new("gated", EffectKind::Read).on_execute(move |_, _| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(json!({}))
        }
    });
    stage(1).tool(tool.build())
}

async fn patch(stage: &EngineFixture, run: Uuid, node: Value) -> Result<(), EngineError> {
    let edges = json!([{"from": "g", "to": node["id"]}]);
    let document = json!({"patch_version": "0.1", "justification": "more", "add_nodes": [node], "add_edges": edges});
    flow::patch(&stage.flow, &stage.permit("user_bob"), PatchRequest::new(run, document)).await.map(drop)
}

fn again(id: &str) -> Value {
    json!({"id": id, "type": "function", "fn": "again", "inputs": {"n": id}})
}

#[tokio::test(start_paused = true)]
async fn a_patch_is_refused_if_a_rule_would_make_its_proposer_ask_and_the_run_need_not() {
    let gate = Arc::new(Notify::new());
    let stage = gated(&gate).policy(four_eyes("again")).open().await;
    let run = stage.run(&chain("w", &[("g", "gated")]), SILENT).await;
    stage.step(run, "g", "running").await;
    assert_eq!(code_of(patch(&stage, run, again("a")).await), "POLICY_DENIED");
    gate.notify_one();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// The rule is about a call of a child run, which the patch does not show.
#[tokio::test(start_paused = true)]
async fn a_rule_about_whoever_added_a_run_inside_counts_for_its_calls() {
    let gate = Arc::new(Notify::new());
    let stage = gated(&gate).policy(four_eyes("again")).open().await;
    stage.apply(&workflow("inner").node(again("x"))).await;
    let run = stage.run(&chain("w", &[("g", "gated")]), SILENT).await;
    stage.step(run, "g", "running").await;
    let node = json!({"id": "a", "type": "workflow", "workflow_id": "inner", "inputs": {}});
    patch(&stage, run, node).await.unwrap();
    stage.until(run, |shown| shown["patches"][0]["status"] == "applied").await;
    gate.notify_one();
    let child = id_of(&stage.step(run, "a", "running").await["child_run_id"]);
    decided_by_somebody_else(&stage, child).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// `user_bob` may not decide on the pending request, but another may.
async fn decided_by_somebody_else(stage: &EngineFixture, run: Uuid) {
    let asked = stage.asks(run).await.remove(0);
    let by_bob = stage.decide("user_bob", run, Decision::Approve, Some(&asked)).await;
    assert_eq!(code_of(by_bob), "RBAC_FORBIDDEN");
    assert_eq!(code_of(stage.decide("user_cat", run, Decision::Approve, Some(&asked)).await), "none");
}

/// The pending step in a run of `user_ann`, and the digest of its request.
async fn waiting(stage: &EngineFixture, run: Uuid) -> (Uuid, Value) {
    let asked = stage.asks(run).await.remove(0);
    (id_of(&asked["step_id"]), asked["digest"].clone())
}

#[tokio::test(start_paused = true)]
async fn a_rule_about_whoever_edited_a_step_counts_for_the_step() {
    let stage = stage(1).policy(four_eyes("again")).open().await;
    let run = stage.run(&workflow("w").node(again("a")), Level::Ask).await;
    let (step, old) = waiting(&stage, run).await;
    flow::edit_step(&stage.flow, &stage.permit("user_bob"), run, step, json!({"n": "bob"})).await.unwrap();
    stage.until(run, |shown| shown["approvals"][0]["digest"].as_str().is_some_and(|new| new != old)).await;
    decided_by_somebody_else(&stage, run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_rule_about_whoever_edited_a_line_of_the_plan_counts_for_the_plan() {
    let stage = stage(1).policy(four_eyes("again")).open().await;
    let run = stage.run(&workflow("w").node(again("a")), Level::Draft).await;
    let old = stage.asks(run).await.remove(0)["digest"].clone();
    flow::edit_planned(&stage.flow, &stage.permit("user_bob"), run, "a", json!({"n": "bob"})).await.unwrap();
    stage.until(run, |shown| shown["approvals"][0]["digest"].as_str().is_some_and(|new| new != old)).await;
    decided_by_somebody_else(&stage, run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// A later step works with what they wrote.
#[tokio::test(start_paused = true)]
async fn a_rule_about_whoever_wrote_what_a_later_step_works_with_counts_for_that_step() {
    let stage =
        stage(1).policy(four_eyes("second")).tool(ScriptedTool::new("second", EffectKind::Write).build()).open().await;
    let mut first = again("a");
    first["requires_approval"] = true.into();
    let later = json!({"id": "b", "type": "function", "fn": "second", "inputs": {"n": "${nodes.a.outputs.echo.n}"}});
    let run = stage.run(&workflow("w").node(first).node(later).edge("a", "b"), SILENT).await;
    let (step, old) = waiting(&stage, run).await;
    flow::edit_step(&stage.flow, &stage.permit("user_bob"), run, step, json!({"n": "bob"})).await.unwrap();
    let shown = stage.until(run, |shown| shown["approvals"][0]["digest"].as_str().is_some_and(|new| new != old)).await;
    stage.decide("user_ann", run, Decision::Approve, Some(&shown["approvals"][0])).await.unwrap();
    stage.step(run, "b", "awaiting_approval").await;
    decided_by_somebody_else(&stage, run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// A service-only action is not blocked by a person's contribution; somebody without a part in it reviews it.
#[tokio::test(start_paused = true)]
async fn what_is_denied_to_whoever_answered_a_question_before_it_waits_for_somebody_else() {
    let stage = stage(1).policy(denied("again")).open().await;
    let air = workflow("w").node(json!({"id": "q", "type": "hitl"})).node(again("a")).edge("q", "a");
    let run = stage.run(&air, SILENT).await;
    let approval = Some(id_of(&stage.asks(run).await[0]["approval_id"]));
    let reason = Some("with these words".to_owned());
    let ask = Decide { run, decision: Decision::Approve, approval, step: None, digest: None, reason };
    flow::decide(&stage.flow, &stage.permit("user_bob"), ask).await.unwrap();
    stage.step(run, "a", "awaiting_approval").await;
    decided_by_somebody_else(&stage, run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn nobody_edits_the_input_of_a_tool_that_a_rule_denies_them() {
    let stage = stage(1).policy(denied("again")).open().await;
    for level in [Level::Ask, Level::Draft] {
        let run = stage.run(&workflow("w").node(again("a")), level).await;
        let asked = stage.asks(run).await.remove(0);
        let bob = stage.permit("user_bob");
        let refused = match asked["step_id"].as_str() {
            Some(_) => flow::edit_step(&stage.flow, &bob, run, id_of(&asked["step_id"]), json!({"n": "bob"})).await,
            None => flow::edit_planned(&stage.flow, &bob, run, "a", json!({"n": "bob"})).await,
        };
        assert_eq!(code_of(refused), "POLICY_DENIED", "{level:?}");
    }
}

/// An ended run of `user_ann` that could be undone, and the number of undos.
async fn done(policy: Rules) -> (EngineFixture, Uuid, Arc<AtomicUsize>) {
    let undone = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&undone);
    let tool = ScriptedTool::new("write", EffectKind::Write).on_rollback(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(json!({}))
    });
    let stage = stage(1).policy(policy).tool(tool.build()).open().await;
    stage.apply(&chain("inner", &[("x", "write")])).await;
    let run = stage.run(&chain("w", &[("a", "write")]).child("c", "inner", json!({})), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    (stage, run, undone)
}

#[tokio::test(start_paused = true)]
async fn a_rule_about_whoever_rolls_a_run_back_counts_for_what_is_undone() {
    for policy in [denied("write"), four_eyes("write")] {
        let (stage, run, undone) = done(policy).await;
        let refused = flow::rollback(&stage.flow, &stage.permit("user_bob"), run, None, None).await;
        assert_eq!(code_of(refused), "POLICY_DENIED");
        flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
        stage.status(run, "rolled_back").await;
        assert_eq!(undone.load(Ordering::SeqCst), 2);
    }
}

/// Only the child run has what the rule is about.
#[tokio::test(start_paused = true)]
async fn a_rule_about_whoever_rolls_a_run_back_counts_inside_it_too() {
    for policy in [denied("write"), four_eyes("write")] {
        let (stage, _, undone) = done(policy).await;
        let run = stage.run(&workflow("around").child("c", "inner", json!({})), SILENT).await;
        stage.ended(run).await;
        flow::rollback(&stage.flow, &stage.permit("user_bob"), run, None, None).await.unwrap();
        let shown = stage.until(run, |shown| shown["rollback"]["ended"] == true).await;
        assert_eq!(shown["status"], "completed");
        assert_eq!(undone.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_about_whoever_says_that_a_call_never_happened_counts_for_sending_it() {
    for policy in [denied("lost"), four_eyes("lost")] {
        let lost = ScriptedTool::new("lost", EffectKind::Write)
            .answers(|_, _| Err(ToolError::maybe_sent(Code::ExternalServiceError, "the answer was lost")));
        let stage = stage(1).policy(policy).tool(lost.build()).open().await;
        let run = stage.run(&workflow("w").function("a", "lost", json!({})), SILENT).await;
        let step = id_of(&stage.step(run, "a", "outcome_unknown").await["step_id"]);
        let refused =
            flow::report_outcome(&stage.flow, &stage.permit("user_bob"), run, OutcomeReport::did_not_happen(step))
                .await;
        assert_eq!(code_of(refused), "POLICY_DENIED");
        flow::report_outcome(
            &stage.flow,
            &stage.permit("user_bob"),
            run,
            OutcomeReport::happened(step, Some(json!({}))),
        )
        .await
        .unwrap();
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}
