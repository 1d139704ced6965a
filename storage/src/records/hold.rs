//! Publishes within the process why a store may not be changed.

use chimera_core::ledger::{ChainHead, Digest32, Mark, MarkMismatch};
use chimera_core::time::Timestamp;
use chimera_engine::port::{CommitError, Hold, Outage, Unavailable};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Written by the workers of a store, read by anybody. Reading is nearly free while the store is not held.
#[derive(Clone, Default)]
pub(super) struct HoldCell {
    held: Arc<(AtomicBool, Mutex<Option<Hold>>)>,
    /// Why it is unknown whether the store is held.
    unknown: Arc<Mutex<Option<Unavailable>>>,
}

impl HoldCell {
    /// Sets what is known now, and logs a change.
    pub(super) fn set(&self, hold: Option<Hold>) {
        let (any, cell) = &*self.held;
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*cell, &hold) {
            (None, Some(hold)) => {
                tracing::error!(critical = true, reason = hold.reason, "the store is held; no run is driven");
            }
            (Some(_), None) => tracing::warn!("the store is no longer held"),
            _ => {}
        }
        any.store(hold.is_some(), Ordering::Release);
        *cell = hold;
    }

    pub(super) fn get(&self) -> Option<Hold> {
        let (any, cell) = &*self.held;
        any.load(Ordering::Acquire).then(|| cell.lock().unwrap_or_else(PoisonError::into_inner).clone()).flatten()
    }

    /// Sets why it is unknown whether the store is held, and logs a change.
    pub(super) fn set_unknown(&self, blind: Option<Unavailable>) {
        let mut cell = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*cell, &blind) {
            (None, Some(why)) => tracing::error!(reason = why.reason, "it is unknown whether the store is held"),
            (Some(_), None) => tracing::warn!("it is known again whether the store is held"),
            _ => {}
        }
        *cell = blind;
    }

    /// Fails while it is unknown whether the store is held.
    pub(super) fn check_known(&self) -> Result<(), Unavailable> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }

    /// The error of a commit: a lane that is not claimed because the store is held says so.
    pub(super) fn explain(&self, error: CommitError) -> CommitError {
        match (error, self.get()) {
            (CommitError::Unavailable(_) | CommitError::Fenced, Some(hold)) => CommitError::Blocked(hold.into()),
            (error, _) => error,
        }
    }
}

/// The readiness error of a store that is held.
pub(super) fn not_ready(hold: &Hold) -> Unavailable {
    Unavailable::new(Outage::Unusable, format!("held: {}", hold.reason))
}

/// The single row of `store_state`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreState {
    /// Incremented by every resume.
    pub(super) generation: i64,
    pub(super) hold: Option<Hold>,
    /// The greatest known epoch when it was held.
    pub(super) epoch: i64,
}

impl StoreState {
    pub(super) fn of_row(generation: i64, reason: Option<String>, at: Option<i64>, epoch: i64) -> Self {
        let since = Timestamp::from_micros(at.unwrap_or_default());
        Self { generation, hold: reason.map(|reason| Hold { reason, since }), epoch }
    }
}

/// The hold reason for a store that is behind its mark.
pub(super) fn reason(behind: &MarkMismatch) -> String {
    format!("the data is older than its mark ({behind}); restore the newer data, or run chimera resume --after-restore")
}

/// The chain head of a lane. An invalid hash is reported with the lane.
pub(super) fn head(lane: i64, seq: i64, hash: &[u8]) -> Result<ChainHead, Unavailable> {
    let damaged = || Unavailable::new(Outage::Damaged, format!("the head of lane {lane} of the ledger is damaged"));
    Ok(ChainHead { seq, hash: Digest32::from_slice(hash).ok_or_else(damaged)? })
}

/// The greatest known progress of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownProgress {
    pub(super) generation: i64,
    pub(super) epoch: i64,
}

impl KnownProgress {
    /// The maximum of each number over all marks.
    pub(super) fn of(marks: &[Mark]) -> Self {
        let greatest = |number: fn(&Mark) -> i64| marks.iter().map(number).max().unwrap_or(0);
        Self { generation: greatest(|mark| mark.generation), epoch: greatest(|mark| mark.epoch) }
    }
}
