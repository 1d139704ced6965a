//! Stops a run and its places.
//!
//! A run that is cancelled or has failed starts nothing new. What only waits is cancelled at once; what is in flight, and
//! every outcome that is not known, is waited for.

use super::event::Effect;
use super::tasks::task::TaskState;
use super::turn_builder::TurnContext;
use super::{EffectStatus, Run, RunPlace, answer, elsewhere, waits};
use crate::access::Actor;
use crate::flow::approval::RequestStatus;
use crate::limits;
use crate::record::Unstorable;

/// Cancels the run: nothing new starts, and calls in flight are cancelled.
pub(crate) fn cancel_run(run: &mut Run, by: Actor, reason: Option<String>, cx: &mut TurnContext<'_>) {
    if !run.status.is_final() && run.stopping.cancel(by, reason, &mut cx.turn) {
        cx.turn.effects.extend(run.tasks.calls().iter().map(|at| Effect::Cancel(*at)));
    }
}

/// Cancels a place before it has done its work.
pub(crate) fn stop_step(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let asked = match run.tasks.state(at) {
        Some(TaskState::AwaitingApproval(asked)) => Some(asked.clone()),
        _ => None,
    };
    if let Some(asked) = asked {
        cx.turn.close_approval_request(&asked, RequestStatus::Cancelled, cx.env.now)?;
    }
    waits::close(run, at, &mut cx.turn);
    if answer::may_have_happened(run, at) {
        return answer::outcome_unknown(run, at, "the run was stopped before the outcome was known", cx);
    }
    let now = cx.env.now;
    // A held output was returned: its call took place.
    if let Some(task) = run.tasks.task_mut(at).filter(|task| task.held().is_none()) {
        cx.turn.settle_effect(task, EffectStatus::Failed, now)?;
    }
    let recorded = run.tasks.task(at).is_some_and(|task| task.step().is_some());
    // The items of a map stay: their rows are written, and what they did can be undone.
    let items = run.tasks.task_mut(at).and_then(|task| task.items_mut().map(std::mem::take)).unwrap_or_default();
    run.tasks.enter(at, TaskState::Cancelled { items });
    if recorded {
        run.tasks.mark_dirty(at, cx);
    }
    if at.item.is_none() {
        run.tasks.node_closed();
    }
    Ok(())
}

fn is_mapping(run: &Run, node: usize) -> bool {
    matches!(run.tasks.node(node).state(), TaskState::Mapping(_))
}

/// Cancels everything that only waits. Returns whether something is still in flight.
pub(crate) fn cancel_waiting(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<bool, Unstorable> {
    let mut under_way = !run.tasks.calls().is_empty();
    run.tasks.clear_ready();
    let places: Vec<RunPlace> = run.tasks.places().collect();
    for at in places {
        if cx.turn.row_count() >= limits::TURN_ROWS_MAX {
            cx.turn.more = true;
            return Ok(true);
        }
        let Some(task) = run.tasks.task(at) else { continue };
        match task.state() {
            TaskState::Delayed { .. }
            | TaskState::Ready
            | TaskState::Judging
            | TaskState::AwaitingApproval(_)
            | TaskState::Waiting(_)
            | TaskState::RetryWait { .. } => {
                under_way |= answer::may_have_happened(run, at);
                stop_step(run, at, cx)?;
            }
            TaskState::Elsewhere { .. } => under_way |= elsewhere::stop(run, at, cx)?,
            TaskState::Lost { .. } | TaskState::OutcomeUnknown { .. } => under_way = true,
            _ => {}
        }
    }
    if !under_way {
        let maps: Vec<usize> = (0..run.tasks.nodes().len()).filter(|node| is_mapping(run, *node)).collect();
        maps.into_iter().try_for_each(|node| stop_step(run, RunPlace::node(node), cx))?;
    }
    Ok(under_way)
}
