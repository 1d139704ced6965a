//! An approval answers only what it was asked for: whoever asks for another reason asks again.

use chimera_core::access::Level;
use chimera_core::act::risk;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::ApprovalRequirement;
use chimera_core::tool::{EffectKind, Spec};
use chimera_engine::act::rules::{Rule, Rules};
use chimera_engine::flow;
use chimera_testkit::flow::{Air, EngineFixture, EngineSetup, ScriptedTool, id_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// Rules about `write` that change while runs wait.
#[derive(Clone, Default)]
struct ChangingRules(Arc<Mutex<Option<&'static str>>>);

impl ChangingRules {
    fn ask(&self, reason: &'static str) {
        *self.0.lock().unwrap() = Some(reason);
    }
}

impl Policy for ChangingRules {
    fn evaluate(&self, action: &Action<'_>) -> PolicyVerdict {
        let asks = self.0.lock().unwrap().filter(|_| action.tool.name == "write");
        asks.map_or(PolicyVerdict::Allow, |reason| PolicyVerdict::Ask(ApprovalRequirement::one_approval(reason)))
    }

    fn score_call(&self, tool: &Spec, input: &Value) -> Score {
        risk::score_call(tool, input)
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }
}

fn write() -> ScriptedTool {
    ScriptedTool::new("write", EffectKind::Write)
}

/// A step that returns an id and a list.
fn source() -> ScriptedTool {
    let list: Vec<usize> = (0..12).collect();
    ScriptedTool::new("source", EffectKind::Read).answers(move |_, _| Ok(json!({"id": "7", "list": list})))
}

fn escalates(require: &str) -> Value {
    json!({"checks": [{"require": require, "message": "odd", "on_fail": "escalate"}]})
}

/// `g` reads, `c` writes a constant.
fn read_then_write() -> Air {
    workflow("w").function("g", "source", json!({})).function("c", "write", json!({"text": "x"})).edge("g", "c")
}

/// A map over what `g` read.
fn read_then_write_all() -> Air {
    let air = workflow("w").function("g", "source", json!({}));
    air.map("m", json!("${nodes.g.outputs.list}"), "write", json!({"n": "${item}"})).in_parallel(4).edge("g", "m")
}

fn few_writes(count: u32) -> Rules {
    Rules(vec![
        serde_json::from_value::<Rule>(json!({
            "name": "few", "tool": "write", "effect": "limit", "beyond": "ask", "at_most": {"count": count, "per": "1h"},
        }))
        .unwrap(),
    ])
}

async fn started(setup: EngineSetup, air: &Air, level: Level) -> (EngineFixture, Uuid) {
    let stage = setup.open().await;
    let run = stage.run(air, level).await;
    (stage, run)
}

async fn asked_about(stage: &EngineFixture, run: Uuid, node: &str) -> Value {
    let shown = stage.until(run, |shown| shown["approvals"][0]["node_id"] == node).await;
    shown["approvals"][0].clone()
}

fn reason(asked: &Value) -> &str {
    asked["action"]["reason"].as_str().unwrap()
}

/// Approves the pending requests one by one until the run ends. Returns their reasons.
async fn approve_all(stage: &EngineFixture, run: Uuid) -> Vec<String> {
    let mut reasons = Vec::new();
    loop {
        let shown = stage.until(run, |shown| shown["approvals"][0].is_object() || shown["status"] == "completed").await;
        let Some(asked) = shown["approvals"].as_array().and_then(|asked| asked.first()) else { return reasons };
        reasons.push(reason(asked).to_owned());
        stage.decide("user_ann", run, flow::Decision::Approve, Some(asked)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_approval_of_a_plan_does_not_answer_an_escalation_that_it_did_not_know() {
    let tool = write();
    let made = tool.asked();
    let air = read_then_write().with_node_member("judge", escalates("${nodes.g.outputs.id == '8'}"));
    let setup = stage(1).tool(source().build()).tool(tool.build());
    let (stage, run) = started(setup, &air, Level::Draft).await;
    stage.approve("user_ann", run).await;
    let asked = asked_about(&stage, run, "c").await;
    assert_eq!(reason(&asked), "the judge escalated the input: odd");
    assert_eq!((asked["action"]["input"].clone(), made.count("execute")), (json!({"text": "x"}), 0));
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(made.count("execute"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_approval_of_a_map_does_not_answer_the_escalation_of_an_item() {
    for level in [Level::Draft, Level::ExecuteNotify] {
        let tool = write();
        let made = tool.asked();
        let each = json!({
            "type": "function", "fn": "write", "inputs": {"n": "${item}"}, "judge": escalates("${input.n != 5}"),
        });
        let air = read_then_write_all().with_node_member("do", each);
        let (stage, run) = started(stage(1).tool(source().build()).tool(tool.build()), &air, level).await;
        if level == Level::Draft {
            stage.approve("user_ann", run).await;
        }
        asked_about(&stage, run, "m").await;
        assert_eq!(made.count("execute"), 0);
        let reasons = approve_all(&stage, run).await;
        assert_eq!((reasons.len(), reasons[1].as_str()), (2, "the judge escalated the input: odd"), "{level:?}");
        assert_eq!((stage.ended(run).await["status"].clone(), made.count("execute")), (json!("completed"), 12));
    }
}

/// What the node and the rules require for every item is asked once, with the map.
#[tokio::test(start_paused = true)]
async fn the_approval_of_a_map_answers_what_it_was_asked_for() {
    let rules = ChangingRules::default();
    rules.ask("a rule");
    let air = read_then_write_all().with_node_member("requires_approval", json!(true));
    let setup = stage(1).policy(rules).tool(source().build()).tool(write().build());
    let (stage, run) = started(setup, &air, Level::ExecuteNotify).await;
    let reasons = approve_all(&stage, run).await;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].contains("the workflow requires approval for this node; a rule"), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn only_an_approval_that_showed_the_limit_lets_a_call_pass_beyond_it() {
    let known = read_then_write().with_node_member("requires_approval", json!(true));
    for (level, air, writes) in [
        (Level::Draft, read_then_write(), 1),
        (Level::ExecuteNotify, known, 1),
        (Level::ExecuteNotify, read_then_write_all(), 12),
    ] {
        let tool = write();
        let made = tool.asked();
        let setup = stage(1).policy(few_writes(3)).tool(source().build()).tool(tool.build());
        let (stage, run) = started(setup, &air, level).await;
        stage.asks(run).await;
        // Meanwhile others use up the limit.
        for _ in 0..3 {
            let other = stage.run(&workflow("o").function("a", "write", json!({"text": "o"})), SILENT).await;
            assert_eq!(stage.ended(other).await["status"], "completed");
        }
        let reasons = approve_all(&stage, run).await;
        assert_eq!(reasons.len(), 1 + writes, "{level:?}: {reasons:?}");
        for beyond in &reasons[1..] {
            assert!(beyond.contains("the rule few allows at most 3 calls per 1 h"), "{beyond}");
        }
        assert_eq!((stage.ended(run).await["status"].clone(), made.count("execute")), (json!("completed"), 3 + writes));
    }
}

/// Nobody is asked twice about one call because of what was known the first time.
#[tokio::test(start_paused = true)]
async fn whoever_is_asked_about_a_call_is_told_that_it_is_beyond_a_limit() {
    let air = workflow("w").function("c", "write", json!({})).with_node_member("requires_approval", json!(true));
    let (stage, run) = started(stage(1).policy(few_writes(0)).tool(write().build()), &air, SILENT).await;
    let reasons = approve_all(&stage, run).await;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].contains("for this node; the rule few allows at most 0 calls"), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_new_asks_again_and_one_that_was_answered_does_not() {
    for (before, after, requests) in [(None, "new", 2), (Some("old"), "new", 2), (Some("old"), "old", 1)] {
        let (rules, tool) = (ChangingRules::default(), write());
        let made = tool.asked();
        if let Some(before) = before {
            rules.ask(before);
        }
        let setup = || stage(1).policy(rules.clone()).tool(source().build());
        let air = workflow("w")
            .node(json!({"id": "ask", "type": "hitl"}))
            .function("c", "write", json!({"text": "x"}))
            .edge("ask", "c");
        let (first, run) = started(setup().tool(write().build()), &air, Level::Draft).await;
        first.approve("user_ann", run).await;
        asked_about(&first, run, "ask").await;
        rules.ask(after);
        let second = first.restart(setup().tool(tool.build())).await;
        let reasons = approve_all(&second, run).await;
        assert_eq!(reasons.len(), requests, "{reasons:?}");
        assert_eq!(reasons.get(1).map(String::as_str), (requests > 1).then_some(after));
        assert_eq!((second.ended(run).await["status"].clone(), made.count("execute")), (json!("completed"), 1));
    }
}

/// What people see says what happened to the edit.
#[tokio::test(start_paused = true)]
async fn the_request_after_a_refused_edit_says_that_it_was_refused() {
    let judge = json!({"checks": [{"require": "${input.text == 'x'}", "message": "not x"}]});
    let air = workflow("w").function("c", "write", json!({"text": "x"})).with_node_member("judge", judge);
    let (stage, run) = started(stage(1).tool(write().build()), &air, Level::Ask).await;
    let asked = stage.asks(run).await.remove(0);
    let (ann, step) = (stage.permit("user_ann"), id_of(&asked["step_id"]));
    flow::edit_step(&stage.flow, &ann, run, step, json!({"text": "y"})).await.unwrap();
    let is_newer = |asked_now: &Value| asked_now.is_object() && asked_now["approval_id"] != asked["approval_id"];
    let shown = stage.until(run, |shown| is_newer(&shown["approvals"][0])).await;
    let again = &shown["approvals"][0];
    assert_eq!(again["action"]["input"], json!({"text": "x"}));
    assert_eq!(
        reason(again),
        "every step needs approval at L0_Ask; an edit of the input was refused: the judge rejected the input of c: not x"
    );
}
