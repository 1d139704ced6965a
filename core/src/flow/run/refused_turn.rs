//! A turn that the store refused, e.g. because a value is too large.
//!
//! The answers that the turn had applied are applied again, so their outcome stays known. If the turn is refused
//! once more, further attempts would end the same way. Then the run fails, or its rollback ends with the remaining
//! steps not undone.

use super::env::Env;
use super::event::{CallMode, ReceivedAnswer};
use super::task::TaskState;
use super::turn_builder::TurnBuilder;
use super::{Run, RunPlace};
use crate::error::{Code, ErrorBody};
use crate::record::Unstorable;
use uuid::Uuid;

/// Why a run can't continue.
pub(super) const TURN_REFUSED: &str = "the next state of this run could not be stored; see the server log";

impl Run {
    /// Applies the answers from before the reload, and ends the run unless it may try again.
    pub(crate) fn reapply_answers(
        &mut self,
        answers: Vec<ReceivedAnswer>,
        again: bool,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        self.can_only_end = !again;
        if !again && !self.status.is_final() {
            self.fail_with(ErrorBody::new(Code::Internal, TURN_REFUSED));
        }
        for ReceivedAnswer { at, call, answer, took_ms, in_doubt } in answers {
            if self.expect_answer(at, call, in_doubt) {
                self.apply_answer(at, call, answer, took_ms, env, book)?;
            }
        }
        Ok(())
    }

    /// Whether an earlier send of the call in flight at a place may have taken effect.
    #[must_use]
    pub fn is_in_doubt(&self, at: RunPlace) -> bool {
        let undo = self.undo.as_ref().and_then(|undo| undo.current.as_ref()).filter(|current| current.at == at);
        undo.map_or_else(|| self.task(at).is_some_and(|task| task.in_doubt), |current| current.in_doubt)
    }

    /// Lets a place that was loaded as lost wait for the answer of this call. False: it does not.
    fn expect_answer(&mut self, at: RunPlace, call: Uuid, in_doubt: bool) -> bool {
        if !self.is_lost(at) {
            return self.expect_undo(at, call, in_doubt);
        }
        self.task_mut(at).into_iter().for_each(|task| task.in_doubt = in_doubt);
        self.enter(at, TaskState::Running { call, mode: CallMode::Execute });
        self.calls.insert(at);
        true
    }
}
