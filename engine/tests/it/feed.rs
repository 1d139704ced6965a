//! The event feed: every entry once, in order, across restarts.

use crate::memory::{Memory, entry_at};
use crate::world::World;
use chimera_core::ledger::StoredEntry;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, FEED_CURSORS};
use chimera_core::record::Tx;
use chimera_engine::ledger::LedgerError;
use chimera_engine::ledger::feed::{Feed, FeedError};
use chimera_engine::port::{Clock as _, Records as _};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

fn places(entries: &[StoredEntry]) -> Vec<(i64, i64)> {
    entries.iter().map(|entry| (entry.lane, entry.link.seq)).collect()
}

async fn feed(store: &Arc<Memory>) -> Feed {
    Feed::open(store.clone(), "search").await.unwrap()
}

#[tokio::test]
async fn a_new_consumer_gets_every_entry_of_every_lane_in_order() {
    let (world, store) = (World::new(), Arc::new(Memory::new()));
    let mut feed = feed(&store).await;
    assert!(feed.next(10).await.unwrap().is_empty());
    world.write(&*store, 0, "acme", 2).await;
    assert_eq!(places(&feed.next(10).await.unwrap()), [(1, 1), (1, 2)]);
    world.write(&*store, 1, "zeta", 1).await;
    world.write(&*store, 0, "acme", 1).await;
    let mut found = places(&feed.next(10).await.unwrap());
    found.sort_unstable();
    assert_eq!(found, [(1, 3), (2, 1)], "a lane that is new is found");
}

#[tokio::test]
async fn what_was_acknowledged_never_comes_again_and_what_was_not_does() {
    let (world, store) = (World::new(), Arc::new(Memory::new()));
    world.write(&*store, 0, "acme", 4).await;
    let mut first = feed(&store).await;
    first.next(2).await.unwrap();
    first.ack(&world.clock).await.unwrap();
    assert_eq!(places(&first.next(1).await.unwrap()), [(1, 3)]);
    drop(first);
    let mut restarted = feed(&store).await;
    assert_eq!(places(&restarted.next(10).await.unwrap()), [(1, 3), (1, 4)]);
    restarted.ack(&world.clock).await.unwrap();
    assert!(feed(&store).await.next(10).await.unwrap().is_empty());
    let mut other = Feed::open(store.clone(), "billing").await.unwrap();
    assert_eq!(other.next(10).await.unwrap().len(), 4, "consumers do not share cursors");
}

#[tokio::test]
async fn of_two_processes_under_one_name_one_is_told_to_stop() {
    let (world, store) = (World::new(), Arc::new(Memory::new()));
    world.write(&*store, 0, "acme", 1).await;
    let (mut one, mut two) = (feed(&store).await, feed(&store).await);
    one.next(10).await.unwrap();
    two.next(10).await.unwrap();
    one.ack(&world.clock).await.unwrap();
    assert!(matches!(two.ack(&world.clock).await, Err(FeedError::TakenOver)));
    let mut two = feed(&store).await;
    world.write(&*store, 0, "acme", 1).await;
    one.next(10).await.unwrap();
    two.next(10).await.unwrap();
    two.ack(&world.clock).await.unwrap();
    assert!(matches!(one.ack(&world.clock).await, Err(FeedError::TakenOver)));
}

#[tokio::test]
async fn a_consumer_can_acknowledge_in_its_own_transaction() {
    let (world, store) = (World::new(), Arc::new(Memory::new()));
    world.write(&*store, 0, "acme", 2).await;
    let mut feed = feed(&store).await;
    feed.next(1).await.unwrap();
    let parts = feed.ack_parts(world.clock.now()).unwrap();
    store.commit(Tx { inserts: parts.inserts.clone(), updates: parts.updates.clone(), ..Tx::default() }).await.unwrap();
    feed.next(1).await.unwrap();
    feed.acked(&parts);
    assert_eq!(store.rows(&FEED_CURSORS)[0].int("seq"), 1, "only what the transaction said");
    feed.ack(&world.clock).await.unwrap();
    assert_eq!(store.rows(&FEED_CURSORS)[0].int("seq"), 2);
}

#[tokio::test]
async fn a_busy_lane_does_not_starve_the_others() {
    let (world, store) = (World::new(), Arc::new(Memory::new()));
    world.write(&*store, 0, "acme", 50).await;
    world.write(&*store, 1, "acme", 50).await;
    let mut feed = feed(&store).await;
    let lanes: Vec<i64> = [feed.next(5).await.unwrap(), feed.next(5).await.unwrap(), feed.next(5).await.unwrap()]
        .iter()
        .map(|entries| entries[0].lane)
        .collect();
    assert_eq!(lanes, [1, 2, 1]);
}

#[tokio::test]
async fn a_gap_stops_the_feed_instead_of_being_skipped() {
    let (world, store) = (World::new(), Arc::new(Memory::new()));
    world.write(&*store, 0, "acme", 3).await;
    store.tamper(&AUDIT_LOG_ENTRIES, |rows| drop(rows.remove(entry_at(rows, 1, 2))));
    let mut feed = feed(&store).await;
    assert!(matches!(feed.next(10).await, Err(FeedError::Ledger(LedgerError::Broken(_)))));
    assert_eq!(places(&feed.next(1).await.unwrap()), [(1, 1)], "what a failed read found was not handed out");
}

#[tokio::test]
async fn a_waiting_consumer_wakes_by_a_hint_and_also_without_one() {
    let (world, store) = (World::new(), Arc::new(Memory::new()));
    let (mut waiting, hint) = (feed(&store).await, Notify::new());
    let never = Duration::from_secs(100_000);
    let (entries, ()) = tokio::join!(waiting.wait(10, Some(&hint), never), async {
        world.write(&*store, 0, "acme", 1).await;
        hint.notify_one();
    });
    assert_eq!(entries.unwrap().len(), 1);
    let (entries, ()) =
        tokio::join!(waiting.wait(10, None, Duration::from_millis(1)), world.write(&*store, 0, "acme", 1));
    assert_eq!(entries.unwrap().len(), 1);
}

#[derive(Clone, Debug)]
enum Act {
    Write(u64, usize),
    Next(usize),
    Ack,
    Restart,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (0_u64..2, 1_usize..5).prop_map(|(lane, entries)| Act::Write(lane, entries)),
        3 => (1_usize..6).prop_map(Act::Next),
        2 => Just(Act::Ack),
        1 => Just(Act::Restart),
    ];
    prop::collection::vec(act, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is written, read, acknowledged and restarted in whatever order: what was
    /// acknowledged is every entry once, in the order of its lane, without a gap.
    #[test]
    fn acknowledged_entries_have_no_gap_and_no_duplicate(acts in acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (world, store) = (World::new(), Arc::new(Memory::new()));
            let mut consumer = feed(&store).await;
            let (mut acked, mut pending) = (Vec::new(), Vec::new());
            for act in acts.into_iter().chain([Act::Next(1_000), Act::Ack]) {
                match act {
                    Act::Write(lane, entries) => world.write(&*store, lane, "acme", entries).await,
                    Act::Next(limit) => pending.extend(places(&consumer.next(limit).await.unwrap())),
                    Act::Ack => {
                        consumer.ack(&world.clock).await.unwrap();
                        acked.append(&mut pending);
                    }
                    Act::Restart => {
                        consumer = feed(&store).await;
                        pending.clear();
                    }
                }
            }
            let mut expected: Vec<_> = store.rows(&AUDIT_LOG_ENTRIES).iter().map(|row| (row.int("lane"), row.int("seq"))).collect();
            expected.sort_unstable();
            let of = |places: &[(i64, i64)], lane| places.iter().filter(|place| place.0 == lane).copied().collect::<Vec<_>>();
            for lane in [1, 2] {
                assert_eq!(of(&acked, lane), of(&expected, lane));
            }
        });
    }
}
