//! The waiting transactions of a lane, and how a batch is drawn from them.
//!
//! At most one transaction per row key goes into a batch. A transaction that has to wait holds its
//! keys against those behind it, so nothing overtakes on a row.

use chimera_core::limits;
use chimera_core::record::{InvalidTx, Touch, Tx};
use std::collections::{BTreeSet, VecDeque};

/// A transaction that was checked and put into order. Whoever wants it committed does this work,
/// because many can do it at the same time and a committer can't.
#[derive(Debug)]
pub struct Prepared {
    tx: Tx,
    touches: Vec<Touch>,
}

impl Prepared {
    /// Checks everything that can be known before a store is asked.
    pub fn new(mut tx: Tx) -> Result<Self, InvalidTx> {
        tx.check()?;
        tx.sort();
        let touches = tx.all_touches();
        Ok(Self { tx, touches })
    }
}

/// One waiting transaction.
#[derive(Debug)]
pub(super) struct Waiting<W> {
    pub(super) tx: Tx,
    pub(super) waiter: W,
    /// How often the database could not serialise it.
    pub(super) tries: u32,
    pub(super) touches: Vec<Touch>,
}

impl<W> Waiting<W> {
    pub(super) fn new(Prepared { tx, touches }: Prepared, waiter: W) -> Self {
        Self { tx, waiter, tries: 0, touches }
    }

    fn rows(&self) -> usize {
        let tx = &self.tx;
        tx.inserts.len() + tx.updates.len() + tx.steps.len() + tx.entries.len()
    }
}

/// First come, first served, except that a row key is in a batch only once.
#[derive(Debug)]
pub(super) struct Queue<W> {
    waiting: VecDeque<Waiting<W>>,
}

impl<W> Queue<W> {
    pub(super) const fn new() -> Self {
        Self { waiting: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn push(&mut self, waiting: Waiting<W>) {
        self.waiting.push_back(waiting);
    }

    /// Puts transactions back in front, in their order.
    pub(super) fn push_front(&mut self, back: impl DoubleEndedIterator<Item = Waiting<W>>) {
        back.rev().for_each(|waiting| self.waiting.push_front(waiting));
    }

    /// Everything that waits, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waiting<W>> {
        self.waiting.drain(..)
    }

    /// Takes the next batch of at most `txs_max` transactions.
    pub(super) fn draw(&mut self, txs_max: usize) -> Vec<Waiting<W>> {
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
