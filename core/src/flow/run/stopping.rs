//! Whether a run is paused or stopping, and why.
//!
//! A run stops because it was cancelled or because of a failure that the graph does not handle; the first failure counts.
//! The reason is in its row until it has ended, so that a node that loads it after a crash ends it with the same reason
//! and actor.

use super::event::AfterRefusal;
use super::turn_builder::TurnBuilder;
use crate::access::Actor;
use crate::error::ErrorBody;
use crate::flow::approval::Decision;
use crate::flow::tables::{RunRow, runs};
use crate::ledger::ActorType;
use crate::record::{DamagedRows, Json, Unstorable};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The form in `runs.error_data` until the run has ended.
#[derive(Serialize, Deserialize)]
struct StopReason {
    error: Option<ErrorBody>,
    cancelled_by: Option<Actor>,
    reason: Option<String>,
}

/// The reason of a child run that is cancelled with its parent. Compared with stored reasons, so it must not change.
pub(crate) const PARENT_STOPPED: &str = "the run that waits for it was stopped";

/// Who cancelled a run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cancellation {
    pub(crate) by: Actor,
    pub(crate) reason: Option<String>,
}

/// Why a run starts nothing new.
#[derive(Default)]
pub(crate) struct Stopping {
    paused_by: Option<Actor>,
    cancelled: Option<Cancellation>,
    /// The first failure that the graph does not handle.
    failure: Option<Box<ErrorBody>>,
    /// Whether its row records a failure, and a cancellation.
    stored: (bool, bool),
    /// Its next state could not be stored, twice. It can only end.
    can_only_end: bool,
    /// The same, and no signal is applied any more.
    ignores_signals: bool,
}

/// Who paused a run, according to its row. Rows written before this was recorded count as paused by a person, so that
/// only people can resume them.
#[must_use]
pub fn paused_by(row: &RunRow) -> Option<Actor> {
    if !row.pause_requested {
        return None;
    }
    let name = row.paused_by.as_deref();
    Some(name.map_or_else(|| Actor::person(""), |name| Actor::from_record(name, row.paused_by_kind)))
}

/// Whether an actor of this kind may take over or end a pause. A person's pause is reserved for people.
#[must_use]
pub fn may_change_pause(holder: Option<&Actor>, kind: ActorType) -> bool {
    kind == ActorType::Human || holder.is_none_or(|holder| holder.kind != ActorType::Human)
}

/// The reason of a rejection without notes.
pub(crate) fn rejection_reason(by: &Actor, decision: Decision) -> String {
    format!("{} by {}", decision.as_str(), by.id)
}

impl Stopping {
    /// Loads why a run was paused or stopping.
    pub(crate) fn load(row: &RunRow, has_ended: bool) -> Result<Self, DamagedRows> {
        let mut loaded = Self { paused_by: paused_by(row), ..Self::default() };
        if has_ended {
            return Ok(loaded);
        }
        if let Some(document) = &row.error_data {
            let stopping: StopReason = document.decode()?;
            loaded.failure = stopping.error.map(Box::new);
            loaded.cancelled = stopping.cancelled_by.map(|by| Cancellation { by, reason: stopping.reason });
        }
        // An older version, which did not record the actor, has started to cancel it.
        if loaded.cancelled.is_none() && row.cancel_requested {
            loaded.cancelled = Some(Cancellation { by: Actor::system(), reason: row.error_message.clone() });
        }
        loaded.stored = (loaded.failure.is_some(), loaded.cancelled.is_some());
        Ok(loaded)
    }

    /// Records why the run is stopping, once per reason.
    pub(crate) fn write(&mut self, turn: &mut TurnBuilder) -> Result<(), Unstorable> {
        let reasons = (self.failure.is_some(), self.cancelled.is_some());
        if reasons == self.stored {
            return Ok(());
        }
        self.stored = reasons;
        let (cancelled_by, reason) = self.cancelled.clone().map(|cancelled| (cancelled.by, cancelled.reason)).unzip();
        let stopping = StopReason { error: self.failure.as_deref().cloned(), cancelled_by, reason: reason.flatten() };
        turn.set_run_column(runs::error_data, Json::encode(&stopping)?);
        Ok(())
    }

    /// Whether it starts nothing new and only waits for what is in flight.
    pub(crate) const fn is_stopping(&self) -> bool {
        self.cancelled.is_some() || self.failure.is_some()
    }

    pub(crate) const fn is_paused(&self) -> bool {
        self.paused_by.is_some()
    }

    pub(crate) fn failure(&self) -> Option<&ErrorBody> {
        self.failure.as_deref()
    }

    pub(crate) const fn cancellation(&self) -> Option<&Cancellation> {
        self.cancelled.as_ref()
    }

    /// Fails the run. The first failure counts.
    pub(crate) fn fail_with(&mut self, error: ErrorBody) {
        if self.failure.is_none() {
            self.failure = Some(Box::new(error));
        }
    }

    /// Cancels the run. False: it was cancelled before.
    pub(crate) fn cancel(&mut self, by: Actor, reason: Option<String>, turn: &mut TurnBuilder) -> bool {
        if self.cancelled.is_some() {
            return false;
        }
        turn.add_note("run.cancel_requested", None, Some(by.clone()), json!({"reason": reason}));
        turn.set_run_column(runs::cancel_requested, true);
        turn.set_run_column(runs::error_message, reason.clone());
        self.cancelled = Some(Cancellation { by, reason });
        true
    }

    /// Pauses or resumes a run that has not ended.
    pub(crate) fn set_paused(&mut self, pause: bool, by: Actor, turn: &mut TurnBuilder) {
        // A second pause only changes who paused the run.
        if self.paused_by.is_none() && !pause {
            return;
        }
        if !may_change_pause(self.paused_by.as_ref(), by.kind) {
            let refused = if pause { "run.pause_refused" } else { "run.resume_refused" };
            turn.add_note(refused, None, Some(by), json!({"reason": "a person has paused the run"}));
            return;
        }
        let holder = pause.then(|| by.clone());
        turn.set_run_column(runs::pause_requested, pause);
        turn.set_run_column(runs::paused_by, holder.as_ref().map(|by| by.id.clone()));
        turn.set_run_column(runs::paused_by_kind, holder.as_ref().map(|by| by.kind.as_str().to_owned()));
        self.paused_by = holder;
        turn.add_note(if pause { "run.paused" } else { "run.resumed" }, None, Some(by), json!({}));
    }

    /// Its next state could not be stored.
    pub(crate) fn restrict_to_end(&mut self, then: AfterRefusal) {
        self.can_only_end = then != AfterRefusal::Retry;
        self.ignores_signals = then == AfterRefusal::EndWithoutSignals;
    }

    /// Whether signals are consumed without being applied.
    pub(crate) const fn ignores_signals(&self) -> bool {
        self.ignores_signals
    }

    pub(crate) const fn can_only_end(&self) -> bool {
        self.can_only_end
    }

    /// Who cancelled the run. The system, if it stops because of a failure.
    pub(crate) fn stopped_by(&self) -> Actor {
        self.cancelled.as_ref().map_or_else(Actor::system, |cancelled| cancelled.by.clone())
    }

    /// Who cancelled the run with a reason in their own words, which the parent run may use.
    pub(crate) fn canceller_with_reason(&self) -> Option<&str> {
        let Cancellation { by, reason } = self.cancelled.as_ref().filter(|stop| stop.by.kind != ActorType::System)?;
        let given = [
            PARENT_STOPPED.to_owned(),
            rejection_reason(by, Decision::Reject),
            rejection_reason(by, Decision::RequestChanges),
        ];
        reason.as_ref().filter(|reason| !given.contains(reason)).map(|_| by.id.as_str())
    }
}
