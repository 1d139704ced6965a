//! Why a store may not be changed, for everybody in this process to see.

use chimera_core::ledger::{MarkMismatch, Digest32, ChainHead, Mark};
use chimera_core::time::Timestamp;
use chimera_engine::port::{CommitError, Hold, Outage, Unavailable};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A cell that the loops of a store write and anybody reads. Looking costs next to nothing while the
/// store is not held.
#[derive(Clone, Default)]
pub(super) struct HoldCell {
    held: Arc<(AtomicBool, Mutex<Option<Hold>>)>,
    /// Why nobody can tell whether it is held.
    blind: Arc<Mutex<Option<Unavailable>>>,
}

impl HoldCell {
    /// What is known now. The first time that a store is held, the log says so.
    pub(super) fn set(&self, hold: Option<Hold>) {
        let (any, cell) = &*self.held;
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*cell, &hold) {
            (None, Some(hold)) => {
                tracing::error!(critical = true, reason = hold.reason, "the store is held; nothing is driven");
            }
            (Some(_), None) => tracing::warn!("the store is not held any more"),
            _ => {}
        }
        any.store(hold.is_some(), Ordering::Release);
        *cell = hold;
    }

    /// Why the store is held, if it is.
    pub(super) fn get(&self) -> Option<Hold> {
        let (any, cell) = &*self.held;
        any.load(Ordering::Acquire).then(|| cell.lock().unwrap_or_else(PoisonError::into_inner).clone()).flatten()
    }

    /// Why nobody can tell whether the store is held, if so; the log says it once.
    pub(super) fn set_sight(&self, blind: Option<Unavailable>) {
        let mut cell = self.blind.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*cell, &blind) {
            (None, Some(why)) => tracing::error!(reason = why.reason, "nobody can tell whether the store is held"),
            (Some(_), None) => tracing::warn!("it can be told again whether the store is held"),
            _ => {}
        }
        *cell = blind;
    }

    /// Refuses while nobody can tell whether the store is held.
    pub(super) fn check_sight(&self) -> Result<(), Unavailable> {
        self.blind.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }

    /// The answer to a commit: a lane that is not taken because the store is held says so.
    pub(super) fn explain(&self, error: CommitError) -> CommitError {
        match (error, self.get()) {
            (CommitError::Unavailable(_) | CommitError::Fenced, Some(hold)) => CommitError::Blocked(hold.into()),
            (error, _) => error,
        }
    }
}

/// What readiness says about a store that is held.
pub(super) fn not_ready(hold: &Hold) -> Unavailable {
    Unavailable::new(Outage::Unusable, format!("held: {}", hold.reason))
}

/// What is true of a store as a whole, as its one row says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreState {
    /// Grows with every resume.
    pub(super) generation: i64,
    pub(super) hold: Option<Hold>,
    /// The greatest epoch that anybody knew of when it was held.
    pub(super) epoch: i64,
}

impl StoreState {
    pub(super) fn of_row(generation: i64, reason: Option<String>, at: Option<i64>, epoch: i64) -> Self {
        let since = Timestamp::from_micros(at.unwrap_or_default());
        Self { generation, hold: reason.map(|reason| Hold { reason, since }), epoch }
    }
}

/// What an operator reads about a store that is behind its mark.
pub(super) fn reason(behind: &MarkMismatch) -> String {
    format!(
        "it is older than what was last known of it ({behind}); put the newer data back, or run chimera resume --after-restore"
    )
}

/// The end of a lane's chain. One whose hash is damaged names its lane.
pub(super) fn head(lane: i64, seq: i64, hash: &[u8]) -> Result<ChainHead, Unavailable> {
    let damaged = || Unavailable::new(Outage::Damaged, format!("the head of lane {lane} of the ledger is damaged"));
    Ok(ChainHead { seq, hash: Digest32::from_slice(hash).ok_or_else(damaged)? })
}

/// The furthest that anybody knows of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Furthest {
    pub(super) generation: i64,
    pub(super) epoch: i64,
}

impl Furthest {
    /// What marks tell of, each number by itself.
    pub(super) fn of(marks: &[Mark]) -> Self {
        let greatest = |number: fn(&Mark) -> i64| marks.iter().map(number).max().unwrap_or(0);
        Self { generation: greatest(|mark| mark.generation), epoch: greatest(|mark| mark.epoch) }
    }
}
