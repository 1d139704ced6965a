//! The event feed: delivers every ledger entry to each named consumer, in lane order.
//!
//! A consumer has one cursor per lane and moves it with `ack`, or inside its own transaction with `ack_parts`; then
//! each entry takes effect exactly once. Acknowledged entries are not delivered again; others are, after a restart.
//! Moving a cursor is a compare-and-set, so of two processes with one consumer name one learns that the other took
//! over. The bus only hints when to poll.

use super::read::{self, LaneReader, LedgerError, malformed_row};
use crate::port::{Clock, CommitError, Records};
use chimera_core::ledger::tables::{FEED_CURSORS, FeedCursorRow, feed_cursors};
use chimera_core::ledger::{LedgerFault, LocatedFault, StoredEntry};
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_core::record::{Insert, Scope, StoredRow, Tx, Update};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Another process with the same consumer name moved the cursors.
    #[error("another process consumes the feed under this name")]
    TakenOver,
}

/// A consumer's position in one lane.
#[derive(Clone, Copy, Debug, Default)]
struct FeedCursor {
    /// The stored position; `None` when the lane has no row yet.
    stored: Option<i64>,
    /// The last delivered entry.
    given: i64,
}

/// One consumer's feed.
pub struct Feed {
    records: Arc<dyn Records>,
    consumer: String,
    cursors: BTreeMap<i64, FeedCursor>,
    /// The lane that was read last; the next page starts after it, so that no lane starves.
    served: Option<i64>,
}

/// The changes that move the cursors, for the consumer's own transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AckParts {
    /// Cursors of new lanes.
    pub inserts: Vec<Insert>,
    pub updates: Vec<Update>,
    /// Each lane's new position.
    positions: Vec<(i64, i64)>,
}

impl Feed {
    /// Opens the feed of `consumer` where it stopped; a new consumer starts with the first entry.
    pub async fn open(records: Arc<dyn Records>, consumer: impl Into<String>) -> Result<Self, FeedError> {
        let consumer = consumer.into();
        let select = FeedCursorRow::select(Scope::System).with(feed_cursors::consumer, consumer.as_str());
        let (rows, _) = records.first(select, PAGE_ROWS_MAX).await.map_err(LedgerError::from)?;
        let mut cursors = BTreeMap::new();
        for row in rows {
            let malformed = |_| LedgerError::from(LocatedFault::ledger(LedgerFault::Malformed));
            let FeedCursorRow { lane, seq, .. } = FeedCursorRow::decode(row).map_err(malformed)?;
            cursors.insert(lane, FeedCursor { stored: Some(seq), given: seq });
        }
        Ok(Self { records, consumer, cursors, served: None })
    }

    /// Up to `limit` undelivered entries across lanes, in order within each lane.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<StoredEntry>, FeedError> {
        let limit = limit.clamp(1, PAGE_ROWS_MAX);
        let mut lanes = read::lanes(&*self.records).await?;
        let turn = lanes.partition_point(|(lane, _)| Some(*lane) <= self.served);
        lanes.rotate_left(turn);
        let mut entries = Vec::new();
        let (mut given, mut served) = (Vec::new(), self.served);
        for (lane, head) in lanes {
            let mut at = self.cursors.get(&lane).map_or(0, |cursor| cursor.given);
            let mut reader = LaneReader::from(lane, at + 1, Scope::System).pages_of(limit);
            while entries.len() < limit {
                let Some(row) = reader.next(&*self.records, head.seq).await? else { break };
                let entry = StoredEntry::from_row(&row).map_err(|_| LedgerError::from(malformed_row(&row)))?;
                if entry.link.seq != at + 1 {
                    return Err(LedgerError::from(LocatedFault::lane(lane, at + 1, LedgerFault::Link)).into());
                }
                (at, served) = (entry.link.seq, Some(lane));
                entries.push(entry);
            }
            given.push((lane, at));
        }
        // Only now, so that a failed read delivers nothing and loses nothing.
        for (lane, at) in given.into_iter().filter(|(_, at)| *at > 0) {
            self.cursors.entry(lane).or_default().given = at;
        }
        self.served = served;
        Ok(entries)
    }

    /// Like `next`, but waits for entries: polls on every `hint`, and every `poll` without one.
    pub async fn wait(
        &mut self,
        limit: usize,
        hint: Option<&Notify>,
        poll: Duration,
    ) -> Result<Vec<StoredEntry>, FeedError> {
        loop {
            let entries = self.next(limit).await?;
            if !entries.is_empty() {
                return Ok(entries);
            }
            let hinted = async {
                match hint {
                    Some(hint) => hint.notified().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = hinted => {}
                () = tokio::time::sleep(poll) => {}
            }
        }
    }

    /// The changes that acknowledge everything delivered so far. Call `acked` with them after the commit.
    pub fn ack_parts(&self, now: Timestamp) -> Result<AckParts, LedgerError> {
        let mut parts = AckParts::default();
        for (lane, cursor) in self.cursors.iter().filter(|(_, cursor)| cursor.stored != Some(cursor.given)) {
            parts.positions.push((*lane, cursor.given));
            let Some(stored) = cursor.stored else {
                let cells = vec![
                    (feed_cursors::consumer, self.consumer.as_str().into()),
                    (feed_cursors::lane, (*lane).into()),
                    (feed_cursors::seq, cursor.given.into()),
                    (feed_cursors::updated_at, now.into()),
                ];
                parts.inserts.push(Insert::new(&FEED_CURSORS, cells)?);
                continue;
            };
            parts.updates.push(Update::new(
                &FEED_CURSORS,
                vec![self.consumer.as_str().into(), (*lane).into()],
                vec![(feed_cursors::seq, stored.into())],
                vec![(feed_cursors::seq, cursor.given.into()), (feed_cursors::updated_at, now.into())],
            )?);
        }
        Ok(parts)
    }

    /// Records that `parts` were committed.
    pub fn acked(&mut self, parts: &AckParts) {
        for (lane, seq) in &parts.positions {
            self.cursors.entry(*lane).or_default().stored = Some(*seq);
        }
    }

    /// Acknowledges everything delivered so far.
    pub async fn ack(&mut self, clock: &dyn Clock) -> Result<(), FeedError> {
        let parts = self.ack_parts(clock.now())?;
        if parts.positions.is_empty() {
            return Ok(());
        }
        let (inserts, updates) = (parts.inserts.clone(), parts.updates.clone());
        match self.records.commit(Tx { inserts, updates, ..Tx::default() }).await {
            Ok(_) => self.acked(&parts),
            Err(CommitError::Conflict(_)) => return Err(FeedError::TakenOver),
            Err(error) => return Err(LedgerError::from(error).into()),
        }
        Ok(())
    }
}
