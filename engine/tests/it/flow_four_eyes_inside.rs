//! Whoever chose the input of a later step does not approve that step: also if they chose it with the reason that ended
//! a child run, with a node that never ran, or by reporting that a call never happened.

use crate::flow_four_eyes::{approve, asked_at, decided_by_none_of, gated, strict, strict_less};
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::call::ToolError;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::tool::EffectKind;
use chimera_engine::act::rules::{Beyond, Rule, Rules, Says};
use chimera_engine::flow::{self, Decide, Decision, OutcomeReport, PatchRequest, ReplayOptions};
use chimera_testkit::flow::{Air, EngineFixture, ScriptedTool, id_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

const FAILED: &str = "${nodes.w.outputs.success == false}";

/// A step that waits for anybody.
fn waits(id: &str) -> Value {
    let mut node = strict_less(id);
    node["requires_approval"] = true.into();
    node
}

/// What continues with the reason that a child run ended with.
fn takes_words(mut second: Value) -> Value {
    second["inputs"] = json!({"n": "${nodes.w.outputs.error.message}"});
    second
}

fn inside(id: &str, workflow: &str) -> Value {
    json!({"id": id, "type": "workflow", "workflow_id": workflow, "inputs": {}})
}

/// `w` starts a child run, and its result goes to `b`, which somebody else must approve.
fn around(first: Value) -> Air {
    workflow("w").node(first).node(takes_words(strict("b"))).edge_if("w", "b", FAILED)
}

async fn open() -> EngineFixture {
    let stage = stage(1).open().await;
    stage.apply(&workflow("inner").node(waits("x"))).await;
    stage.apply(&workflow("between").node(inside("i", "inner"))).await;
    stage
}

/// The child run that a step waits for.
async fn child(stage: &EngineFixture, run: Uuid, node: &str) -> Uuid {
    id_of(&stage.step(run, node, "running").await["child_run_id"])
}

/// Ways to end a run that waits for an approval.
#[derive(Clone, Copy, Debug)]
enum EndMethod {
    Cancel,
    Reject,
    Changes,
}

const ENDS: [EndMethod; 3] = [EndMethod::Cancel, EndMethod::Reject, EndMethod::Changes];

async fn end(stage: &EngineFixture, run: Uuid, who: &str, how: EndMethod, words: Option<&str>) {
    let asked = stage.asks(run).await.remove(0);
    let (permit, reason) = (stage.permit(who), words.map(str::to_owned));
    let decision = match how {
        EndMethod::Cancel => return flow::cancel(&stage.flow, &permit, run, reason).await.unwrap(),
        EndMethod::Reject => Decision::Reject,
        EndMethod::Changes => Decision::RequestChanges,
    };
    let approval = Some(id_of(&asked["approval_id"]));
    let ask = Decide { run, decision, approval, step: None, digest: None, reason };
    flow::decide(&stage.flow, &permit, ask).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_ended_a_run_inside_with_words_does_not_decide_about_what_goes_on_from_them() {
    for how in ENDS {
        let first = open().await;
        let run = first.run(&around(inside("w", "inner")), Level::ExecuteNotify).await;
        let within = child(&first, run, "w").await;
        end(&first, within, "user_mal", how, Some("pay mal")).await;
        let asked = asked_at(&first, run, "b").await;
        assert_eq!(asked["action"]["input"], json!({"n": "pay mal"}), "{how:?}");
        assert_eq!(asked["changed_by"], json!(["user_mal"]), "{how:?}");
        let second = first.restart(stage(1)).await;
        decided_by_none_of(&second, run, &asked, &["user_ann", "user_mal"]).await;
        assert_eq!(second.ended(run).await["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn words_that_ended_a_run_two_runs_inside_are_of_whoever_said_them() {
    let stage = open().await;
    let run = stage.run(&around(inside("w", "between")), Level::ExecuteNotify).await;
    let between = child(&stage, run, "w").await;
    let within = child(&stage, between, "i").await;
    end(&stage, within, "user_mal", EndMethod::Cancel, Some("pay mal")).await;
    let asked = asked_at(&stage, run, "b").await;
    assert_eq!(asked["action"]["input"], json!({"n": "pay mal"}));
    decided_by_none_of(&stage, run, &asked, &["user_ann", "user_mal"]).await;
}

#[tokio::test(start_paused = true)]
async fn words_that_ended_a_run_of_a_map_are_of_whoever_said_them() {
    let stage = open().await;
    let each = json!({"type": "workflow", "workflow_id": "inner", "inputs": {}});
    let map = json!({"id": "w", "type": "map", "over": [1], "max_parallel": 1, "do": each});
    let run = stage.run(&around(map), Level::ExecuteNotify).await;
    stage.step(run, "w", "running").await;
    stage.pass(Duration::from_secs(1)).await;
    let steps = stage.steps(run).await;
    let within = steps.as_array().unwrap().iter().find(|step| step["child_run_id"].is_string());
    let within = within.map(|step| id_of(&step["child_run_id"]));
    end(&stage, within.unwrap(), "user_mal", EndMethod::Reject, Some("pay mal")).await;
    let asked = asked_at(&stage, run, "b").await;
    assert_eq!(asked["action"]["input"], json!({"n": "pay mal"}));
    decided_by_none_of(&stage, run, &asked, &["user_ann", "user_mal"]).await;
}

/// Rules about their author apply too.
#[tokio::test(start_paused = true)]
async fn what_is_denied_to_whoever_ended_a_run_inside_with_words_waits_for_somebody_else() {
    let says = Says::Deny { reason: "not by mal".to_owned() };
    let rule = Rule {
        name: "r".to_owned(),
        tool: "second".to_owned(),
        actor: "user_mal".to_owned(),
        tenant: "*".to_owned(),
        says,
        limits: Vec::new(),
        beyond: Beyond::Deny,
    };
    let second = ScriptedTool::new("second", EffectKind::Write).build();
    let stage = stage(1).policy(Rules(vec![rule])).tool(second).open().await;
    stage.apply(&workflow("inner").node(waits("x"))).await;
    let mut node = takes_words(strict_less("b"));
    node["fn"] = "second".into();
    let air = workflow("w").node(inside("w", "inner")).node(node).edge_if("w", "b", FAILED);
    let run = stage.run(&air, Level::ExecuteSilent).await;
    let within = child(&stage, run, "w").await;
    end(&stage, within, "user_mal", EndMethod::Cancel, Some("pay mal")).await;
    stage.step(run, "b", "awaiting_approval").await;
    let asked = asked_at(&stage, run, "b").await;
    decided_by_none_of(&stage, run, &asked, &["user_mal"]).await;
}

/// Ending a run without a reason makes nobody an author of what follows.
#[tokio::test(start_paused = true)]
async fn whoever_ended_a_run_inside_without_words_decides_about_what_comes_next() {
    for how in ENDS {
        let stage = open().await;
        let run = stage.run(&around(inside("w", "inner")), Level::ExecuteNotify).await;
        let within = child(&stage, run, "w").await;
        end(&stage, within, "user_cat", how, None).await;
        let asked = asked_at(&stage, run, "b").await;
        assert_eq!(asked["changed_by"], json!([]), "{how:?}");
        assert_eq!(approve(&stage, "user_cat", run, &asked).await, "none", "{how:?}");
    }
}

/// The reason that stopped a run is not an input of its retry: whoever requested changes reviews it again.
#[tokio::test(start_paused = true)]
async fn whoever_ended_a_run_with_words_decides_about_its_retry() {
    for how in ENDS {
        let stage = open().await;
        let run = stage.run(&workflow("w").node(waits("a")), Level::ExecuteNotify).await;
        end(&stage, run, "user_cat", how, Some("not like this")).await;
        stage.ended(run).await;
        let replay = Replay { of: run, mode: ReplayMode::Retry, from: None };
        let again = flow::replay(&stage.flow, &stage.permit("user_ann"), replay, ReplayOptions::default())
            .await
            .unwrap()
            .run_id;
        let asked = asked_at(&stage, again, "a").await;
        assert_eq!(asked["changed_by"], json!([]), "{how:?}");
    }
}

/// A patch with one node after `g`, on an edge with this condition.
async fn patch_if(stage: &EngineFixture, who: &str, run: Uuid, node: Value, condition: &str) {
    let edge = json!({"from": "g", "to": node["id"], "condition": condition});
    let document = json!({"patch_version": "0.1", "justification": "more", "add_nodes": [node], "add_edges": [edge]});
    flow::patch(&stage.flow, &stage.permit(who), PatchRequest::new(run, document)).await.unwrap();
    stage.until(run, |shown| shown["patches"][0]["status"] == "applied").await;
}

/// The result of a run is the output of its last nodes: an added and skipped one replaces the previous last one.
#[tokio::test(start_paused = true)]
async fn whoever_added_a_node_inside_that_never_ran_does_not_decide_about_what_goes_on_around() {
    let gate = Arc::new(Notify::new());
    let first = gated(&gate).open().await;
    first.apply(&workflow("inner").function("g", "gated", json!({}))).await;
    let air = workflow("w").node(inside("w", "inner")).node(strict("b")).edge("w", "b");
    let run = first.run(&air, Level::ExecuteNotify).await;
    let within = child(&first, run, "w").await;
    first.step(within, "g", "running").await;
    patch_if(&first, "user_mal", within, strict_less("p"), "${nodes.g.outputs.success == false}").await;
    gate.notify_one();
    assert_eq!(first.ended(within).await["result"], json!({}), "without the patch it has what g gave");
    let asked = asked_at(&first, run, "b").await;
    assert_eq!(asked["changed_by"], json!(["user_mal"]));
    let second = first.restart(stage(1)).await;
    flow::cancel(&second.flow, &second.permit("user_ann"), run, None).await.unwrap();
    second.ended(run).await;
    let replay = Replay { of: run, mode: ReplayMode::Retry, from: Some("b".to_owned()) };
    let again =
        flow::replay(&second.flow, &second.permit("user_ann"), replay, ReplayOptions::default()).await.unwrap().run_id;
    let asked = asked_at(&second, again, "b").await;
    decided_by_none_of(&second, again, &asked, &["user_ann", "user_mal"]).await;
}

/// A patch that handles a failure keeps the run going: what follows happens only because of it.
#[tokio::test(start_paused = true)]
async fn whoever_dealt_with_a_failure_by_a_patch_does_not_decide_about_what_is_left() {
    let gate = Arc::new(Notify::new());
    let (held, fails) = (Arc::clone(&gate), Arc::new(Notify::new()));
    let failing = Arc::clone(&fails);
    let broken = ScriptedTool::new("broken", EffectKind::Read).on_execute(move |_, _| {
        let fails = Arc::clone(&failing);
        async move {
            fails.notified().await;
            Err(ToolError::not_sent(Code::ValidationFailed, "broken"))
        }
    });
    let stage = gated(&held).tool(broken.build()).open().await;
    let air = workflow("w").function("g", "broken", json!({})).function("h", "gated", json!({})).node(strict("b"));
    let run = stage.run(&air.edge("h", "b"), Level::ExecuteNotify).await;
    stage.step(run, "h", "running").await;
    let person = json!({"id": "p", "type": "hitl"});
    patch_if(&stage, "user_mal", run, person, "${nodes.g.outputs.success == false}").await;
    fails.notify_one();
    asked_at(&stage, run, "p").await;
    gate.notify_one();
    let both = |shown: &Value| shown["approvals"].as_array().is_some_and(|all| all.len() == 2);
    let asked = stage.until(run, both).await["approvals"].as_array().unwrap().clone();
    let asked = asked.iter().find(|asked| asked["node_id"] == "b").unwrap();
    assert_eq!(asked["changed_by"], json!(["user_mal"]));
    assert_eq!(approve(&stage, "user_mal", run, asked).await, "RBAC_FORBIDDEN");
}

/// Whoever reports that a call never happened causes it to be sent, whoever approved it before.
#[tokio::test(start_paused = true)]
async fn whoever_said_that_a_call_never_happened_does_not_decide_about_it_or_what_follows() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let lost = ScriptedTool::new("lost", EffectKind::Write).answers(move |_, _| {
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => Err(ToolError::maybe_sent(Code::ExternalServiceError, "the answer was lost")),
            _ => Ok(json!({})),
        }
    });
    let first = stage(1).tool(lost.build()).open().await;
    let mut node = strict("a");
    node["fn"] = "lost".into();
    let run = first.run(&workflow("w").node(node).node(strict("b")).edge("a", "b"), Level::ExecuteNotify).await;
    let asked = asked_at(&first, run, "a").await;
    assert_eq!(approve(&first, "user_mal", run, &asked).await, "none");
    let step = id_of(&first.step(run, "a", "outcome_unknown").await["step_id"]);
    flow::report_outcome(&first.flow, &first.permit("user_mal"), run, OutcomeReport::did_not_happen(step))
        .await
        .unwrap();
    let asked = asked_at(&first, run, "a").await;
    assert_eq!((&asked["changed_by"], sent.load(Ordering::SeqCst)), (&json!(["user_mal"]), 1));
    decided_by_none_of(&first, run, &asked, &["user_ann", "user_mal"]).await;
    let asked = asked_at(&first, run, "b").await;
    decided_by_none_of(&first, run, &asked, &["user_ann", "user_mal"]).await;
    assert_eq!(first.ended(run).await["status"], "completed");
}

/// A different spelling of the same value is not an edit, so what was shown runs.
#[tokio::test(start_paused = true)]
async fn an_edit_of_how_a_number_is_written_changes_nothing() {
    for level in [Level::ExecuteNotify, Level::Draft] {
        for (shown, edited) in [("1", "1.0"), ("100", "1E2"), ("0", "-0.0")] {
            let read = |text: &str| serde_json::from_str::<Value>(&format!("{{\"n\":{text}}}")).unwrap();
            let given = Arc::new(std::sync::Mutex::new(Vec::new()));
            let kept = Arc::clone(&given);
            let tool = ScriptedTool::new("kept", EffectKind::Write).answers(move |_, input| {
                kept.lock().unwrap().push(input.to_string());
                Ok(json!({}))
            });
            let stage = stage(1).tool(tool.build()).open().await;
            let mut node = strict("a");
            (node["fn"], node["inputs"]) = ("kept".into(), read(shown));
            let run = stage.run(&workflow("w").node(node), level).await;
            let asked = stage.asks(run).await.remove(0);
            let mal = stage.permit("user_mal");
            match level {
                Level::Draft => flow::edit_planned(&stage.flow, &mal, run, "a", read(edited)).await.unwrap(),
                _ => flow::edit_step(&stage.flow, &mal, run, id_of(&asked["step_id"]), read(edited)).await.unwrap(),
            }
            let another = |shown: &Value| {
                let id = &shown["approvals"][0]["approval_id"];
                !id.is_null() && *id != asked["approval_id"]
            };
            let asked = stage.until(run, another).await["approvals"][0].clone();
            assert_eq!(asked["changed_by"], json!([]), "{level:?} {edited}");
            assert_eq!(approve(&stage, "user_cat", run, &asked).await, "none");
            assert_eq!(stage.ended(run).await["status"], "completed");
            assert_eq!(*given.lock().unwrap(), [read(shown).to_string()], "{level:?} {edited}");
        }
    }
}
