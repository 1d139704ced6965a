//! Batches and their possible outcomes.

use crate::port::Unavailable;
use chimera_core::ledger::{ChainHead, ChainLink, extend};
use chimera_core::record::{Conflict, Tx};
use uuid::Uuid;

/// A lane as its current holder sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub id: i64,
    /// The epoch of this holder's claim: the fencing token.
    pub epoch: i64,
    /// The last link of its chain.
    pub head: ChainHead,
}

/// Transactions that commit together. No two touch the same row.
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// Its head is what the batch extends.
    pub lane: Lane,
    /// Globally unique: the epoch and a counter within it.
    pub id: Uuid,
    /// An empty batch only renews the lane's lease.
    pub txs: Vec<Tx>,
    /// Digests of the keys that are locked across lanes, sorted and deduplicated.
    pub locks: Vec<u64>,
}

impl Batch {
    /// The chain links for the entries of the transactions that `keep` selects, and the new head.
    pub fn chain(&self, keep: impl Fn(usize) -> bool) -> (Vec<ChainLink>, ChainHead) {
        let mut head = self.lane.head;
        let kept = self.txs.iter().enumerate().filter(|(at, _)| keep(*at));
        let links = kept
            .flat_map(|(_, tx)| &tx.entries)
            .map(|sealed| {
                let link = extend(self.lane.id, head, sealed.content_digest);
                head = link.head();
                link
            })
            .collect();
        (links, head)
    }
}

/// Why a transaction was excluded from its batch.
#[derive(Clone, Debug, PartialEq)]
pub enum TxRejection {
    Conflict(Conflict),
    /// A database constraint refused it.
    Rejected(String),
    /// The store lacks a table or privilege that it needs; others may commit.
    Lacking(Unavailable),
}

#[derive(Clone, Debug, PartialEq)]
pub enum BatchOutcome {
    /// Durable, except for the excluded transactions.
    Committed {
        /// The new head of the chain.
        head: ChainHead,
        /// Excluded positions, and why.
        lost: Vec<(usize, TxRejection)>,
    },
    /// Nothing was changed. These transactions can't commit; the others can be sent again.
    Lost(Vec<(usize, TxRejection)>),
    /// Nothing was changed: serialization failure.
    Contended,
    /// Nothing was changed: a transaction was refused, but the database doesn't say which.
    Refused(String),
    /// Nothing was changed: the store lacks a table or privilege that some transaction needs, but the database doesn't
    /// say which.
    Lacking(Unavailable),
    /// Nothing was changed: another node owns the lane.
    Fenced,
    /// Nothing was changed.
    Unavailable(Unavailable),
    /// The commit was sent and its reply was lost.
    Unknown {
        /// Excluded positions, and why.
        lost: Vec<(usize, TxRejection)>,
    },
}

/// How the outcome of an `Unknown` batch was resolved.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// It is durable. The lane was claimed again.
    Committed(Lane),
    /// It was not committed. The lane was claimed again.
    NotCommitted(Lane),
    /// Another node owns the lane; the ledger may show whether the batch is in it.
    Fenced {
        /// `Some(true)`: durable; `Some(false)`: not committed; `None`: unknown.
        durable: Option<bool>,
    },
}
