//! What goes to the store together, and what can become of it.

use crate::port::Unavailable;
use chimera_core::ledger::{Head, Link, extend};
use chimera_core::record::{Conflict, Tx};
use uuid::Uuid;

/// A lane as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its number.
    pub id: i64,
    /// The epoch in which this holder took it.
    pub epoch: i64,
    /// The end of its chain.
    pub head: Head,
}

/// Transactions that commit together, none of which touches a row of another.
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// The lane, its epoch and the head that the batch builds on.
    pub lane: Lane,
    /// Unique for ever: made of the epoch and a count within it.
    pub id: Uuid,
    /// The transactions. A batch without any renews the lane's lease.
    pub txs: Vec<Tx>,
    /// Digests of the keys for which lanes must queue, sorted, each once.
    pub locks: Vec<u64>,
}

impl Batch {
    /// The links of all entries of the transactions that `keep` admits, and the new head.
    pub fn chain(&self, keep: impl Fn(usize) -> bool) -> (Vec<Link>, Head) {
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

/// Why one transaction of a batch was left out.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// It lost against somebody else's change.
    Conflict(Conflict),
    /// A rule of the database refused it.
    Rejected(String),
    /// The store lacks what it needs, such as a table or a right; others may commit.
    Lacking(Unavailable),
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Durable, except for those left out.
    Committed {
        /// The chain's end now.
        head: Head,
        /// Positions left out, and why.
        lost: Vec<(usize, Loss)>,
    },
    /// Nothing was changed; these transactions can't commit, the others can be sent again.
    Lost(Vec<(usize, Loss)>),
    /// Nothing was changed: the database could not serialise the batch. Nobody's fault.
    Contended,
    /// Nothing was changed: some transaction was refused, and the database doesn't say which.
    Refused(String),
    /// Nothing was changed: the store lacks what some transaction needs, such as a table or a right, and the
    /// database doesn't say which transaction.
    Lacking(Unavailable),
    /// Nothing was changed: the lane belongs to somebody else.
    Fenced,
    /// Nothing was changed: the store can't be reached or can't write.
    Unavailable(Unavailable),
    /// The commit was sent and its answer never came.
    Unsure {
        /// Positions that were left out of it, and why.
        lost: Vec<(usize, Loss)>,
    },
}

/// What an unsure batch turned out to be, told by whoever looked.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It is durable. The lane was taken anew.
    Ours(Lane),
    /// It never happened. The lane was taken anew.
    Never(Lane),
    /// Another node has the lane, and the ledger shows whether the batch is in it.
    Fenced {
        /// `Some(true)`: durable; `Some(false)`: it never happened; `None`: nobody can tell.
        durable: Option<bool>,
    },
}
