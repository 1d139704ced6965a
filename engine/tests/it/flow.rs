//! Runs from start to end on the memory store.

use chimera_core::access::Level;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::json::Digest32;
use chimera_engine::flow::{self, Decide, Decision, Flow, KeeperState, OutcomeReport, ReplayOptions, StartRun};
use chimera_engine::port::Records;
use chimera_testkit::flow::{CallBehavior, World, engine, shown as as_json, until, within};
use chimera_testkit::memory::MemoryRecords;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

async fn flow(world: &World) -> (Flow, Arc<MemoryRecords>) {
    let records = Arc::new(MemoryRecords::new());
    world.create_tenant(&*records).await;
    (engine(world, Arc::clone(&records) as Arc<dyn Records>), records)
}

async fn apply(flow: &Flow, world: &World, document: Value) {
    let permit = world.actor("admin");
    let id = document["workflow_id"].as_str().unwrap().to_owned();
    flow.workflows().apply(&permit, &id, &document.to_string()).await.unwrap();
}

fn chain(names: &[(&str, &str)]) -> Value {
    let nodes: Vec<Value> =
        names.iter().map(|(id, tool)| json!({"id": id, "type": "function", "fn": tool, "inputs": {"n": id}})).collect();
    let edges: Vec<Value> = names.windows(2).map(|pair| json!({"from": pair[0].0, "to": pair[1].0})).collect();
    json!({"air_version": "1.0", "workflow_id": "chain", "nodes": nodes, "edges": edges})
}

async fn run(flow: &Flow, world: &World, level: Level) -> Uuid {
    let ask = StartRun { level, ..StartRun::of("chain", json!({})) };
    flow::start(flow, &world.actor("user_ann"), ask).await.unwrap().run_id
}

async fn settled(flow: &Flow, world: &World, run: Uuid) -> Value {
    within(flow.rest(run)).await.expect("the run rests in time");
    as_json(flow::show_run(flow, &world.actor("admin"), run).await.unwrap())
}

/// Waits until a signalled run has this status.
async fn wait_for_status(flow: &Flow, world: &World, run: Uuid, status: &str) {
    let wait = async {
        while settled(flow, world, run).await["status"] != status {
            tokio::task::yield_now().await;
        }
    };
    within(wait).await.unwrap_or_else(|| panic!("the run never was {status}"));
}

#[tokio::test(start_paused = true)]
async fn three_steps_run_one_behind_the_other() {
    let world = World::new(1);
    let (flow, _) = flow(&world).await;
    apply(&flow, &world, chain(&[("a", "pure"), ("b", "again"), ("c", "read")])).await;
    let id = run(&flow, &world, Level::ExecuteSilent).await;
    let shown = settled(&flow, &world, id).await;
    assert_eq!(shown["status"], "completed", "{shown:#}");
    assert_eq!(shown["result"]["c"]["tool"], "read");
    assert_eq!(world.outside.sent().len(), 1);
    let steps = as_json(flow::list_steps(&flow, &world.actor("admin"), id, 100, None).await.unwrap());
    let nodes: Vec<_> = steps["steps"].as_array().unwrap().iter().map(|step| step["node_id"].clone()).collect();
    assert_eq!(nodes, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn every_step_of_l0_waits_for_a_person() {
    let world = World::new(2);
    let (flow, _) = flow(&world).await;
    apply(&flow, &world, chain(&[("a", "again"), ("b", "again")])).await;
    let id = run(&flow, &world, Level::Ask).await;
    for round in 0..2 {
        let shown = settled(&flow, &world, id).await;
        assert_eq!(shown["status"], "awaiting_approval");
        assert_eq!(world.outside.sent().len(), round);
        let digest = Digest32::from_hex(shown["approvals"][0]["digest"].as_str().unwrap());
        let ask = Decide { run: id, decision: Decision::Approve, approval: None, step: None, digest, reason: None };
        flow::decide(&flow, &world.actor("user_ann"), ask).await.unwrap();
        let taken_up = async {
            while flow.rest(id).await.is_none() {
                tokio::task::yield_now().await;
            }
        };
        within(taken_up).await.expect("the run is taken up");
    }
    assert_eq!(settled(&flow, &world, id).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_plan_of_l1_is_tried_dry_and_approved_once() {
    let world = World::new(3);
    let (flow, _) = flow(&world).await;
    apply(&flow, &world, chain(&[("a", "pure"), ("b", "again")])).await;
    let id = run(&flow, &world, Level::Draft).await;
    let shown = settled(&flow, &world, id).await;
    assert_eq!(shown["status"], "awaiting_approval", "{shown:#}");
    assert_eq!(shown["dry_run_results"].as_array().unwrap().len(), 2);
    assert_eq!(world.outside.sent().len(), 0);
    let ask = Decide { run: id, decision: Decision::Approve, approval: None, step: None, digest: None, reason: None };
    flow::decide(&flow, &world.actor("user_ann"), ask).await.unwrap();
    wait_for_status(&flow, &world, id, "completed").await;
    assert_eq!(world.outside.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_tried_again_and_a_lost_answer_is_not() {
    let world = World::new(4).with(|tool, _, attempt| match (tool, attempt) {
        ("again", 1 | 2) => CallBehavior::RefuseBefore,
        ("once", _) => CallBehavior::LoseAnswer,
        _ => CallBehavior::Work,
    });
    let (flow, _) = flow(&world).await;
    apply(&flow, &world, chain(&[("a", "again"), ("b", "once")])).await;
    let id = run(&flow, &world, Level::ExecuteSilent).await;
    settled(&flow, &world, id).await;
    let steps = as_json(flow::list_steps(&flow, &world.actor("admin"), id, 100, None).await.unwrap());
    assert_eq!(steps["steps"][0]["tool_calls"].as_array().unwrap().len(), 3);
    assert_eq!(steps["steps"][1]["status"], "outcome_unknown");
    let step = Uuid::parse_str(steps["steps"][1]["step_id"].as_str().unwrap()).unwrap();
    flow::report_outcome(
        &flow,
        &world.actor("user_ann"),
        id,
        OutcomeReport::happened(step, Some(json!({"found": true}))),
    )
    .await
    .unwrap();
    wait_for_status(&flow, &world, id, "completed").await;
    assert_eq!(world.outside.sent().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_finished_run_is_undone_in_reverse_and_replayed_without_a_call() {
    let world = World::new(5);
    let (flow, _) = flow(&world).await;
    apply(&flow, &world, chain(&[("a", "again"), ("b", "checked")])).await;
    let id = run(&flow, &world, Level::ExecuteSilent).await;
    assert_eq!(settled(&flow, &world, id).await["status"], "completed");
    let replay = Replay { of: id, mode: ReplayMode::Freeze, from: None };
    let frozen = flow::replay(&flow, &world.actor("user_ann"), replay, ReplayOptions::default()).await.unwrap().run_id;
    assert_eq!(settled(&flow, &world, frozen).await["status"], "completed");
    assert_eq!(world.outside.sent().len(), 2);
    flow::rollback(&flow, &world.actor("user_ann"), id, None, None).await.unwrap();
    wait_for_status(&flow, &world, id, "rolled_back").await;
    assert_eq!(world.outside.effect_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_crash_left_is_taken_up_again() {
    let world =
        World::new(6).with(|tool, _, _| if tool == "checked" { CallBehavior::Hang } else { CallBehavior::Work });
    let (first, records) = flow(&world).await;
    apply(&first, &world, chain(&[("a", "pure"), ("b", "checked"), ("c", "again")])).await;
    let id = run(&first, &world, Level::ExecuteSilent).await;
    until("the call is sent", || !world.outside.sent().is_empty()).await;
    first.stop();
    drop(first);
    let second = engine(&world, records as Arc<dyn Records>);
    flow::run_keeper_once(&second, &mut KeeperState::default()).await.unwrap();
    assert_eq!(settled(&second, &world, id).await["status"], "completed");
    assert_eq!(world.outside.sent().len(), 2, "nothing happened twice");
}
