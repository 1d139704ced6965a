//! Maps and approvals: every call that runs was listed in the approved request, with its count.

use chimera_core::access::Level;
use chimera_core::limits::{DRAFT_BYTES_MAX, DRAFT_ITEMS_MAX, PLAN_STEPS_FREE_MAX};
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, Decision, StartRun};
use chimera_testkit::flow::{Air, EngineFixture, ScriptedTool, id_of, stage, workflow};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

fn write() -> ScriptedTool {
    ScriptedTool::new("write", EffectKind::Write)
}

/// A step that returns a list of this many numbers.
fn source(items: usize) -> ScriptedTool {
    let list: Vec<usize> = (0..items).collect();
    ScriptedTool::new("source", EffectKind::Read).answers(move |_, _| Ok(json!({ "list": list })))
}

/// A map over the list of the run's inputs.
fn known() -> Air {
    workflow("w").map("m", json!("${inputs.list}"), "write", json!({"n": "${item}"})).in_parallel(4)
}

/// A map over a step's output.
fn deferred() -> Air {
    let each = json!({"n": "${item}"});
    let air = workflow("w").function("a", "source", json!({}));
    air.map("m", json!("${nodes.a.outputs.list}"), "write", each).in_parallel(4).edge("a", "m")
}

/// The number of calls that a request lists, identical ones included.
fn listed(lines: &Value) -> u64 {
    let alike = |line: &Value| -> u64 {
        let ranges = line["alike"].as_array().into_iter().flatten();
        ranges.map(|range| range[1].as_u64().unwrap() - range[0].as_u64().unwrap() + 1).sum()
    };
    let items = lines.as_array().unwrap().iter().filter(|line| !line["item"].is_null());
    items.map(|line| 1 + alike(line)).sum()
}

async fn asked_of(stage: &EngineFixture, run: Uuid, node: &str) -> Value {
    let shown = stage.until(run, |shown| shown["approvals"][0]["node_id"] == node).await;
    shown["approvals"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn every_item_of_a_known_list_is_listed_in_the_plan_and_none_runs_unseen() {
    let tool = write();
    let made = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let items = DRAFT_ITEMS_MAX + 21;
    let run = stage.run_with(&known(), Level::Draft, json!({"list": (0..items).collect::<Vec<_>>()})).await;
    let asked = stage.asks(run).await.remove(0);
    let lines = &asked["action"]["plan"]["steps"];
    assert_eq!(listed(lines), items as u64);
    assert_eq!((&lines[0]["items"], &lines[0]["items_listed"]), (&json!(items), &json!(items)));
    assert_eq!(lines[items]["input"]["n"], items - 1, "the last one with its input");
    assert_eq!(made.count("dry"), DRAFT_ITEMS_MAX, "not each is tried, and it says so");
    assert_eq!(lines[items]["result"]["tried"], false);
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(made.count("execute"), items);
}

#[tokio::test(start_paused = true)]
async fn items_that_are_the_same_call_stand_in_one_line_with_their_count() {
    let tool = write();
    let made = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let mut list = vec![7; 481];
    list[100] = 8;
    let run = stage.run_with(&known(), Level::Draft, json!({ "list": list })).await;
    let asked = stage.asks(run).await.remove(0);
    let lines = asked["action"]["plan"]["steps"].as_array().unwrap();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[1]["alike"], json!([[1, 99], [101, 480]]));
    assert_eq!((listed(&asked["action"]["plan"]["steps"]), made.count("dry")), (481, 2));
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(made.count("execute"), 481);
}

/// An entry that stands for several calls is exactly what all of them send.
#[tokio::test(start_paused = true)]
async fn items_of_one_value_that_are_written_differently_stand_apart() {
    let whole = 9_007_199_254_740_992_i64;
    let list = json!([0, -0.0, 1, 1.0, 1, whole, 9_007_199_254_740_992.0, 1, 1, 1, 1, 1]);
    for (air, level) in [(known(), Level::Draft), (deferred(), Level::ExecuteNotify)] {
        let tool = write();
        let made = tool.asked();
        let given = list.clone();
        let source = ScriptedTool::new("source", EffectKind::Read).answers(move |_, _| Ok(json!({ "list": given })));
        let stage = stage(1).tool(source.build()).tool(tool.build()).open().await;
        let run = stage.run_with(&air, level, json!({ "list": list })).await;
        let asked = stage.asks(run).await.remove(0);
        let action = &asked["action"];
        let lines = if level == Level::Draft { &action["plan"]["steps"] } else { &action["calls"] };
        let calls = lines.as_array().unwrap().iter().filter(|line| line["input"].is_object());
        let shown: Vec<String> = calls.map(|line| line["input"]["n"].to_string()).collect();
        assert_eq!(shown, ["0", "-0.0", "1", "1.0", "9007199254740992", "9007199254740992.0"], "{level:?}");
        stage.approve("user_ann", run).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        assert_eq!(made.count("execute"), 12);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_were_listed_are_asked_about_again_when_their_tool_has_changed() {
    for (air, level) in [(known(), Level::Draft), (deferred(), Level::ExecuteSilent)] {
        let items = PLAN_STEPS_FREE_MAX + 1;
        let first = stage(1).tool(source(items).build()).tool(write().build()).open().await;
        let run = first.run_with(&air, level, json!({"list": (0..items).collect::<Vec<_>>()})).await;
        let old = first.asks(run).await.remove(0);
        first.flow.stop();
        first.decide("user_ann", run, Decision::Approve, Some(&old)).await.unwrap();
        let newer = write().with_declaration(|tool| tool.version = "1+changed");
        let made = newer.asked();
        let second = first.restart(stage(1).tool(source(items).build()).tool(newer.build())).await;
        let asked = |shown: &Value| {
            let digest = &shown["approvals"][0]["digest"];
            digest.is_string() && *digest != old["digest"]
        };
        second.until(run, asked).await;
        assert_eq!(made.count("execute"), 0, "{level:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_that_does_not_fit_into_the_plan_is_asked_about_by_itself() {
    let tool = write();
    let made = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let each = json!({"n": "${item}", "text": "${inputs.text}"});
    let air = workflow("w").map("m", json!("${inputs.list}"), "write", each);
    let text = "x".repeat(DRAFT_BYTES_MAX / 3);
    let run = stage.run_with(&air, Level::Draft, json!({"list": [1, 2, 3], "text": text})).await;
    let asked = stage.asks(run).await.remove(0);
    let lines = &asked["action"]["plan"]["steps"];
    assert_eq!((&lines[0]["items"], &lines[0]["items_listed"], listed(lines)), (&json!(3), &json!(2), 2));
    stage.approve("user_ann", run).await;
    let third = asked_of(&stage, run, "m").await;
    assert_eq!((&third["action"]["item"], made.count("execute")), (&json!(2), 2));
    assert_eq!(third["action"]["reason"], "this item was not shown when the others were approved");
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_becomes_known_with_many_items_stops_before_the_first_at_every_level() {
    for level in [Level::Draft, Level::ExecuteNotify, Level::ExecuteSilent] {
        let tool = write();
        let made = tool.asked();
        let stage = stage(1).tool(source(60).build()).tool(tool.build()).open().await;
        let run = stage.run(&deferred(), level).await;
        if level == Level::Draft {
            stage.approve("user_ann", run).await;
        }
        let asked = asked_of(&stage, run, "m").await;
        assert_eq!((listed(&asked["action"]["calls"]), made.count("execute")), (60, 0), "{level:?}");
        assert_eq!((&asked["action_type"], &asked["action"]["items"]), (&json!("map"), &json!(60)));
        assert!(asked["action"]["risk"]["score"].as_u64().unwrap() > 200, "{}", asked["action"]["risk"]);
        assert_eq!(asked["action"]["calls"][59]["input"], json!({"n": 59}));
        stage.approve("user_ann", run).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        assert_eq!(made.count("execute"), 60, "{level:?}: and nobody was asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_becomes_known_and_is_short_runs_at_l2_and_is_shown_at_l1() {
    for (level, stops) in [(Level::Draft, true), (Level::ExecuteNotify, false)] {
        let stage = stage(1).tool(source(3).build()).tool(write().build()).open().await;
        let run = stage.run(&deferred(), level).await;
        if stops {
            stage.approve("user_ann", run).await;
            assert_eq!(listed(&asked_of(&stage, run, "m").await["action"]["calls"]), 3);
            stage.approve("user_ann", run).await;
        }
        assert_eq!(stage.ended(run).await["status"], "completed", "{level:?}");
    }
}

/// The run id is not known in advance, so a list that depends on it was not counted.
#[tokio::test(start_paused = true)]
async fn a_list_that_depends_on_the_run_s_id_is_not_counted_beforehand() {
    let tool = write();
    let made = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let list: Vec<usize> = (0..12).collect();
    let over = format!("${{run_id == '' ? [] : {}}}", json!(list));
    let air = workflow("w").map("m", json!(over), "write", json!({"n": "${item}"})).in_parallel(4);
    let run = stage.run(&air, Level::ExecuteNotify).await;
    assert_eq!(listed(&asked_of(&stage, run, "m").await["action"]["calls"]), 12);
    assert_eq!(made.count("execute"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_asks_nobody() {
    let stage = stage(1).tool(source(0).build()).tool(write().build()).open().await;
    let run = stage.run(&deferred(), Level::Draft).await;
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn two_short_lists_count_together() {
    let tool = write();
    let made = tool.asked();
    let air = workflow("w")
        .function("a", "source", json!({}))
        .map("m", json!("${nodes.a.outputs.list}"), "write", json!({"n": "${item}"}))
        .map("o", json!("${nodes.a.outputs.list}"), "write", json!({"o": "${item}"}))
        .edge("a", "m")
        .edge("m", "o");
    let stage = stage(1).tool(source(6).build()).tool(tool.build()).open().await;
    let run = stage.run(&air, Level::ExecuteNotify).await;
    let asked = asked_of(&stage, run, "o").await;
    assert_eq!((listed(&asked["action"]["calls"]), made.count("execute")), (6, 6));
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn an_approved_map_goes_on_after_a_restart_without_asking_again() {
    let slow = || {
        let tool = write().with_declaration(|tool| tool.metadata.idempotent = true);
        tool.with_delay(|_| std::time::Duration::from_secs(5))
    };
    let first = stage(1).tool(source(12).build()).tool(slow().build()).open().await;
    let run = first.run(&deferred(), Level::ExecuteNotify).await;
    asked_of(&first, run, "m").await;
    let second = first.restart(stage(1).tool(source(12).build()).tool(slow().build())).await;
    second.approve("user_ann", run).await;
    second.step(run, "m", "running").await;
    let third = second.restart(stage(1).tool(source(12).build()).tool(slow().build())).await;
    assert_eq!(third.ended(run).await["status"], "completed");
}

/// An approval names the tool's version; another version is another call.
#[tokio::test(start_paused = true)]
async fn an_approved_map_asks_again_for_what_is_left_when_its_tool_has_another_version() {
    let slow = |version: &'static str| {
        let tool = write().with_declaration(|tool| {
            tool.metadata.idempotent = true;
            tool.version = version;
        });
        tool.with_delay(|_| std::time::Duration::from_secs(5))
    };
    for level in [Level::Draft, Level::ExecuteNotify, Level::ExecuteSilent] {
        let first = stage(1).tool(source(12).build()).tool(slow("1").build()).open().await;
        let run = first.run(&deferred(), level).await;
        if level == Level::Draft {
            first.approve("user_ann", run).await;
        }
        asked_of(&first, run, "m").await;
        first.approve("user_ann", run).await;
        first.step(run, "m", "running").await;
        let second = slow("2");
        let asked = second.asked();
        let second = first.restart(stage(1).tool(source(12).build()).tool(second.build())).await;
        let waits = asked_of(&second, run, "m").await;
        assert_eq!(waits["action"]["tool_version"], "2", "{level:?}: {waits}");
        assert!(asked.count("execute") <= 4, "{level:?}: at most what was under way is sent again");
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_a_map_that_waits_is_refused_and_it_still_waits() {
    let stage = stage(1).tool(source(12).build()).tool(write().build()).open().await;
    let run = stage.run(&deferred(), Level::ExecuteNotify).await;
    let asked = asked_of(&stage, run, "m").await;
    let edited =
        flow::edit_step(&stage.flow, &stage.permit("user_ann"), run, id_of(&asked["step_id"]), json!({"n": 1})).await;
    assert_eq!(chimera_testkit::flow::code_of(edited), "INVALID_TRANSITION");
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// The child runs of a run, in the order they were started.
async fn children_of(stage: &EngineFixture, run: Uuid) -> Vec<Uuid> {
    let steps = stage.steps(run).await;
    let children = steps.as_array().unwrap().iter().map(|step| &step["child_run_id"]);
    children.filter(|child| !child.is_null()).map(id_of).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_handed_to_a_run_inside_is_not_counted_and_stops_there() {
    let tool = write();
    let made = tool.asked();
    let stage = stage(1).tool(source(60).build()).tool(tool.build()).open().await;
    let each = json!({"n": "${item}"});
    stage.apply(&workflow("inner").map("m", json!("${inputs.list}"), "write", each).in_parallel(4)).await;
    let air = workflow("w")
        .function("a", "source", json!({}))
        .child("c", "inner", json!({"list": "${nodes.a.outputs.list}"}))
        .edge("a", "c");
    let run = stage.run(&air, Level::ExecuteNotify).await;
    stage.step(run, "c", "running").await;
    let child = children_of(&stage, run).await[0];
    let asked = asked_of(&stage, child, "m").await;
    assert_eq!((listed(&asked["action"]["calls"]), made.count("execute")), (60, 0));
    stage.approve("user_ann", child).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// Of ten calls without approval, two child runs may make three each, and three of them may not.
#[tokio::test(start_paused = true)]
async fn what_is_spare_is_divided_among_the_runs_inside() {
    for (runs, made_at_once) in [(2, 6), (3, 0)] {
        let tool = write();
        let made = tool.asked();
        let stage = stage(1).tool(source(runs).build()).tool(tool.build()).open().await;
        let mut inner = workflow("inner");
        for node in 0..3 {
            inner = inner.function(&format!("n{node}"), "write", json!({"n": node}));
        }
        stage.apply(&inner).await;
        let air = workflow("w")
            .function("a", "source", json!({}))
            .node(json!({"id": "m", "type": "map", "over": "${nodes.a.outputs.list}", "max_parallel": 8,
                "do": {"type": "workflow", "workflow_id": "inner", "inputs": {}}}))
            .edge("a", "m");
        let run = stage.run(&air, Level::ExecuteNotify).await;
        stage.step(run, "m", "running").await;
        stage.pass(std::time::Duration::from_secs(5)).await;
        assert_eq!(made.count("execute"), made_at_once, "{runs} runs of three calls");
    }
}

/// Nested workflows: the innermost returns a list, and each maps over the list it gets.
async fn lists_inside_each_other(stage: &EngineFixture, depth: usize) -> Air {
    let each = || json!({"n": "${item}"});
    let mut air = workflow("inner0").function("c", "source", json!({}));
    for level in 1..=depth {
        let given = air.map("m", json!("${nodes.c.outputs.list}"), "write", each()).in_parallel(4).edge("c", "m");
        let given = given.with("outputs", json!({"list": "${nodes.c.outputs.list}"}));
        stage.apply(&given).await;
        air = workflow(&format!("inner{level}")).child("c", &format!("inner{}", level - 1), json!({}));
    }
    air.map("m", json!("${nodes.c.outputs.list}"), "write", each()).in_parallel(4).edge("c", "m")
}

/// Starts a run at L2 that was admitted with this many calls, those of child runs included.
async fn counted(stage: &EngineFixture, air: &Air, calls: usize) -> Uuid {
    stage.apply(air).await;
    let (level, risk) = (Level::ExecuteNotify, Some(Arc::new(json!({ "calls": calls }))));
    stage.start(StartRun { level, risk, ..StartRun::of(air.id(), json!({})) }).await
}

/// The calls granted to child runs are not available to their parents any more, at any depth.
#[tokio::test(start_paused = true)]
async fn calls_that_were_left_to_a_run_inside_are_not_made_again_by_the_run_around_it() {
    for (depth, items) in [(1, 2), (1, 5), (1, 9), (2, 3), (2, 4), (3, 3), (4, 2), (4, 5)] {
        let tool = write();
        let made = tool.asked();
        let stage = stage(1).tool(source(items).build()).tool(tool.build()).open().await;
        let air = lists_inside_each_other(&stage, depth).await;
        let run = counted(&stage, &air, depth + 2).await;
        stage.pass(std::time::Duration::from_secs(30)).await;
        let calls = 1 + made.count("execute");
        assert!(calls <= PLAN_STEPS_FREE_MAX, "{depth} runs inside, {items} items: {calls} calls");
        if (depth, items) == (1, 2) {
            assert_eq!(stage.ended(run).await["status"], "completed", "five calls need nobody");
        }
    }
}

/// The calls granted to a child run are restored from rows alone.
#[tokio::test(start_paused = true)]
async fn calls_that_were_left_to_a_run_inside_are_not_there_after_a_restart_either() {
    let tools = |items| stage(1).tool(source(items).build()).tool(write().build());
    let first = tools(4).open().await;
    let each = json!({"n": "${item}"});
    let inner = workflow("inner").function("a", "source", json!({}));
    let inner = inner.map("m", json!("${nodes.a.outputs.list}"), "write", each.clone()).in_parallel(4).edge("a", "m");
    first.apply(&inner.with("outputs", json!({"list": "${nodes.a.outputs.list}"}))).await;
    let air = workflow("w")
        .child("c", "inner", json!({}))
        .node(json!({"id": "ask", "type": "hitl"}))
        .map("m", json!("${nodes.c.outputs.list == [] ? [] : [1, 2, 3, 4, 5, 6]}"), "write", each)
        .in_parallel(4)
        .edge("c", "ask")
        .edge("ask", "m");
    let run = counted(&first, &air, 3).await;
    asked_of(&first, run, "ask").await;
    let second = first.restart(tools(4)).await;
    second.approve("user_ann", run).await;
    let asked = asked_of(&second, run, "m").await;
    let reason =
        "with these 6 items the run makes 8 calls, and runs inside it may make 3 more; more than 10 need approval";
    assert_eq!(asked["action"]["reason"], reason);
    second.approve("user_ann", run).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn runs_that_nobody_counted_share_what_is_spare_and_are_drafted_beyond_it() {
    let tool = write();
    let made = tool.asked();
    let stage = stage(1).tool(source(8).build()).tool(tool.build()).open().await;
    let mut inner = workflow("inner");
    for node in 0..9 {
        inner = inner.function(&format!("n{node}"), "write", json!({"n": node}));
    }
    stage.apply(&inner).await;
    let air = workflow("w")
        .function("a", "source", json!({}))
        .node(json!({"id": "m", "type": "map", "over": "${nodes.a.outputs.list}", "max_parallel": 8,
            "do": {"type": "workflow", "workflow_id": "inner", "inputs": {}}}))
        .edge("a", "m");
    let run = stage.run(&air, Level::ExecuteNotify).await;
    stage.step(run, "m", "running").await;
    let mut children = children_of(&stage, run).await;
    while children.len() < 8 {
        stage.pass(std::time::Duration::from_millis(50)).await;
        children = children_of(&stage, run).await;
    }
    for child in children {
        let shown = stage.show(child).await;
        stage.asks(child).await;
        assert_eq!(made.count("execute"), 0, "{shown}");
        assert_eq!(stage.show(child).await["autonomy_level"], "L1_Draft");
    }
}

#[tokio::test(start_paused = true)]
async fn runs_that_were_counted_go_on_as_freely_as_the_run_around_them() {
    let stage = stage(1).tool(write().build()).open().await;
    let each = json!({"n": "${item}"});
    stage.apply(&workflow("inner").map("m", json!("${inputs.list}"), "write", each).in_parallel(4)).await;
    let list: Vec<usize> = (0..PLAN_STEPS_FREE_MAX).collect();
    let air = workflow("w").child("c", "inner", json!({"list": "${inputs.list}"}));
    let run = stage.run_with(&air, Level::ExecuteNotify, json!({ "list": list })).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// One map of a random plan.
#[derive(Clone, Debug)]
struct GeneratedMap {
    /// Whether the list comes from an earlier step.
    deferred: bool,
    list: Vec<u8>,
    /// Each item carries a text of this many bytes.
    bytes: usize,
}

fn drawn() -> impl Strategy<Value = GeneratedMap> {
    let list = proptest::collection::vec(0_u8..6, 0..24);
    let bytes = prop_oneof![4 => Just(1_usize), 1 => Just(DRAFT_BYTES_MAX / 5)];
    (any::<bool>(), list, bytes).prop_map(|(deferred, list, bytes)| GeneratedMap { deferred, list, bytes })
}

/// The inputs of all calls that a request shows, once for each call.
fn shown_calls(asked: &Value) -> Vec<Value> {
    let action = &asked["action"];
    let lines = match asked["action_type"].as_str().unwrap() {
        "plan" => action["plan"]["steps"].as_array().unwrap().clone(),
        "map" => action["calls"].as_array().unwrap().clone(),
        _ => vec![action.clone()],
    };
    let calls = lines.into_iter().filter(|line| !line["item"].is_null() && !line["input"].is_null());
    calls.flat_map(|line| vec![line["input"].clone(); usize::try_from(listed(&json!([line]))).unwrap()]).collect()
}

/// Runs a plan and approves every request; returns what was shown before it ran, and what ran.
async fn approved_and_run(maps: Vec<GeneratedMap>, level: Level) -> (Vec<Value>, Vec<Value>) {
    let (tool, lists) = (write(), maps.clone());
    let made = tool.asked();
    let source = ScriptedTool::new("source", EffectKind::Read)
        .answers(move |_, _| Ok(json!({"lists": lists.iter().map(|map| map.list.clone()).collect::<Vec<_>>()})));
    let mut air = workflow("w").function("a", "source", json!({}));
    for (at, map) in maps.iter().enumerate() {
        let from = if map.deferred { "nodes.a.outputs.lists" } else { "inputs.lists" };
        let each = json!({"map": at, "n": "${item}", "text": "x".repeat(map.bytes)});
        let id = format!("m{at}");
        air = air.map(&id, json!(format!("${{{from}[{at}]}}")), "write", each).in_parallel(3).edge("a", &id);
    }
    let stage = stage(1).tool(source.build()).tool(tool.build()).open().await;
    let inputs = json!({"lists": maps.iter().map(|map| map.list.clone()).collect::<Vec<_>>()});
    let run = stage.run_with(&air, level, inputs).await;
    let mut shown = Vec::new();
    loop {
        let now = stage
            .until(run, |now| {
                now["status"] != "running" && (now["status"] == "completed" || now["approvals"][0].is_object())
            })
            .await;
        if now["status"] == "completed" {
            break;
        }
        let asked = now["approvals"][0].clone();
        shown.extend(shown_calls(&asked));
        // Everything that ran was shown before, as often as it ran.
        stage.decide("user_ann", run, chimera_engine::flow::Decision::Approve, Some(&asked)).await.unwrap();
        stage.until(run, |now| now["approvals"][0]["approval_id"] != asked["approval_id"]).await;
    }
    (shown, made.of("execute").into_iter().map(|made| made.input).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// At L1 every call that runs was listed in the approved request, as often as it ran.
    #[test]
    fn every_call_that_runs_after_an_approval_was_listed_in_it(maps in proptest::collection::vec(drawn(), 1..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (mut shown, ran) = runtime.block_on(approved_and_run(maps, Level::Draft));
        for call in ran {
            let at = shown.iter().position(|shown| *shown == call);
            prop_assert!(at.is_some(), "{call} ran and was not shown");
            shown.swap_remove(at.unwrap());
        }
        prop_assert!(shown.is_empty(), "{shown:?} was shown and did not run");
    }

    /// At L2 no more calls run without approval than the limit.
    #[test]
    fn no_more_calls_run_unseen_than_may_without_a_person(mut maps in proptest::collection::vec(drawn(), 1..4)) {
        maps.iter_mut().for_each(|map| map.deferred = true);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (mut shown, ran) = runtime.block_on(approved_and_run(maps, Level::ExecuteNotify));
        let mut unseen = 0;
        for call in ran {
            match shown.iter().position(|shown| *shown == call) {
                Some(at) => drop(shown.swap_remove(at)),
                None => unseen += 1,
            }
        }
        prop_assert!(unseen <= PLAN_STEPS_FREE_MAX, "{unseen} calls ran unseen");
    }
}
