//! The benchmark of the record store: one realistic transaction, many writers.
//!
//! A step of a run is one update with a version check, three inserts and a ledger entry. The same
//! statements in a bare hand-written loop, committed in batches as large as there are writers, are
//! the ceiling that the store is held against.

use crate::failure::Outcome;
use async_trait::async_trait;
use serde::Serialize;
use std::time::Duration;

/// How many writers are measured.
pub(crate) const WRITERS: &[usize] = &[1, 64, 256];

/// A lone writer waits for the disk at each commit, so it gets this part of the work.
const LONE_SHARE: usize = 10;

/// A store under measurement. Both give the time from the first commit to the last.
#[async_trait]
pub(crate) trait Subject: Send + Sync {
    /// Commits steps through the store.
    async fn store(&self, writers: usize, transactions: usize) -> Outcome<Duration>;

    /// Commits the same steps in a bare loop.
    async fn bare(&self, batch: usize, transactions: usize) -> Outcome<Duration>;

    /// Closes the store.
    async fn close(&self);
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// Writers, or the batch size of the bare loop.
    pub(crate) writers: usize,
    /// Transactions that were committed.
    pub(crate) transactions: usize,
    /// Transactions per second.
    pub(crate) per_second: f64,
}

impl Measured {
    pub(crate) fn new(writers: usize, transactions: usize, time: Duration) -> Self {
        let per_second = (transactions as f64 / time.as_secs_f64().max(f64::EPSILON)).round();
        Self { writers, transactions, per_second }
    }
}

/// How many transactions so many writers share.
pub(crate) const fn share(writers: usize, transactions: usize) -> usize {
    if writers == 1 { transactions.div_ceil(LONE_SHARE) } else { transactions }
}
