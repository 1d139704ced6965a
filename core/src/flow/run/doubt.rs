//! Calls of which nobody can tell whether they happened, until somebody settles them.
//!
//! A call in doubt stops its step; an undo in doubt leaves its step as it was. Both stand in
//! `steps.in_doubt_since`, the oldest of a run also in `runs.in_doubt_since`, so that people find them
//! without looking through everything that has ended.

use super::rows::Book;
use super::start::Work;
use super::task::State;
use super::{At, Run};
use crate::record::Row;
use crate::time::Timestamp;
use uuid::Uuid;

/// A call whose outcome is unknown. Whoever commits the turn tells people in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Its step.
    pub step: Uuid,
    /// Its node.
    pub node: String,
    /// Position of the item in its list.
    pub item: Option<u32>,
    /// The tool that was called.
    pub tool: String,
    /// The call was to undo what the step had done.
    pub undo: bool,
    /// Why nobody can tell.
    pub reason: String,
    /// When that began.
    pub since: Timestamp,
}

impl Run {
    /// Nobody can tell whether the last call of a place happened.
    pub(crate) fn begin_doubt(&mut self, at: At, reason: &str, now: Timestamp, book: &mut Book) {
        let since = *self.doubts.entry(at).or_insert(now);
        book.dirty.insert(at);
        let Some(step) = self.step_id(at) else { return };
        let tool = match self.work(at) {
            Work::Tool(spec) => spec.name.clone(),
            _ => String::new(),
        };
        let undo = !self.task(at).is_some_and(|task| matches!(task.state, State::Unknown { .. }));
        let (node, reason) = (self.name(at).to_owned(), reason.to_owned());
        book.doubted.push(Doubt { step, node, item: at.item, tool, undo, reason, since });
    }

    /// It is known what became of a place, or nobody needs to know any more.
    pub(crate) fn end_doubt(&mut self, at: At, book: &mut Book) {
        if self.doubts.remove(&at).is_some() {
            book.settled.insert(at);
            book.dirty.insert(at);
        }
    }

    /// Somebody has undone everything by hand.
    pub(crate) fn end_doubts(&mut self, book: &mut Book) {
        let places: Vec<At> = self.doubts.keys().copied().collect();
        places.into_iter().for_each(|at| self.end_doubt(at, book));
    }

    /// What rows say about doubts.
    pub(crate) fn load_doubts(&mut self, run: &Row, steps: &[Row]) {
        self.in_doubt_since = run.get("in_doubt_since").as_time();
        let since = |row: &Row| Some((self.place_of(row.uuid("id"))?, row.get("in_doubt_since").as_time()?));
        self.doubts = steps.iter().filter_map(since).collect();
    }

    /// What the row of the run says about its doubts, if that is new.
    pub(crate) fn write_doubts(&mut self, book: &mut Book) {
        let oldest = self.doubts.values().min().copied();
        if oldest != self.in_doubt_since {
            self.in_doubt_since = oldest;
            book.set("in_doubt_since", oldest);
        }
    }
}
