//! A turn that could not be written: something in it is more than a store takes.
//!
//! What its calls gave is taken in again: an answer that was received is not in doubt. If the turn can't be
//! written once more, to decide the same for ever would end the same way: a run fails, and a rollback ends with
//! what it has not undone left.

use super::env::Env;
use super::event::{Kept, Mode};
use super::rows::Book;
use super::task::State;
use super::{At, Run};
use crate::error::{Code, ErrorBody};
use crate::record::Unstorable;
use uuid::Uuid;

/// Why a run doesn't go on.
pub(super) const UNWRITABLE: &str =
    "what came next in this run could not be written down; the log of the server says why";

impl Run {
    /// Takes in what the calls of the run gave before it was read again, and ends it unless it may try again.
    pub(crate) fn unwritten(
        &mut self,
        answers: Vec<Kept>,
        again: bool,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        self.gives_up = !again;
        if !again && !self.status.is_final() {
            self.fail_with(ErrorBody::new(Code::Internal, UNWRITABLE));
        }
        for Kept { at, call, answer, took_ms, in_doubt } in answers {
            if self.expect_answer(at, call, in_doubt) {
                self.answered(at, call, answer, took_ms, env, book)?;
            }
        }
        Ok(())
    }

    /// Whether an earlier send of what is under way at a place may have happened.
    #[must_use]
    pub fn is_in_doubt(&self, at: At) -> bool {
        let undo = self.undo.as_ref().and_then(|undo| undo.current.as_ref()).filter(|current| current.at == at);
        undo.map_or_else(|| self.task(at).is_some_and(|task| task.in_doubt), |current| current.in_doubt)
    }

    /// Whether a place that was read as lost waits for the answer of this call.
    fn expect_answer(&mut self, at: At, call: Uuid, in_doubt: bool) -> bool {
        if !self.is_lost(at) {
            return self.expect_undo(at, call, in_doubt);
        }
        self.task_mut(at).into_iter().for_each(|task| task.in_doubt = in_doubt);
        self.enter(at, State::Running { call, mode: Mode::Execute });
        self.calls.insert(at);
        true
    }
}
