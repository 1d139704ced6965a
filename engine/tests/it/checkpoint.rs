//! Checkpoints: what is stored, what is refused, and the loop that makes them.

use crate::verify::entry;
use chimera_core::ledger::LedgerFault;
use chimera_core::ledger::checkpoint::Signer;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_CHECKPOINTS, LEDGER_LANES, LEDGER_NODES};
use chimera_core::record::{Row, Value};
use chimera_core::time::Timestamp;
use chimera_engine::audit::verify;
use chimera_engine::heartbeat::Heartbeat;
use chimera_engine::ledger::checkpoint::{CheckpointOutcome, Checkpointer, Schedule, known_keys, make};
use chimera_engine::ledger::{LedgerError, last_checkpoint};
use chimera_testkit::build::NOON;
use chimera_testkit::cells::Cells;
use chimera_testkit::ledger_fixture::{LedgerFixture, ORIGIN};
use chimera_testkit::memory::MemoryRecords;
use chimera_testkit::seeded::FakeClock;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

#[tokio::test]
async fn every_full_block_of_256_entries_leaves_one_tree_hash() {
    let (world, store) = (LedgerFixture::new(1), MemoryRecords::new());
    for _ in 0..3 {
        world.write(&store, 0, "acme", 200).await;
        world.checkpoint(&store).await;
    }
    let places: Vec<_> = store.rows(&LEDGER_NODES).iter().map(|row| (row.int("level"), row.int("idx"))).collect();
    assert_eq!(places, [(8, 0), (8, 1)]);
}

#[tokio::test]
async fn nothing_is_signed_that_does_not_continue_what_was_signed() {
    let (world, store) = (LedgerFixture::new(1), MemoryRecords::new());
    world.write(&store, 0, "acme", 4).await;
    world.checkpoint(&store).await;
    world.write(&store, 0, "acme", 4).await;
    let broken = || async {
        match make(&store, &world.signer, &[], &world.clock, ORIGIN).await {
            Err(LedgerError::Broken(broken)) => (broken.lane, broken.seq, broken.fault),
            other => panic!("{other:?}"),
        }
    };
    let change = |rows: &mut Vec<Row>, seq| {
        let hash = AUDIT_LOG_ENTRIES.position("hash").unwrap();
        entry(rows, 1, seq).cells[hash] = Value::Bytes(vec![9; 32]);
    };
    store.tamper(&AUDIT_LOG_ENTRIES, |rows| change(rows, 6));
    assert_eq!(broken().await, (Some(1), Some(6), LedgerFault::Link));
    store.tamper(&AUDIT_LOG_ENTRIES, |rows| change(rows, 2));
    assert_eq!(broken().await, (Some(1), Some(5), LedgerFault::Lane), "the tree under the last checkpoint has changed");
    store.tamper(&LEDGER_LANES, |rows| rows[0].cells[2] = Value::Int(2));
    assert_eq!(broken().await, (Some(1), Some(3), LedgerFault::Checkpoint), "the lane is shorter than what was signed");
}

#[tokio::test]
async fn nothing_is_signed_behind_a_key_that_is_not_known() {
    let (world, store) = (LedgerFixture::new(1), MemoryRecords::new());
    world.write(&store, 0, "acme", 1).await;
    world.checkpoint(&store).await;
    world.write(&store, 0, "acme", 1).await;
    let other = Signer::from_seed(&[8; 32]);
    let refused = make(&store, &other, &[], &world.clock, ORIGIN).await.unwrap();
    assert_eq!(refused, CheckpointOutcome::UnknownKey(world.signer.key_id().to_owned()));
    assert_eq!(store.rows(&LEDGER_CHECKPOINTS).len(), 1);
    let made = make(&store, &other, &world.keys(), &world.clock, ORIGIN).await.unwrap();
    assert!(matches!(made, CheckpointOutcome::Created(_)), "{made:?}");
    let keys = known_keys(&other, &world.keys());
    assert_eq!(verify(&store, &keys).await.unwrap().first_fault, None);
    let alone = verify(&store, &world.keys()).await.unwrap().first_fault.unwrap();
    assert_eq!((alone.checkpoint, alone.fault), (Some(2), LedgerFault::Signature));
}

/// No constraint protects the tree, so an intruder could insert a hash where a future checkpoint needs one.
#[tokio::test]
async fn a_tree_hash_that_stands_in_the_way_is_reported_and_not_taken_for_a_lost_race() {
    let (world, store) = (LedgerFixture::new(1), MemoryRecords::new());
    world.write(&store, 0, "acme", 300).await;
    world.checkpoint(&store).await;
    store.tamper(&LEDGER_NODES, |rows| rows[0].cells[2] = Value::Int(1));
    world.write(&store, 0, "acme", 300).await;
    let broken = make(&store, &world.signer, &[], &world.clock, ORIGIN).await;
    assert!(matches!(broken, Err(LedgerError::Broken(_))), "the tree under the last checkpoint has a hole");
    store.tamper(&LEDGER_NODES, |rows| {
        let mut moved = rows[0].clone();
        moved.cells[2] = Value::Int(0);
        rows.push(moved);
    });
    match make(&store, &world.signer, &[], &world.clock, ORIGIN).await {
        Err(LedgerError::Broken(broken)) => {
            assert_eq!((broken.lane, broken.seq, broken.fault), (Some(1), Some(257), LedgerFault::Lane));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn checkpoints_are_due_after_a_time_or_a_number_of_entries() {
    let pace = Schedule { seconds: 10, entries: 100 };
    let at = |seconds| Timestamp::from_micros(0).plus_seconds(seconds);
    assert!(!pace.is_due(at(0), at(60), 0), "nothing is new");
    assert!(!pace.is_due(at(0), at(9), 99));
    assert!(pace.is_due(at(0), at(10), 1));
    assert!(pace.is_due(at(0), at(0), 100));
}

#[tokio::test]
async fn the_loop_makes_checkpoints_and_a_last_one_when_it_stops() {
    let (world, store) = (LedgerFixture::new(1), Arc::new(MemoryRecords::new()));
    let (stop, stopped) = watch::channel(false);
    let mut commits = store.commits();
    let checkpointer = Checkpointer {
        records: store.clone(),
        signer: Arc::new(Signer::from_seed(&[7; 32])),
        trusted: Vec::new(),
        clock: Arc::new(FakeClock::at(NOON)),
        origin: ORIGIN.into(),
        pace: Schedule { seconds: 1_000, entries: 2 },
        tick: Duration::from_millis(1),
        pulse: Heartbeat::start(NOON),
    };
    let running = tokio::spawn(checkpointer.run(stopped));
    world.write(&*store, 0, "acme", 2).await;
    commits.wait_for(|commits| *commits == 2).await.unwrap();
    assert_eq!(store.rows(&LEDGER_CHECKPOINTS).len(), 1, "two entries are enough");
    world.write(&*store, 0, "acme", 1).await;
    stop.send(true).unwrap();
    running.await.unwrap();
    let last = last_checkpoint(&*store).await.unwrap().unwrap();
    assert_eq!(last.checkpoint.lanes[0].head.seq, 3, "a clean stop leaves nothing uncovered");
}
