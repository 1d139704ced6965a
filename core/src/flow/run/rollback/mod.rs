//! Rollbacks: undoes the effects of a run's steps, the last one first.
//!
//! This machine owns the rollback in progress and counts the earlier ones. Each undo is a recorded effect (a
//! compensation), evaluated by the policy like any other call. A child run rolls itself back and signals its parent when it
//! is done.

pub(crate) mod child_undo;
pub(crate) mod loading;
pub(crate) mod undo;

use super::event::RunPlace;
use crate::time::Timestamp;
use undo::{CurrentUndo, RollbackProgress};
use uuid::Uuid;

/// The rollbacks of a run.
#[derive(Default)]
pub(crate) struct Rollbacks {
    /// The rollback in progress.
    progress: Option<RollbackProgress>,
    /// The number of rollbacks so far.
    rounds: u32,
    /// The number of recorded undos so far, in all rollbacks.
    undos: usize,
}

impl Rollbacks {
    pub(crate) const fn is_under_way(&self) -> bool {
        self.progress.is_some()
    }

    fn current(&self) -> Option<&CurrentUndo> {
        self.progress.as_ref()?.current.as_ref()
    }

    fn current_mut(&mut self) -> Option<&mut CurrentUndo> {
        self.progress.as_mut()?.current.as_mut()
    }

    fn set_current(&mut self, current: Option<CurrentUndo>) {
        if let Some(progress) = &mut self.progress {
            progress.current = current;
        }
    }

    /// When the current undo is retried.
    pub(crate) fn retry_at(&self) -> Option<Timestamp> {
        self.progress.as_ref()?.retry_at
    }

    fn set_retry_at(&mut self, at: Option<Timestamp>) {
        if let Some(progress) = &mut self.progress {
            progress.retry_at = at;
        }
    }

    /// Whether it does nothing but wait for a child run to be rolled back, if it is under way.
    pub(crate) fn may_park(&self) -> bool {
        self.progress.is_none() || self.current().is_some_and(|current| current.child.is_some())
    }

    /// Whether the next undo only needs a slot.
    pub(crate) fn wants_slot(&self) -> bool {
        let waits = |current: &CurrentUndo| current.call.is_none() && current.child.is_none();
        self.retry_at().is_none() && self.current().is_some_and(waits)
    }

    /// Whether an earlier send of the undo in flight at a place may have taken effect. `None`: none is in flight there.
    pub(crate) fn is_in_doubt(&self, at: RunPlace) -> Option<bool> {
        self.current().filter(|current| current.at == at).map(|current| current.in_doubt)
    }

    /// The deadline of a sent undo of this place whose outcome is not known.
    pub(crate) fn sent_until(&self, at: RunPlace) -> Option<Timestamp> {
        let current = self.current().filter(|current| current.at == at)?;
        current.deadline.filter(|_| current.call.is_some() || current.in_doubt)
    }

    /// The undo in flight was not lost: its answer is about to be applied. False: it waits for no such answer.
    pub(crate) fn expect_answer(&mut self, at: RunPlace, call: Uuid, in_doubt: bool) -> bool {
        let Some(current) = self.current_mut().filter(|current| current.at == at && current.lost) else { return false };
        (current.call, current.lost, current.in_doubt) = (Some(call), false, in_doubt);
        self.set_retry_at(None);
        true
    }

    /// The previous owner is gone: an undo that was in flight there is lost now, without waiting for its deadline.
    pub(crate) fn skip_lost_deadlines(&mut self) {
        if self.current().is_some_and(|current| current.lost) {
            self.set_retry_at(None);
        }
    }
}
