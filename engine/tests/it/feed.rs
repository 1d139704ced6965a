//! The event feed: fairness, gaps, waking up, and stories of every kind.

use crate::verify::place;
use chimera_core::ledger::StoredEntry;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_engine::ledger::LedgerError;
use chimera_engine::ledger::feed::{Feed, FeedError};
use chimera_testkit::cells::Cells;
use chimera_testkit::ledger_fixture::LedgerFixture;
use chimera_testkit::memory::MemoryRecords;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

fn places(entries: &[StoredEntry]) -> Vec<(i64, i64)> {
    entries.iter().map(|entry| (entry.lane, entry.link.seq)).collect()
}

async fn feed(store: &Arc<MemoryRecords>) -> Feed {
    Feed::open(store.clone(), "search").await.unwrap()
}

#[tokio::test]
async fn a_busy_lane_does_not_starve_the_others() {
    let (world, store) = (LedgerFixture::new(1), Arc::new(MemoryRecords::with_lanes(2)));
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
    let (world, store) = (LedgerFixture::new(1), Arc::new(MemoryRecords::with_lanes(2)));
    world.write(&*store, 0, "acme", 3).await;
    store.tamper(&AUDIT_LOG_ENTRIES, |rows| drop(rows.remove(place(rows, 1, 2))));
    let mut feed = feed(&store).await;
    assert!(matches!(feed.next(10).await, Err(FeedError::Ledger(LedgerError::Broken(_)))));
    assert_eq!(places(&feed.next(1).await.unwrap()), [(1, 1)], "what a failed read found was not handed out");
}

#[tokio::test]
async fn a_waiting_consumer_wakes_by_a_hint_and_also_without_one() {
    let (world, store) = (LedgerFixture::new(1), Arc::new(MemoryRecords::with_lanes(2)));
    let (mut waiting, hint) = (feed(&store).await, Notify::new());
    let never = Duration::from_secs(100_000);
    let (entries, ()) = tokio::join!(waiting.wait(10, Some(&hint), never), async {
        world.write(&*store, 0, "acme", 1).await;
        hint.notify_one();
    });
    assert_eq!(entries.unwrap().len(), 1);
    let (entries, _) =
        tokio::join!(waiting.wait(10, None, Duration::from_millis(1)), world.write(&*store, 0, "acme", 1));
    assert_eq!(entries.unwrap().len(), 1);
}

#[derive(Clone, Debug)]
enum FeedOperation {
    Write(u64, usize),
    Next(usize),
    Ack,
    Restart,
}

fn acts() -> impl Strategy<Value = Vec<FeedOperation>> {
    let act = prop_oneof![
        3 => (0_u64..2, 1_usize..5).prop_map(|(lane, entries)| FeedOperation::Write(lane, entries)),
        3 => (1_usize..6).prop_map(FeedOperation::Next),
        2 => Just(FeedOperation::Ack),
        1 => Just(FeedOperation::Restart),
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
            let (world, store) = (LedgerFixture::new(1), Arc::new(MemoryRecords::with_lanes(2)));
            let mut consumer = feed(&store).await;
            let (mut acked, mut pending) = (Vec::new(), Vec::new());
            for act in acts.into_iter().chain([FeedOperation::Next(1_000), FeedOperation::Ack]) {
                match act {
                    FeedOperation::Write(lane, entries) => drop(world.write(&*store, lane, "acme", entries).await),
                    FeedOperation::Next(limit) => pending.extend(places(&consumer.next(limit).await.unwrap())),
                    FeedOperation::Ack => {
                        consumer.ack(&world.clock).await.unwrap();
                        acked.append(&mut pending);
                    }
                    FeedOperation::Restart => {
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
