//! Large graphs and many runs: work is linear in the graph, and memory does not grow with what waits.

use chimera_core::access::{Actor, Level};
use chimera_core::flow::run::{Event, RunStatus, Signal, SignalKind};
use chimera_core::flow::tables::STEPS;
use chimera_core::ledger::tables::LEDGER_LANES;
use chimera_core::limits;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, KeeperState, StartRun};
use chimera_testkit::flow::{Air, ScriptedTool, StorelessRun, WorkCounts, code_of, stage, until, workflow};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// A document with `count` nodes in parallel or in sequence after a first one.
fn graph(count: usize, node: impl Fn(&str) -> Value, edge: impl Fn(usize) -> Value) -> Air {
    let name = |n: usize| format!("n{n}");
    let nodes: Vec<Value> = (0..count).map(|n| node(&name(n))).collect();
    let edges: Vec<Value> = (1..count).map(edge).collect();
    workflow("large").with("nodes", json!(nodes)).with("edges", json!(edges))
}

fn pure(id: &str) -> Value {
    json!({"id": id, "type": "function", "fn": "pure", "inputs": {}})
}

fn line(count: usize) -> Air {
    graph(count, pure, |n| json!({"from": format!("n{}", n - 1), "to": format!("n{n}")}))
}

fn fan(count: usize) -> Air {
    graph(count, pure, |n| json!({"from": "n0", "to": format!("n{n}")}))
}

fn done(air: &Air, level: Level) -> WorkCounts {
    let mut bare = StorelessRun::start(air, level);
    bare.drive();
    assert_eq!(bare.run.status(), RunStatus::Completed);
    bare.work
}

/// Ten times the nodes is ten times the work, except for the fixed part of every run.
fn grows_linearly(small: WorkCounts, large: WorkCounts) {
    for (what, small, large) in [
        ("rows", small.rows, large.rows),
        ("turns", small.turns, large.turns),
        ("calls", small.calls, large.calls),
        ("slots", small.slots, large.slots),
        ("judged", small.judged, large.judged),
    ] {
        assert!(large <= small * 10 + 20, "{what}: {small} for a thousand nodes, {large} for ten thousand");
    }
}

#[test]
fn a_chain_of_ten_thousand_nodes_is_ten_times_the_work_of_one_thousand() {
    let (small, large) = (done(&line(1_000), SILENT), done(&line(10_000), SILENT));
    grows_linearly(small, large);
    assert_eq!(large.calls, 10_000);
    assert!(large.rows <= 10_000 * 5, "a pure step costs an update, two inserts and an entry: {large:?}");
}

#[test]
fn a_fan_of_ten_thousand_nodes_is_ten_times_the_work_of_one_thousand() {
    let (small, large) = (done(&fan(1_000), SILENT), done(&fan(10_000), SILENT));
    grows_linearly(small, large);
    assert_eq!(large.calls, 10_000);
}

#[test]
fn ten_thousand_skipped_nodes_are_written_in_turns_that_a_store_takes() {
    let condition = |n: usize| json!({"from": "n0", "to": format!("n{n}"), "condition": "${1 > 2}"});
    let work = done(&graph(10_000, pure, condition), SILENT);
    assert_eq!(work.calls, 1);
    assert!(work.rows >= 20_000 && work.rows_most <= limits::TX_ROWS_MAX, "{work:?}");
}

#[test]
fn ten_thousand_delayed_nodes_are_written_and_stopped_in_turns_that_a_store_takes() {
    let delayed = |id: &str| {
        let delay = if id == "n0" { 0 } else { 600 };
        json!({"id": id, "type": "function", "fn": "again", "inputs": {}, "delay_seconds": delay})
    };
    let mut bare =
        StorelessRun::start(&graph(10_000, delayed, |n| json!({"from": "n0", "to": format!("n{n}")})), SILENT);
    bare.drive();
    assert_eq!(bare.work.calls, 1);
    let told = SignalKind::Cancel { by: Actor::person("user_ann"), reason: None };
    bare.apply(vec![Event::Signalled(Signal::new(bare.id(), told))]);
    bare.drive();
    assert_eq!(bare.run.status(), RunStatus::Cancelled);
}

#[test]
fn ten_thousand_first_nodes_come_up_in_turns_that_a_store_takes() {
    let delayed = |id: &str| json!({"id": id, "type": "function", "fn": "again", "inputs": {}, "delay_seconds": 600});
    let nodes: Vec<Value> = (0..10_000).map(|n| delayed(&format!("n{n}"))).collect();
    let mut bare = StorelessRun::start(&workflow("wide").with("nodes", json!(nodes)), SILENT);
    bare.drive();
    assert!(bare.work.rows >= 20_000 && bare.work.calls == 0, "{:?}", bare.work);
}

#[test]
fn a_draft_of_ten_thousand_nodes_is_written_in_turns_that_a_store_takes() {
    let mut bare = StorelessRun::start(&line(10_000), Level::Draft);
    bare.drive();
    assert_eq!((bare.run.status(), bare.work.calls), (RunStatus::AwaitingApproval, 10_000));
    assert!(bare.work.rows >= 10_000, "every dry call has its row: {:?}", bare.work);
}

#[test]
fn a_draft_of_ten_thousand_nodes_is_cancelled_in_turns_that_a_store_takes() {
    let loose: Vec<Value> = (0..10_000).map(|n| pure(&format!("n{n}"))).collect();
    for air in [line(10_000), fan(9_000), fan(10_000), workflow("loose").with("nodes", json!(loose))] {
        let mut bare = StorelessRun::start(&air, Level::Draft);
        bare.drive();
        assert_eq!(bare.run.status(), RunStatus::AwaitingApproval);
        let told = SignalKind::Cancel { by: Actor::person("user_ann"), reason: None };
        bare.apply(vec![Event::Signalled(Signal::new(bare.id(), told))]);
        bare.drive();
        assert_eq!(bare.run.status(), RunStatus::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn runs_that_wait_for_a_person_are_not_in_memory() {
    let stage = stage(1).open().await;
    stage.apply(&workflow("w").node(json!({"id": "ask", "type": "hitl"}))).await;
    let mut last = None;
    for _ in 0..WAITING {
        last = Some(stage.start(StartRun { level: SILENT, ..StartRun::of("w", json!({})) }).await);
    }
    let last = last.unwrap();
    stage.asks(last).await;
    until("no run is driven", || stage.flow.active_runs() == 0).await;
    stage.approve("user_ann", last).await;
    assert_eq!(stage.ended(last).await["status"], "completed");
    assert_eq!(stage.flow.active_runs(), 0);
}

/// The number of waiting runs. Memory does not depend on it, so it can be small.
const WAITING: usize = 1_000;

#[tokio::test(start_paused = true)]
async fn a_map_that_would_give_its_run_more_steps_than_it_may_have_fails_before_its_first_item() {
    let slow = ScriptedTool::new("slow", EffectKind::Read).with_delay(|_| Duration::from_secs(3_600));
    let asked = slow.asked();
    let stage = stage(1).tool(slow.build()).open().await;
    let maps = limits::RUN_STEPS_MAX / limits::MAP_ITEMS_MAX;
    let air = (0..maps).fold(workflow("w"), |air, n| {
        air.map(&format!("m{n}"), json!("${inputs.list}"), "slow", json!({"n": "${item}"}))
    });
    let list: Vec<usize> = (0..limits::MAP_ITEMS_MAX).collect();
    let run = stage.run_with(&air, SILENT, json!({"list": list})).await;
    let last = stage.step(run, &format!("m{}", maps - 1), "failed").await;
    assert_eq!(last["error"]["code"], "PAYLOAD_TOO_LARGE");
    assert_eq!(last["error"]["details"]["steps_max"], limits::RUN_STEPS_MAX);
    assert_eq!(asked.count("execute"), maps - 1, "the maps before it had begun");
}

/// A run with more steps than the current limit continues from all of them.
#[tokio::test(start_paused = true)]
async fn a_run_is_read_with_all_its_steps_however_many_there_are() {
    let stage = stage(1).open().await;
    let air = workflow("w")
        .map("m", json!([1]), "pure", json!({"n": "${item}"}))
        .node(json!({"id": "ask", "type": "hitl"}))
        .function("after", "pure", json!({}))
        .edge("m", "ask")
        .edge("ask", "after");
    let run = stage.run(&air, SILENT).await;
    stage.asks(run).await;
    until("it is not in memory", || stage.flow.active_runs() == 0).await;
    stage.records.tamper(&STEPS, |steps| {
        let item = steps.iter().find(|step| step.get("map_index").as_int() == Some(0)).unwrap().clone();
        let cell = |column| STEPS.position(column).unwrap();
        for n in 1..=limits::RUN_STEPS_MAX {
            let mut more = item.clone();
            more.cells[cell("id")] = Uuid::from_u128(n as u128).into();
            more.cells[cell("map_index")] = i64::try_from(n).unwrap().into();
            steps.push(more);
        }
    });
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn more_rows_than_may_be_read_at_once_are_an_error_and_never_a_part_of_them() {
    let stage = stage(1).unkept().open().await;
    stage.run(&workflow("w").function("a", "pure", json!({})), SILENT).await;
    flow::run_keeper_once(&stage.flow, &mut KeeperState::default()).await.unwrap();
    stage.records.tamper(&LEDGER_LANES, |lanes| {
        let lane = lanes.first().unwrap().clone();
        let numbers = (0..limits::LANES_MAX).map(|n| i64::try_from(n + 100).unwrap());
        lanes.extend(numbers.map(|number| {
            let mut more = lane.clone();
            more.cells[LEDGER_LANES.position("lane").unwrap()] = number.into();
            more
        }));
    });
    let refused = flow::run_keeper_once(&stage.flow, &mut KeeperState::default()).await;
    assert_eq!(code_of(refused), "PAYLOAD_TOO_LARGE");
}
