//! Checkpoints of a store.

use crate::memory::{Memory, entry_at};
use crate::world::{FakeClock, ORIGIN, World};
use chimera_core::ledger::Fault;
use chimera_core::ledger::checkpoint::{SignedCheckpoint, Signer};
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_CHECKPOINTS, LEDGER_LANES, LEDGER_NODES};
use chimera_core::record::Value;
use chimera_core::time::Timestamp;
use chimera_engine::ledger::checkpoint::{Checkpointer, Made, Pace, make};
use chimera_engine::ledger::{LedgerError, last_checkpoint};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

fn new(made: Made) -> SignedCheckpoint {
    match made {
        Made::New(signed) => *signed,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_checkpoint_covers_every_lane_and_names_the_one_before() {
    let (world, store) = (World::new(), Memory::new());
    world.write(&store, 0, "acme", 3).await;
    world.write(&store, 1, "acme", 1).await;
    let first = new(world.checkpoint(&store).await);
    world.write(&store, 1, "zeta", 2).await;
    let second = new(world.checkpoint(&store).await);
    let sizes = |signed: &SignedCheckpoint| -> Vec<(i64, i64)> {
        signed.checkpoint.lanes.iter().map(|state| (state.lane, state.head.seq)).collect()
    };
    assert_eq!((sizes(&first), sizes(&second)), (vec![(1, 3), (2, 1)], vec![(1, 3), (2, 3)]));
    assert_eq!((first.checkpoint.previous, second.checkpoint.previous), (None, Some(first.digest())));
    assert_eq!(last_checkpoint(&store).await.unwrap(), Some(second.clone()));
    assert_eq!(second.verify(&[world.signer.public_key()]), Ok(()));
}

#[tokio::test]
async fn no_checkpoint_is_made_when_nothing_is_new() {
    let (world, store) = (World::new(), Memory::new());
    assert_eq!(world.checkpoint(&store).await, Made::Nothing);
    world.write(&store, 0, "acme", 1).await;
    new(world.checkpoint(&store).await);
    assert_eq!(world.checkpoint(&store).await, Made::Nothing);
    assert_eq!(store.rows(&LEDGER_CHECKPOINTS).len(), 1);
}

#[tokio::test]
async fn every_full_block_of_256_entries_leaves_one_tree_hash() {
    let (world, store) = (World::new(), Memory::new());
    for _ in 0..3 {
        world.write(&store, 0, "acme", 200).await;
        new(world.checkpoint(&store).await);
    }
    let places: Vec<_> = store.rows(&LEDGER_NODES).iter().map(|row| (row.int("level"), row.int("idx"))).collect();
    assert_eq!(places, [(8, 0), (8, 1)]);
}

#[tokio::test]
async fn nothing_is_signed_that_does_not_continue_what_was_signed() {
    let (world, store) = (World::new(), Memory::new());
    world.write(&store, 0, "acme", 4).await;
    new(world.checkpoint(&store).await);
    world.write(&store, 0, "acme", 4).await;
    let broken = || async {
        match make(&store, &world.signer, &world.clock, ORIGIN).await {
            Err(LedgerError::Broken(broken)) => (broken.lane, broken.seq, broken.why),
            other => panic!("{other:?}"),
        }
    };
    let change = |rows: &mut Vec<Vec<Value>>, seq| {
        let (at, hash) = (entry_at(rows, 1, seq), AUDIT_LOG_ENTRIES.position("hash").unwrap());
        rows[at][hash] = Value::Bytes(vec![9; 32]);
    };
    store.tamper(&AUDIT_LOG_ENTRIES, |rows| change(rows, 6));
    assert_eq!(broken().await, (Some(1), Some(6), Fault::Link));
    store.tamper(&AUDIT_LOG_ENTRIES, |rows| change(rows, 2));
    assert_eq!(broken().await, (Some(1), Some(5), Fault::Lane), "the tree under the last checkpoint has changed");
    store.tamper(&LEDGER_LANES, |rows| rows[0][2] = Value::Int(2));
    assert_eq!(broken().await, (Some(1), Some(3), Fault::Checkpoint), "the lane is shorter than what was signed");
}

#[tokio::test]
async fn of_two_nodes_that_make_the_same_checkpoint_one_wins() {
    let (world, store) = (World::new(), Memory::new());
    world.write(&store, 0, "acme", 1).await;
    let (one, two) = tokio::join!(world.checkpoint(&store), world.checkpoint(&store));
    assert!(matches!((&one, &two), (Made::New(_), Made::Lost)), "{one:?} {two:?}");
    assert_eq!(store.rows(&LEDGER_CHECKPOINTS).len(), 1);
}

#[test]
fn checkpoints_are_due_after_a_time_or_a_number_of_entries() {
    let pace = Pace { seconds: 10, entries: 100 };
    let at = |seconds| Timestamp::from_micros(0).plus_seconds(seconds);
    assert!(!pace.is_due(at(0), at(60), 0), "nothing is new");
    assert!(!pace.is_due(at(0), at(9), 99));
    assert!(pace.is_due(at(0), at(10), 1));
    assert!(pace.is_due(at(0), at(0), 100));
}

#[tokio::test]
async fn the_loop_makes_checkpoints_and_a_last_one_when_it_stops() {
    let (world, store) = (World::new(), Arc::new(Memory::new()));
    let (stop, stopped) = watch::channel(false);
    let mut commits = store.commits();
    let checkpointer = Checkpointer {
        records: store.clone(),
        signer: Arc::new(Signer::from_seed(&[7; 32])),
        clock: Arc::new(FakeClock::new()),
        origin: ORIGIN.into(),
        pace: Pace { seconds: 1_000, entries: 2 },
        tick: Duration::from_millis(1),
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
