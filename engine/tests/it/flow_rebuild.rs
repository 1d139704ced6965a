//! A run that is loaded from its rows keeps its earlier decisions.

use chimera_core::access::Level;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, PatchRequest};
use chimera_testkit::flow::{Air, EngineSetup, RebuildCheck, ScriptedTool, stage, workflow};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Notify;

const SILENT: Level = Level::ExecuteSilent;

/// Two tools that work until they are released.
#[derive(Clone, Default)]
struct Gates {
    b: Arc<Notify>,
    d: Arc<Notify>,
}

impl Gates {
    fn setup(&self) -> EngineSetup {
        let gated = |name, gate: &Arc<Notify>| {
            let gate = Arc::clone(gate);
            let tool = ScriptedTool::new(name, EffectKind::Read).on_execute(move |_, _| {
                let gate = Arc::clone(&gate);
                async move {
                    gate.notified().await;
                    Ok(json!({}))
                }
            });
            tool.build()
        };
        stage(1).tool(gated("gated_b", &self.b)).tool(gated("gated_d", &self.d))
    }
}

/// `n` starts with the first of `a` and `b`; `d` is slow.
fn first_of_two() -> Air {
    workflow("w")
        .function("a", "pure", json!({}))
        .function("b", "gated_b", json!({}))
        .function("n", "pure", json!({}))
        .with_node_member("join", json!("any"))
        .function("d", "gated_d", json!({}))
        .edge("a", "n")
        .edge("b", "n")
}

#[tokio::test]
async fn a_run_and_what_its_rows_make_of_it_agree_about_every_edge_at_any_time() {
    let compared = RebuildCheck::compare_seeds(0..1_000).await;
    assert!(compared > 3_000, "{compared}");
}

/// The edge from `n` was decided while `b` was running, and stays as it was.
#[tokio::test(start_paused = true)]
async fn a_crash_does_not_change_an_edge_that_was_decided() {
    let gates = Gates::default();
    let first = gates.setup().open().await;
    let air = first_of_two()
        .function("c", "again", json!({}))
        .edge_if("n", "c", "${has(nodes.b.outputs.success)}")
        .edge_if("d", "c", "${nodes.d.outputs.success == false}");
    let run = first.run(&air, SILENT).await;
    first.step(run, "n", "completed").await;
    gates.b.notify_one();
    first.step(run, "b", "completed").await;
    let second = first.restart(gates.setup()).await;
    gates.d.notify_one();
    assert_eq!(second.ended(run).await["status"], "completed");
    assert_eq!(second.step_statuses(run).await, "a=completed b=completed n=completed d=completed c=skipped");
}

#[tokio::test(start_paused = true)]
async fn a_crash_does_not_change_an_edge_that_a_patch_drew_from_a_node_that_had_settled() {
    let gates = Gates::default();
    let first = gates.setup().open().await;
    let run = first.run(&first_of_two(), SILENT).await;
    first.step(run, "n", "completed").await;
    let patch = json!({
        "patch_version": "0.1", "justification": "more",
        "add_nodes": [{"id": "p", "type": "function", "fn": "again", "inputs": {}}],
        "add_edges": [
            {"from": "n", "to": "p", "condition": "${!has(nodes.b.outputs.success)}"},
            {"from": "d", "to": "p", "condition": "${nodes.d.outputs.success == false}"},
        ],
    });
    let ann = first.permit("user_ann");
    flow::patch(&first.flow, &ann, PatchRequest::new(run, patch)).await.unwrap();
    first.until(run, |shown| shown["patches"][0]["status"] == "applied").await;
    gates.b.notify_one();
    first.step(run, "b", "completed").await;
    let second = first.restart(gates.setup()).await;
    gates.d.notify_one();
    assert_eq!(second.ended(run).await["status"], "completed");
    assert_eq!(second.step_statuses(run).await, "a=completed b=completed n=completed d=completed p=completed");
}
