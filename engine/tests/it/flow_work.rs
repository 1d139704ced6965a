//! Expression cost is limited: an expensive run computes over several turns, and a plan that is too expensive is not
//! expanded fully.

use chimera_core::access::Level;
use chimera_core::flow::air::{Graph, compile};
use chimera_core::flow::expand;
use chimera_core::limits::PLAN_MEMORY_BYTES_MAX;
use chimera_testkit::flow::{Air, EngineFixture, TENANT, stage, workflow};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SILENT: Level = Level::ExecuteSilent;

fn numbers(count: usize) -> Vec<usize> {
    (0..count).collect()
}

/// A map over `items` items; each gets the result of `expression` over the numbers.
fn each(id: &str, items: usize, expression: &str) -> Air {
    workflow(id).map("each", json!(numbers(items)), "again", json!({"n": expression})).in_parallel(50)
}

/// Evaluates every number.
const ALL: &str = "${inputs.l.filter(x, x + 1 == -item).size()}";

async fn commits_of(stage: &EngineFixture, air: &Air) -> u64 {
    let before = *stage.records.commits().borrow();
    let run = stage.run_with(air, SILENT, json!({"l": numbers(9_000)})).await;
    let ended = stage.ended(run).await;
    assert_eq!(ended["status"], "completed", "{ended:#}");
    *stage.records.commits().borrow() - before
}

#[tokio::test(start_paused = true)]
async fn a_map_that_computes_much_goes_on_over_several_turns() {
    let stage = stage(1).open().await;
    let light = commits_of(&stage, &each("light", 20, "${item}")).await;
    let heavy = commits_of(&stage, &each("heavy", 20, ALL)).await;
    assert!(heavy >= light + 3, "{heavy} commits, and {light} of a run that computes little");
}

#[tokio::test]
async fn a_plan_that_takes_too_much_work_is_not_laid_out_to_its_end() {
    let stage = stage(1).open().await;
    let graph = |air: &Air| -> Graph {
        let document = chimera_core::flow::air::parse(&air.document().to_string()).expect("a document");
        compile(document, &stage.flow.workflows().running(TENANT)).expect("a graph")
    };
    let inputs: Value = json!({"l": numbers(9_000)});
    let light = expand(&graph(&each("light", 200, "${item}")), &inputs, &BTreeMap::new());
    assert!(!light.more && light.steps.len() == 200);
    let heavy = expand(&graph(&each("heavy", 200, ALL)), &inputs, &BTreeMap::new());
    assert!(heavy.more && heavy.steps.len() < 200, "{} steps", heavy.steps.len());
}

/// Many small values take more memory than their text.
#[tokio::test]
async fn a_plan_of_many_small_values_is_not_laid_out_to_its_end() {
    let stage = stage(1).open().await;
    let document = chimera_core::flow::air::parse(&each("w", 60, "${inputs.l}").document().to_string()).unwrap();
    let graph = compile(document, &stage.flow.workflows().running(TENANT)).unwrap();
    let inputs = json!({"l": vec![json!({}); 9_000]});
    let plan = expand(&graph, &inputs, &BTreeMap::new());
    let weight: usize = plan.steps.iter().map(|step| chimera_core::json::memory_size(&step.input)).sum();
    assert!(plan.more && weight <= PLAN_MEMORY_BYTES_MAX, "{weight} bytes in {} steps", plan.steps.len());
}
