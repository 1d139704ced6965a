//! A turn that the store refused, e.g. because a value is too large.
//!
//! The answers that the turn had applied are applied again, so their outcome stays known. If the turn is refused
//! once more, further attempts would end the same way. Then the run fails, or its rollback ends with the remaining
//! steps not undone. If even that is refused, a signal may be what can't be stored: those that wait are consumed
//! without effect, with a note each.

use super::event::{AfterRefusal, CallMode, ReceivedAnswer};
use super::tasks::task::TaskState;
use super::turn_builder::TurnContext;
use super::{Run, RunPlace, answer};
use crate::error::{Code, ErrorBody};
use crate::record::Unstorable;
use uuid::Uuid;

/// Why a run can't continue.
pub(super) const TURN_REFUSED: &str = "the next state of this run could not be stored; see the server log";

/// Applies the answers from before the reload, and ends the run unless it may try again.
pub(crate) fn reapply_answers(
    run: &mut Run,
    answers: Vec<ReceivedAnswer>,
    then: AfterRefusal,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    run.stopping.restrict_to_end(then);
    if then != AfterRefusal::Retry && !run.status.is_final() {
        run.stopping.fail_with(ErrorBody::new(Code::Internal, TURN_REFUSED));
    }
    for ReceivedAnswer { at, call, answer, took_ms, in_doubt } in answers {
        if expect_answer(run, at, call, in_doubt) {
            cx.turn.took_ms = took_ms;
            answer::apply_answer(run, at, call, answer, cx)?;
        }
    }
    Ok(())
}

/// Lets a place that was loaded as lost wait for the answer of this call. False: it does not.
fn expect_answer(run: &mut Run, at: RunPlace, call: Uuid, in_doubt: bool) -> bool {
    if !run.tasks.is_lost(at) {
        let expected = run.rollback.expect_answer(at, call, in_doubt);
        if expected {
            run.tasks.call_started(at);
        }
        return expected;
    }
    run.tasks.task_mut(at).into_iter().for_each(|task| task.set_in_doubt(in_doubt));
    run.tasks.enter(at, TaskState::Running { call, mode: CallMode::Execute });
    run.tasks.call_started(at);
    true
}
