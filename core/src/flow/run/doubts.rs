//! Calls of unknown outcome, until they are resolved.
//!
//! A call of unknown outcome stops its step; an undo of unknown outcome leaves its step as it was. Both
//! set `steps.in_doubt_since`, and the oldest of a run sets `runs.in_doubt_since`, so that people find
//! them without a search through all ended runs.

use super::RunPlace;
use super::tasks::Tasks;
use super::tasks::task::TaskState;
use super::turn_builder::{TurnBuilder, TurnContext};
use crate::flow::tables::{RunRow, StepRow, runs};
use crate::time::Timestamp;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A call whose outcome became unknown. The notifications are committed with the turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOutcome {
    pub step: Uuid,
    pub node: String,
    /// The position of the item in its list.
    pub item: Option<u32>,
    pub tool: String,
    /// The call was the undo of the step.
    pub undo: bool,
    /// Why the outcome is unknown.
    pub reason: String,
    pub since: Timestamp,
}

/// The unknown outcomes of a run.
#[derive(Default)]
pub(crate) struct Doubts {
    /// Places with a call of unknown outcome, and since when.
    since: BTreeMap<RunPlace, Timestamp>,
    /// The oldest one, as recorded in the row.
    stored: Option<Timestamp>,
}

impl Doubts {
    pub(crate) fn load(run: &RunRow, steps: &[StepRow], tasks: &Tasks) -> Self {
        let since = |row: &StepRow| Some((tasks.place_of_step(row.id)?, row.in_doubt_since?));
        Self { since: steps.iter().filter_map(since).collect(), stored: run.in_doubt_since }
    }

    /// Since when the outcome of a place is unknown.
    pub(crate) fn since(&self, at: RunPlace) -> Option<Timestamp> {
        self.since.get(&at).copied()
    }

    /// The outcome of the last call of a place is unknown.
    pub(crate) fn begin(&mut self, at: RunPlace, reason: &str, tasks: &Tasks, cx: &mut TurnContext<'_>) {
        let since = *self.since.entry(at).or_insert(cx.env.now);
        cx.turn.dirty.insert(at);
        let Some(step) = tasks.step_id(at) else { return };
        let undo = !tasks.task(at).is_some_and(|task| matches!(task.state(), TaskState::OutcomeUnknown { .. }));
        let (node, reason) = (tasks.name(at).to_owned(), reason.to_owned());
        let tool = tasks.tool(at).map(|spec| spec.name.clone()).unwrap_or_default();
        cx.turn.unknown_outcomes.push(UnknownOutcome { step, node, item: at.item, tool, undo, reason, since });
    }

    /// The outcome is known, or no longer matters.
    pub(crate) fn end(&mut self, at: RunPlace, turn: &mut TurnBuilder) {
        if self.since.remove(&at).is_some() {
            turn.settled.insert(at);
            turn.dirty.insert(at);
        }
    }

    /// Ends all doubts: a person undid everything by hand.
    pub(crate) fn end_all(&mut self, turn: &mut TurnBuilder) {
        while let Some((at, _)) = self.since.pop_first() {
            turn.settled.insert(at);
            turn.dirty.insert(at);
        }
    }

    /// Writes the oldest doubt to the run's row, if it has changed.
    pub(crate) fn write(&mut self, turn: &mut TurnBuilder) {
        let oldest = self.since.values().min().copied();
        if oldest != self.stored {
            self.stored = oldest;
            turn.set_run_column(runs::in_doubt_since, oldest);
        }
    }
}
