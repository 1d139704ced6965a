//! Judges: what they decide on, who sees what they hold back, and what a rejection and an escalation lead to.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::flow::status::EffectPurpose;
use chimera_core::flow::tables::{CACHE_ENTRIES, EFFECTS, STEPS, TOOL_CALLS, effects};
use chimera_core::ledger::SealedEntry;
use chimera_core::ledger::tables::AUDIT_LOGS;
use chimera_core::record::Select;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::ToolError;
use chimera_engine::flow::{self, Decision, PatchRequest, ReplayOptions};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, CallLog, EngineFixture, ScriptedTool, chain, code_of, id_of, stage, workflow};
use chimera_testkit::memory::{CommitObserver, RowChange};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// A tool that returns the number of its call and what it was told.
fn draft(effect: EffectKind) -> ScriptedTool {
    let tool = ScriptedTool::new("draft", effect);
    let asked = tool.asked();
    tool.on_execute(move |_, input| {
        let call = asked.count("execute");
        async move { Ok(json!({"version": call, "told": input["told"]})) }
    })
}

/// `a` drafts, told what its judge rejected; `b` uses the draft.
fn drafting(judge: Value) -> Air {
    workflow("w")
        .function("a", "draft", json!({"told": "${judge.feedback}"}))
        .with_node_member("judge", judge)
        .function("b", "use", json!({"draft": "${nodes.a.outputs.version}"}))
        .edge("a", "b")
}

fn at_least(version: u32) -> Value {
    json!({"require": format!("${{output.version >= {version}}}"), "message": "too early"})
}

async fn drafted(effect: EffectKind, judge: Value) -> (EngineFixture, Uuid, CallLog, CallLog) {
    let (tool, user) = (draft(effect), ScriptedTool::new("use", EffectKind::Read));
    let (asked, used) = (tool.asked(), user.asked());
    let stage = stage(1).tool(tool.build()).tool(user.build()).open().await;
    let run = stage.run(&drafting(judge), SILENT).await;
    (stage, run, asked, used)
}

async fn step_of(stage: &EngineFixture, run: Uuid, node: &str) -> Value {
    let steps = stage.steps(run).await;
    steps.as_array().unwrap().iter().find(|step| step["node_id"] == node).unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_rejected_output_is_tried_again_with_the_reasons_and_only_what_passes_is_seen() {
    for effect in [EffectKind::Pure, EffectKind::Read] {
        let (stage, run, asked, used) = drafted(effect, json!({"checks": [at_least(3)], "retries": 2})).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        let told: Vec<Value> = asked.all().into_iter().map(|call| call.input["told"].clone()).collect();
        assert_eq!(told, [json!([]), json!(["too early"]), json!(["too early"])], "{effect:?}");
        assert_eq!(used.all().into_iter().map(|call| call.input).collect::<Vec<_>>(), [json!({"draft": 3})]);
        let step = step_of(&stage, run, "a").await;
        assert_eq!((&step["judgement"]["verdict"], &step["judgement"]["rejections"]), (&json!("passed"), &json!(2)));
        assert_eq!((&step["outputs"]["version"], &step["held_output"]), (&json!(3), &Value::Null));
        assert_eq!(stage.rows_of(&TOOL_CALLS, run).iter().filter(|row| row.text("tool_name") == "draft").count(), 3);
        let judged = stage.events(run).await.into_iter().filter(|event| event == "step.judged").count();
        assert_eq!(judged, 3);
    }
}

/// A server that answers a repeated key from its memory would return the rejected output for ever.
#[tokio::test(start_paused = true)]
async fn every_round_has_a_key_and_an_effect_of_its_own() {
    let (stage, run, asked, _) = drafted(EffectKind::Read, json!({"checks": [at_least(2)], "retries": 1})).await;
    stage.ended(run).await;
    let base = format!("{}:a", run.simple());
    let keys: Vec<String> = asked.all().into_iter().map(|call| call.key).collect();
    assert_eq!(keys, [base.clone(), format!("{base}:2")]);
    let effects = stage.rows_of(&EFFECTS, run);
    assert!(effects.iter().all(|row| row.text("status") == "succeeded"));
    assert_eq!(effects.len(), 3, "two of the draft and one of its use");
}

#[tokio::test(start_paused = true)]
async fn a_step_fails_when_its_retries_are_used_up_and_the_graph_may_handle_it() {
    let (tool, user) = (draft(EffectKind::Read), ScriptedTool::new("use", EffectKind::Read));
    let (asked, used) = (tool.asked(), user.asked());
    let stage = stage(1).tool(tool.build()).tool(user.build()).open().await;
    let air = workflow("w")
        .function("a", "draft", json!({}))
        .with_node_member("judge", json!({"checks": [at_least(9)], "retries": 1}))
        .function("b", "use", json!({"why": "${nodes.a.outputs.error.details.judge.failed[0].message}"}))
        .edge_if("a", "b", "${nodes.a.outputs.success == false}");
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!((asked.count("execute"), used.all()[0].input.clone()), (2, json!({"why": "too early"})));
    let step = step_of(&stage, run, "a").await;
    assert_eq!(step["error"]["code"], Code::ValidationFailed.as_str());
    assert_eq!(step["error"]["message"], "the judge rejected the output of a: too early");
    assert_eq!(step["outputs"]["version"], Value::Null, "a rejected output is not left in the step");
}

#[tokio::test(start_paused = true)]
async fn schema_and_size_reject_with_their_place() {
    let judge = json!({
        "schema": {"type": "object", "required": ["title"], "properties": {"version": {"type": "string"}}},
        "bytes_max": 10,
    });
    let (stage, run, ..) = drafted(EffectKind::Pure, judge).await;
    assert_eq!(stage.ended(run).await["status"], "failed");
    let judgement = step_of(&stage, run, "a").await["judgement"].clone();
    let checks: Vec<&str> =
        judgement["failed"].as_array().unwrap().iter().map(|f| f["check"].as_str().unwrap()).collect();
    assert_eq!(checks, ["bytes_max", "schema", "schema"]);
    assert!(judgement["failed"][0]["message"].as_str().unwrap().starts_with("it has 2"), "{judgement}");
}

#[tokio::test(start_paused = true)]
async fn an_escalated_output_waits_unseen_until_a_person_releases_exactly_it() {
    let judge = json!({"checks": [{"require": "${output.version > 1}", "message": "odd", "on_fail": "escalate"}]});
    let (stage, run, asked, used) = drafted(EffectKind::Read, judge).await;
    let request = stage.asks(run).await.remove(0);
    assert_eq!((asked.count("execute"), used.count("execute")), (1, 0));
    assert_eq!(request["action_type"], "judge.output");
    assert_eq!(request["action"]["output"], json!({"version": 1, "told": []}));
    assert_eq!(request["action"]["judgement"]["failed"][0]["message"], "odd");
    assert_eq!(request["review"]["subject"], "output");
    let step = step_of(&stage, run, "a").await;
    assert_eq!((&step["outputs"], &step["held_output"]["version"]), (&Value::Null, &json!(1)));
    let edit = flow::edit_step(&stage.flow, &stage.permit("user_ann"), run, id_of(&step["step_id"]), json!({})).await;
    assert_eq!(code_of(edit), Code::InvalidTransition.as_str());
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!((asked.count("execute"), used.all()[0].input.clone()), (1, json!({"draft": 1})));
}

#[tokio::test(start_paused = true)]
async fn a_person_who_rejects_an_escalated_output_fails_the_step_and_not_the_run() {
    let (tool, user) = (draft(EffectKind::Read), ScriptedTool::new("use", EffectKind::Read));
    let used = user.asked();
    let stage = stage(1).tool(tool.build()).tool(user.build()).open().await;
    let air = workflow("w")
        .function("a", "draft", json!({}))
        .with_node_member("judge", json!({"checks": [at_least(9)], "on_exhausted": "escalate"}))
        .function("b", "use", json!({"ok": "${nodes.a.outputs.success}"}))
        .edge_if("a", "b", "${nodes.a.outputs.success == false}");
    let run = stage.run(&air, SILENT).await;
    let request = stage.asks(run).await.remove(0);
    stage.decide("user_ann", run, Decision::Reject, Some(&request)).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(used.all()[0].input, json!({"ok": false}));
    assert_eq!(step_of(&stage, run, "a").await["error"]["code"], Code::PolicyDenied.as_str());
}

/// The run goes on, so nothing else is withdrawn.
#[tokio::test(start_paused = true)]
async fn a_rejected_escalation_leaves_the_questions_of_other_branches_open() {
    for (effect, check) in [(EffectKind::Read, "${output.version > 1}"), (EffectKind::Write, "${input.to == 'team'}")] {
        let stage = stage(1).tool(draft(effect).build()).open().await;
        let judge = json!({"checks": [{"require": check, "message": "odd", "on_fail": "escalate"}]});
        let air = workflow("w")
            .node(json!({"id": "ask", "type": "hitl", "prompt": "go on?"}))
            .function("a", "draft", json!({"to": "press"}))
            .with_node_member("judge", judge)
            .function("b", "pure", json!({}))
            .edge_if("a", "b", "${nodes.a.outputs.success == false}");
        let run = stage.run(&air, SILENT).await;
        let both = |shown: &Value| shown["approvals"].as_array().is_some_and(|asked| asked.len() == 2);
        let shown = stage.until(run, both).await;
        let of = |node: &str| {
            let all = shown["approvals"].as_array().unwrap();
            all.iter().find(|asked| asked["node_id"] == node).unwrap().clone()
        };
        stage.decide("user_ann", run, Decision::Reject, Some(&of("a"))).await.unwrap();
        stage.step(run, "b", "completed").await;
        stage.decide("user_ann", run, Decision::Approve, Some(&of("ask"))).await.unwrap();
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

/// A write that is judged after it was sent would be judged too late.
#[tokio::test(start_paused = true)]
async fn a_rejected_write_is_never_sent_and_nobody_is_asked_about_it() {
    for level in [SILENT, Level::Ask] {
        let tool = ScriptedTool::new("post", EffectKind::Write);
        let asked = tool.asked();
        let stage = stage(1).tool(tool.build()).open().await;
        let check = json!({"require": "${size(input.text) < 5}", "message": "too long"});
        let air = workflow("w")
            .function("a", "post", json!({"text": "${inputs.text}"}))
            .with_node_member("judge", json!({"checks": [check]}));
        let run = stage.run_with(&air, level, json!({"text": "much too long"})).await;
        let shown = stage.ended(run).await;
        assert_eq!((&shown["status"], asked.count("execute")), (&json!("failed"), 0), "{level:?}");
        assert_eq!(shown["error"]["message"], "the judge rejected the input of a: too long");
        assert_eq!(shown["decided_approvals"], json!([]), "{level:?}");
        assert!(stage.rows_of(&EFFECTS, run).is_empty());
        let audited = stage.rows(&AUDIT_LOGS);
        let judged: Vec<_> = audited.iter().filter(|row| row.text("event_type") == "output_validation").collect();
        assert_eq!(judged.len(), 1);
        assert_eq!(judged[0].text("decision_outcome"), "rejected");
        let run = stage.run_with(&air, SILENT, json!({"text": "ok"})).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        assert_eq!(asked.count("execute"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_escalated_write_is_sent_once_a_person_approves_exactly_its_input() {
    let tool = ScriptedTool::new("post", EffectKind::Write);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let check = json!({"require": "${input.to == 'team'}", "message": "outsiders", "on_fail": "escalate"});
    let judge = json!({"checks": [check], "approval": {"other_than_requester": true}});
    let air = workflow("w").function("a", "post", json!({"to": "press"})).with_node_member("judge", judge);
    let run = stage.run(&air, SILENT).await;
    let request = stage.asks(run).await.remove(0);
    assert_eq!((request["action_type"].as_str(), asked.count("execute")), (Some("post"), 0));
    assert_eq!(request["action"]["reason"], "the judge escalated the input: outsiders");
    let own = stage.decide("user_ann", run, Decision::Approve, Some(&request)).await;
    assert_eq!(code_of(own), Code::RbacForbidden.as_str(), "four eyes");
    stage.decide("user_bob", run, Decision::Approve, Some(&request)).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 1);
    let judged = stage.events(run).await.into_iter().filter(|event| event == "step.judged").count();
    assert_eq!(judged, 1, "the same input is judged once");
}

#[tokio::test(start_paused = true)]
async fn an_edited_input_is_judged_before_it_is_asked_for_again() {
    let tool = ScriptedTool::new("post", EffectKind::Write);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let check = json!({"require": "${input.n < 10}", "message": "too much"});
    let air =
        workflow("w").function("a", "post", json!({"n": 1})).with_node_member("judge", json!({"checks": [check]}));
    let run = stage.run(&air, Level::Ask).await;
    stage.asks(run).await;
    let step = id_of(&step_of(&stage, run, "a").await["step_id"]);
    flow::edit_step(&stage.flow, &stage.permit("user_bob"), run, step, json!({"n": 50})).await.unwrap();
    stage.until(run, |shown| shown["approvals"][0]["review"]["changed_by"].is_array()).await;
    let request = stage.asks(run).await.remove(0);
    assert_eq!(request["action"]["input"], json!({"n": 1}), "what the judge rejects does not replace the input");
    flow::edit_step(&stage.flow, &stage.permit("user_bob"), run, step, json!({"n": 5})).await.unwrap();
    let request = stage.until(run, |shown| shown["approvals"][0]["action"]["input"] == json!({"n": 5})).await;
    stage.decide("user_ann", run, Decision::Approve, Some(&request["approvals"][0])).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(asked.all()[0].input, json!({"n": 5}));
    assert!(stage.events(run).await.contains(&"step.edit_refused".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_judge_of_a_map_decides_on_every_item() {
    let tool = ScriptedTool::new("fetch", EffectKind::Read);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let each = json!({
        "type": "function", "fn": "fetch", "inputs": {"n": "${item}", "again": "${judge.rejections}"},
        "judge": {"checks": [{"require": "${output.echo.n != 2 || output.echo.again == 1}"}], "retries": 1},
    });
    let map = json!({"id": "m", "type": "map", "over": [1, 2, 3], "max_parallel": 1, "do": each});
    let run = stage.run(&workflow("w").node(map), SILENT).await;
    let shown = stage.ended(run).await;
    assert_eq!(shown["status"], "completed", "{shown:#}");
    assert_eq!(asked.all().into_iter().map(|call| call.input["n"].clone()).collect::<Vec<_>>(), [1, 2, 2, 3]);
    let outputs = shown["result"]["m"]["items"].as_array().unwrap();
    assert_eq!(outputs.iter().map(|output| output["echo"]["again"].clone()).collect::<Vec<_>>(), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_child_run_is_judged_on_its_result_and_never_started_again() {
    let tool = ScriptedTool::new("post", EffectKind::Write);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    stage.apply(&chain("leaf", &[("x", "post")])).await;
    let check = json!({"require": "${output.x.echo.n == 'y'}", "message": "other", "on_fail": "escalate"});
    let air = workflow("w").child("c", "leaf", json!({})).with_node_member("judge", json!({"checks": [check]}));
    let run = stage.run(&air, SILENT).await;
    let request = stage.asks(run).await.remove(0);
    assert_eq!(request["action"]["output"]["x"]["echo"], json!({"n": "x"}));
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_output_is_not_cached_and_a_cached_one_is_judged() {
    let tool = draft(EffectKind::Read);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let air = |judge: Value| {
        workflow("w")
            .function("a", "draft", json!({}))
            .with_node_member("cache", json!({}))
            .with_node_member("judge", judge)
    };
    let run = stage.run(&air(json!({"checks": [at_least(2)]})), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "failed");
    assert!(stage.rows(&CACHE_ENTRIES).is_empty());
    let run = stage.run(&air(json!({"checks": [at_least(2)]})), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.rows(&CACHE_ENTRIES).len(), 1);
    let run = stage.run(&air(json!({"checks": [at_least(3)], "retries": 1})), SILENT).await;
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["result"]["a"]["version"]), (&json!("completed"), &json!(3)));
    assert_eq!(asked.count("execute"), 3, "the cached output was rejected, and the tool was called");
}

/// The statuses of every step row that is committed.
struct StatusLog(Arc<Mutex<Vec<String>>>);

impl CommitObserver for StatusLog {
    fn changed(&mut self, changed: RowChange<'_>) {
        if let Some(row) = changed.after.filter(|_| changed.table.name == STEPS.name) {
            self.0.lock().unwrap().push(row.text("status").to_owned());
        }
    }

    fn entered(&mut self, _: &SealedEntry) {}

    fn committed(&mut self) {}
}

/// What is judged in a turn of its own is written before, so that a crash in between repeats the judgement alone. The
/// crash matrix has such judges.
#[tokio::test(start_paused = true)]
async fn a_costly_judgement_is_made_after_what_it_judges_is_durable() {
    for (effect, value, statuses) in [
        (EffectKind::Read, "output.version", ["running", "judging", "completed"].as_slice()),
        (EffectKind::Write, "input.n", &["judging", "running", "completed"]),
    ] {
        let tool = ScriptedTool::new("work", effect).answers(|_, _| Ok(json!({"version": 1})));
        let asked = tool.asked();
        let stage = stage(1).tool(tool.build()).open().await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        stage.records.watch(Box::new(StatusLog(Arc::clone(&seen))));
        let check = format!("${{[1, 2, 3].exists(x, x == {value})}}");
        let air = workflow("w")
            .function("a", "work", json!({"n": 1}))
            .with_node_member("judge", json!({"checks": [{"require": check}]}));
        let run = stage.run(&air, SILENT).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        assert_eq!((seen.lock().unwrap().join(" "), asked.count("execute")), (statuses.join(" "), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_a_call_are_retried_in_every_round() {
    let tool = ScriptedTool::new("draft", EffectKind::Read).answers(|ctx, _| match ctx.attempt {
        1 | 3 => Err(ToolError::not_sent(Code::ExternalServiceError, "not now")),
        attempt => Ok(json!({"version": attempt})),
    });
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let air = workflow("w")
        .function("a", "draft", json!({}))
        .with_node_member("retry", json!({"max": 1}))
        .with_node_member("judge", json!({"checks": [at_least(4)], "retries": 1}));
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_drops_what_it_holds() {
    let judge = json!({"checks": [at_least(9)], "on_exhausted": "escalate"});
    let (stage, run, _, used) = drafted(EffectKind::Read, judge).await;
    stage.asks(run).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    assert_eq!((used.count("execute"), stage.rows_of(&EFFECTS, run)[0].text("status")), (0, "succeeded"));
    assert_eq!(stage.rows_of(&STEPS, run)[0].text("status"), "cancelled");
}

fn write_with_judge(check: Value) -> Air {
    workflow("w")
        .function("a", "post", json!({"n": "${inputs.n}"}))
        .with_node_member("judge", json!({"checks": [check]}))
}

#[tokio::test(start_paused = true)]
async fn a_draft_shows_what_the_judge_says_about_an_exact_input() {
    let tool = ScriptedTool::new("post", EffectKind::Write);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).tool(draft(EffectKind::Read).build()).open().await;
    let small = json!({"require": "${input.n < 10}", "message": "too much"});
    for (n, verdict) in [(1, "passed"), (50, "rejected")] {
        let run = stage.run_with(&write_with_judge(small.clone()), Level::Draft, json!({"n": n})).await;
        let shown = stage.until(run, |shown| shown["status"] == "awaiting_approval").await;
        let judge = &shown["plan"]["steps"][0]["judge"];
        assert_eq!((judge["of"].as_str(), judge["verdict"].as_str()), (Some("input"), Some(verdict)), "{shown:#}");
        stage.approve("user_ann", run).await;
        let end = if n == 1 { "completed" } else { "failed" };
        assert_eq!(stage.ended(run).await["status"], end);
    }
    assert_eq!(asked.count("execute"), 1);
    let run = stage
        .run(
            &workflow("r").function("a", "draft", json!({})).with_node_member("judge", json!({"bytes_max": 9})),
            Level::Draft,
        )
        .await;
    let shown = stage.until(run, |shown| shown["status"] == "awaiting_approval").await;
    let notes = shown["approvals"][0]["review"]["calls"][0]["notes"].clone();
    assert_eq!(shown["plan"]["steps"][0]["judge"]["of"], "output");
    assert!(notes.to_string().contains("its judge decides on the output"), "{notes}");
}

/// Whoever approves the plan has seen the verdict, and must be somebody whom the judge accepts.
#[tokio::test(start_paused = true)]
async fn the_approval_of_a_plan_covers_an_escalated_input_that_it_shows() {
    let tool = ScriptedTool::new("post", EffectKind::Write);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let check = json!({"require": "${input.n < 10}", "message": "too much", "on_fail": "escalate"});
    let judge = json!({"checks": [check], "approval": {"approvers": ["user_bob"]}});
    let air = workflow("w").function("a", "post", json!({"n": 50})).with_node_member("judge", judge);
    let run = stage.run(&air, Level::Draft).await;
    let request = stage.asks(run).await.remove(0);
    let other = stage.decide("user_ann", run, Decision::Approve, Some(&request)).await;
    assert_eq!(code_of(other), Code::RbacForbidden.as_str());
    stage.decide("user_bob", run, Decision::Approve, Some(&request)).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_a_patch_adds_is_judged() {
    let tool = ScriptedTool::new("post", EffectKind::Write);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let air = workflow("w").node(json!({"id": "ask", "type": "hitl"}));
    let run = stage.run(&air, SILENT).await;
    stage.asks(run).await;
    let judge = json!({"checks": [{"require": "${input.n != 'tell'}", "message": "no"}]});
    let patch = json!({
        "patch_version": "0.1", "justification": "more",
        "add_nodes": [{"id": "tell", "type": "function", "fn": "post", "inputs": {"n": "tell"}, "judge": judge}],
        "add_edges": [{"from": "ask", "to": "tell"}],
    });
    flow::patch(&stage.flow, &stage.permit("user_ann"), PatchRequest::new(run, patch)).await.unwrap();
    stage.until(run, |shown| shown["patches"][0]["status"] == "applied").await;
    stage.approve("user_ann", run).await;
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], asked.count("execute")), (&json!("failed"), 0), "{shown:#}");
}

#[tokio::test(start_paused = true)]
async fn a_replay_uses_what_was_released_and_judges_what_is_new() {
    let tool = draft(EffectKind::Read);
    let asked = tool.asked();
    let user = ScriptedTool::new("use", EffectKind::Read);
    let stage = stage(1).tool(tool.build()).tool(user.build()).open().await;
    let judge = json!({"checks": [{"require": "${output.version > 1}", "on_fail": "escalate"}]});
    let run = stage.run(&drafting(judge), SILENT).await;
    stage.approve("user_ann", run).await;
    stage.ended(run).await;
    let replay = async |mode| {
        let replay = Replay { of: run, mode, from: None };
        flow::replay(&stage.flow, &stage.permit("user_ann"), replay, ReplayOptions::default()).await.unwrap().run_id
    };
    let frozen = replay(ReplayMode::Freeze).await;
    assert_eq!(stage.ended(frozen).await["status"], "completed", "it was released in the original run");
    assert_eq!(asked.count("execute"), 1);
    let shadow = replay(ReplayMode::Shadow).await;
    assert_eq!(stage.ended(shadow).await["status"], "completed", "the second version passes");
    assert_eq!(asked.count("execute"), 2);
}

/// The answer arrives while the store is gone. It is judged once it can be written, and the tool is not called again.
#[tokio::test(start_paused = true)]
async fn a_lost_store_loses_neither_the_output_nor_its_judgement() {
    let tool = ScriptedTool::new("draft", EffectKind::Read)
        .with_declaration(|tool| tool.timeout_ms = 90_000)
        .answers(|_, _| Ok(json!({"version": 1})))
        .with_delay(|_| Duration::from_secs(20));
    let user = ScriptedTool::new("use", EffectKind::Read);
    let (asked, used) = (tool.asked(), user.asked());
    let stage = stage(1).tool(tool.build()).tool(user.build()).open().await;
    let judge = json!({"checks": [{"require": "${[1].exists(x, x == output.version)}"}]});
    let run = stage.run(&drafting(judge), SILENT).await;
    stage.pass(Duration::from_secs(2)).await;
    stage.records.refuse_writes();
    stage.pass(Duration::from_secs(40)).await;
    assert_eq!(used.count("execute"), 0);
    stage.records.clear_faults();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!((asked.count("execute"), used.count("execute")), (1, 1));
}

/// A run may have effects of kinds that its state does not depend on.
#[tokio::test(start_paused = true)]
async fn a_run_is_loaded_without_effects_of_other_kinds() {
    let user = ScriptedTool::new("use", EffectKind::Write);
    let asked = user.asked();
    let tools = [user.build()];
    let setup = || tools.iter().fold(stage(1), |setup, tool| setup.tool(Arc::clone(tool)));
    let first = setup().open().await;
    let air = workflow("w").function("a", "use", json!({})).node(json!({"id": "ask", "type": "hitl"})).edge("a", "ask");
    let run = first.run(&air, SILENT).await;
    first.asks(run).await;
    let at = EFFECTS.position(effects::kind).unwrap();
    let key = EFFECTS.position(effects::idempotency_key).unwrap();
    first.records.tamper(&EFFECTS, |rows| {
        let mut job = rows[0].clone();
        (job.cells[0], job.cells[at]) = (Uuid::from_u128(7).into(), EffectPurpose::Job.into());
        job.cells[key] = "another kind".into();
        rows.push(job);
    });
    first.records.take_reads();
    let second = first.restart(setup()).await;
    second.approve("user_ann", run).await;
    assert_eq!(second.ended(run).await["status"], "completed");
    let reads = second.records.take_reads();
    let of_effects: Vec<_> = reads.iter().filter(|read| read.table.name == EFFECTS.name).collect();
    let filters = |read: &&&Select| read.conditions.iter().any(|condition| condition.column == effects::kind);
    assert!(!of_effects.is_empty() && of_effects.iter().all(|read| filters(&read)), "{of_effects:?}");
    assert_eq!(asked.count("execute"), 1);
}

/// What a judge compares an output with may have changed since the original run.
#[tokio::test(start_paused = true)]
async fn a_retry_is_judged_though_the_output_is_the_same() {
    let most = Arc::new(Mutex::new(100));
    let limit = {
        let most = Arc::clone(&most);
        ScriptedTool::new("limit", EffectKind::Read).on_execute(move |_, _| {
            let most = *most.lock().unwrap();
            async move { Ok(json!({"most": most})) }
        })
    };
    let amount = ScriptedTool::new("amount", EffectKind::Read).on_execute(|_, _| async { Ok(json!({"n": 50})) });
    let pay = ScriptedTool::new("pay", EffectKind::Write);
    let paid = pay.asked();
    let stage = stage(1).tool(limit.build()).tool(amount.build()).tool(pay.build()).open().await;
    let check = json!({"require": "${output.n <= nodes.l.outputs.most}", "message": "too much"});
    let air = workflow("w")
        .function("l", "limit", json!({}))
        .function("a", "amount", json!({}))
        .with_node_member("judge", json!({"checks": [check], "retries": 0}))
        .function("p", "pay", json!({"n": "${nodes.a.outputs.n}"}))
        .edge("l", "a")
        .edge("a", "p");
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    *most.lock().unwrap() = 10;
    let again = Replay { of: run, mode: ReplayMode::Retry, from: None };
    let again = flow::replay(&stage.flow, &stage.permit("user_ann"), again, ReplayOptions::default()).await.unwrap();
    assert_eq!(stage.ended(again.run_id).await["status"], "failed");
    assert_eq!(paid.count("execute"), 1);
}
