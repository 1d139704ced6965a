//! Commits a turn of a run together with its ledger entries, its messages and its places within limits.
//!
//! [`PreparedTurn`] is the transaction of any turn. The first one is committed once (`first_turn`). A later one goes
//! through a lane that this process holds, and is retried while the store is unavailable and something would be lost by
//! deciding it again.

use super::engine::{EngineState, Shutdown};
use super::reservations::ReservingTurn;
use super::{approval_messages, doubt, ledger_notes, reservations};
use crate::access::Permit;
use crate::error::EngineError;
use crate::port::CommitError;
use chimera_core::flow::run::{LaneOwner, RunHead, Turn};
use chimera_core::flow::tables::{EFFECTS, RUNS};
use chimera_core::limits;
use chimera_core::record::Tx;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The rows of a turn with everything that commits with them.
#[derive(Clone)]
pub(super) struct PreparedTurn(ReservingTurn);

impl PreparedTurn {
    /// Takes the rows, entries and places out of a turn. `caller` is whose request makes the turn, if it is the first.
    pub(super) async fn of(
        inner: &EngineState,
        head: &RunHead,
        turn: &mut Turn,
        caller: Option<&Permit>,
    ) -> Result<Self, EngineError> {
        let mut tx = turn.tx.take().unwrap_or_default();
        let operator_of = caller.and_then(Permit::operator_of);
        ledger_notes::add_entries(&mut tx, inner, head, &mut turn.notes, operator_of)?;
        approval_messages::add_approval_messages(&mut tx, inner, head, &turn.asked).await?;
        doubt::add_doubt_messages(&mut tx, inner, head, &turn.unknown_outcomes).await?;
        if let Some(caller) = caller {
            caller.add_alongside(&mut tx);
        }
        Ok(Self(ReservingTurn::of(head, turn, tx)))
    }

    /// Commits it, together with others that take places within the same limits.
    pub(super) async fn commit(self, inner: &EngineState) -> Result<(), CommitError> {
        reservations::commit(inner, self.0).await
    }

    /// Whether it records calls, so that a retry is better than another decision.
    fn records_calls(&self) -> bool {
        self.0.tx.updates.iter().any(|update| update.table == &EFFECTS)
    }
}

/// The outcome of committing a turn.
pub(super) enum CommitOutcome {
    Committed,
    /// The run in memory differs from the stored one.
    Stale,
    /// A place within a limit was taken by another run.
    Contended,
    /// Another node owns the run.
    OwnershipLost,
    /// The turn can't be stored; a retry does not help.
    Unwritable,
}

/// The run that a turn leaves behind.
pub(super) struct RunAfterTurn {
    pub(super) head: Arc<RunHead>,
    pub(super) owner: Option<LaneOwner>,
    /// Calls are in flight, or their responses wait to be decided.
    pub(super) has_calls: bool,
}

/// Commits a turn. While the store is unavailable, it retries until the process ends if a response from outside or
/// calls in flight would be lost. Any other turn is read and decided again.
pub(super) async fn commit(inner: Arc<EngineState>, run: RunAfterTurn, turn: &mut Turn) -> CommitOutcome {
    let RunAfterTurn { head, owner, has_calls } = run;
    let id = head.id;
    let mut prepared = match PreparedTurn::of(&inner, &head, turn, None).await {
        Ok(prepared) => prepared,
        Err(error) => {
            tracing::error!(run_id = %id, error = %error, "the transaction of a turn could not be built");
            return CommitOutcome::Unwritable;
        }
    };
    let keeps = has_calls || prepared.records_calls();
    let mut pause = limits::STORE_RETRY_PAUSE_FIRST;
    loop {
        let spare = keeps.then(|| prepared.clone());
        let error = match prepared.commit(&inner).await {
            Ok(()) => return CommitOutcome::Committed,
            Err(error) => error,
        };
        match (error, spare) {
            (CommitError::Conflict(conflict), _) if reservations::is_contended(&conflict) => {
                tracing::debug!(run_id = %id, "a turn lost a place within a limit");
                return CommitOutcome::Contended;
            }
            (CommitError::Conflict(conflict), _) => {
                tracing::debug!(run_id = %id, conflict = %conflict, "a turn conflicted with a concurrent change");
                return CommitOutcome::Stale;
            }
            // The node that takes over, with the new schema or after the store is resumed, looks into the calls.
            (CommitError::Fenced | CommitError::Blocked(_), _) => return CommitOutcome::OwnershipLost,
            (CommitError::Unavailable(_) | CommitError::Overloaded, Some(again)) => {
                let Some(held) = owner_after_pause(&inner, id, &mut pause).await else {
                    return CommitOutcome::OwnershipLost;
                };
                prepared = again;
                if owner.is_some_and(|owner| owner != held) {
                    rename_owner(&mut prepared.0.tx, id, held);
                }
            }
            (CommitError::Unavailable(_) | CommitError::Overloaded | CommitError::Unknown, _) => {
                return CommitOutcome::Stale;
            }
            (error @ (CommitError::Invalid(_) | CommitError::Rejected { .. }), _) => {
                tracing::error!(run_id = %id, error = %error, "a turn was refused by the store");
                return CommitOutcome::Unwritable;
            }
        }
    }
}

/// The lane for the retry, after a pause. `None`: the process ends, or nothing may be written any more.
async fn owner_after_pause(inner: &EngineState, run: Uuid, pause: &mut Duration) -> Option<LaneOwner> {
    let mut stopping = inner.stopping();
    let claimed = async {
        loop {
            tokio::time::sleep(*pause).await;
            *pause = (*pause * 2).min(limits::STORE_RETRY_PAUSE_MAX);
            match inner.claimed_owner(run).await {
                Ok(owner) => return Some(owner),
                Err(CommitError::Unavailable(_) | CommitError::Overloaded) => {}
                Err(_) => return None,
            }
        }
    };
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop == Shutdown::Now) => None,
        owner = claimed => owner,
    }
}

/// Makes the turn name the lane it is written through now: whoever takes over that lane finds the run, and the new
/// holder of the old lane ignores it.
fn rename_owner(tx: &mut Tx, run: Uuid, owner: LaneOwner) {
    let cells = [("owner_lane", owner.lane), ("owner_epoch", owner.epoch)];
    for update in tx.updates.iter_mut().filter(|update| update.table == &RUNS && update.key == [run.into()]) {
        for (at, value) in cells.iter().filter_map(|(column, value)| Some((RUNS.position(column)?, *value))) {
            update.set.retain(|(set, _)| *set != at);
            update.set.push((at, value.into()));
        }
    }
}

/// The lane for the next turn. While none is held the run waits; calls in flight continue and are handled afterwards.
/// `None`: the process ends first.
pub(super) async fn owner_once_claimed(inner: Arc<EngineState>, run: Uuid) -> Option<LaneOwner> {
    let (mut stopping, mut pause) = (inner.stopping(), limits::STORE_RETRY_PAUSE_FIRST);
    let claimed = async {
        loop {
            if let Ok(owner) = inner.claimed_owner(run).await {
                return owner;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(limits::STORE_RETRY_PAUSE_MAX);
        }
    };
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop == Shutdown::Now) => None,
        owner = claimed => Some(owner),
    }
}
