//! L1: what is approved is what runs, and inputs that were not known are approved again.

use chimera_core::access::Level;
use chimera_core::act::risk;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Because, Policy, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::ApprovalRequirement;
use chimera_core::ledger::tables::AUDIT_LOGS;
use chimera_core::tool::{EffectKind, Risk, Spec};
use chimera_engine::flow::{self, Decision, PatchRequest};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, EngineSetup, ScriptedTool, chain, code_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// Rules that change while runs wait.
#[derive(Clone, Default)]
struct ChangingRules(Arc<Mutex<Option<PolicyVerdict>>>);

impl ChangingRules {
    fn says(&self, verdict: PolicyVerdict) {
        *self.0.lock().unwrap() = Some(verdict);
    }
}

impl Policy for ChangingRules {
    fn evaluate(&self, action: &Action<'_>) -> PolicyVerdict {
        let said = self.0.lock().unwrap().clone();
        said.filter(|_| action.tool.name == "write").unwrap_or(PolicyVerdict::Allow)
    }

    fn score_call(&self, _: &Spec, input: &Value) -> Score {
        let score = if input.to_string().contains("delete") { 50 } else { 10 };
        Score { score, reasons: Vec::new() }
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }
}

/// Rules under which texts that begin with `@` go to outsiders, and no call is riskier than another.
struct OutsiderRules;

impl Policy for OutsiderRules {
    fn evaluate(&self, _: &Action<'_>) -> PolicyVerdict {
        PolicyVerdict::Allow
    }

    fn score_call(&self, _: &Spec, _: &Value) -> Score {
        Score { score: 10, reasons: Vec::new() }
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }

    fn mandatory_approval_reason(&self, action: &Action<'_>) -> Option<Because> {
        let outside = action.input["text"].as_str().is_some_and(|text| text.starts_with('@'));
        outside.then_some(Because::MessageToOutsiders)
    }
}

fn deny() -> PolicyVerdict {
    PolicyVerdict::Deny { rule: "frozen".to_owned(), reason: "nothing is sent today".to_owned() }
}

/// `a` reads something, `b` writes what it read.
fn read_then_write(tool: &str) -> Air {
    workflow("w")
        .function("a", "source", json!({}))
        .function("b", tool, json!({"text": "${nodes.a.outputs.text}"}))
        .edge("a", "b")
}

fn source(text: &'static str) -> ScriptedTool {
    ScriptedTool::new("source", EffectKind::Read).answers(move |_, _| Ok(json!({"text": text})))
}

fn write() -> ScriptedTool {
    ScriptedTool::new("write", EffectKind::Write)
}

fn lines(asked: &Value) -> Vec<Value> {
    asked["action"]["plan"]["steps"].as_array().unwrap().clone()
}

async fn drafted(setup: EngineSetup, air: &Air, inputs: Value) -> (EngineFixture, Uuid) {
    let stage = setup.open().await;
    let run = stage.run_with(air, Level::Draft, inputs).await;
    stage.asks(run).await;
    (stage, run)
}

#[tokio::test(start_paused = true)]
async fn an_input_that_was_known_runs_as_approved_and_asks_no_more() {
    let risky = write().with_declaration(|tool| {
        tool.metadata.requires_approval = true;
        tool.metadata.risk_level = Risk::High;
    });
    let asked = risky.asked();
    let air = workflow("w").function("a", "write", json!({"text": "${inputs.text}"}));
    let (stage, run) = drafted(stage(1).tool(risky.build()), &air, json!({"text": "hello"})).await;
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_input_that_was_not_known_is_shown_as_deferred_and_runs_if_it_is_harmless() {
    let (stage, run) =
        drafted(stage(1).tool(source("hi").build()).tool(write().build()), &read_then_write("write"), json!({})).await;
    let asked = stage.approve("user_ann", run).await;
    let line = &lines(&asked)[1];
    assert_eq!(line["deferred"], json!(["a"]));
    assert_eq!(line["input"]["text"]["$deferred"]["expression"], "nodes.a.outputs.text");
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn an_input_that_was_not_known_stops_once_more_for_a_risky_tool() {
    let changes: [fn(&mut chimera_core::tool::ToolDeclaration); 2] =
        [|tool| tool.metadata.requires_approval = true, |tool| tool.metadata.risk_level = Risk::High];
    for change in changes {
        let risky = write().with_declaration(change);
        let made = risky.asked();
        let setup = stage(1).tool(source("hi").build()).tool(risky.build());
        let (stage, run) = drafted(setup, &read_then_write("write"), json!({})).await;
        stage.approve("user_ann", run).await;
        let asked = stage.until(run, |shown| shown["approvals"][0]["node_id"] == "b").await["approvals"][0].clone();
        assert_eq!(asked["action"]["input"], json!({"text": "hi"}), "the exact input is approved");
        assert_eq!(made.count("execute"), 0);
        stage.approve("user_ann", run).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_risk_that_rises_stops_once_more() {
    for (text, stops) in [("hello", false), ("delete everything", true)] {
        let setup = stage(1).policy(ChangingRules::default()).tool(source(text).build()).tool(write().build());
        let (stage, run) = drafted(setup, &read_then_write("write"), json!({})).await;
        stage.approve("user_ann", run).await;
        let ended =
            stage.until(run, |shown| shown["status"] == "completed" || shown["approvals"][0]["node_id"] == "b").await;
        assert_eq!(ended["status"] != "completed", stops, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_that_turns_out_to_need_a_person_stops_once_more() {
    for (text, stops) in [("hello", false), ("@stranger", true)] {
        let write = write();
        let made = write.asked();
        let setup = stage(1).policy(OutsiderRules).tool(source(text).build()).tool(write.build());
        let (stage, run) = drafted(setup, &read_then_write("write"), json!({})).await;
        stage.approve("user_ann", run).await;
        if stops {
            let asked = stage.until(run, |shown| shown["approvals"][0]["node_id"] == "b").await["approvals"][0].clone();
            assert_eq!(asked["action"]["input"], json!({"text": text}));
            let reason = "the call writes to somebody outside, and the input was not known when the plan was approved";
            assert_eq!(asked["action"]["reason"], reason);
            assert_eq!(made.count("execute"), 0);
            stage.approve("user_ann", run).await;
        }
        assert_eq!(stage.ended(run).await["status"], "completed", "{text}");
        assert_eq!(made.count("execute"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_condition_on_something_unknown_shows_both_branches() {
    let air = workflow("w")
        .function("a", "source", json!({}))
        .function("yes", "write", json!({"n": 1}))
        .function("no", "write", json!({"n": 2}))
        .function("never", "write", json!({"n": 3}))
        .edge_if("a", "yes", "${nodes.a.outputs.text == 'hi'}")
        .edge_if("a", "no", "${nodes.a.outputs.text != 'hi'}")
        .edge_if("a", "never", "${inputs.go == true}");
    let setup = stage(1).tool(source("hi").build()).tool(write().build());
    let (stage, run) = drafted(setup, &air, json!({"go": false})).await;
    let asked = stage.approve("user_ann", run).await;
    let shown: Vec<_> = lines(&asked).iter().map(|line| (line["node"].clone(), line["status"].clone())).collect();
    assert_eq!(
        shown[1..],
        [(json!("yes"), Value::Null), (json!("no"), Value::Null), (json!("never"), json!("skipped"))]
    );
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.step_statuses(run).await, "a=completed yes=completed no=skipped never=skipped");
}

#[tokio::test(start_paused = true)]
async fn a_map_over_something_unknown_shows_its_bound_and_stops_when_its_list_is_known() {
    let list = ScriptedTool::new("source", EffectKind::Read).answers(|_, _| Ok(json!({"list": [1, 2]})));
    let risky = write().with_declaration(|tool| tool.metadata.risk_level = Risk::High);
    let made = risky.asked();
    let air = workflow("w")
        .function("a", "source", json!({}))
        .map("m", json!("${nodes.a.outputs.list}"), "write", json!({"n": "${item}"}))
        .edge("a", "m");
    let (stage, run) = drafted(stage(1).tool(list.build()).tool(risky.build()), &air, json!({})).await;
    let asked = stage.approve("user_ann", run).await;
    let line = &lines(&asked)[1];
    assert_eq!(
        (&line["deferred"], &line["max_parallel"], &line["items_max"]),
        (&json!(true), &json!(1), &json!(10_000))
    );
    stage.until(run, |shown| shown["approvals"][0]["node_id"] == "m").await;
    assert_eq!(made.count("execute"), 0);
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn the_items_of_a_known_list_are_approved_with_the_plan() {
    let risky = write().with_declaration(|tool| tool.metadata.risk_level = Risk::High);
    let air = workflow("w").map("m", json!("${inputs.list}"), "write", json!({"n": "${item}"})).in_parallel(2);
    let (stage, run) = drafted(stage(1).tool(risky.build()), &air, json!({"list": [1, 2, 3]})).await;
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["result"]["m"]["items"].as_array().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_changed_since_the_approval_is_asked_for_again() {
    let air =
        workflow("w").node(json!({"id": "ask", "type": "hitl"})).function("a", "write", json!({})).edge("ask", "a");
    let (first, run) = drafted(stage(1).tool(write().build()), &air, json!({})).await;
    first.approve("user_ann", run).await;
    first.until(run, |shown| shown["approvals"][0]["node_id"] == "ask").await;
    let newer = write().with_declaration(|tool| tool.version = "2");
    let made = newer.asked();
    let second = first.restart(stage(1).tool(newer.build())).await;
    second.approve("user_ann", run).await;
    let asked = second.until(run, |shown| shown["approvals"][0]["node_id"] == "a").await["approvals"][0].clone();
    assert_eq!(asked["action"]["reason"], "what would run differs from what was approved");
    assert_eq!(made.count("execute"), 0);
    second.approve("user_ann", run).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_new_since_the_approval_refuses_or_asks_again() {
    for denies in [true, false] {
        let (rules, tool) = (ChangingRules::default(), write());
        let made = tool.asked();
        let air = chain("w", &[("a", "write")]);
        let (stage, run) = drafted(stage(1).policy(rules.clone()).tool(tool.build()), &air, json!({})).await;
        rules.says(if denies { deny() } else { PolicyVerdict::Ask(ApprovalRequirement::one_approval("a new rule")) });
        if !denies {
            let boss = ApprovalRequirement {
                approvers: vec!["user_boss".to_owned()],
                ..ApprovalRequirement::one_approval("a new rule")
            };
            rules.says(PolicyVerdict::Ask(boss));
        }
        stage.approve("user_ann", run).await;
        if denies {
            let shown = stage.ended(run).await;
            assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("POLICY_DENIED")));
            let decided = stage.rows(&AUDIT_LOGS);
            assert!(decided.iter().any(|row| row.text("decision_outcome") == "rejected"), "{decided:?}");
        } else {
            stage.until(run, |shown| shown["approvals"][0]["node_id"] == "a").await;
            stage.approve("user_boss", run).await;
            assert_eq!(stage.ended(run).await["status"], "completed");
        }
        assert_eq!(made.count("execute"), usize::from(!denies));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_was_there_is_met_by_the_approval_of_the_plan() {
    let rules = ChangingRules::default();
    rules.says(PolicyVerdict::Ask(ApprovalRequirement {
        other_than_requester: true,
        ..ApprovalRequirement::one_approval("four eyes")
    }));
    let (stage, run) =
        drafted(stage(1).policy(rules).tool(write().build()), &chain("w", &[("a", "write")]), json!({})).await;
    let refused = stage.decide("user_ann", run, chimera_engine::flow::Decision::Approve, None).await;
    assert_eq!(chimera_testkit::flow::code_of(refused), "RBAC_FORBIDDEN");
    stage.approve("user_bob", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_the_rules_refuse_is_refused_before_anybody_is_asked() {
    let (rules, tool) = (ChangingRules::default(), write());
    let made = tool.asked();
    rules.says(deny());
    let stage = stage(1).policy(rules).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "write")]), Level::Draft).await;
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("POLICY_DENIED")));
    assert!(made.all().is_empty());
    assert!(stage.rows(&AUDIT_LOGS).iter().any(|row| row.text("decision_outcome") == "rejected"));
}

#[tokio::test(start_paused = true)]
async fn a_child_of_an_approved_plan_drafts_its_own_and_asks_before_it_does_anything() {
    let tool = write();
    let made = tool.asked();
    let setup = stage(1).tool(tool.build());
    let stage = setup.open().await;
    stage.apply(&chain("inner", &[("x", "write")])).await;
    let run = stage.run(&workflow("outer").child("c", "inner", json!({})), Level::Draft).await;
    let asked = stage.approve("user_ann", run).await;
    assert_eq!(lines(&asked)[0]["workflow_id"], "inner");
    let child = chimera_testkit::flow::id_of(&stage.step(run, "c", "running").await["child_run_id"]);
    stage.asks(child).await;
    assert_eq!(made.count("execute"), 0);
    stage.approve("user_ann", child).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn an_edited_step_makes_another_plan_and_the_old_one_can_not_be_approved() {
    let tool = write();
    let asked = tool.asked();
    let air = workflow("w")
        .function("a", "pure", json!({"text": "${inputs.text}"}))
        .function("b", "write", json!({"text": "${nodes.a.outputs.echo.text}"}))
        .edge("a", "b");
    let first = stage(1).tool(tool.build()).unkept();
    let (stage, run) = drafted(first, &air, json!({"text": "hello"})).await;
    let old = stage.asks(run).await.remove(0);
    let (ann, robot) = (stage.permit("user_ann"), stage.permit("service_chatbot"));
    let edit = json!({"text": "edited"});
    assert_eq!(code_of(flow::edit_planned(&stage.flow, &robot, run, "b", edit.clone()).await), "RBAC_FORBIDDEN");
    assert_eq!(code_of(flow::edit_planned(&stage.flow, &ann, run, "z", edit.clone()).await), "NOT_FOUND");
    // Nobody drives the run: the edit's signal stays pending.
    stage.flow.stop();
    flow::edit_planned(&stage.flow, &ann, run, "b", edit.clone()).await.unwrap();
    assert_eq!(code_of(stage.decide("user_ann", run, Decision::Approve, Some(&old)).await), "STALE_APPROVAL");
    assert_eq!(code_of(flow::edit_planned(&stage.flow, &ann, run, "b", edit.clone()).await), "OCC_CONFLICT");
    let tool = write();
    let made = tool.asked();
    let second = stage.restart(chimera_testkit::flow::stage(1).tool(tool.build())).await;
    let new = second.asks(run).await.remove(0);
    assert_ne!(new["digest"], old["digest"]);
    assert_eq!((&lines(&new)[0]["input"]["text"], &lines(&new)[1]["input"]), (&json!("hello"), &edit));
    assert_eq!(code_of(second.decide("user_ann", run, Decision::Approve, Some(&old)).await), "STALE_APPROVAL");
    second.approve("user_ann", run).await;
    let shown = second.ended(run).await;
    assert_eq!(
        (&shown["status"], &shown["result"]["b"]["echo"]["text"]),
        (&json!("completed"), &json!("edited")),
        "{shown}"
    );
    assert_eq!((asked.count("execute"), made.count("execute")), (0, 1), "and it asked no more");
}

#[tokio::test(start_paused = true)]
async fn what_lies_behind_an_edited_step_is_drafted_anew() {
    let air = workflow("w")
        .function("a", "pure", json!({"text": "${inputs.text}"}))
        .function("b", "write", json!({"text": "${nodes.a.outputs.echo.text}"}))
        .edge("a", "b");
    let (stage, run) = drafted(stage(1).tool(write().build()), &air, json!({"text": "hello"})).await;
    let ann = stage.permit("user_ann");
    for text in ["one", "two"] {
        flow::edit_planned(&stage.flow, &ann, run, "a", json!({"text": text})).await.unwrap();
        let new = stage.asks(run).await.remove(0);
        assert_eq!(lines(&new)[1]["input"]["text"], text);
    }
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["result"]["b"]["echo"]["text"], "two");
    assert_eq!(
        code_of(flow::edit_planned(&stage.flow, &ann, run, "a", json!({"text": "late"})).await),
        "INVALID_TRANSITION"
    );
}

/// A patched step is approved again like any other: people saw its document, not its value.
#[tokio::test(start_paused = true)]
async fn a_patched_step_that_turns_out_riskier_is_asked_about_again() {
    for (text, asks) in [("delete it all", true), ("hello", false)] {
        let (tool, gate) = (
            write(),
            ScriptedTool::new("gate", EffectKind::Write).with_declaration(|tool| tool.metadata.risk_level = Risk::High),
        );
        let made = tool.asked();
        let setup =
            stage(1).policy(ChangingRules::default()).tool(source(text).build()).tool(tool.build()).tool(gate.build());
        let air = workflow("w")
            .function("a", "source", json!({}))
            .function("b", "gate", json!({"n": "${nodes.a.outputs.text.size()}"}))
            .edge("a", "b");
        let (stage, run) = drafted(setup, &air, json!({})).await;
        stage.approve("user_ann", run).await;
        let at_gate = |shown: &Value| shown["approvals"][0]["node_id"] == "b";
        stage.until(run, at_gate).await;
        let patch = json!({
            "patch_version": "0.1", "justification": "more",
            "add_nodes": [{"id": "p", "type": "function", "fn": "write", "inputs": {"text": "${nodes.a.outputs.text}"}}],
            "add_edges": [{"from": "a", "to": "p"}],
        });
        flow::patch(&stage.flow, &stage.permit("user_bob"), PatchRequest::new(run, patch)).await.unwrap();
        let proposed = |shown: &Value| {
            let mut asked = shown["approvals"].as_array().into_iter().flatten();
            asked.find(|asked| asked["action_type"] == "graph.patch").cloned()
        };
        let shown = stage.until(run, |shown| proposed(shown).is_some()).await;
        stage.decide("user_ann", run, Decision::Approve, proposed(&shown).as_ref()).await.unwrap();
        if asks {
            let of_patch = |shown: &Value| {
                let mut asked = shown["approvals"].as_array().into_iter().flatten();
                asked.find(|asked| asked["node_id"] == "p").cloned()
            };
            let shown = stage.until(run, |shown| of_patch(shown).is_some()).await;
            let asked = of_patch(&shown).unwrap();
            assert_eq!(asked["action"]["reason"], "the input was not known when the plan was approved");
            assert_eq!(made.count("execute"), 0);
            stage.decide("user_ann", run, Decision::Approve, Some(&asked)).await.unwrap();
        }
        stage.step(run, "p", "completed").await;
        assert_eq!(made.count("execute"), 1, "{text}");
    }
}
