//! Large graphs and many runs: work grows with the graph, memory does not grow with what waits.

use chimera_core::access::Level;
use chimera_core::flow::run::{Event, RunStatus, Signal, Told};
use chimera_core::limits;
use chimera_engine::flow::StartRun;
use chimera_testkit::flow::{Air, Bare, Work, stage, until, workflow};
use serde_json::{Value, json};

const SILENT: Level = Level::ExecuteSilent;

/// A document of `count` nodes beside or behind a first one.
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

fn done(air: &Air, level: Level) -> Work {
    let mut bare = Bare::begin(air, level);
    bare.drive();
    assert_eq!(bare.run.status(), RunStatus::Completed);
    bare.work
}

/// The work for ten times the nodes is ten times the work, give or take what every run has once.
fn grows_linearly(small: Work, large: Work) {
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
    let mut bare = Bare::begin(&graph(10_000, delayed, |n| json!({"from": "n0", "to": format!("n{n}")})), SILENT);
    bare.drive();
    assert_eq!(bare.work.calls, 1);
    let told = Told::Cancel { by: "user_ann".to_owned(), reason: None };
    bare.tell(vec![Event::Signalled(Signal { id: bare.id(), told })]);
    bare.drive();
    assert_eq!(bare.run.status(), RunStatus::Cancelled);
}

#[test]
fn ten_thousand_first_nodes_come_up_in_turns_that_a_store_takes() {
    let delayed = |id: &str| json!({"id": id, "type": "function", "fn": "again", "inputs": {}, "delay_seconds": 600});
    let nodes: Vec<Value> = (0..10_000).map(|n| delayed(&format!("n{n}"))).collect();
    let mut bare = Bare::begin(&workflow("wide").with("nodes", json!(nodes)), SILENT);
    bare.drive();
    assert!(bare.work.rows >= 20_000 && bare.work.calls == 0, "{:?}", bare.work);
}

#[test]
fn a_draft_of_ten_thousand_nodes_is_written_in_turns_that_a_store_takes() {
    let mut bare = Bare::begin(&line(10_000), Level::Draft);
    bare.drive();
    assert_eq!((bare.run.status(), bare.work.calls), (RunStatus::AwaitingApproval, 10_000));
    assert!(bare.work.rows >= 10_000, "every dry call has its row: {:?}", bare.work);
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
    until("no run is driven", || stage.flow.active() == 0).await;
    stage.approve("user_ann", last).await;
    assert_eq!(stage.ended(last).await["status"], "completed");
    assert_eq!(stage.flow.active(), 0);
}

/// How many wait. What is in memory does not depend on it, so there need not be many.
const WAITING: usize = 1_000;
