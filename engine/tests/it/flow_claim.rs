//! Nothing is driven without a lane: nobody would find a run without an owner once its process ends.

use chimera_core::access::Level;
use chimera_core::flow::tables::RUNS;
use chimera_core::limits::{CHILD_DEADLINE_GRACE_SECONDS, RUN_SECONDS_DEFAULT, SIGNAL_POLL_SECONDS};
use chimera_core::record::Row;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, KeeperState, StartRun};
use chimera_testkit::flow::{EngineFixture, ScriptedTool, chain, code_of, stage, workflow};
use chimera_testkit::memory::{LaneClaimOutcome, MemoryRecords};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SILENT: Level = Level::ExecuteSilent;

/// Lanes that can't be claimed until the switch is on.
fn claimed_later(records: &MemoryRecords, meanwhile: LaneClaimOutcome) -> Arc<AtomicBool> {
    let switch = Arc::new(AtomicBool::new(false));
    let on = Arc::clone(&switch);
    records.inject_claim_fault(Box::new(
        move || if on.load(Ordering::Relaxed) { LaneClaimOutcome::Taken } else { meanwhile },
    ));
    switch
}

fn row(stage: &EngineFixture) -> Row {
    stage.rows(&RUNS).remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_time_has_come_is_left_alone_until_a_lane_is_held() {
    let first = stage(1).unkept().open().await;
    let late = chain("w", &[("a", "again")]).with_node_member("delay_seconds", json!(60));
    let run = first.run(&late, SILENT).await;
    first.flow.stop();
    first.pass(Duration::from_secs(120)).await;
    let before = row(&first);
    assert!(before.get("owner_lane").is_null() && !before.get("next_deadline").is_null());

    let claimed = claimed_later(&first.records, LaneClaimOutcome::Failed);
    let records = Arc::new(first.records.replacement_node());
    let second = stage(1).world(first.world.clone()).unkept().open_on(Arc::clone(&records)).await;
    flow::run_keeper_once(&second.flow, &mut KeeperState::default()).await.unwrap();
    second.pass(Duration::from_secs(1)).await;
    assert_eq!((second.flow.active_runs(), &row(&second)), (0, &before), "nothing was driven and nothing written");

    claimed.store(true, Ordering::Relaxed);
    records.renew();
    flow::run_keeper_once(&second.flow, &mut KeeperState::default()).await.unwrap();
    assert_eq!(second.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_under_way_waits_for_its_lane_and_names_the_new_one() {
    let first = stage(1).unkept().open().await;
    let (one, two) = (("a", "again"), ("b", "again"));
    first.apply(&chain("w", &[one, two])).await;
    let claimed = claimed_later(&first.records, LaneClaimOutcome::Pending);
    let mut fences = 1;
    first.records.inject_batch_fault(Box::new(move |_| {
        fences -= 1;
        (fences == 0).then_some(chimera_engine::commit::BatchOutcome::Fenced)
    }));
    // The first attempt is fenced, and with it the lane is lost.
    let fenced = flow::start(&first.flow, &first.permit("user_ann"), StartRun::of("w", json!({}))).await;
    assert_eq!(code_of(fenced), "STORE_UNAVAILABLE");
    let (flow, ann) = (first.flow.clone(), first.permit("user_ann"));
    let started =
        tokio::spawn(async move { flow::start(&flow, &ann, StartRun::of("w", json!({}))).await.map(|run| run.run_id) });
    first.pass(Duration::from_secs(5)).await;
    assert!(!started.is_finished() && first.rows(&RUNS).is_empty(), "it waits for a lane");
    claimed.store(true, Ordering::Relaxed);
    first.records.renew();
    let run = started.await.unwrap().unwrap();
    assert_eq!(first.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_refused_when_no_lane_can_be_claimed() {
    let first = stage(1).unkept().open().await;
    first.apply(&chain("w", &[("a", "again")])).await;
    let claimed = claimed_later(&first.records, LaneClaimOutcome::Failed);
    let records = Arc::new(first.records.replacement_node());
    let second = stage(1).world(first.world.clone()).unkept().open_on(Arc::clone(&records)).await;
    let ask = || StartRun::of("w", json!({}));
    assert_eq!(code_of(flow::start(&second.flow, &second.permit("user_ann"), ask()).await), "STORE_UNAVAILABLE");
    assert!(second.rows(&RUNS).is_empty() && second.world.outside.sent().is_empty());
    claimed.store(true, Ordering::Relaxed);
    records.renew();
    let run = second.start(ask()).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

/// Once they are cancelled, the parent run waits for its child alone and the child for a person: neither has its own
/// timer left.
#[tokio::test(start_paused = true)]
async fn runs_that_wait_for_a_signal_alone_are_looked_at_again_all_the_same() {
    let deaf = ScriptedTool::new("deaf", EffectKind::Write).on_execute(|_, _| std::future::pending());
    let stage = stage(1).tool(deaf.build()).open().await;
    stage.apply(&chain("part", &[("a", "deaf")])).await;
    let run = stage.run(&workflow("whole").child("c", "part", json!({})), SILENT).await;
    stage.step(run, "c", "running").await;
    stage.pass(Duration::from_secs(3)).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    stage.pass(Duration::from_secs(30)).await;
    let rows = stage.rows(&RUNS);
    assert_eq!(rows.len(), 2);
    // The parent waits until its child is late; the child waits for a person.
    let child_is_late = i64::from(RUN_SECONDS_DEFAULT) + CHILD_DEADLINE_GRACE_SECONDS;
    for row in rows {
        assert!(row.get("owner_lane").is_null(), "{row:?}");
        let due = row.get("next_deadline").as_time().expect("a time to look again");
        let wait = if row.get("id").as_uuid() == Some(run) { child_is_late } else { SIGNAL_POLL_SECONDS };
        assert!(due <= stage.world.clock.now().plus_seconds(wait), "{row:?}");
    }
}
