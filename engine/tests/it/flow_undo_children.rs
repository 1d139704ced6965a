//! Rollbacks of runs with several children that can't be undone as a whole: each child is asked once for each
//! request, what is left of it is listed, and the rollback ends.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::tables::{EFFECTS, RUNS};
use chimera_core::record::{Comparison, Condition, Json, RowCount, Step, Tx, Update};
use chimera_core::tool::{EffectKind, Rollback};
use chimera_engine::flow::port::ToolError;
use chimera_engine::flow::{self, StartRun};
use chimera_engine::port::Records;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, EngineSetup, ScriptedTool, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use uuid::Uuid;

const LEFT: &str = "its child run could not be undone as a whole";

/// How a parent starts its children.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Map,
    Parallel,
    Chain,
    /// Two children that each have two of their own.
    Deep,
}

const SHAPES: [Shape; 4] = [Shape::Map, Shape::Parallel, Shape::Chain, Shape::Deep];

fn parent(id: &str, shape: Shape, child: &str) -> Air {
    let nodes = workflow(id).child("c0", child, json!({})).child("c1", child, json!({}));
    match shape {
        Shape::Map => workflow(id).node(json!({
            "id": "m", "type": "map", "over": "${[1, 2, 3]}",
            "do": {"type": "workflow", "workflow_id": child, "inputs": {}},
        })),
        Shape::Parallel | Shape::Deep => nodes,
        Shape::Chain => nodes.edge("c0", "c1"),
    }
}

/// The runs that a rollback of the outermost one leaves something of, and the calls that they made.
const fn sizes(shape: Shape) -> (usize, usize) {
    match shape {
        Shape::Map => (4, 3),
        Shape::Parallel | Shape::Chain => (3, 2),
        Shape::Deep => (7, 4),
    }
}

const fn children(shape: Shape) -> usize {
    if matches!(shape, Shape::Map) { 3 } else { 2 }
}

/// A tool whose undo is refused for good, or that has none.
#[derive(Clone)]
struct Stubborn {
    rollback: Rollback,
    undos: Arc<AtomicUsize>,
}

impl Stubborn {
    fn new(rollback: Rollback) -> Self {
        Self { rollback, undos: Arc::default() }
    }

    fn setup(&self) -> EngineSetup {
        let (rollback, undos) = (self.rollback, Arc::clone(&self.undos));
        let tool = ScriptedTool::new("pay", EffectKind::Write).with_declaration(move |tool| tool.rollback = rollback);
        let tool = tool.on_rollback(move |_, _| {
            undos.fetch_add(1, Ordering::SeqCst);
            Err(ToolError::not_sent(Code::ValidationFailed, "this can't be taken back"))
        });
        stage(1).tool(tool.build())
    }
}

/// A run that has ended, and so have its children.
async fn done(stage: &EngineFixture, shape: Shape) -> Uuid {
    stage.apply(&workflow("leaf").function("a", "pay", json!({"n": "a"}))).await;
    stage.apply(&parent("mid", Shape::Chain, "leaf")).await;
    stage.apply(&parent("outer", shape, if matches!(shape, Shape::Deep) { "mid" } else { "leaf" })).await;
    let level = Level::ExecuteSilent;
    let run = stage.start(StartRun { level, ..StartRun::of("outer", json!({})) }).await;
    stage.ended(run).await;
    run
}

fn ended(shown: &Value, round: u64) -> bool {
    shown["rollback"]["round"] == round && shown["rollback"]["ended"] == true
}

/// How often each run was rolled back, by the entries about it.
async fn rollbacks(stage: &EngineFixture) -> Vec<usize> {
    let mut counts = Vec::new();
    for row in stage.rows(&RUNS) {
        let events = stage.events(row.uuid("id")).await;
        counts.push(events.iter().filter(|event| *event == "run.rollback_started").count());
    }
    counts
}

async fn filtered_now(stage: &EngineFixture, tool: &Stubborn, run: Uuid, shape: Shape, round: u64) {
    let case = format!("{shape:?} {:?}", tool.rollback);
    let shown = stage.until(run, |shown| ended(shown, round)).await;
    let (runs, calls) = sizes(shape);
    let left = shown["rollback"]["left"].as_array().unwrap();
    assert_eq!(left.len(), children(shape), "{case}: {shown:#}");
    assert!(left.iter().all(|line| line["reason"] == LEFT), "{case}: {left:?}");
    let round = usize::try_from(round).unwrap();
    assert_eq!(rollbacks(stage).await, vec![round; runs], "{case}");
    let sent = if tool.rollback == Rollback::Unsupported { 0 } else { calls * round };
    assert_eq!(tool.undos.load(Ordering::SeqCst), sent, "{case}: a refused undo is sent once for each request");
    let open = |row: &chimera_core::record::Row| {
        !row.get("owner_lane").is_null() || !row.get("next_deadline").is_null() || row.text("status") != "completed"
    };
    assert!(!stage.rows(&RUNS).iter().any(open), "{case}: a run has work left");
    assert!(!stage.rows(&EFFECTS).iter().any(|row| row.text("status") == "dispatched"), "{case}");
}

#[tokio::test(start_paused = true)]
async fn each_child_is_asked_once_and_the_rollback_ends() {
    for shape in SHAPES {
        for rollback in [Rollback::Once, Rollback::Repeatable, Rollback::Unsupported] {
            let tool = Stubborn::new(rollback);
            let stage = tool.setup().open().await;
            let run = done(&stage, shape).await;
            for round in 1..=2 {
                flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
                filtered_now(&stage, &tool, run, shape, round).await;
            }
        }
    }
}

/// The process dies after each commit of the rollback in turn, and after all of them.
#[tokio::test(start_paused = true)]
async fn a_crash_after_any_commit_asks_no_child_again() {
    for shape in SHAPES {
        let commits = crashed_after(shape, &[]).await;
        for at in 1..=commits {
            crashed_after(shape, &[at]).await;
        }
        crashed_after(shape, &(1..=commits).collect::<Vec<_>>()).await;
    }
}

/// Gives how many commits the rollback took.
async fn crashed_after(shape: Shape, crashes: &[u64]) -> u64 {
    let tool = Stubborn::new(Rollback::Repeatable);
    let mut stages = vec![tool.setup().open().await];
    let run = done(&stages[0], shape).await;
    let mut commits = stages[0].records.commits();
    commits.borrow_and_update();
    flow::rollback(&stages[0].flow, &stages[0].permit("user_ann"), run, None, None).await.unwrap();
    let mut count = 0;
    while !ended(&stages[0].show(run).await, 1) {
        commits.changed().await.unwrap();
        count += 1;
        if crashes.contains(&count) {
            let next = stages[0].restart(tool.setup()).await;
            stages.insert(0, next);
        }
    }
    let shown = stages[0].show(run).await;
    assert_eq!(shown["rollback"]["left"].as_array().unwrap().len(), children(shape), "{shape:?} {crashes:?}");
    let (runs, calls) = sizes(shape);
    assert_eq!(rollbacks(&stages[0]).await, vec![1; runs], "{shape:?} {crashes:?}");
    // An undo that a crash cut is sent again if a second one changes nothing.
    let undos = tool.undos.load(Ordering::SeqCst);
    assert!((calls..=calls + crashes.len()).contains(&undos), "{shape:?} {crashes:?}: {undos} undos");
    count
}

/// What a version left behind that kept no record of the children it had asked: a rollback under way, children that
/// were asked already, and the answer of one of them.
#[tokio::test(start_paused = true)]
async fn a_rollback_without_records_of_its_children_ends() {
    for answered in [false, true] {
        let tool = Stubborn::new(Rollback::Once);
        let first = tool.setup().open().await;
        let run = done(&first, Shape::Map).await;
        flow::rollback(&first.flow, &first.permit("user_ann"), run, None, None).await.unwrap();
        first.until(run, |shown| ended(shown, 1)).await;
        first.flow.stop();
        forget(&first, run, answered).await;
        let before = tool.undos.load(Ordering::SeqCst);
        let second = first.restart(tool.setup()).await;
        let shown = second.until(run, |shown| ended(shown, 1)).await;
        assert_eq!(shown["rollback"]["left"].as_array().unwrap().len(), 3, "{shown:#}");
        let asked = if answered { 2 } else { 3 };
        assert_eq!(tool.undos.load(Ordering::SeqCst) - before, asked, "each child is asked once more at the most");
    }
}

/// Takes away what was recorded about the children, and lets the rollback begin again.
async fn forget(stage: &EngineFixture, run: Uuid, answered: bool) {
    let mut tx = Tx::default();
    let steps = stage.rows_of(&chimera_core::flow::tables::STEPS, run);
    let children: Vec<String> =
        steps.iter().filter(|row| !row.get("child_run_id").is_null()).map(|row| row.uuid("id").to_string()).collect();
    for row in stage.rows_of(&EFFECTS, run) {
        let conditions = vec![Condition { column: "id", compare: Comparison::Is, value: row.uuid("id").into() }];
        tx.steps.push(Step::Delete { table: &EFFECTS, conditions, rows: RowCount::Exactly(1) });
    }
    let row = stage.rows(&RUNS).into_iter().find(|row| row.uuid("id") == run).unwrap();
    let mut document = row.get("rollback").as_json().unwrap().value().unwrap();
    (document["ended"], document["steps"], document["left"]) = (json!(false), json!(children), json!([]));
    let set =
        vec![("rollback", Json::encode(&document).unwrap().into()), ("next_deadline", stage.world.clock.now().into())];
    tx.updates.push(Update::versioned(&RUNS, vec![run.into()], row.int("state_version"), set).unwrap());
    if answered {
        let told =
            chimera_core::flow::run::SignalKind::ChildUndone { step: children[0].parse().unwrap(), whole: false };
        let signal = chimera_core::flow::run::Signal::new(Uuid::from_u128(77), told);
        tx.inserts.push(signal.row("acme", run, stage.world.clock.now()).unwrap());
    }
    stage.records.commit(tx).await.unwrap();
}
