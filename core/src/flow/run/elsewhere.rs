//! Work elsewhere: how a step hands its work to a worker or a job, how the end comes back, and how it is stopped.
//!
//! The run waits without a slot and without memory: the end is a signal, and the deadline is in its row. A work item is
//! written with the call that it stands for. What the run knows of an item may be outdated, because workers change it:
//! every change compares its state, and the turn that loses is decided again on the current rows.

use super::answer;
use super::event::{CallMode, Effect};
use super::start;
use super::stopping::PARENT_STOPPED;
use super::tasks::task::{Task, TaskState};
use super::tasks::work::{CallWork, StoredItem};
use super::turn_builder::TurnContext;
use super::{Run, RunPlace, children};
use crate::access::Actor;
use crate::error::{Code, ErrorBody};
use crate::flow::call::{CallOutcome, Sent, ToolError};
use crate::flow::run::event::Call;
use crate::flow::tables::{WORK_ITEMS, work_items};
use crate::flow::work::{Elsewhere, JobOrder, WorkEnd, WorkKind, WorkState, WorkStatus};
use crate::limits;
use crate::record::{Insert, Json, Unstorable, Update, Value as Cell};
use crate::time::Timestamp;
use crate::tool::{Execution, Spec, WorkerQueue, is_dry_run};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

const CHILD_LATE: &str = "it did not end before its deadline";
const NOT_CLAIMED: &str = "no worker claimed the call before its deadline";
const NOT_REPORTED: &str = "the outcome of the call was not reported before its deadline";

/// Whether the call of a place is executed outside this process. A dry call never leaves it.
pub(crate) fn is_executed_elsewhere(run: &Run, at: RunPlace, spec: &Spec) -> bool {
    spec.execution != Execution::InProcess && !run.tasks.input(at).is_some_and(is_dry_run)
}

/// The queue that a call with this input goes to.
pub(crate) fn queue_of(spec: &Spec, input: Option<&Value>) -> Option<String> {
    match &spec.execution {
        Execution::Workers(queue) if !input.is_some_and(is_dry_run) => Some(queue.name.clone()),
        _ => None,
    }
}

/// Hands the call of a place to a worker or a job.
pub(crate) fn start(run: &mut Run, at: RunPlace, spec: &Arc<Spec>, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(call) = start::record_dispatch(run, at, spec, CallMode::Execute, cx)? else { return Ok(()) };
    let (kind, item) = match &spec.execution {
        Execution::Workers(queue) => {
            // No tool of this process is reached that would refuse the call.
            if let Some(reason) = cx.env.catalog.refusal(spec) {
                let body = Box::new(ErrorBody::new(Code::ToolUnavailable, reason));
                let error = ToolError { body, sent: Sent::No };
                return answer::settle_elsewhere(run, at, call.id, CallOutcome::Failed(error), cx);
            }
            let is_repeatable = run.tasks.is_resendable(at, spec);
            add_item(run, &call, queue, is_repeatable, cx)?;
            let in_doubt = run.tasks.task(at).is_some_and(Task::is_in_doubt);
            let item = StoredItem { state: WorkState::Queued, claims: 0, cancel_requested: false, in_doubt };
            (WorkKind::Worker, Some(item))
        }
        Execution::Job | Execution::InProcess => {
            if let Err(error) = add_job(run, &call, cx)? {
                let error = ToolError { body: Box::new(error), sent: Sent::No };
                return answer::settle_elsewhere(run, at, call.id, CallOutcome::Failed(error), cx);
            }
            (WorkKind::Job, None)
        }
    };
    let work = CallWork { kind, id: call.id, until: call.deadline, item };
    if let Some(task) = run.tasks.task_mut(at) {
        task.set_work(Some(work));
    }
    run.tasks.enter(at, TaskState::Elsewhere { work: work.elsewhere(), until: work.until });
    run.tasks.mark_dirty(at, cx);
    cx.turn.mark_handed_over(at);
    Ok(())
}

/// Adds the work item of a call.
fn add_item(
    run: &Run,
    call: &Call,
    queue: &WorkerQueue,
    is_repeatable: bool,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let head = &run.head;
    cx.turn.insert(Insert::new(
        &WORK_ITEMS,
        vec![
            (work_items::id, call.id.into()),
            (work_items::tenant_id, head.tenant.as_str().into()),
            (work_items::queue, queue.name.as_str().into()),
            (work_items::run_id, head.id.into()),
            (work_items::step_id, call.step.into()),
            (work_items::actor, head.actor.as_str().into()),
            (work_items::tool, call.tool.name.as_str().into()),
            (work_items::idempotency_key, call.key.as_str().into()),
            (work_items::attempt, i64::from(call.attempt).into()),
            (work_items::priority, i64::from(run.priority_at(call.at)).into()),
            (work_items::repeatable, is_repeatable.into()),
            (work_items::in_doubt, run.tasks.task(call.at).is_some_and(Task::is_in_doubt).into()),
            (work_items::lease_seconds, i64::from(queue.lease_seconds).into()),
            (work_items::input, Json::encode(&*call.input)?.into()),
            (work_items::deadline, call.deadline.into()),
            (work_items::state, WorkState::Queued.into()),
            (work_items::claims, 0.into()),
            (work_items::cancel_requested, false.into()),
            (work_items::created_at, cx.env.now.into()),
        ],
    )?);
    cx.turn.effects.push(Effect::WorkQueued(queue.name.clone()));
    Ok(())
}

/// Adds the rows that start a job.
fn add_job(run: &Run, call: &Call, cx: &mut TurnContext<'_>) -> Result<Result<(), ErrorBody>, Unstorable> {
    let order = JobOrder {
        job: call.id,
        tenant: &run.head.tenant,
        run: run.head.id,
        step: call.step,
        tool: &call.tool.name,
        idempotency_key: &call.key,
        attempt: call.attempt,
        input: &call.input,
        deadline: call.deadline,
        at: cx.env.now,
    };
    match cx.env.jobs.start(&order)? {
        Ok(rows) => {
            rows.into_iter().for_each(|row| cx.turn.insert(row));
            Ok(Ok(()))
        }
        Err(error) => Ok(Err(error)),
    }
}

/// When a parent stops waiting for a child run by itself. The child's own timeout comes first.
pub(crate) fn deadline_of_child(timeout_at: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let end = timeout_at.unwrap_or_else(|| now.plus_seconds(i64::from(limits::RUN_SECONDS_DEFAULT)));
    end.max(now).plus_seconds(limits::CHILD_DEADLINE_GRACE_SECONDS)
}

/// The same for a step whose row has no deadline, because it was written before there was one.
pub(crate) fn child_deadline(run: &Run, started_at: Option<Timestamp>) -> Timestamp {
    deadline_of_child(run.head.timeout_at, started_at.unwrap_or(run.head.created_at))
}

/// Whether a signal about the end of this work may still come. It does not if its item is gone or was withdrawn.
pub(crate) fn may_still_end(work: &CallWork) -> bool {
    match work.kind {
        WorkKind::Job => true,
        WorkKind::Worker => work.item.is_some_and(|item| item.state != WorkState::Cancelled),
    }
}

/// Work elsewhere ended. An end that is no longer expected is dropped.
pub(crate) fn work_ended(
    run: &mut Run,
    step: Uuid,
    work: Option<Elsewhere>,
    end: WorkEnd,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Some(at) = run.tasks.place_of_step(step) else { return Ok(()) };
    let Some(task) = run.tasks.task(at) else { return Ok(()) };
    let last = task.work().map(CallWork::elsewhere);
    match (task.state(), work) {
        (TaskState::Elsewhere { work: expected, .. }, _) if work.is_none_or(|work| work == *expected) => {
            match *expected {
                Elsewhere::Run(_) => children::child_ended(run, at, end, cx),
                Elsewhere::Worker(call) if end.status == WorkStatus::Returned => returned(run, at, call, end, cx),
                Elsewhere::Job(call) | Elsewhere::Worker(call) => call_ended(run, at, call, end, cx),
            }
        }
        // The outcome was unknown, and whoever had the work reports it now.
        (TaskState::OutcomeUnknown { .. }, Some(Elsewhere::Job(call) | Elsewhere::Worker(call)))
            if work == last && !end.may_have_happened =>
        {
            run.doubts.end(at, &mut cx.turn);
            if let Some(task) = run.tasks.task_mut(at) {
                // The report says nothing about earlier attempts.
                let earlier = task.work().and_then(|work| work.item).is_some_and(|item| item.in_doubt);
                task.set_in_doubt(earlier);
            }
            call_ended(run, at, call, end, cx)
        }
        _ => Ok(()),
    }
}

/// A call came back before any worker had it. It is dispatched again, and everything that decides about a call decides
/// about it then.
fn returned(run: &mut Run, at: RunPlace, call: Uuid, end: WorkEnd, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let withdrawn = || ErrorBody::new(Code::PolicyDenied, "the call was taken out of its queue");
    answer::take_back(run, at, call, end.error.unwrap_or_else(withdrawn).sanitized(), cx)
}

/// The call of a place that was executed elsewhere ended.
fn call_ended(
    run: &mut Run,
    at: RunPlace,
    call: Uuid,
    end: WorkEnd,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    cx.turn.took_ms = end.took_ms;
    let item = task_item(run, at);
    let is_completed = end.status == WorkStatus::Completed;
    // Its last lease has expired, and then its worker reported all the same: that signal comes, too.
    if !is_completed && item.is_some_and(|item| item.state == WorkState::Done) {
        return Ok(());
    }
    let may_be_lost = !is_completed && end.may_have_happened;
    let outcome = if is_completed {
        CallOutcome::Output(end.result.unwrap_or_default())
    } else {
        let missing = || ErrorBody::new(Code::ExternalServiceError, format!("the work is {}", end.status.as_str()));
        let body = Box::new(end.error.unwrap_or_else(missing).sanitized());
        let sent = if end.may_have_happened { Sent::Maybe } else { Sent::No };
        CallOutcome::Failed(ToolError { body, sent })
    };
    answer::settle_elsewhere(run, at, call, outcome, cx)?;
    match item.filter(|_| may_be_lost && has_ended(run, at)) {
        Some(item) => close_item(run, at, WorkItem { id: call, known: item }, cx),
        None => Ok(()),
    }
}

/// A work item as the run knows it.
#[derive(Clone, Copy)]
struct WorkItem {
    id: Uuid,
    known: StoredItem,
}

/// The last known work item of a place.
fn task_item(run: &Run, at: RunPlace) -> Option<StoredItem> {
    run.tasks.task(at).and_then(Task::work).and_then(|work| work.item)
}

/// Whether no report can change what became of a place. The items of a map that has ended are gone.
fn has_ended(run: &Run, at: RunPlace) -> bool {
    run.tasks.state(at).is_none_or(|state| matches!(state, TaskState::Failed { .. } | TaskState::Cancelled { .. }))
}

/// The deadline of work elsewhere has passed: it is cancelled. A call ends; a child run ends by itself, because what it
/// did must be known before its parent goes on.
pub(crate) fn deadline_passed(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(TaskState::Elsewhere { work, .. }) = run.tasks.state(at) else { return Ok(()) };
    match *work {
        Elsewhere::Run(child) => {
            children::stop_child(run, child, Actor::system(), CHILD_LATE, cx)?;
            let until = cx.env.now.plus_seconds(limits::CHILD_DEADLINE_GRACE_SECONDS);
            run.tasks.enter(at, TaskState::Elsewhere { work: Elsewhere::Run(child), until });
            run.tasks.mark_dirty(at, cx);
            Ok(())
        }
        Elsewhere::Job(call) => {
            stop_job(run, call, cx)?;
            let body = ErrorBody { retryable: false, ..ErrorBody::new(Code::RequestTimeout, NOT_REPORTED) };
            let error = ToolError { body: Box::new(body), sent: Sent::Maybe };
            answer::settle_elsewhere(run, at, call, CallOutcome::Failed(error), cx)
        }
        Elsewhere::Worker(call) => {
            let claimed = task_item(run, at).is_none_or(|item| item.claims > 0);
            let message = if claimed { NOT_REPORTED } else { NOT_CLAIMED };
            let error = ErrorBody { retryable: false, ..ErrorBody::new(Code::RequestTimeout, message) };
            settle_unreported(run, at, call, error, cx)
        }
    }
}

/// Stops the work of a place with its run. Returns whether its end must be waited for. What this turn hands over is
/// recorded as such first, and stopped by the next one.
pub(crate) fn stop(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<bool, Unstorable> {
    if cx.turn.is_handed_over(at) {
        cx.turn.more = true;
        return Ok(true);
    }
    let Some(TaskState::Elsewhere { work, .. }) = run.tasks.state(at) else { return Ok(false) };
    match *work {
        Elsewhere::Run(child) => {
            let by = run.stopping.stopped_by();
            children::stop_child(run, child, by, PARENT_STOPPED, cx)?;
            Ok(true)
        }
        Elsewhere::Job(job) => {
            stop_job(run, job, cx)?;
            Ok(true)
        }
        Elsewhere::Worker(call) => stop_worker(run, at, call, cx),
    }
}

fn stop_job(run: &mut Run, job: Uuid, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    if run.children.mark_stopped(job) {
        let rows = cx.env.jobs.cancel(job, cx.env.now)?;
        cx.turn.add_steps(rows);
    }
    Ok(())
}

/// Withdraws a call that no worker has, or asks the worker that has it to stop.
fn stop_worker(run: &mut Run, at: RunPlace, call: Uuid, cx: &mut TurnContext<'_>) -> Result<bool, Unstorable> {
    let Some(item) = task_item(run, at) else { return Ok(true) };
    match item.state {
        WorkState::Queued => {
            settle_unreported(run, at, call, ErrorBody::new(Code::Cancelled, "the run was stopped"), cx)?;
            Ok(answer::may_have_happened(run, at))
        }
        WorkState::Claimed => {
            if !item.cancel_requested {
                let asked = StoredItem { cancel_requested: true, ..item };
                write_item(run, at, asked, vec![(work_items::cancel_requested, true.into())], cx)?;
            }
            Ok(true)
        }
        // Its end is in a signal that was not read yet.
        WorkState::Done | WorkState::Failed | WorkState::Cancelled | WorkState::Lost => Ok(true),
    }
}

/// Settles a call that no worker reported in time, and takes its item out of its queue.
fn settle_unreported(
    run: &mut Run,
    at: RunPlace,
    call: Uuid,
    error: ErrorBody,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let item = task_item(run, at);
    // A worker may have begun with it.
    let sent = if item.is_none_or(|item| item.claims > 0) { Sent::Maybe } else { Sent::No };
    answer::settle_elsewhere(run, at, call, CallOutcome::Failed(ToolError { body: Box::new(error), sent }), cx)?;
    match item {
        Some(item) => close_item(run, at, WorkItem { id: call, known: item }, cx),
        None => Ok(()),
    }
}

/// Takes the item of a call that was settled in this turn out of its queue.
fn close_item(run: &mut Run, at: RunPlace, item: WorkItem, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let WorkItem { id, known } = item;
    // A late report of the worker still says what happened, unless the run has given up on the call.
    let state = if known.claims > 0 && !has_ended(run, at) { WorkState::Lost } else { WorkState::Cancelled };
    let may_be_reported = known.state.is_open() || known.state == WorkState::Lost;
    if !may_be_reported || state == known.state {
        return Ok(());
    }
    let set = vec![
        (work_items::state, state.into()),
        (work_items::settled_at, cx.env.now.into()),
        (work_items::lease_until, Cell::Null),
        (work_items::input, Cell::Null),
    ];
    cx.turn.update(Update::new(&WORK_ITEMS, vec![id.into()], unchanged(known), set)?);
    if let Some(task) = run.tasks.task_mut(at).filter(|task| task.work().is_some_and(|work| work.id == id)) {
        task.item_written(StoredItem { state, ..known });
    }
    Ok(())
}

/// What a change of an item compares.
fn unchanged(known: StoredItem) -> Vec<(&'static str, Cell)> {
    vec![(work_items::state, known.state.into()), (work_items::claims, i64::from(known.claims).into())]
}

/// A person resolved the outcome of a lost item: a report of its worker comes too late from now on.
pub(crate) fn forget_lost_item(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    match task_item(run, at).filter(|item| item.state == WorkState::Lost) {
        Some(item) => {
            let state = WorkState::Cancelled;
            write_item(run, at, StoredItem { state, ..item }, vec![(work_items::state, state.into())], cx)
        }
        None => Ok(()),
    }
}

/// Changes an item that is as the run knows it.
fn write_item(
    run: &mut Run,
    at: RunPlace,
    new: StoredItem,
    set: Vec<(&'static str, Cell)>,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Some(task) = run.tasks.task_mut(at) else { return Ok(()) };
    let Some((id, known)) = task.work().and_then(|work| Some((work.id, work.item?))) else { return Ok(()) };
    cx.turn.update(Update::new(&WORK_ITEMS, vec![id.into()], unchanged(known), set)?);
    task.item_written(new);
    Ok(())
}
