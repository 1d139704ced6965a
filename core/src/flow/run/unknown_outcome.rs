//! Calls of unknown outcome, until they are resolved.
//!
//! A call of unknown outcome stops its step; an undo of unknown outcome leaves its step as it was. Both
//! set `steps.in_doubt_since`, and the oldest of a run sets `runs.in_doubt_since`, so that people find
//! them without a search through all ended runs.

use super::start::Work;
use super::task::TaskState;
use super::turn_builder::TurnBuilder;
use super::{Run, RunPlace};
use crate::record::Row;
use crate::time::Timestamp;
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

impl Run {
    /// The outcome of the last call of a place is unknown.
    pub(crate) fn begin_doubt(&mut self, at: RunPlace, reason: &str, now: Timestamp, book: &mut TurnBuilder) {
        let since = *self.unknown_outcomes.entry(at).or_insert(now);
        book.dirty.insert(at);
        let Some(step) = self.step_id(at) else { return };
        let tool = match self.work(at) {
            Work::Tool(spec) => spec.name.clone(),
            _ => String::new(),
        };
        let undo = !self.task(at).is_some_and(|task| matches!(task.state, TaskState::OutcomeUnknown { .. }));
        let (node, reason) = (self.name(at).to_owned(), reason.to_owned());
        book.unknown_outcomes.push(UnknownOutcome { step, node, item: at.item, tool, undo, reason, since });
    }

    /// The outcome is known, or no longer matters.
    pub(crate) fn end_doubt(&mut self, at: RunPlace, book: &mut TurnBuilder) {
        if self.unknown_outcomes.remove(&at).is_some() {
            book.settled.insert(at);
            book.dirty.insert(at);
        }
    }

    /// Ends all doubts: a person undid everything by hand.
    pub(crate) fn end_doubts(&mut self, book: &mut TurnBuilder) {
        let places: Vec<RunPlace> = self.unknown_outcomes.keys().copied().collect();
        places.into_iter().for_each(|at| self.end_doubt(at, book));
    }

    pub(crate) fn load_doubts(&mut self, run: &Row, steps: &[Row]) {
        self.in_doubt_since = run.get("in_doubt_since").as_time();
        let since = |row: &Row| Some((self.place_of_step(row.uuid("id"))?, row.get("in_doubt_since").as_time()?));
        self.unknown_outcomes = steps.iter().filter_map(since).collect();
    }

    /// Writes the oldest doubt to the run's row, if it has changed.
    pub(crate) fn write_doubts(&mut self, book: &mut TurnBuilder) {
        let oldest = self.unknown_outcomes.values().min().copied();
        if oldest != self.in_doubt_since {
            self.in_doubt_since = oldest;
            book.set_run_column("in_doubt_since", oldest);
        }
    }
}
