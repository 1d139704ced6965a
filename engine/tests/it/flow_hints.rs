//! A wake-up hint also reaches its sender. It must not keep a run busy that has nothing to do.

use chimera_core::access::Level;
use chimera_core::flow::tables::RUNS;
use chimera_engine::flow;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, stage, workflow};
use serde_json::json;
use uuid::Uuid;

/// More turns than any run needs to come to rest.
const TURNS: usize = 2_000;

fn version(stage: &EngineFixture, run: Uuid) -> i64 {
    let row = stage.rows(&RUNS).into_iter().find(|row| row.uuid("id") == run).expect("the run");
    row.int("state_version")
}

async fn settle() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_run_that_waits_at_a_question_commits_nothing_meanwhile() {
    let stage = stage(1).open().await;
    let air = workflow("w")
        .node(json!({"id": "ask", "type": "hitl", "prompt": "Go on?"}))
        .function("b", "again", json!({}))
        .edge("ask", "b");
    let run = stage.run(&air, Level::Draft).await;
    stage.approve("user_ann", run).await;
    stage.step(run, "ask", "awaiting_approval").await;
    settle().await;
    let before = version(&stage, run);
    settle().await;
    assert_eq!(version(&stage, run), before, "nobody told it anything");
}

#[tokio::test]
async fn a_run_that_was_told_something_while_it_was_left_takes_it_in() {
    let stage = stage(1).open().await;
    let air = workflow("w").node(json!({"id": "ask", "type": "hitl", "prompt": "Go on?"}));
    let run = stage.run(&air, Level::ExecuteSilent).await;
    let ann = stage.permit("user_ann");
    // Each signal arrives when the run may be unloading after the previous one.
    for _ in 0..20 {
        flow::pause(&stage.flow, &ann, run).await.expect("a pause");
        stage.until(run, |shown| shown["paused"] == true).await;
        flow::resume(&stage.flow, &ann, run).await.expect("a resumption");
        stage.until(run, |shown| shown["paused"] == false).await;
    }
    flow::cancel(&stage.flow, &ann, run, None).await.expect("a cancellation");
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    settle().await;
    assert_eq!(stage.flow.active_runs(), 0);
}
