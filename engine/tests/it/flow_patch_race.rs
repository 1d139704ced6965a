//! Concurrent patches while the run advances.

use chimera_core::access::Level;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, PatchRequest};
use chimera_testkit::flow::{ScriptedTool, chain, code_of, stage};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

fn add(id: &str) -> Value {
    json!({
        "patch_version": "0.1", "justification": "more",
        "add_nodes": [{"id": id, "type": "function", "fn": "again", "inputs": {"n": id}}],
        "add_edges": [{"from": "a", "to": id}],
    })
}

/// The rows of a run are read one after another. A reader during the application of a patch sees the run before or
/// after it, never a mixture.
#[tokio::test(start_paused = true)]
async fn patches_that_race_are_applied_or_refused_and_never_find_the_run_damaged() {
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    let gated = ScriptedTool::new("gated", EffectKind::Read).on_execute(move |_, _| {
        let held = Arc::clone(&held);
        async move {
            held.notified().await;
            Ok(json!({}))
        }
    });
    let stage = Arc::new(stage(1).tool(gated.build()).open().await);
    let run = stage.run(&chain("w", &[("a", "pure"), ("b", "gated")]), Level::ExecuteSilent).await;
    stage.step(run, "b", "running").await;
    stage.records.slow_reads(Duration::from_millis(7));
    let mut proposers = Vec::new();
    // Ten calls may run at this level, and two of them are already there.
    for person in 0..4 {
        let stage = Arc::clone(&stage);
        proposers.push(tokio::spawn(async move {
            let (bob, mut applied) = (stage.permit("user_bob"), Vec::new());
            for number in 0..2 {
                for _ in 0..person {
                    tokio::task::yield_now().await;
                }
                let id = format!("r{person}_{number}");
                match flow::patch(&stage.flow, &bob, PatchRequest::new(run, add(&id))).await {
                    Ok(_) => applied.push(id),
                    Err(error) => assert_eq!(code_of::<()>(Err(error)), "OCC_CONFLICT"),
                }
            }
            applied
        }));
    }
    let mut applied = Vec::new();
    for proposer in proposers {
        applied.extend(proposer.await.expect("no fault"));
    }
    stage.records.slow_reads(Duration::ZERO);
    let settled = |patch: &Value| patch["status"] == "applied";
    stage.until(run, |shown| shown["patches"].as_array().expect("patches").iter().all(settled)).await;
    gate.notify_one();
    assert_eq!(stage.ended(run).await["status"], "completed");
    let steps = stage.steps(run).await;
    let done = |id: &str| steps.as_array().expect("steps").iter().any(|step| step["node_id"] == id);
    assert!(!applied.is_empty() && applied.iter().all(|id| done(id)), "{applied:?}: {steps:#}");
}
