//! Adds the rows of other rooms to a turn, for runs whose workflow asks for them.

use super::event::{Call, CallMode};
use super::map_calls::parent_setting;
use super::turn_builder::TurnContext;
use super::{Run, RunPlace};
use crate::error::ErrorBody;
use crate::flow::air::ExecutionLogging;
use crate::flow::projection::{ProjectedRow, Refusal, StepChange, StepContext};
use crate::record::Unstorable;
use serde_json::Value;
use std::borrow::Cow;
use uuid::Uuid;

/// The member of a child run's request with what its parent's workflow asks for.
pub(crate) const LOG_EXECUTIONS: &str = "log_executions";

/// What the workflow of a run, or that of its parent, asks for.
pub(crate) fn logging(run: &Run) -> Option<Cow<'_, ExecutionLogging>> {
    let own = run.tasks.graph().document.log_executions.as_ref().map(Cow::Borrowed);
    own.or_else(|| ExecutionLogging::from_stored(parent_setting(run, LOG_EXECUTIONS)?).map(Cow::Owned))
}

/// A call that has ended.
pub(crate) struct FinishedCall<'a> {
    pub(crate) call: Uuid,
    pub(crate) tool: &'a str,
    pub(crate) ended: Result<&'a Value, &'a ErrorBody>,
    /// Whether its end was recorded before, as unknown.
    pub(crate) is_late: bool,
}

pub(crate) fn call_started(run: &Run, call: &Call, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    if call.mode != CallMode::Execute {
        return Ok(());
    }
    let (tool, input, attempt) = (call.tool.name.as_str(), &*call.input, call.attempt);
    project(run, call.at, &StepChange::CallStarted { call: call.id, tool, attempt, input }, cx)
}

pub(crate) fn call_ended(
    run: &Run,
    at: RunPlace,
    end: &FinishedCall<'_>,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Some(task) = run.tasks.task(at).filter(|_| logging(run).is_some()) else { return Ok(()) };
    cx.turn.mark_logged(at);
    let (input, attempt, fresh) = (task.shared_input(), task.attempt(), (cx.env.ids)());
    let FinishedCall { call, tool, ended, is_late } = *end;
    let duration_ms = cx.turn.took_ms;
    let change = StepChange::CallEnded { call, tool, attempt, input: &input, ended, duration_ms, is_late, fresh };
    project(run, at, &change, cx)
}

/// The rules or the judge refused a step.
pub(crate) fn refused(
    run: &Run,
    at: RunPlace,
    by: Refusal,
    error: &ErrorBody,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Some(task) = run.tasks.task(at).filter(|_| logging(run).is_some()) else { return Ok(()) };
    cx.turn.mark_logged(at);
    let (input, fresh) = (task.shared_input(), (cx.env.ids)());
    project(run, at, &StepChange::Refused { by, input: &input, error, fresh }, cx)
}

/// A step failed. Nothing is added if the turn already has the end of its call, or who refused it.
pub(crate) fn failed(run: &Run, at: RunPlace, error: &ErrorBody, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(task) = run.tasks.task(at).filter(|_| logging(run).is_some()) else { return Ok(()) };
    if cx.turn.is_logged(at) {
        return Ok(());
    }
    let (input, fresh) = (task.shared_input(), (cx.env.ids)());
    project(run, at, &StepChange::Failed { input: &input, error, fresh }, cx)
}

fn project(run: &Run, at: RunPlace, change: &StepChange<'_>, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(logging) = logging(run) else { return Ok(()) };
    let node = run.tasks.name(at);
    let step = StepContext { head: &run.head, logging: &logging, node, item: at.item, at: cx.env.now };
    for row in cx.env.projection.rows(&step, change)? {
        match row {
            ProjectedRow::Insert(insert) => cx.turn.insert(insert),
            ProjectedRow::Change(step) => cx.turn.add_ordered(step),
        }
    }
    Ok(())
}
