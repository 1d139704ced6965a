//! The record store benchmark: one realistic transaction, many writers.
//!
//! A step of a run is one update with a version check, three inserts and a ledger entry. The baseline is a bare
//! loop of the same statements, committed in batches of one transaction per writer.

use crate::failure::Outcome;
use async_trait::async_trait;
use serde::Serialize;
use std::time::Duration;

/// How many writers are measured.
pub(crate) const WRITERS: &[usize] = &[1, 64, 256];

/// A lone writer waits for the disk at each commit, so it gets this part of the work.
const LONE_SHARE: usize = 10;

/// A store under measurement. Times go from the first commit to the last.
#[async_trait]
pub(crate) trait BenchSubject: Send + Sync {
    /// Which store it is, and how it commits.
    fn setting(&self) -> BenchConditions;

    /// Commits steps through the store.
    async fn store(&self, writers: usize, transactions: usize) -> Outcome<BenchWork>;

    /// Commits the same steps in a bare loop, as many together as there are writers.
    async fn bare(&self, writers: usize, transactions: usize) -> Outcome<BenchWork>;

    /// Closes the store.
    async fn close(&self);
}

/// Conditions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct BenchConditions {
    /// The record store.
    pub(crate) record_store: &'static str,
    /// Whether a commit waits for the disk.
    pub(crate) fsync: bool,
    /// How many commits may be under way side by side.
    pub(crate) lanes: usize,
}

/// What was done, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchWork {
    pub(crate) transactions: usize,
    pub(crate) commits: usize,
    pub(crate) time: Duration,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Measurement {
    /// Writers; for the bare loop the transactions that are under way together.
    pub(crate) writers: usize,
    /// Transactions that were committed.
    pub(crate) transactions: usize,
    /// Transactions that shared a commit, on average.
    pub(crate) batch_average: f64,
    /// Transactions per second.
    pub(crate) per_second: f64,
}

impl Measurement {
    pub(crate) fn new(writers: usize, work: BenchWork) -> Self {
        let BenchWork { transactions, commits, time } = work;
        let batch_average = hundredths(transactions as f64 / commits.max(1) as f64);
        let per_second = (transactions as f64 / time.as_secs_f64().max(f64::EPSILON)).round();
        Self { writers, transactions, batch_average, per_second }
    }
}

/// `None` where a number of writers was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Ratios {
    pub(crate) writers_64_to_1: Option<f64>,
    pub(crate) writers_256_to_1: Option<f64>,
    pub(crate) store_to_bare_64: Option<f64>,
    pub(crate) store_to_bare_256: Option<f64>,
}

impl Ratios {
    pub(crate) fn of(store: &[Measurement], bare: &[Measurement]) -> Self {
        let rate = |of: &[Measurement], writers: usize| of.iter().find(|one| one.writers == writers)?.per_second.into();
        let ratio = |one: Option<f64>, other: Option<f64>| Some(hundredths(one? / other?.max(1.0)));
        Self {
            writers_64_to_1: ratio(rate(store, 64), rate(store, 1)),
            writers_256_to_1: ratio(rate(store, 256), rate(store, 1)),
            store_to_bare_64: ratio(rate(store, 64), rate(bare, 64)),
            store_to_bare_256: ratio(rate(store, 256), rate(bare, 256)),
        }
    }
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

pub(crate) const fn share(writers: usize, transactions: usize) -> usize {
    if writers == 1 { transactions.div_ceil(LONE_SHARE) } else { transactions }
}
