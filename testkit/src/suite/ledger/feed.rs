//! The feed: every entry once, in the order of its lane, across restarts of consumers and nodes.

use super::{LedgerNodes, Site, entries, join_workers, list};
use crate::ledger_fixture::LedgerFixture;
use chimera_core::ledger::StoredEntry;
use chimera_core::ledger::tables::{FeedCursorRow, feed_cursors};
use chimera_core::record::{Scope, StoredRow, Tx};
use chimera_engine::ledger::feed::{Feed, FeedError};
use chimera_engine::port::{Clock as _, CommitError, Records};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The acknowledged entries, by lane.
type Places = BTreeMap<i64, Vec<i64>>;

fn note(places: &mut Places, entries: &[StoredEntry]) {
    entries.iter().for_each(|entry| places.entry(entry.lane).or_default().push(entry.link.seq));
}

async fn open(records: &Arc<dyn Records>, consumer: &str) -> Feed {
    Feed::open(Arc::clone(records), consumer).await.unwrap()
}

/// Reads and acknowledges until the feed is empty.
async fn drain(world: &LedgerFixture, feed: &mut Feed, acked: &mut Places) {
    loop {
        let entries = feed.next(7).await.unwrap();
        if entries.is_empty() {
            return;
        }
        note(acked, &entries);
        feed.ack(&world.clock).await.unwrap();
    }
}

/// Asserts that every entry of the ledger was acknowledged once, in the order of its lane.
async fn assert_complete(records: &dyn Records, acked: &Places) {
    let mut expected = Places::new();
    for row in entries(records).await {
        expected.entry(row.lane).or_default().push(row.seq);
    }
    assert!(expected.values().all(|seqs| seqs.iter().copied().eq(1..=seqs.len() as i64)));
    assert_eq!(*acked, expected);
}

pub(super) async fn a_consumer_goes_on_where_it_stopped_and_finds_new_lanes(site: &dyn Site) {
    let (world, mut acked) = (LedgerFixture::new(2), Places::new());
    let node = site.start().await;
    world.write(&*node, 0, "acme", 10).await;
    let mut feed = open(&node, "search").await;
    note(&mut acked, &feed.next(4).await.unwrap());
    feed.ack(&world.clock).await.unwrap();
    assert_eq!(feed.next(3).await.unwrap().len(), 3, "handed out, but never acknowledged");
    drop(feed);
    let mut restarted = open(&node, "search").await;
    note(&mut acked, &restarted.next(2).await.unwrap());
    restarted.ack(&world.clock).await.unwrap();
    drop(restarted);
    node.close().await;
    drop(node);

    let node = site.start().await;
    world.write(&*node, 1, "acme", 5).await;
    let mut feed = open(&node, "search").await;
    drain(&world, &mut feed, &mut acked).await;
    assert_complete(&*node, &acked).await;
    if site.is_shared() {
        let (lanes, newcomer) = (acked.len(), site.start().await);
        world.write(&*newcomer, 0, "acme", 3).await;
        drain(&world, &mut feed, &mut acked).await;
        assert_eq!(acked.len(), lanes + 1, "a lane that is new is found");
        assert_complete(&*node, &acked).await;
        newcomer.close().await;
    }
    let mut other = open(&node, "billing").await;
    assert_eq!(other.next(1_000).await.unwrap().len(), entries(&*node).await.len(), "consumers share no cursor");
    node.close().await;
}

pub(super) async fn no_entry_is_missed_or_repeated_while_writers_write(stage: &LedgerNodes) {
    let writing = tokio::spawn(join_workers(stage.writers(6, 20)));
    let (mut acked, mut nodes) = (Places::new(), stage.nodes());
    let mut feed = open(nodes.next().unwrap(), "concurrent").await;
    let mut rounds = 0;
    loop {
        let last = writing.is_finished();
        let entries = feed.next(5).await.unwrap();
        rounds += 1;
        if rounds % 5 == 0 {
            // The consumer crashes with unacknowledged entries, and continues on another node.
            feed = open(nodes.next().unwrap(), "concurrent").await;
            continue;
        }
        note(&mut acked, &entries);
        feed.ack(&stage.world.clock).await.unwrap();
        if last && entries.is_empty() {
            break;
        }
    }
    writing.await.unwrap();
    assert_complete(&*stage.two, &acked).await;
}

pub(super) async fn of_two_processes_under_one_name_one_is_told_to_stop(stage: &LedgerNodes) {
    let clock = &stage.world.clock;
    let (mut one, mut two) = (open(&stage.one, "twice").await, open(&stage.two, "twice").await);
    for _ in 0..2 {
        // First the cursor is inserted, then updated.
        stage.world.write(&*stage.one, 0, "acme", 1).await;
        one.next(1_000).await.unwrap();
        two.next(1_000).await.unwrap();
        one.ack(clock).await.unwrap();
        assert!(matches!(two.ack(clock).await, Err(FeedError::TakenOver)));
        two = open(&stage.two, "twice").await;
    }
}

pub(super) async fn a_cursor_moves_with_the_consumers_own_change_or_not_at_all(stage: &LedgerNodes) {
    let now = stage.world.clock.now();
    let mut feed = open(&stage.one, "atomic").await;
    let given = feed.next(3).await.unwrap();
    let parts = feed.ack_parts(now).unwrap();
    let tx = || {
        let (inserts, updates) = (parts.inserts.clone(), parts.updates.clone());
        Tx { inserts, updates, ..stage.world.entries(0, "acme", 1) }
    };
    stage.one.commit(tx()).await.unwrap();
    let written = entries(&*stage.two).await.len();
    assert!(matches!(stage.two.commit(tx()).await, Err(CommitError::Conflict(_))), "the same work done twice");
    assert_eq!(entries(&*stage.two).await.len(), written, "is not done twice");
    feed.next(2).await.unwrap();
    feed.acked(&parts);
    let cursors = FeedCursorRow::select(Scope::System).with(feed_cursors::consumer, "atomic");
    let moved: i64 = list::<FeedCursorRow>(&*stage.two, cursors).await.iter().map(|row| row.seq).sum();
    assert_eq!(moved, given.len() as i64, "only what the transaction acknowledged");
    feed.ack(&stage.world.clock).await.unwrap();
}
