//! Two nodes on one store: whose runs are left alone, whose are taken over, and what becomes of a call that the other
//! node may still be making.

use chimera_core::access::Level;
use chimera_core::limits::LANE_LEASE_SECONDS;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, Decision, KeeperState, StartRun};
use chimera_testkit::build::NOON;
use chimera_testkit::flow::{
    Air, CallLog, EngineFixture, EngineSetup, ScriptedTool, World, chain, stage, until, workflow,
};
use chimera_testkit::memory::MemoryRecords;
use chimera_testkit::seeded::FakeClock;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// A lease, rounded up so that it has expired when this time has passed.
const LEASE: Duration = Duration::from_secs(LANE_LEASE_SECONDS.unsigned_abs() + 1);

/// How long a node may take to notice an expired lease.
const NOTICED: Duration = Duration::from_secs(5);

/// How long a call of these tests may take: much longer than a lease.
const CALL: Duration = Duration::from_secs(600);

/// An idempotent write whose first call never returns; the others return at once.
fn hangs_once(name: &'static str) -> ScriptedTool {
    let tool = ScriptedTool::new(name, EffectKind::Write).with_declaration(|tool| {
        tool.metadata.idempotent = true;
        tool.timeout_ms = u64::try_from(CALL.as_millis()).unwrap();
    });
    let asked = tool.asked();
    tool.on_execute(move |_, _| {
        let first = asked.count("execute") == 1;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            Ok(json!({}))
        }
    })
}

/// A tool `slow` that reads, and returns when released.
fn waits_for(answer: &Arc<Notify>) -> ScriptedTool {
    let answer = Arc::clone(answer);
    ScriptedTool::new("slow", EffectKind::Read).with_declaration(|tool| tool.timeout_ms = 3_600_000).on_execute(
        move |_, _| {
            let answer = Arc::clone(&answer);
            async move {
                answer.notified().await;
                Ok(json!({}))
            }
        },
    )
}

/// Node `a` calls one tool at once; node `b` beside it calls the other when a person approves.
fn asks_beside(at_once: &str, approved: &str) -> Air {
    let approval = json!({"approvals_needed": 1});
    workflow("w")
        .function("a", at_once, json!({}))
        .function("b", approved, json!({}))
        .with_node_member("requires_approval", approval)
}

/// A world, and a store whose leases run out by its clock.
fn leased() -> (World, Arc<MemoryRecords>) {
    let world = World::new(1);
    let records = Arc::new(MemoryRecords::leased(1, Arc::clone(&world.clock)));
    (world, records)
}

/// Opens one of several nodes.
async fn node(setup: EngineSetup, world: &World, records: &Arc<MemoryRecords>) -> EngineFixture {
    setup.shared().world(world.clone()).open_on(Arc::clone(records)).await
}

/// Kills a node: it drives nothing and renews nothing any more.
fn crash(node: &EngineFixture, renews: &JoinHandle<()>) {
    renews.abort();
    node.flow.stop();
}

/// Waits until a tool was called this many times.
async fn called(asked: &CallLog, times: usize) {
    until("the tool is called", || asked.count("execute") >= times).await;
}

#[tokio::test(start_paused = true)]
async fn the_runs_of_a_lane_that_is_renewed_are_left_to_its_node() {
    let (world, records) = leased();
    let gate = Arc::new(Notify::new());
    let tool = waits_for(&gate);
    let (asked, tool) = (tool.asked(), tool.build());
    let one = node(stage(1).tool(Arc::clone(&tool)), &world, &records).await;
    let two = node(stage(1).tool(tool), &world, &Arc::new(records.second_node())).await;
    let renewing = [one.renew(), two.renew()];
    let run = one.run(&chain("w", &[("a", "slow")]), SILENT).await;
    called(&asked, 1).await;
    for _ in 0..100 {
        two.pass(Duration::from_secs(1)).await;
        assert_eq!((one.flow.active_runs(), two.flow.active_runs()), (1, 0), "its node is alive");
    }
    gate.notify_one();
    assert_eq!(one.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 1);
    renewing.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn what_is_told_to_a_run_through_another_node_is_taken_in_by_its_own() {
    let (world, records) = leased();
    let (answer, mail) = (Arc::new(Notify::new()), ScriptedTool::new("mail", EffectKind::Write));
    let slow = waits_for(&answer);
    let (asked, mail, slow) = (mail.asked(), mail.build(), slow.build());
    let setup = || stage(1).tool(Arc::clone(&mail)).tool(Arc::clone(&slow));
    let one = node(setup(), &world, &records).await;
    let two = node(setup(), &world, &Arc::new(records.second_node())).await;
    let renewing = [one.renew(), two.renew()];
    let run = one.run(&asks_beside("slow", "mail"), SILENT).await;
    one.step(run, "b", "awaiting_approval").await;
    let shown = two.show(run).await;
    two.decide("user_ann", run, Decision::Approve, Some(&shown["approvals"][0])).await.unwrap();
    for _ in 0..20 {
        tokio::task::yield_now().await;
        assert_eq!(two.flow.active_runs(), 0, "a run has one driver");
    }
    one.step(run, "b", "completed").await;
    assert_eq!((one.flow.active_runs(), two.flow.active_runs()), (1, 0));
    answer.notify_one();
    assert_eq!(one.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 1);
    renewing.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn the_runs_of_a_lane_that_nobody_renews_are_taken_over_after_its_lease_and_no_sooner() {
    let (world, records) = leased();
    let tool = hangs_once("mail");
    let (asked, tool) = (tool.asked(), tool.build());
    let one = node(stage(1).tool(Arc::clone(&tool)), &world, &records).await;
    let two = node(stage(1).tool(tool), &world, &Arc::new(records.second_node())).await;
    let (dies, lives) = (one.renew(), two.renew());
    let run = one.run(&chain("w", &[("a", "mail")]), SILENT).await;
    called(&asked, 1).await;
    two.pass(Duration::from_secs(60)).await;
    one.records.renew();
    crash(&one, &dies);
    two.pass(LEASE).await;
    assert_eq!(two.flow.active_runs(), 0, "a lease that is not over is believed");
    two.pass(NOTICED).await;
    assert_eq!(two.flow.active_runs(), 1, "nobody else drives it");
    assert_eq!(two.ended(run).await["status"], "completed");
    let sent = asked.of("execute");
    assert_eq!(sent.len(), 2);
    assert!(
        sent[1].at - sent[0].at >= CALL,
        "a call that may be under way is waited for: {:?}",
        sent[1].at - sent[0].at
    );
    assert_eq!(sent[0].key, sent[1].key);
    lives.abort();
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_a_lane_takes_up_its_runs() {
    let (world, records) = leased();
    let tool = hangs_once("mail");
    let (asked, tool) = (tool.asked(), tool.build());
    let one = node(stage(1).tool(Arc::clone(&tool)), &world, &records).await;
    let dies = one.renew();
    let run = one.run(&chain("w", &[("a", "mail")]), SILENT).await;
    called(&asked, 1).await;
    crash(&one, &dies);
    one.pass(LEASE).await;
    let taken = Arc::new(records.second_node());
    let two = node(stage(1).tool(tool), &world, &taken).await;
    let lives = two.renew();
    two.pass(NOTICED).await;
    assert_eq!(two.flow.active_runs(), 1, "the lane is its own now, and so are the runs of it");
    assert_eq!(two.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 2);
    lives.abort();
}

#[tokio::test(start_paused = true)]
async fn runs_that_find_no_room_are_taken_over_when_there_is_some() {
    let (world, records) = leased();
    let one = node(stage(1), &world, &records).await;
    let dies = one.renew();
    one.apply(
        &workflow("w")
            .function("a", "pure", json!({}))
            .function("b", "again", json!({}))
            .edge("a", "b")
            .with_node_member("delay_seconds", json!(4)),
    )
    .await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(one.start(StartRun { level: SILENT, ..StartRun::of("w", json!({})) }).await);
    }
    crash(&one, &dies);
    one.pass(LEASE).await;
    let two = node(stage(1).runs_max(2), &world, &Arc::new(records.second_node())).await;
    let lives = two.renew();
    for run in runs {
        assert_eq!(two.ended(run).await["status"], "completed");
    }
    lives.abort();
}

/// The first node loses its lane to the second, which owns the run and starts a call; then the first node gets the lane
/// back while that call may still be in flight.
struct RegainedLane {
    one: EngineFixture,
    run: Uuid,
    mail: CallLog,
    answer: Arc<Notify>,
}

async fn regained() -> RegainedLane {
    let (world, records) = leased();
    let (answer, mail) = (Arc::new(Notify::new()), hangs_once("mail"));
    let slow = waits_for(&answer);
    let (asked, slow_asked) = (mail.asked(), slow.asked());
    let (mail, slow) = (mail.build(), slow.build());
    let setup = || stage(1).unkept().tool(Arc::clone(&mail)).tool(Arc::clone(&slow));
    let one = node(setup(), &world, &records).await;
    let run = one.run(&asks_beside("slow", "mail"), SILENT).await;
    called(&slow_asked, 1).await;
    one.step(run, "b", "awaiting_approval").await;

    one.pass(LEASE).await;
    let two = node(setup(), &world, &Arc::new(records.second_node())).await;
    flow::run_keeper_once(&two.flow, &mut KeeperState::default()).await.unwrap();
    let shown = two.show(run).await;
    two.decide("user_ann", run, Decision::Approve, Some(&shown["approvals"][0])).await.unwrap();
    called(&asked, 1).await;
    two.step(run, "b", "running").await;

    one.pass(LEASE).await;
    one.records.renew();
    RegainedLane { one, run, mail: asked, answer }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_meets_anothers_turn_waits_for_the_call_that_the_other_may_be_making() {
    let RegainedLane { one, run, mail, answer } = regained().await;
    // Its next turn conflicts with what the other node wrote.
    answer.notify_one();
    one.pass(Duration::from_secs(60)).await;
    assert_eq!(mail.count("execute"), 1, "it is not sent again while the other may be sending it");
    called_later(&one, &mail).await;
    let sent = mail.of("execute");
    assert!(sent[1].at - sent[0].at >= CALL, "{:?}", sent[1].at - sent[0].at);
    assert_eq!(sent[0].key, sent[1].key);
    answer.notify_one();
    assert_eq!(one.ended(run).await["status"], "completed");
}

/// Lets time pass until a tool is called for the second time.
async fn called_later(stage: &EngineFixture, asked: &CallLog) {
    for _ in 0..CALL.as_secs() {
        stage.pass(Duration::from_secs(1)).await;
        if asked.count("execute") > 1 {
            return;
        }
    }
    panic!("it was never sent again");
}

/// While the database is down nobody can renew a lease, and nobody can observe it.
#[tokio::test(start_paused = true)]
async fn the_time_in_which_a_node_saw_nothing_does_not_count_against_another() {
    let (world, records) = leased();
    let gate = Arc::new(Notify::new());
    let tool = waits_for(&gate);
    let (asked, tool) = (tool.asked(), tool.build());
    let one = node(stage(1).tool(Arc::clone(&tool)), &world, &records).await;
    let two = node(stage(1).tool(tool), &world, &Arc::new(records.second_node())).await;
    let (first, lives) = (one.renew(), two.renew());
    let run = one.run(&chain("w", &[("a", "slow")]), SILENT).await;
    called(&asked, 1).await;
    two.pass(Duration::from_secs(60)).await;
    records.refuse_reads();
    first.abort();
    two.pass(LEASE + NOTICED).await;
    records.clear_faults();
    two.pass(Duration::from_secs(3)).await;
    assert_eq!(two.flow.active_runs(), 0, "its node had three seconds to renew its lease");
    let again = one.renew();
    two.pass(LEASE + NOTICED).await;
    assert_eq!((one.flow.active_runs(), two.flow.active_runs()), (1, 0));
    gate.notify_one();
    assert_eq!(one.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 1);
    again.abort();
    lives.abort();
}

/// A suspended process observed nothing meanwhile either, whatever its clock says.
#[tokio::test(start_paused = true)]
async fn a_node_that_stood_still_looks_for_a_whole_lease_before_it_takes_anything_over() {
    let (world, records) = leased();
    let tool = hangs_once("mail");
    let (asked, tool) = (tool.asked(), tool.build());
    let one = node(stage(1).tool(Arc::clone(&tool)), &world, &records).await;
    let two = node(stage(1).tool(tool).unkept(), &world, &Arc::new(records.second_node())).await;
    one.run(&chain("w", &[("a", "mail")]), SILENT).await;
    called(&asked, 1).await;
    let keeper = &mut KeeperState::default();
    for _ in 0..3 {
        flow::run_keeper_once(&two.flow, keeper).await.unwrap();
        two.pass(LEASE + NOTICED).await;
    }
    flow::run_keeper_once(&two.flow, keeper).await.unwrap();
    assert_eq!(two.flow.active_runs(), 0, "four looks are not a lease of looking");
    for _ in 0..LEASE.as_secs() + NOTICED.as_secs() {
        two.pass(Duration::from_secs(1)).await;
        flow::run_keeper_once(&two.flow, keeper).await.unwrap();
    }
    assert_eq!(two.flow.active_runs(), 1);
}

/// A node that is suspended during a call, and resumes after another node has done the work, continues what it was
/// about to do before any of its timers fires.
#[tokio::test(start_paused = true)]
async fn a_call_whose_time_ran_out_while_its_process_stood_still_sends_nothing() {
    let clock = Arc::new(FakeClock::at(NOON));
    let sent = Arc::new(AtomicBool::new(false));
    let (stopped, noted) = (Arc::clone(&clock), Arc::clone(&sent));
    let tool = ScriptedTool::new("pay", EffectKind::Write).on_execute(move |_, _| {
        let (clock, sent) = (Arc::clone(&stopped), Arc::clone(&noted));
        async move {
            clock.advance(3_600_000_000);
            tokio::task::yield_now().await;
            sent.store(true, Ordering::Relaxed);
            Ok(json!({}))
        }
    });
    let world = World { clock, ..World::new(1) };
    let stage = stage(1).world(world).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "pay")]), SILENT).await;
    stage.step(run, "a", "outcome_unknown").await;
    assert!(!sent.load(Ordering::Relaxed));
}
