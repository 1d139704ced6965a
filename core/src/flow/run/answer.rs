//! Applies the answer of a call, and settles calls whose answer never came.
//!
//! A step completes, waits for a retry, or fails. If a write may have taken effect, its tool is asked, it is sent again
//! where that is harmless, or a person resolves it.

use super::budget::unstorable_reason;
use super::drafting::draft;
use super::event::{CallMode, Effect};
use super::rollback::undo;
use super::start::{Work, cache_key, note_dry};
use super::tasks::edges;
use super::tasks::task::{Task, TaskState};
use super::turn_builder::{CacheEntry, EndedCall, ReplacedCall, TurnContext};
use super::{EffectStatus, Run, RunPlace, children, judge, projecting, requesters, retry, start, stop};
use crate::error::{Code, ErrorBody};
use crate::flow::call::{CallOutcome, CheckResult, Sent, ToolError};
use crate::flow::outputs;
use crate::json::Digest32;
use crate::limits;
use crate::record::{Json, Unstorable};
use crate::time::Timestamp;
use crate::tool::{EffectKind, Spec, is_dry_run};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// Why the outcome of a call is unknown whose row was deleted.
pub(crate) const RECORD_MISSING: &str = "the record of this call is missing from the store";

/// A call of a tool that has ended.
#[derive(Clone, Copy)]
struct Called<'a> {
    at: RunPlace,
    call: Uuid,
    spec: &'a Arc<Spec>,
}

/// A call ended. An answer that is no longer expected is dropped.
pub(crate) fn apply_answer(
    run: &mut Run,
    at: RunPlace,
    call: Uuid,
    answer: CallOutcome,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    // An external system's error text must not prevent the error from being stored.
    let answer = match answer {
        CallOutcome::Failed(error) => CallOutcome::Failed(error.recorded()),
        answer => answer,
    };
    if draft::answered(run, call, &answer, cx)? {
        return Ok(());
    }
    let mode = match run.tasks.state(at) {
        Some(TaskState::Running { call: waited, mode, .. }) if *waited == call => mode.clone(),
        _ => return undo::answered(run, at, call, answer, cx),
    };
    run.tasks.call_ended(at);
    let Work::Tool(spec) = start::work(run, at) else { return Ok(()) };
    settle_answer(run, Called { at, call, spec: &spec }, mode, answer, cx)?;
    // A check that follows at once keeps the slot.
    if !run.tasks.calls().contains(&at) {
        cx.turn.effects.push(Effect::Release(at));
    }
    Ok(())
}

/// The call of a place that was executed elsewhere ended.
pub(crate) fn settle_elsewhere(
    run: &mut Run,
    at: RunPlace,
    call: Uuid,
    answer: CallOutcome,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Work::Tool(spec) = start::work(run, at) else { return Ok(()) };
    settle_answer(run, Called { at, call, spec: &spec }, CallMode::Execute, answer, cx)
}

fn settle_answer(
    run: &mut Run,
    called: Called<'_>,
    mode: CallMode,
    answer: CallOutcome,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Called { at, spec, .. } = called;
    match (mode, answer) {
        (CallMode::Check, CallOutcome::Checked(CheckResult::Happened(output))) => {
            complete_checked(run, at, spec, output, cx)
        }
        (CallMode::Check, CallOutcome::Checked(CheckResult::DidNotHappen)) => check_found_nothing(run, called, cx),
        (CallMode::Check, CallOutcome::Failed(error)) if error.body.retryable && has_checks_left(run, at) => {
            wait_for_check(run, at, error, cx)
        }
        (CallMode::Check, _) => outcome_unknown(run, at, "the tool could not tell whether the call took effect", cx),
        (_, CallOutcome::Output(output)) => complete(run, called, output, cx),
        (_, CallOutcome::Failed(error)) => {
            record_end(run, called, Err(&error), cx)?;
            call_failed(run, called, error, cx)
        }
        (_, CallOutcome::Checked(_)) => Ok(()),
    }
}

/// Records how a call ended.
fn record_end(
    run: &mut Run,
    called: Called<'_>,
    ended: Result<&Value, &ToolError>,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Called { at, call, spec } = called;
    let step = run.tasks.ensure_step(at, &mut cx.env);
    // Whoever had the work reports it after its outcome was recorded as unknown.
    let is_late = matches!(run.tasks.state(at), Some(TaskState::OutcomeUnknown { .. }));
    let ended_as = ended.map_err(|error| &*error.body);
    let finished = projecting::FinishedCall { call, tool: &spec.name, ended: ended_as, is_late };
    projecting::call_ended(run, at, &finished, cx)?;
    let ended = match ended {
        Ok(output) => Ok(Json::encode(output)?),
        Err(error) => Err(error),
    };
    let end = EndedCall { call, step, spec, ended, at: cx.env.now };
    cx.turn.record_call_end(&run.head, run.tasks.task(at), end)
}

/// The call returned an output.
fn complete(run: &mut Run, called: Called<'_>, output: Value, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Called { at, spec, .. } = called;
    let dry = run.tasks.input(at).is_some_and(is_dry_run);
    let unasked = || {
        let faults = spec.output.check(&output).err().filter(|_| !dry)?;
        Some(faults.first().map(|fault| format!("{} {}", fault.pointer, fault.message)).unwrap_or_default())
    };
    if let Some(fault) = unstorable_reason(&output).or_else(unasked) {
        return reject_output(run, called, &fault, cx);
    }
    let now = cx.env.now;
    let Some(task) = run.tasks.task_mut(at) else { return Ok(()) };
    task.set_in_doubt(false);
    cx.turn.settle_effect(task, EffectStatus::Succeeded, now)?;
    record_end(run, called, Ok(&output), cx)?;
    judge::output_arrived(run, at, output, "completed", cx)
}

/// Nothing holds the output back any more: caches it if the node allows it, and completes the step.
pub(crate) fn release_output(
    run: &mut Run,
    at: RunPlace,
    output: Value,
    how: &'static str,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Some(spec) = run.tasks.tool(at).cloned() else { return children::complete_nested(run, at, output, how, cx) };
    let dry = run.tasks.input(at).is_some_and(is_dry_run);
    let caches = run.tasks.function(at).is_some_and(|function| function.cache.is_some());
    let was_called = run.tasks.task(at).is_some_and(|task| task.attempt() > 0);
    if caches && was_called && run.tasks.reach(at, &spec) != EffectKind::Write && !dry {
        cache_output(run, at, &spec, Json::encode(&output)?, cx)?;
    }
    finish_step(run, at, output, how, cx)
}

/// A cached output replaces the call. It is judged like that of the call.
pub(crate) fn use_cached(
    run: &mut Run,
    at: RunPlace,
    output: Value,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    match record_replacement(run, at, output, "cached", cx)? {
        Some(output) => judge::output_arrived(run, at, output, "cached", cx),
        None => Ok(()),
    }
}

/// The call returned an output that can't be stored. A write has taken effect with an unknown result, which the
/// tool's check or a person resolves.
fn reject_output(run: &mut Run, called: Called<'_>, fault: &str, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Called { at, spec, .. } = called;
    let message = format!("the output of {} can't be used: {fault}", spec.name);
    let mut body = ErrorBody::new(Code::ExternalServiceError, message);
    body.retryable = false;
    let in_doubt = !run.tasks.is_resendable(at, spec);
    let sent = if in_doubt { Sent::Maybe } else { Sent::No };
    let error = ToolError { body: Box::new(body.clone()), sent };
    record_end(run, called, Err(&error), cx)?;
    let now = cx.env.now;
    let Some(task) = run.tasks.task_mut(at) else { return Ok(()) };
    task.set_in_doubt(in_doubt);
    if in_doubt {
        return resolve_maybe_sent(run, at, spec, error, cx);
    }
    cx.turn.settle_effect(task, EffectStatus::Succeeded, now)?;
    fail_step(run, at, body, cx)
}

/// A check found that the call took effect.
fn complete_checked(
    run: &mut Run,
    at: RunPlace,
    spec: &Arc<Spec>,
    output: Value,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    if let Some(fault) = unstorable_reason(&output) {
        let why = format!("it took effect, but the output that {} reports can't be used: {fault}", spec.name);
        return outcome_unknown(run, at, &why, cx);
    }
    let now = cx.env.now;
    if let Some(task) = run.tasks.task_mut(at) {
        task.set_in_doubt(false);
        cx.turn.settle_effect(task, EffectStatus::Succeeded, now)?;
    }
    complete_without_call(run, at, output, "checked", cx)
}

/// A recorded, checked or resolved output replaces the call. It was judged before, or nothing is left to decide.
pub(crate) fn complete_without_call(
    run: &mut Run,
    at: RunPlace,
    output: Value,
    how: &'static str,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    match record_replacement(run, at, output, how, cx)? {
        Some(output) => finish_step(run, at, output, how, cx),
        None => Ok(()),
    }
}

/// Records an output that replaces a call. `None`: it can't be stored, and the step has failed.
fn record_replacement(
    run: &mut Run,
    at: RunPlace,
    output: Value,
    how: &'static str,
    cx: &mut TurnContext<'_>,
) -> Result<Option<Value>, Unstorable> {
    let Some(spec) = run.tasks.tool(at).cloned() else { return Ok(None) };
    let (call, step) = ((cx.env.ids)(), run.tasks.ensure_step(at, &mut cx.env));
    let Ok(text) = Json::encode(&output) else {
        let message = format!("the output of {} can't be stored", spec.name);
        return fail_step(run, at, ErrorBody::new(Code::ExternalServiceError, message), cx).map(|()| None);
    };
    let replaced = ReplacedCall { call, step, tool: &spec.name, output: text, how, at: cx.env.now };
    cx.turn.record_replaced_call(&run.head, run.tasks.task(at), replaced)?;
    Ok(Some(output))
}

fn finish_step(
    run: &mut Run,
    at: RunPlace,
    output: Value,
    how: &'static str,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let task = run.tasks.task(at);
    let attempt = task.map_or(0, Task::attempt);
    let digest = task.and_then(Task::digest);
    let given = Digest32::of(&output);
    run.budget.count_output(&output);
    let mut data = json!({
        "node": run.tasks.name(at),
        "item": at.item,
        "tool": run.tasks.tool(at).map(|spec| spec.name.as_str()),
        "attempt": attempt,
        "how": how,
        "input_digest": digest,
        "output_digest": given,
    });
    if let Some(input) = run.tasks.input(at) {
        note_dry(&mut data, input);
    }
    if let Some(counted) = cx.limits.take_counted(at) {
        data["limits"] = counted;
    }
    let seq = cx.turn.add_note("step.completed", run.tasks.step_id(at), None, data);
    requesters::add_requesters_of_place(run, at);
    run.tasks.enter(at, TaskState::Completed { output: Arc::new(outputs::completed(output)), seq, items: Vec::new() });
    run.tasks.mark_dirty(at, cx);
    edges::place_ended(run, at, cx)
}

/// The call failed: retry it, check the outcome, or fail the step.
fn call_failed(
    run: &mut Run,
    called: Called<'_>,
    error: ToolError,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Called { at, call, spec } = called;
    if error.sent == Sent::Maybe {
        if let Some(task) = run.tasks.task_mut(at) {
            task.set_in_doubt(true);
        }
        if !run.tasks.is_resendable(at, spec) {
            return resolve_maybe_sent(run, at, spec, error, cx);
        }
    }
    let retries = run.tasks.graph().nodes[at.node].node.retry.as_ref().map_or(limits::RETRIES_MAX, |retry| retry.max);
    let tried = run.tasks.task(at).map_or(0, Task::tries_in_round);
    let due = retry::due(&error.body, tried, retries, cx.env.now, random_from_id(call))
        .filter(|_| !run.stopping.is_stopping());
    let Some(until) = due else { return give_up(run, at, *error.body, cx) };
    wait_for_retry(run, at, *error.body, until, cx)
}

/// The call is made again at this time.
fn wait_for_retry(
    run: &mut Run,
    at: RunPlace,
    error: ErrorBody,
    until: Timestamp,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let now = cx.env.now;
    if let Some(task) = run.tasks.task_mut(at).filter(|task| task.is_in_doubt()) {
        cx.turn.settle_effect(task, EffectStatus::Unknown, now)?;
    }
    let data = json!({
        "node": run.tasks.name(at), "item": at.item, "attempt": run.tasks.task(at).map_or(0, Task::attempt),
        "code": error.code, "message": error.message, "retry_at": until.to_string(),
        "delay_ms": until.millis() - now.millis(),
    });
    run.tasks.enter(at, TaskState::RetryWait { until, error: Box::new(error) });
    run.tasks.mark_dirty(at, cx);
    cx.turn.add_note("step.retry_scheduled", run.tasks.step_id(at), None, data);
    Ok(())
}

/// A call that was handed over comes back, and was certainly not made: it is dispatched again at once.
pub(crate) fn take_back(
    run: &mut Run,
    at: RunPlace,
    call: Uuid,
    error: ErrorBody,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Work::Tool(spec) = start::work(run, at) else { return Ok(()) };
    let error = ToolError { body: Box::new(error), sent: Sent::No };
    record_end(run, Called { at, call, spec: &spec }, Err(&error), cx)?;
    if run.stopping.is_stopping() {
        return stop::stop_step(run, at, cx);
    }
    wait_for_retry(run, at, *error.body, cx.env.now, cx)
}

/// No more retries. A call that may have taken effect does not fail: its outcome is unknown, and a person
/// resolves it.
pub(crate) fn give_up(
    run: &mut Run,
    at: RunPlace,
    error: ErrorBody,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    if may_have_happened(run, at) {
        return outcome_unknown(run, at, &error.message, cx);
    }
    let now = cx.env.now;
    if let Some(task) = run.tasks.task_mut(at) {
        cx.turn.settle_effect(task, EffectStatus::Failed, now)?;
    }
    if error.code == Code::Cancelled.as_str() && run.stopping.is_stopping() {
        return stop::stop_step(run, at, cx);
    }
    fail_step(run, at, error, cx)
}

/// Whether a write may have taken effect without a known outcome.
pub(crate) fn may_have_happened(run: &Run, at: RunPlace) -> bool {
    let writes = matches!(start::work(run, at), Work::Tool(spec) if run.tasks.reach(at, &spec) == EffectKind::Write);
    writes && run.tasks.task(at).is_some_and(Task::is_in_doubt)
}

/// Whether the `effects` row of a write that may have taken effect is missing. The row is written before the
/// call is made, so somebody deleted it, and the call is not repeated.
fn is_record_gone(run: &Run, at: RunPlace) -> bool {
    may_have_happened(run, at) && run.tasks.task(at).is_some_and(|task| task.effect().is_none())
}

/// It may have been sent: check with the tool, or leave it to a person.
fn resolve_maybe_sent(
    run: &mut Run,
    at: RunPlace,
    spec: &Arc<Spec>,
    error: ToolError,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    if spec.checkable && has_checks_left(run, at) {
        if let Some(task) = run.tasks.task_mut(at) {
            task.count_check();
            task.keep_doubt(error.body);
        }
        return start::dispatch(run, at, spec, CallMode::Check, cx);
    }
    outcome_unknown(run, at, &error.body.message, cx)
}

/// Settles a call that was in flight when its process died or lost ownership: by the tool's check, by
/// resending it if that is safe, or by a person.
pub(crate) fn settle_lost(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Work::Tool(spec) = start::work(run, at) else { return Ok(()) };
    let left = has_checks_left(run, at);
    if let Some(task) = run.tasks.task_mut(at) {
        task.set_in_doubt(true);
    }
    if spec.checkable && left {
        if !start::take_slot(run, at, &spec, &mut cx.env) {
            run.tasks.enter(at, TaskState::Lost { deadline: cx.env.now.plus_seconds(1) });
            return Ok(());
        }
        if let Some(task) = run.tasks.task_mut(at) {
            task.count_check();
        }
        return start::dispatch(run, at, &spec, CallMode::Check, cx);
    }
    if is_record_gone(run, at) {
        return outcome_unknown(run, at, RECORD_MISSING, cx);
    }
    if run.tasks.is_resendable(at, &spec) && left {
        return resend(run, at, cx);
    }
    outcome_unknown(run, at, "the process that made this call is gone", cx)
}

pub(crate) fn has_checks_left(run: &Run, at: RunPlace) -> bool {
    run.tasks.task(at).is_some_and(Task::has_checks_left)
}

/// The check found that it did not take effect: fail with the original error, or resend it after a crash.
fn check_found_nothing(run: &mut Run, called: Called<'_>, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let at = called.at;
    let (now, restored) = (cx.env.now, run.row.restored_at().is_some());
    if is_record_gone(run, at) {
        return outcome_unknown(run, at, RECORD_MISSING, cx);
    }
    let Some(task) = run.tasks.task_mut(at) else { return Ok(()) };
    task.set_in_doubt(false);
    if restored {
        cx.turn.settle_effect(task, EffectStatus::Failed, now)?;
    }
    match task.take_doubt() {
        Some(body) => call_failed(run, called, ToolError { body, sent: Sent::No }, cx),
        None => resend(run, at, cx),
    }
}

/// Resends it with the same idempotency key. This is not a retry. It queues for a slot like any call.
fn resend(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    if run.stopping.is_stopping() {
        return give_up(run, at, ErrorBody::new(Code::Cancelled, "the run was stopped"), cx);
    }
    if let Some(task) = run.tasks.task_mut(at) {
        task.count_resend();
    }
    run.tasks.enter(at, TaskState::Ready);
    run.tasks.push_ready(at);
    Ok(())
}

/// The check itself failed with a retryable error.
fn wait_for_check(run: &mut Run, at: RunPlace, error: ToolError, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let seconds = error.body.retry_after_seconds.and_then(|s| i64::try_from(s).ok()).unwrap_or(2);
    run.tasks.enter(at, TaskState::Lost { deadline: cx.env.now.plus_seconds(seconds) });
    run.tasks.mark_dirty(at, cx);
    Ok(())
}

pub(crate) fn outcome_unknown(
    run: &mut Run,
    at: RunPlace,
    why: &str,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let error = ErrorBody::new(Code::OutcomeUnknown, why);
    let now = cx.env.now;
    if let Some(task) = run.tasks.task_mut(at) {
        cx.turn.settle_effect(task, EffectStatus::Unknown, now)?;
    }
    run.tasks.enter(at, TaskState::OutcomeUnknown { error: Box::new(error) });
    run.tasks.mark_dirty(at, cx);
    run.doubts.begin(at, why, &run.tasks, cx);
    let data = json!({"node": run.tasks.name(at), "item": at.item, "reason": why});
    cx.turn.add_note("step.outcome_unknown", run.tasks.step_id(at), None, data);
    Ok(())
}

/// Fails the step.
pub(crate) fn fail_step(
    run: &mut Run,
    at: RunPlace,
    error: ErrorBody,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    projecting::failed(run, at, &error, cx)?;
    fail_with_part(run, at, error, cx)
}

/// Fails the step because a part of it has failed: an item of its map, or its child run.
pub(crate) fn fail_with_part(
    run: &mut Run,
    at: RunPlace,
    error: ErrorBody,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    run.tasks.ensure_step(at, &mut cx.env);
    let data = json!({"node": run.tasks.name(at), "item": at.item, "code": error.code, "message": error.message});
    let seq = cx.turn.add_note("step.failed", run.tasks.step_id(at), None, data);
    let items = run.tasks.task_mut(at).and_then(|task| task.items_mut().map(std::mem::take)).unwrap_or_default();
    let output = Arc::new(outputs::failed(&error));
    requesters::add_requesters_of_place(run, at);
    run.tasks.enter(at, TaskState::Failed { error: Box::new(error), output, seq, items });
    run.tasks.mark_dirty(at, cx);
    edges::place_ended(run, at, cx)
}

/// Caches an output for later runs of the workflow.
fn cache_output(
    run: &mut Run,
    at: RunPlace,
    spec: &Spec,
    output: Json,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let ttl = run.tasks.function(at).and_then(|function| function.cache.as_ref()).and_then(|cache| cache.ttl_seconds);
    let Some(digest) = run.tasks.input_digest(at) else { return Ok(()) };
    let key = cache_key(run.tasks.name(at), spec, digest);
    let expires_at = ttl.map(|seconds| cx.env.now.plus_seconds(i64::from(seconds)));
    let entry = CacheEntry { key, tool_version: &spec.version, output, expires_at, at: cx.env.now };
    cx.turn.cache_output(&run.head, entry)
}

/// A random number from a fresh id.
fn random_from_id(id: Uuid) -> u64 {
    u64::from_be_bytes(*id.as_bytes().last_chunk().unwrap_or(&[0; 8]))
}
