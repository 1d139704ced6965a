//! Dry runs: requested by the caller, by the step's input, and by L1.

use chimera_core::access::Level;
use chimera_core::flow::tables::{EFFECTS, NOTIFICATIONS, STEPS, TOOL_CALLS};
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, Decision, OutcomeReport, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{ScriptedTool, chain, id_of, shown as as_json, stage, workflow};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const LEVELS: [Level; 4] = [Level::Ask, Level::Draft, Level::ExecuteNotify, Level::ExecuteSilent];

/// A tool that can't say what it would do.
fn blunt(name: &'static str) -> ScriptedTool {
    ScriptedTool::new(name, EffectKind::Write).with_declaration(|tool| tool.metadata.dry_run_supported = false)
}

fn results(shown: &Value) -> Vec<Value> {
    shown["dry_run_results"].as_array().unwrap().clone()
}

/// CORE-063, CORE-068
#[tokio::test(start_paused = true)]
async fn a_request_for_a_dry_run_does_nothing_at_any_level_and_gives_the_draft() {
    for level in LEVELS {
        let write = ScriptedTool::new("write", EffectKind::Write);
        let asked = write.asked();
        let stage = stage(1).tool(write.build()).open().await;
        stage.apply(&chain("w", &[("a", "pure"), ("b", "write")])).await;
        let notify = Some(json!({"webhook": "https://hooks.example/1"})).filter(|_| level != Level::ExecuteSilent);
        let run = stage.start(StartRun { level, dry_run: true, notify, ..StartRun::of("w", json!({})) }).await;
        let shown = stage.ended(run).await;
        assert_eq!(shown["status"], "completed", "{level:?}");
        assert_eq!(shown["result"]["status"], "dry_run");
        assert_eq!(shown["result"]["dry_run_results"][1]["node"], "b");
        assert_eq!((asked.count("execute"), asked.count("dry")), (0, 1));
        assert!(stage.rows_of(&EFFECTS, run).is_empty());
        assert!(stage.rows(&NOTIFICATIONS).is_empty());
        assert!(stage.rows_of(&TOOL_CALLS, run).iter().all(|row| row.text("outcome") == "dry_run"));
    }
}

/// CORE-069, CORE-070, CORE-071
#[tokio::test(start_paused = true)]
async fn a_tool_without_a_dry_run_is_never_called_and_a_mock_with_its_warning_stands_for_it() {
    let tool = blunt("fax");
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    stage.apply(&workflow("w").function("a", "fax", json!({"to": "ops"}))).await;
    let run = stage.start(StartRun { dry_run: true, ..StartRun::of("w", json!({})) }).await;
    let mock = &results(&stage.ended(run).await)[0];
    assert_eq!(mock["status"], "dry_run");
    assert_eq!(mock["simulated_output"], json!({"placeholder": "mock_data"}));
    assert_eq!(mock["warning"], "Tool fax does not support dry-run; this is a mock response");
    assert!(mock["would_execute"].as_str().unwrap().starts_with("fax with"));
    assert!(asked.all().is_empty());
}

/// CORE-064, CORE-068, CORE-069
#[tokio::test(start_paused = true)]
async fn a_step_may_ask_for_its_own_dry_run_in_a_real_run() {
    let (write, fax) = (ScriptedTool::new("write", EffectKind::Write), blunt("fax"));
    let (written, faxed) = (write.asked(), fax.asked());
    let stage = stage(1).tool(write.build()).tool(fax.build()).open().await;
    let air =
        workflow("w").function("a", "write", json!({"dry_run": true})).function("b", "fax", json!({"dry_run": true}));
    let run = stage.run(&air, Level::ExecuteSilent).await;
    let shown = stage.ended(run).await;
    assert_eq!(shown["result"]["a"]["status"], "dry_run");
    assert_eq!(shown["result"]["b"]["warning"], "Tool fax does not support dry-run; this is a mock response");
    assert_eq!((written.count("execute"), written.count("dry"), faxed.all().len()), (0, 1, 0));
    let told = flow::events(&stage.flow, &stage.permit("admin"), run, 0, 100).await.unwrap();
    for event in ["step.dispatched", "step.completed"] {
        let told: Vec<Value> = told.iter().filter(|entry| entry.event_type == event).map(as_json).collect();
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|entry| entry["data"]["dry_run"] == true), "{event}: {told:#?}");
    }
    flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
    stage.status(run, "rolled_back").await;
    assert_eq!(written.count("rollback"), 0, "nothing was done, so nothing is undone");
}

/// CORE-066
#[tokio::test(start_paused = true)]
async fn an_input_is_checked_in_real_and_in_dry_mode_alike() {
    let strict = ScriptedTool::new("strict", EffectKind::Write).with_declaration(|tool| {
        tool.input = json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
    });
    let asked = strict.asked();
    let stage = stage(1).tool(strict.build()).open().await;
    stage.apply(&workflow("w").function("a", "strict", json!({"to": "${inputs.to}"}))).await;
    for (level, dry_run) in [(Level::ExecuteSilent, false), (Level::ExecuteSilent, true), (Level::Draft, false)] {
        let run = stage.start(StartRun { level, dry_run, ..StartRun::of("w", json!({"to": 7})) }).await;
        let shown = stage.ended(run).await;
        assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("VALIDATION_FAILED")));
    }
    assert!(asked.all().is_empty());
}

/// CORE-067
#[tokio::test(start_paused = true)]
async fn a_real_call_is_made_once_and_its_output_is_unchanged() {
    let tool = ScriptedTool::new("tool", EffectKind::Write).answers(|_, _| Ok(json!({"page": 7, "success": false})));
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&workflow("w").function("a", "tool", json!({})), Level::ExecuteSilent).await;
    assert_eq!(stage.ended(run).await["result"]["a"], json!({"page": 7, "success": false}));
    assert_eq!((asked.count("execute"), asked.all().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_output_that_is_not_what_the_tool_promised_leaves_a_write_to_a_person() {
    let tool = ScriptedTool::new("tool", EffectKind::Write)
        .with_declaration(|tool| tool.output = json!({"type": "object", "required": ["page"]}))
        .answers(|_, _| Ok(json!({"pages": 7})));
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&workflow("w").function("a", "tool", json!({})), Level::ExecuteSilent).await;
    let step = stage.step(run, "a", "outcome_unknown").await;
    assert_eq!(asked.count("execute"), 1, "it has happened, so it is not done again");
    let settled = json!({"page": 7});
    flow::report_outcome(
        &stage.flow,
        &stage.permit("user_ann"),
        run,
        OutcomeReport::happened(id_of(&step["step_id"]), Some(settled)),
    )
    .await
    .unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!((stage.rows_of(&EFFECTS, run)[0].text("status"), asked.count("execute")), ("succeeded", 1));
}

/// CORE-072, CORE-073, CORE-074
#[tokio::test(start_paused = true)]
async fn l1_tries_every_tool_dry_in_the_order_of_the_plan_even_if_the_step_says_otherwise() {
    let (write, fax) = (ScriptedTool::new("write", EffectKind::Write), blunt("fax"));
    let (written, faxed) = (write.asked(), fax.asked());
    let stage = stage(1).tool(write.build()).tool(fax.build()).open().await;
    let air = workflow("w")
        .function("a", "write", json!({"n": 1, "dry_run": false}))
        .function("b", "fax", json!({"n": 2, "dry_run": false}))
        .function("c", "write", json!({"n": 3}))
        .edge("a", "b")
        .edge("b", "c");
    let run = stage.run(&air, Level::Draft).await;
    let shown = stage.status(run, "awaiting_approval").await;
    assert_eq!(shown["approve_url"], format!("/runs/{run}/approve"));
    let nodes: Vec<_> = shown["plan"]["steps"].as_array().unwrap().iter().map(|line| line["node"].clone()).collect();
    assert_eq!(nodes, ["a", "b", "c"]);
    let tried: Vec<_> = results(&shown).iter().map(|result| result["step_id"].clone()).collect();
    assert_eq!(tried, ["a", "b", "c"], "as many results as steps, in their order");
    let asked: Vec<_> = written.of("dry").iter().map(|call| call.input["n"].clone()).collect();
    assert_eq!(asked, [1, 3]);
    assert!(results(&shown).iter().all(|result| result["status"] == "dry_run"));
    assert_eq!((written.count("dry"), written.count("execute"), faxed.all().len()), (2, 0, 0));
}

/// CORE-075
#[tokio::test(start_paused = true)]
async fn an_approved_draft_is_run_for_real() {
    let write = ScriptedTool::new("write", EffectKind::Write);
    let asked = write.asked();
    let stage = stage(1).tool(write.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "write"), ("b", "write")]), Level::Draft).await;
    stage.asks(run).await;
    stage.decide("user_ann", run, Decision::Approve, None).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(
        asked.of("execute").iter().map(|made| made.input.clone()).collect::<Vec<_>>(),
        [json!({"n": "a"}), json!({"n": "b"})]
    );
}

/// CORE-076
#[tokio::test(start_paused = true)]
async fn a_rejected_draft_never_does_anything() {
    for decision in [Decision::Reject, Decision::RequestChanges] {
        let write = ScriptedTool::new("write", EffectKind::Write);
        let asked = write.asked();
        let stage = stage(1).tool(write.build()).open().await;
        let run = stage.run(&chain("w", &[("a", "write")]), Level::Draft).await;
        stage.asks(run).await;
        stage.decide("user_ann", run, decision, None).await.unwrap();
        assert_eq!(stage.ended(run).await["status"], "cancelled");
        assert_eq!(asked.count("execute"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_draft_after_a_restart_is_made_again() {
    let stuck = ScriptedTool::new("write", EffectKind::Write);
    let first = stage(1).tool(stuck.clone().build()).open().await;
    first.records.inject_batch_fault(Box::new(|_| None));
    let run = first.run(&chain("w", &[("a", "write"), ("b", "write")]), Level::Draft).await;
    first.flow.stop();
    let second = first.restart(stage(1).tool(stuck.build())).await;
    assert_eq!(second.asks(run).await.len(), 1);
    second.approve("user_ann", run).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

/// Dry calls are found by the specification's audit query, which joins calls to their steps.
#[tokio::test(start_paused = true)]
async fn every_dry_call_belongs_to_a_step_of_its_run() {
    let each = json!({"type": "function", "fn": "write", "inputs": {"n": "${item}"}});
    let air = workflow("w")
        .function("a", "write", json!({"n": 1}))
        .node(json!({"id": "each", "type": "map", "over": "${inputs.list}", "do": each}))
        .edge("a", "each");
    for (decision, dry_run, left) in [
        (Some(Decision::Approve), false, "completed"),
        (Some(Decision::Reject), false, "cancelled"),
        (None, true, "skipped"),
    ] {
        let stage = stage(1).tool(ScriptedTool::new("write", EffectKind::Write).build()).open().await;
        stage.apply(&air).await;
        let run =
            stage.start(StartRun { level: Level::Draft, dry_run, ..StartRun::of("w", json!({"list": [1, 2]})) }).await;
        if let Some(decision) = decision {
            stage.asks(run).await;
            stage.decide("user_ann", run, decision, None).await.unwrap();
        }
        stage.ended(run).await;
        let steps = stage.rows_of(&STEPS, run);
        let nodes: BTreeMap<_, _> = steps.iter().map(|row| (row.uuid("id"), row.text("node_id").to_owned())).collect();
        let calls = stage.rows_of(&TOOL_CALLS, run);
        let dry: Vec<&str> = calls
            .iter()
            .filter(|row| row.text("outcome") == "dry_run")
            .map(|row| nodes[&row.get("step_id").as_uuid().expect("a dry call has a step")].as_str())
            .collect();
        assert_eq!(dry, ["a", "each", "each"], "{decision:?}");
        let of_nodes = steps.iter().filter(|row| row.get("map_index").is_null());
        assert!(of_nodes.clone().all(|row| row.text("status") == left), "{left}: {steps:?}");
        assert_eq!(of_nodes.count(), 2, "one step a node, dry or not");
    }
}
