//! Four eyes: authors don't approve their own work, neither the requester of a run nor anybody who changed what would
//! run.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::call::ToolError;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::tool::EffectKind;
use chimera_engine::act::rules::{Beyond, Rule, Rules, Says};
use chimera_engine::flow::{self, Decide, Decision, OutcomeReport, PatchRequest, ReplayOptions, StartRun};
use chimera_testkit::flow::{Air, EngineFixture, EngineSetup, ScriptedTool, chain, code_of, id_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;
use uuid::Uuid;

/// A node that somebody else must approve.
pub(crate) fn strict(id: &str) -> Value {
    json!({
        "id": id, "type": "function", "fn": "again", "inputs": {"n": id},
        "requires_approval": {"other_than_requester": true},
    })
}

fn guarded() -> Air {
    workflow("w").node(strict("a"))
}

/// The pending request that replaced an older one.
pub(crate) async fn newer(stage: &EngineFixture, run: Uuid, old: &Value) -> Value {
    stage.until(run, |shown| is_newer(shown, old)).await["approvals"][0].clone()
}

pub(crate) async fn approve(stage: &EngineFixture, who: &str, run: Uuid, asked: &Value) -> String {
    code_of(stage.decide(who, run, Decision::Approve, Some(asked)).await)
}

/// None of these may decide in any way; then somebody else does.
pub(crate) async fn decided_by_none_of(stage: &EngineFixture, run: Uuid, asked: &Value, none: &[&str]) {
    for who in none {
        for decision in [Decision::Approve, Decision::Reject, Decision::RequestChanges] {
            let refused = code_of(stage.decide(who, run, decision, Some(asked)).await);
            assert_eq!(refused, "RBAC_FORBIDDEN", "{who} {decision:?}");
        }
    }
    assert_eq!(approve(stage, "user_cat", run, asked).await, "none");
}

/// Applies edits one after another; returns the pending request.
async fn edited_by(stage: &EngineFixture, run: Uuid, edits: &[(&str, Value)]) -> Value {
    let mut asked = stage.asks(run).await.remove(0);
    for (who, input) in edits {
        let (permit, input) = (stage.permit(who), input.clone());
        match asked["step_id"].as_str() {
            Some(_) => flow::edit_step(&stage.flow, &permit, run, id_of(&asked["step_id"]), input).await.unwrap(),
            None => flow::edit_planned(&stage.flow, &permit, run, "a", input).await.unwrap(),
        }
        asked = newer(stage, run, &asked).await;
    }
    asked
}

/// Everybody who edited an input is its author: an edit may keep what another wrote, or change what the tool ignores.
#[tokio::test(start_paused = true)]
async fn everybody_who_edited_a_step_does_not_decide_about_it() {
    for level in [Level::ExecuteNotify, Level::Draft] {
        for last in [json!({"n": "dan"}), json!({"n": "bob", "ignored": 1}), json!({"n": "a"})] {
            let first = stage(1).open().await;
            let run = first.run(&guarded(), level).await;
            let asked = edited_by(&first, run, &[("user_bob", json!({"n": "bob"})), ("user_dan", last.clone())]).await;
            assert_eq!(asked["changed_by"], json!(["user_bob", "user_dan"]), "{level:?} {last}");
            let second = first.restart(stage(1)).await;
            decided_by_none_of(&second, run, &asked, &["user_ann", "user_bob", "user_dan"]).await;
            assert_eq!(second.ended(run).await["status"], "completed");
        }
    }
}

/// A restart between two edits loses neither author.
#[tokio::test(start_paused = true)]
async fn whoever_edited_before_a_restart_and_another_edit_does_not_decide() {
    for level in [Level::ExecuteNotify, Level::Draft] {
        let first = stage(1).open().await;
        let run = first.run(&guarded(), level).await;
        edited_by(&first, run, &[("user_bob", json!({"n": "bob"}))]).await;
        let second = first.restart(stage(1)).await;
        let asked = edited_by(&second, run, &[("user_dan", json!({"n": "bob", "ignored": 1}))]).await;
        decided_by_none_of(&second, run, &asked, &["user_ann", "user_bob", "user_dan"]).await;
        assert_eq!(second.ended(run).await["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn everybody_who_wrote_a_line_of_a_plan_asked_for_the_plan() {
    let first = stage(1).open().await;
    let air = workflow("w").node(strict("a")).node(strict("b"));
    let run = first.run(&air, Level::Draft).await;
    let mut asked = first.asks(run).await.remove(0);
    for (who, node) in [("user_bob", "a"), ("user_dan", "b")] {
        flow::edit_planned(&first.flow, &first.permit(who), run, node, json!({"n": who})).await.unwrap();
        asked = newer(&first, run, &asked).await;
    }
    assert_eq!(asked["changed_by"], json!(["user_bob", "user_dan"]));
    let second = first.restart(stage(1)).await;
    decided_by_none_of(&second, run, &asked, &["user_ann", "user_bob", "user_dan"]).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

/// The plan had no restriction on approvers, but a rule has one by the time the step runs.
#[tokio::test(start_paused = true)]
async fn a_plan_that_its_editor_approved_is_not_approved_by_somebody_else() {
    let first = stage(1).open().await;
    let gate = json!({"id": "ask", "type": "hitl"});
    let air = workflow("w").node(gate).node(strict_less("a")).edge("ask", "a");
    let run = first.run(&air, Level::Draft).await;
    let asked = first.asks(run).await.remove(0);
    flow::edit_planned(&first.flow, &first.permit("user_bob"), run, "a", json!({"n": 7})).await.unwrap();
    let asked = newer(&first, run, &asked).await;
    assert_eq!(approve(&first, "user_bob", run, &asked).await, "none");
    let person = newer(&first, run, &asked).await;
    let says = Says::Ask { approvals: 1, approvers: Vec::new(), other_than_requester: true };
    let rule = Rule {
        name: "four eyes".to_owned(),
        tool: "again".to_owned(),
        actor: "*".to_owned(),
        tenant: "*".to_owned(),
        says,
        limits: Vec::new(),
        beyond: Beyond::Deny,
    };
    let second = first.restart(stage(1).policy(Rules(vec![rule]))).await;
    assert_eq!(approve(&second, "user_ann", run, &person).await, "none");
    let asked = newer(&second, run, &person).await;
    decided_by_none_of(&second, run, &asked, &["user_ann", "user_bob"]).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

/// An edit keeps its author across a restart, when a rule added meanwhile requires somebody else.
#[tokio::test(start_paused = true)]
async fn an_approval_by_whoever_edited_the_step_does_not_count_for_a_rule_that_came_since() {
    let first = stage(1).open().await;
    let mut node = strict_less("a");
    node["requires_approval"] = true.into();
    let run = first.run(&workflow("w").node(node), Level::ExecuteNotify).await;
    let asked = first.asks(run).await.remove(0);
    flow::edit_step(&first.flow, &first.permit("user_bob"), run, id_of(&asked["step_id"]), json!({"n": 7}))
        .await
        .unwrap();
    let edited = newer(&first, run, &asked).await;
    let says = Says::Ask { approvals: 1, approvers: Vec::new(), other_than_requester: true };
    let rule = Rule {
        name: "four eyes".to_owned(),
        tool: "again".to_owned(),
        actor: "*".to_owned(),
        tenant: "*".to_owned(),
        says,
        limits: Vec::new(),
        beyond: Beyond::Deny,
    };
    let second = first.restart(stage(1).policy(Rules(vec![rule]))).await;
    assert_eq!(approve(&second, "user_bob", run, &edited).await, "none", "the question was asked before the rule");
    let another = |shown: &Value| {
        let asked = &shown["approvals"][0]["approval_id"];
        !asked.is_null() && *asked != edited["approval_id"] || shown["status"] == "completed"
    };
    let shown = second.until(run, another).await;
    let asked = &shown["approvals"][0];
    assert_eq!((&shown["status"], &asked["changed_by"]), (&json!("awaiting_approval"), &json!(["user_bob"])));
    let step = id_of(&asked["step_id"]);
    let decide = async |who: &str| {
        let permit = second.permit(who);
        let approval = Some(id_of(&asked["approval_id"]));
        let ask = Decide { run, decision: Decision::Approve, approval, step: Some(step), digest: None, reason: None };
        code_of(flow::decide(&second.flow, &permit, ask).await)
    };
    assert_eq!(decide("user_bob").await, "RBAC_FORBIDDEN");
    assert_eq!(decide("user_cat").await, "none");
    assert_eq!(second.ended(run).await["status"], "completed");
}

pub(crate) fn strict_less(id: &str) -> Value {
    json!({"id": id, "type": "function", "fn": "again", "inputs": {"n": id}})
}

pub(crate) fn gated(gate: &Arc<Notify>) -> EngineSetup {
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

fn patch(node: Value) -> Value {
    let to = node["id"].clone();
    json!({
        "patch_version": "0.1", "justification": "more", "add_nodes": [node], "add_edges": [{"from": "g", "to": to}],
    })
}

/// A run of `user_ann` in progress when `user_bob` adds a node to it.
async fn patched(node: Value) -> (EngineFixture, Uuid) {
    let gate = Arc::new(Notify::new());
    let stage = gated(&gate).open().await;
    stage.apply(&workflow("inner").node(strict("x"))).await;
    let run = stage.run(&chain("w", &[("g", "gated")]), Level::ExecuteNotify).await;
    stage.step(run, "g", "running").await;
    flow::patch(&stage.flow, &stage.permit("user_bob"), PatchRequest::new(run, patch(node))).await.unwrap();
    stage.until(run, |shown| shown["patches"].as_array().is_some_and(|all| all[0]["status"] == "applied")).await;
    gate.notify_one();
    (stage, run)
}

#[tokio::test(start_paused = true)]
async fn whoever_added_a_node_does_not_decide_about_it() {
    let (stage, run) = patched(strict("a")).await;
    let asked = stage.asks(run).await.remove(0);
    assert_eq!(asked["changed_by"], json!(["user_bob"]));
    decided_by_none_of(&stage, run, &asked, &["user_ann", "user_bob"]).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn whoever_added_a_run_inside_does_not_decide_about_its_steps() {
    let (stage, run) = patched(json!({"id": "a", "type": "workflow", "workflow_id": "inner", "inputs": {}})).await;
    let step = stage.step(run, "a", "running").await;
    let child = id_of(&step["child_run_id"]);
    let asked = stage.asks(child).await.remove(0);
    decided_by_none_of(&stage, child, &asked, &["user_ann", "user_bob"]).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// Each of several patches keeps its author, also across a restart.
#[tokio::test(start_paused = true)]
async fn a_node_is_of_whoever_added_it_and_not_of_whoever_added_another() {
    let gate = Arc::new(Notify::new());
    let first = gated(&gate).open().await;
    let run = first.run(&chain("w", &[("g", "gated")]), Level::ExecuteNotify).await;
    first.step(run, "g", "running").await;
    for (at, (who, node)) in [("user_bob", "a"), ("user_dan", "b")].into_iter().enumerate() {
        flow::patch(&first.flow, &first.permit(who), PatchRequest::new(run, patch(strict(node)))).await.unwrap();
        first.until(run, |shown| shown["patches"][at]["status"] == "applied").await;
    }
    gate.notify_one();
    first.until(run, |shown| shown["approvals"].as_array().is_some_and(|all| all.len() == 2)).await;
    let second = first.restart(stage(1)).await;
    let asked = second.asks(run).await;
    for (node, author, other) in [("a", "user_bob", "user_dan"), ("b", "user_dan", "user_bob")] {
        let asked = asked.iter().find(|asked| asked["node_id"] == node).unwrap();
        assert_eq!(asked["changed_by"], json!([author]), "{node}");
        assert_eq!(approve(&second, author, run, asked).await, "RBAC_FORBIDDEN", "{node}");
        assert_eq!(approve(&second, other, run, asked).await, "none", "{node}");
    }
    assert_eq!(second.ended(run).await["status"], "completed");
}

async fn retry(stage: &EngineFixture, who: &str, of: Uuid) -> Uuid {
    let replay = Replay { of, mode: ReplayMode::Retry, from: Some("a".to_owned()) };
    flow::replay(&stage.flow, &stage.permit(who), replay, ReplayOptions::default()).await.unwrap().run_id
}

#[tokio::test(start_paused = true)]
async fn whoever_retries_the_run_of_another_does_not_decide_about_it_and_neither_does_the_other() {
    let stage = stage(1).open().await;
    let run = stage.run(&guarded(), Level::ExecuteNotify).await;
    stage.asks(run).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    stage.ended(run).await;
    let second = retry(&stage, "user_bob", run).await;
    stage.asks(second).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), second, None).await.unwrap();
    stage.ended(second).await;
    let third = retry(&stage, "user_dan", second).await;
    let asked = stage.asks(third).await.remove(0);
    decided_by_none_of(&stage, third, &asked, &["user_ann", "user_bob", "user_dan"]).await;
    assert_eq!(stage.ended(third).await["status"], "completed");
}

/// A retry includes what was added to the original run.
#[tokio::test(start_paused = true)]
async fn whoever_added_a_node_to_the_run_that_is_repeated_does_not_decide_about_it() {
    let (stage, run) = patched(strict("a")).await;
    stage.asks(run).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    stage.ended(run).await;
    let again = retry(&stage, "user_ann", run).await;
    let asked = stage.asks(again).await.remove(0);
    decided_by_none_of(&stage, again, &asked, &["user_ann", "user_bob"]).await;
}

/// Requesting changes closes the request: nothing is left that the same person could edit and approve.
#[tokio::test(start_paused = true)]
async fn after_a_request_for_changes_nothing_waits_that_could_be_edited() {
    for level in [Level::ExecuteNotify, Level::Draft] {
        let stage = stage(1).open().await;
        let run = stage.run(&guarded(), level).await;
        let asked = stage.asks(run).await.remove(0);
        stage.decide("user_bob", run, Decision::RequestChanges, Some(&asked)).await.unwrap();
        let bob = stage.permit("user_bob");
        let refused = match asked["step_id"].as_str() {
            Some(_) => flow::edit_step(&stage.flow, &bob, run, id_of(&asked["step_id"]), json!({"n": 1})).await,
            None => flow::edit_planned(&stage.flow, &bob, run, "a", json!({"n": 1})).await,
        };
        assert!(["INVALID_TRANSITION", "OCC_CONFLICT"].contains(&code_of(refused).as_str()));
        assert_eq!(stage.ended(run).await["status"], "cancelled");
        assert!(stage.world.outside.sent().is_empty());
    }
}

/// Two steps: the second uses the output of the first, and somebody else must approve the second.
fn passed_on() -> Air {
    let first = json!({
        "id": "a", "type": "function", "fn": "again", "inputs": {"n": "asked"}, "requires_approval": true,
    });
    let mut second = strict("b");
    second["inputs"] = json!({"n": "${nodes.a.outputs.echo.n}"});
    workflow("w").node(first).node(second).edge("a", "b")
}

pub(crate) async fn asked_at(stage: &EngineFixture, run: Uuid, node: &str) -> Value {
    let shown = stage.until(run, |shown| shown["approvals"][0]["node_id"] == node).await;
    shown["approvals"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn whoever_wrote_what_a_later_step_works_with_does_not_decide_about_that_step() {
    let first = stage(1).open().await;
    let run = first.run(&passed_on(), Level::ExecuteNotify).await;
    let asked = asked_at(&first, run, "a").await;
    flow::edit_step(&first.flow, &first.permit("user_bob"), run, id_of(&asked["step_id"]), json!({"n": "bob"}))
        .await
        .unwrap();
    let asked = newer(&first, run, &asked).await;
    assert_eq!(approve(&first, "user_bob", run, &asked).await, "none", "nothing is said about the first step");
    let asked = asked_at(&first, run, "b").await;
    assert_eq!((&asked["changed_by"], &asked["action"]["input"]), (&json!(["user_bob"]), &json!({"n": "bob"})));
    let second = first.restart(stage(1)).await;
    decided_by_none_of(&second, run, &asked, &["user_ann", "user_bob"]).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn whoever_wrote_a_line_of_a_plan_does_not_decide_about_what_goes_on_from_it() {
    let stage = stage(1).open().await;
    let mut second = strict("b");
    second["inputs"] = json!({"n": "${nodes.a.outputs.echo.n}"});
    let gate = json!({"id": "ask", "type": "hitl"});
    let air = workflow("w").node(strict_less("a")).node(gate).node(second).edge("a", "ask").edge("ask", "b");
    let run = stage.run(&air, Level::Draft).await;
    let asked = stage.asks(run).await.remove(0);
    flow::edit_planned(&stage.flow, &stage.permit("user_bob"), run, "a", json!({"n": "bob"})).await.unwrap();
    let asked = newer(&stage, run, &asked).await;
    assert_eq!(approve(&stage, "user_bob", run, &asked).await, "none", "nothing is said about the plan");
    let person = asked_at(&stage, run, "ask").await;
    assert_eq!(approve(&stage, "user_dan", run, &person).await, "none");
    let asked = asked_at(&stage, run, "b").await;
    decided_by_none_of(&stage, run, &asked, &["user_ann", "user_bob"]).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// The output of a child run flows into its parent, and so do the authors of what happened inside.
#[tokio::test(start_paused = true)]
async fn whoever_changed_a_run_inside_does_not_decide_about_what_goes_on_from_it() {
    let stage = stage(1).open().await;
    let inside = json!({
        "id": "x", "type": "function", "fn": "again", "inputs": {"n": "asked"}, "requires_approval": true,
    });
    stage.apply(&workflow("inner").node(inside)).await;
    let air = workflow("w").child("c", "inner", json!({})).node(strict("b")).edge("c", "b");
    let run = stage.run(&air, Level::ExecuteNotify).await;
    let child = id_of(&stage.step(run, "c", "running").await["child_run_id"]);
    let asked = asked_at(&stage, child, "x").await;
    flow::edit_step(&stage.flow, &stage.permit("user_bob"), child, id_of(&asked["step_id"]), json!({"n": "bob"}))
        .await
        .unwrap();
    let asked = newer(&stage, child, &asked).await;
    assert_eq!(approve(&stage, "user_bob", child, &asked).await, "none");
    let asked = asked_at(&stage, run, "b").await;
    assert_eq!(asked["changed_by"], json!(["user_bob"]));
    decided_by_none_of(&stage, run, &asked, &["user_ann", "user_bob"]).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn whoever_changed_a_step_does_not_decide_about_a_retry_of_what_came_after() {
    let stage = stage(1).open().await;
    let run = stage.run(&passed_on(), Level::ExecuteNotify).await;
    let asked = asked_at(&stage, run, "a").await;
    flow::edit_step(&stage.flow, &stage.permit("user_bob"), run, id_of(&asked["step_id"]), json!({"n": "bob"}))
        .await
        .unwrap();
    let asked = newer(&stage, run, &asked).await;
    assert_eq!(approve(&stage, "user_cat", run, &asked).await, "none");
    asked_at(&stage, run, "b").await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    stage.ended(run).await;
    let replay = Replay { of: run, mode: ReplayMode::Retry, from: Some("b".to_owned()) };
    let second =
        flow::replay(&stage.flow, &stage.permit("user_ann"), replay, ReplayOptions::default()).await.unwrap().run_id;
    let asked = asked_at(&stage, second, "b").await;
    decided_by_none_of(&stage, second, &asked, &["user_ann", "user_bob"]).await;
    assert_eq!(stage.ended(second).await["status"], "completed");
}

/// Whoever reports the output of an effect is an author of what follows.
#[tokio::test(start_paused = true)]
async fn whoever_settled_a_doubt_with_an_output_does_not_decide_about_what_goes_on_from_it() {
    let lost = ScriptedTool::new("lost", EffectKind::Write)
        .answers(|_, _| Err(ToolError::maybe_sent(Code::ExternalServiceError, "the answer was lost")));
    let stage = stage(1).tool(lost.build()).open().await;
    let mut second = strict("b");
    second["inputs"] = json!({"n": "${nodes.a.outputs.n}"});
    let air = workflow("w").function("a", "lost", json!({})).node(second).edge("a", "b");
    let run = stage.run(&air, Level::ExecuteNotify).await;
    let step = stage.step(run, "a", "outcome_unknown").await;
    let bob = stage.permit("user_bob");
    flow::report_outcome(
        &stage.flow,
        &bob,
        run,
        OutcomeReport::happened(id_of(&step["step_id"]), Some(json!({"n": "bob"}))),
    )
    .await
    .unwrap();
    let asked = asked_at(&stage, run, "b").await;
    assert_eq!(asked["changed_by"], json!(["user_bob"]));
    decided_by_none_of(&stage, run, &asked, &["user_ann", "user_bob"]).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

pub(crate) fn is_newer(shown: &Value, old: &Value) -> bool {
    let asked = &shown["approvals"][0]["digest"];
    !asked.is_null() && *asked != old["digest"]
}

/// Repeating somebody's text does not make it one's own.
#[tokio::test(start_paused = true)]
async fn an_edit_that_changes_nothing_is_no_change_of_whose_it_is() {
    for level in [Level::ExecuteNotify, Level::Draft] {
        let stage = stage(1).open().await;
        let run = stage.run(&guarded(), level).await;
        let edit = async |who: &str, asked: &Value| {
            let (permit, input) = (stage.permit(who), json!({"n": "of bob"}));
            match level {
                Level::Draft => flow::edit_planned(&stage.flow, &permit, run, "a", input).await.unwrap(),
                _ => flow::edit_step(&stage.flow, &permit, run, id_of(&asked["step_id"]), input).await.unwrap(),
            }
            let another = |shown: &Value| {
                let id = &shown["approvals"][0]["approval_id"];
                !id.is_null() && *id != asked["approval_id"]
            };
            stage.until(run, another).await["approvals"][0].clone()
        };
        let asked = stage.asks(run).await.remove(0);
        let asked = edit("user_bob", &asked).await;
        assert_eq!(asked["changed_by"], json!(["user_bob"]), "{level:?}");
        let asked = edit("user_ann", &asked).await;
        assert_eq!(asked["changed_by"], json!(["user_bob"]), "{level:?}");
        decided_by_none_of(&stage, run, &asked, &["user_ann", "user_bob"]).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

pub(crate) async fn started(stage: &EngineFixture, who: &str, workflow: &str) -> Uuid {
    let ask = StartRun { level: Level::ExecuteNotify, ..StartRun::of(workflow, json!({})) };
    flow::start(&stage.flow, &stage.permit(who), ask).await.unwrap().run_id
}

#[tokio::test(start_paused = true)]
async fn whoever_wrote_the_version_that_runs_does_not_decide_about_it() {
    let stage = stage(1).open().await;
    stage.apply_as("user_dan", &workflow("w").node(strict("old"))).await;
    stage.apply_as("user_bob", &guarded()).await;
    let run = started(&stage, "service_nightly", "w").await;
    let asked = stage.asks(run).await.remove(0);
    assert_eq!((&asked["requested_by"], &asked["changed_by"]), (&json!("service_nightly"), &json!(["user_bob"])));
    let refused = stage.decide("user_bob", run, Decision::Approve, Some(&asked)).await.unwrap_err().body();
    assert!(refused.message.contains("a person with the scope approvals.decide"), "{}", refused.message);
    decided_by_none_of(&stage, run, &asked, &["user_bob"]).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn whoever_wrote_a_workflow_within_does_not_decide_about_its_steps() {
    let stage = stage(1).open().await;
    stage.apply_as("user_bob", &guarded()).await;
    stage.apply_as("user_dan", &workflow("outer").child("c", "w", json!({}))).await;
    let run = started(&stage, "service_nightly", "outer").await;
    let steps = stage.step(run, "c", "running").await;
    let child = id_of(&steps["child_run_id"]);
    let asked = stage.asks(child).await.remove(0);
    decided_by_none_of(&stage, child, &asked, &["user_bob", "user_dan"]).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// Starting a child run requests what its workflow does, and its child workflows too.
#[tokio::test(start_paused = true)]
async fn whoever_wrote_a_workflow_within_does_not_decide_whether_it_is_started() {
    let stage = nested(workflow("outer").node(starts("c", "inner"))).await;
    let run = started(&stage, "service_nightly", "outer").await;
    let asked = stage.asks(run).await.remove(0);
    // A version that the run does not start has no part in it.
    stage.apply_as("user_cat", &workflow("innermost").node(strict_less("later"))).await;
    decided_by_none_of(&stage, run, &asked, &["user_bob", "user_dan", "user_eve"]).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn whoever_wrote_a_workflow_within_does_not_decide_about_the_plan() {
    let stage = nested(workflow("outer").node(strict("a")).child("c", "inner", json!({}))).await;
    let ask = StartRun { level: Level::Draft, ..StartRun::of("outer", json!({})) };
    let run = flow::start(&stage.flow, &stage.permit("service_nightly"), ask).await.unwrap().run_id;
    let asked = stage.asks(run).await.remove(0);
    decided_by_none_of(&stage, run, &asked, &["user_bob", "user_dan", "user_eve"]).await;
}

/// A stage with a workflow by `user_eve` that starts one by `user_bob` that starts one by `user_dan`.
async fn nested(outer: Air) -> EngineFixture {
    let stage = stage(1).open().await;
    stage.apply_as("user_dan", &workflow("innermost").node(strict_less("x"))).await;
    stage.apply_as("user_bob", &workflow("inner").child("i", "innermost", json!({}))).await;
    stage.apply_as("user_eve", &outer).await;
    stage
}

/// A node that starts a workflow and needs approval by somebody else.
fn starts(id: &str, workflow: &str) -> Value {
    json!({
        "id": id, "type": "workflow", "workflow_id": workflow, "inputs": {},
        "requires_approval": {"other_than_requester": true},
    })
}

#[tokio::test(start_paused = true)]
async fn whoever_wrote_a_workflow_that_a_patch_starts_does_not_decide_whether_it_is_started() {
    let gate = Arc::new(Notify::new());
    let first = gated(&gate).open().await;
    first.apply_as("user_dan", &workflow("innermost").node(strict_less("x"))).await;
    first.apply_as("user_eve", &workflow("inner").child("i", "innermost", json!({}))).await;
    let run = first.run(&chain("w", &[("g", "gated")]), Level::ExecuteNotify).await;
    first.step(run, "g", "running").await;
    flow::patch(&first.flow, &first.permit("user_bob"), PatchRequest::new(run, patch(starts("c", "inner"))))
        .await
        .unwrap();
    first.until(run, |shown| shown["patches"].as_array().is_some_and(|all| all[0]["status"] == "applied")).await;
    gate.notify_one();
    let asked = first.asks(run).await.remove(0);
    let second = first.restart(stage(1)).await;
    decided_by_none_of(&second, run, &asked, &["user_ann", "user_bob", "user_dan", "user_eve"]).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn whoever_wrote_a_workflow_within_does_not_decide_about_a_retry() {
    let stage = stage(1).open().await;
    stage.apply_as("user_bob", &workflow("inner").node(strict_less("x"))).await;
    stage.apply_as("user_eve", &workflow("outer").node(starts("a", "inner"))).await;
    let run = started(&stage, "user_ann", "outer").await;
    stage.asks(run).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    stage.ended(run).await;
    let again = retry(&stage, "user_ann", run).await;
    let asked = stage.asks(again).await.remove(0);
    decided_by_none_of(&stage, again, &asked, &["user_ann", "user_bob", "user_eve"]).await;
}
