//! The queue of a lane, and how batches are taken from it.
//!
//! A batch holds at most one transaction per row key. A transaction that has to wait reserves its keys, so later ones
//! can't overtake it on a row.

use chimera_core::limits;
use chimera_core::record::{InvalidTx, Touch, Tx};
use std::collections::{BTreeSet, VecDeque};

/// A validated and sorted transaction. The submitter does this work, since submitters run in parallel and the committer
/// does not.
#[derive(Debug)]
pub struct PreparedTx {
    tx: Tx,
    touches: Vec<Touch>,
}

impl PreparedTx {
    /// Runs every check that needs no store.
    pub fn new(mut tx: Tx) -> Result<Self, InvalidTx> {
        tx.check()?;
        tx.sort();
        let touches = tx.all_touches();
        Ok(Self { tx, touches })
    }
}

#[derive(Debug)]
pub(super) struct QueuedTx<W> {
    pub(super) tx: Tx,
    pub(super) waiter: W,
    /// The number of serialization failures.
    pub(super) tries: u32,
    pub(super) touches: Vec<Touch>,
}

impl<W> QueuedTx<W> {
    pub(super) fn new(PreparedTx { tx, touches }: PreparedTx, waiter: W) -> Self {
        Self { tx, waiter, tries: 0, touches }
    }

    fn rows(&self) -> usize {
        let tx = &self.tx;
        tx.inserts.len() + tx.updates.len() + tx.steps.len() + tx.entries.len()
    }
}

/// FIFO, except that a row key occurs in a batch only once.
#[derive(Debug)]
pub(super) struct Queue<W> {
    waiting: VecDeque<QueuedTx<W>>,
}

impl<W> Queue<W> {
    pub(super) const fn new() -> Self {
        Self { waiting: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn push(&mut self, waiting: QueuedTx<W>) {
        self.waiting.push_back(waiting);
    }

    /// Requeues transactions at the front, in order.
    pub(super) fn push_front(&mut self, back: impl DoubleEndedIterator<Item = QueuedTx<W>>) {
        back.rev().for_each(|waiting| self.waiting.push_front(waiting));
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = QueuedTx<W>> {
        self.waiting.drain(..)
    }

    /// Takes the next batch of at most `txs_max` transactions.
    pub(super) fn take_batch(&mut self, txs_max: usize) -> Vec<QueuedTx<W>> {
        let mut held = BTreeSet::new();
        let mut drawn = Vec::new();
        let mut rows = 0;
        let mut at = 0;
        while at < self.waiting.len() && drawn.len() < txs_max.min(limits::BATCH_TXS_MAX) {
            let next = &self.waiting[at];
            let free = next.touches.iter().all(|touch| !held.contains(&touch.digest));
            held.extend(next.touches.iter().map(|touch| touch.digest));
            if !free {
                at += 1;
                continue;
            }
            rows += next.rows();
            if rows > limits::BATCH_ROWS_MAX && !drawn.is_empty() {
                break;
            }
            drawn.extend(self.waiting.remove(at));
        }
        drawn
    }
}
