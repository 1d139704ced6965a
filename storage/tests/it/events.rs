//! Events and the runs that wait for them, on the real stores. On PostgreSQL one node parks the runs and another one
//! publishes.

use crate::records::{fresh_database, postgres, sqlite};
use chimera_core::access::Level;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::tables::{EVENT_WAITS, RUNS, runs};
use chimera_core::record::{Scope, Select, Value as Cell};
use chimera_engine::act::rules::Rules;
use chimera_engine::flow::{self, Flow, PublishEvent, StartRun};
use chimera_engine::port::Records;
use chimera_testkit::flow::{World, engine_with, workflow};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long a run may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Node {
    records: Arc<dyn Records>,
    flow: Flow,
}

fn node(world: &World, records: Arc<dyn Records>, alone: bool) -> Node {
    let flow = engine_with(world, Arc::clone(&records), alone, Rules::default());
    let keeper = flow.clone();
    tokio::spawn(async move { flow::run_keeper(&keeper).await });
    Node { records, flow }
}

async fn start(world: &World, node: &Node, order: &str) -> Uuid {
    let ask = StartRun { level: Level::ExecuteSilent, ..StartRun::of("order", json!({"order": order})) };
    flow::start(&node.flow, &world.actor("user_ann"), ask).await.unwrap().run_id
}

async fn publish(world: &World, node: &Node, order: &str) -> u32 {
    let event = PublishEvent {
        name: "payment.received".to_owned(),
        key: order.to_owned(),
        payload: json!({"amount": 12, "ä": [1.5, null]}),
        event_id: Some(format!("pay {order}")),
        ttl_seconds: None,
    };
    flow::publish_event(&node.flow, &world.actor("agent_bank"), event).await.unwrap().event.runs
}

async fn until(what: &str, node: &Node, select: Select) {
    let waiting = async {
        while node.records.read(select.clone().take(1)).await.unwrap().rows.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what} in time"));
}

/// The run has left the memory of its node.
async fn parked(node: &Node, run: Uuid) {
    let select = Select::from(&RUNS, Scope::System).with(runs::id, run).with(runs::owner_lane, Cell::Null);
    until("parked", node, select.with(runs::status, RunStatus::Running)).await;
}

async fn completed(node: &Node, run: Uuid) {
    let select = Select::from(&RUNS, Scope::System).with(runs::id, run).with(runs::status, RunStatus::Completed);
    until("completed", node, select).await;
}

/// One node drives the runs, the other one publishes; on a store for one node they are the same.
async fn check(world: &World, drives: &Node, publishes: &Node) {
    world.create_tenant(&*drives.records).await;
    let event = json!({"name": "payment.received", "key": "${inputs.order}"});
    let air = workflow("order").node(json!({"id": "pay", "type": "wait", "event": event}));
    let applied = drives.flow.workflows().apply(&world.actor("admin"), "order", &air.document().to_string()).await;
    applied.unwrap();
    let run = start(world, drives, "waits").await;
    parked(drives, run).await;
    assert_eq!(publish(world, publishes, "waits").await, 1);
    completed(drives, run).await;
    assert_eq!(publish(world, publishes, "first").await, 0);
    let run = start(world, drives, "first").await;
    completed(drives, run).await;
    // A wait that begins while its event is published: whoever is faster, it gets the event.
    let race = |n: usize| async move {
        let order = format!("race-{n}");
        let (run, _) = tokio::join!(start(world, drives, &order), publish(world, publishes, &order));
        completed(drives, run).await;
    };
    futures::future::join_all((0..30).map(race)).await;
    let left = drives.records.read(Select::from(&EVENT_WAITS, Scope::System)).await.unwrap().rows;
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_finds_its_run_on_sqlite() {
    let (world, folder) = (World::new(1), tempfile::tempdir().unwrap());
    let only = node(&world, Arc::new(sqlite(folder.path()).unwrap()), true);
    check(&world, &only, &only).await;
    only.flow.stop();
    only.records.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_one_node_takes_wakes_a_run_that_another_has_parked() {
    let (world, url) = (World::new(1), fresh_database());
    let (one, other) =
        (node(&world, Arc::new(postgres(&url).await), false), node(&world, Arc::new(postgres(&url).await), false));
    check(&world, &one, &other).await;
    for node in [one, other] {
        node.flow.stop();
        node.records.close().await;
    }
}
