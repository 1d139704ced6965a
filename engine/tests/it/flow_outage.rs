//! A store outage loses no call in flight.

use chimera_core::access::Level;
use chimera_core::flow::run::affinity;
use chimera_core::flow::tables::{EFFECTS, RUNS};
use chimera_core::limits::LANE_LEASE_SECONDS;
use chimera_core::record::{Conflict, Insert};
use chimera_core::tool::EffectKind;
use chimera_engine::commit::{BatchOutcome, TxRejection};
use chimera_engine::port::Records;
use chimera_testkit::flow::{Air, CallLog, EngineFixture, EngineSetup, ScriptedTool, World, stage, workflow};
use chimera_testkit::memory::{LaneClaimOutcome, MemoryRecords};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A node whose tool `pay` takes 20 seconds and may not be repeated.
fn pays() -> (EngineSetup, CallLog) {
    pays_within(Duration::from_secs(20))
}

fn pays_within(time: Duration) -> (EngineSetup, CallLog) {
    let tool = ScriptedTool::new("pay", EffectKind::Write)
        .with_declaration(|tool| tool.timeout_ms = 90_000)
        .with_delay(move |_| time);
    let asked = tool.asked();
    (stage(1).tool(tool.build()), asked)
}

/// In parallel to the payment, `b` becomes due after four seconds.
fn beside_payment() -> Air {
    workflow("w")
        .function("a", "pay", json!({}))
        .function("b", "again", json!({}))
        .with_node_member("delay_seconds", json!(4))
}

/// The turn that starts `b` can't be stored.
async fn survives(outage: Duration) {
    let (setup, asked) = pays();
    let stage = setup.open().await;
    let run = stage.run(&beside_payment(), Level::ExecuteSilent).await;
    stage.pass(Duration::from_secs(2)).await;
    stage.records.refuse_writes();
    stage.pass(outage).await;
    stage.records.clear_faults();
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], asked.count("execute")), (&json!("completed"), 1), "{outage:?}: {shown:#}");
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_on_while_a_turn_of_its_run_can_not_be_written() {
    survives(Duration::from_secs(5)).await;
}

/// The response arrives during the outage, and the call's deadline has passed when the store is back.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_while_a_turn_can_not_be_written_is_kept() {
    survives(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_stopped_does_not_wait_for_the_store_to_come_back() {
    let (setup, _) = pays();
    let stage = setup.open().await;
    stage.run(&beside_payment(), Level::ExecuteSilent).await;
    stage.pass(Duration::from_secs(2)).await;
    stage.records.refuse_writes();
    stage.pass(Duration::from_secs(60)).await;
    assert_eq!(stage.flow.active_runs(), 1, "it keeps the answer");
    stage.flow.stop();
    stage.pass(Duration::from_secs(1)).await;
    assert_eq!(stage.flow.active_runs(), 0);
}

/// The lease expired during the outage, and another node holds the lane that the turn was decided for.
#[tokio::test(start_paused = true)]
async fn a_turn_that_was_kept_names_the_lane_through_which_it_is_written() {
    let world = World::new(1);
    let records = Arc::new(MemoryRecords::leased(1, Arc::clone(&world.clock)));
    let (setup, asked) = pays_within(Duration::from_secs(60));
    let stage: EngineFixture = setup.shared().world(world).open_on(Arc::clone(&records)).await;
    // Nothing else is written while both payments are in flight.
    let two = workflow("w").function("a", "pay", json!({})).function("b", "pay", json!({}));
    let run = stage.run(&two.with_node_member("delay_seconds", json!(4)), Level::ExecuteSilent).await;
    let lane = || records.lane(affinity(run)).map(|held| held.lane);
    let before = lane();
    stage.pass(Duration::from_secs(2)).await;
    let gone = Arc::new(AtomicBool::new(true));
    let claims = Arc::clone(&gone);
    records.refuse_writes();
    records.inject_claim_fault(Box::new(move || {
        if claims.load(Ordering::Relaxed) { LaneClaimOutcome::Failed } else { LaneClaimOutcome::Taken }
    }));
    stage.pass(Duration::from_secs(LANE_LEASE_SECONDS.unsigned_abs() + 1)).await;
    gone.store(false, Ordering::Relaxed);
    let other = records.second_node();
    records.clear_faults();
    assert_eq!(other.lane(0).map(|held| held.lane), before);
    stage.pass(Duration::from_secs(10)).await;
    let row = records.row(&RUNS, vec![run.into()]).unwrap();
    assert_ne!(lane(), before);
    assert_eq!(asked.count("execute"), 2, "both payments are under way");
    assert!(row.get("completed_at").is_null() && row.get("owner_lane").as_int() == lane(), "{row:?}");
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], asked.count("execute")), (&json!("completed"), 2), "{shown:#}");
}

/// The next turn conflicts with a concurrent change, and is decided again.
fn conflict_once(records: &MemoryRecords) {
    let mut met = false;
    records.inject_batch_fault(Box::new(move |batch| {
        let update = batch.txs.iter().find_map(|tx| tx.updates.first()).filter(|_| !met)?;
        met = true;
        let lost = (0..batch.txs.len()).map(|at| (at, TxRejection::Conflict(Conflict::Stale(update.row_key()))));
        Some(BatchOutcome::Lost(lost.collect()))
    }));
}

/// `b` starts after four seconds, the payment returns after twenty.
#[tokio::test(start_paused = true)]
async fn a_turn_that_lost_against_another_change_costs_no_call_and_no_answer() {
    for seconds in [2, 19] {
        let (setup, asked) = pays();
        let stage = setup.open().await;
        let run = stage.run(&beside_payment(), Level::ExecuteSilent).await;
        stage.pass(Duration::from_secs(seconds)).await;
        conflict_once(&stage.records);
        let shown = stage.ended(run).await;
        assert_eq!((&shown["status"], asked.count("execute")), (&json!("completed"), 1), "{seconds}: {shown:#}");
        assert_eq!(stage.flow.calls_under_way(), 0, "slots are given back");
    }
}

/// The turn that would start the payment is written through a lane that was taken over meanwhile.
#[tokio::test(start_paused = true)]
async fn a_turn_that_was_fenced_sends_nothing() {
    let (setup, asked) = pays();
    let stage = setup.open().await;
    let air = workflow("w").function("a", "again", json!({})).with_node_member("delay_seconds", json!(4));
    let run = stage.run(&air.function("b", "pay", json!({})).edge("a", "b"), Level::ExecuteSilent).await;
    stage.pass(Duration::from_secs(2)).await;
    let mut fenced = false;
    stage.records.inject_batch_fault(Box::new(move |batch| {
        let pays = |insert: &Insert| insert.table == &EFFECTS && insert.value("tool").as_text() == Some("pay");
        let begins = batch.txs.iter().any(|tx| tx.inserts.iter().any(pays));
        (begins && !std::mem::replace(&mut fenced, begins)).then_some(BatchOutcome::Fenced)
    }));
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], asked.count("execute")), (&json!("completed"), 1), "{shown:#}");
}
