//! Ends a run and notifies its parent and recipients.
//!
//! `conclude` is the last part of every turn: it ends the run if nothing is left to do, and otherwise says what it waits
//! for.

use super::approval_rows::{OutboxMessage, inbox_row, outbox_row};
use super::drafting::plan;
use super::env::Env;
use super::event::{Effect, SignalKind};
use super::patches::apply;
use super::scope::RunScope;
use super::turn_builder::{TurnBuilder, TurnContext};
use super::{ReplayMode, Run, RunStatus, replay, requesters, stop};
use crate::access::Level;
use crate::error::{Code, ErrorBody};
use crate::flow::work::{Elsewhere, WorkStatus};
use crate::json::Digest32;
use crate::record::{Json, Unstorable};
use crate::{id, limits};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// Ends the run if nothing is left to do. Otherwise updates its status.
pub(crate) fn conclude(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    if run.status.is_final() || cx.turn.more {
        return Ok(());
    }
    if run.stopping.is_stopping() {
        plan::cancel(run, cx)?;
        run.drafting.drop_draft();
        if stop::cancel_waiting(run, cx)? {
            update_status(run, &mut cx.turn);
            return Ok(());
        }
        let status = if run.stopping.cancellation().is_some() { RunStatus::Cancelled } else { RunStatus::Failed };
        return finish(run, status, cx);
    }
    if run.tasks.are_done() && !run.drafting.is_under_way() && !run.drafting.is_plan_pending() {
        match checked_outputs(run) {
            Ok(result) => {
                run.result = Some(Arc::new(result));
                return finish(run, RunStatus::Completed, cx);
            }
            Err(error) => {
                run.stopping.fail_with(error);
                return finish(run, RunStatus::Failed, cx);
            }
        }
    }
    update_status(run, &mut cx.turn);
    Ok(())
}

/// Updates the status of a run that has not ended: it awaits approval if nothing else can happen.
fn update_status(run: &mut Run, turn: &mut TurnBuilder) {
    let asks = run.drafting.is_plan_pending() || run.tasks.awaiting_approval() > 0;
    let status = if asks && run.tasks.calls().is_empty() { RunStatus::AwaitingApproval } else { RunStatus::Running };
    if run.status != status {
        run.status = status;
        turn.status = Some(status);
    }
}

/// The result: the workflow's output templates, or the outputs of the sink nodes.
fn outputs(run: &Run) -> Result<Value, ErrorBody> {
    let Some(template) = &run.tasks.graph().outputs else {
        let sinks = run.tasks.graph().sinks().filter_map(|node| {
            let output = run.tasks.node(node).output()?;
            Some((run.tasks.graph().nodes[node].node.id.clone(), (**output).clone()))
        });
        return Ok(Value::Object(sinks.collect::<Map<_, _>>()));
    };
    template.render(&RunScope::of(run)).map_err(|error| {
        ErrorBody::new(Code::ValidationFailed, format!("the outputs of the workflow can't be resolved: {error}"))
    })
}

/// The result, checked against the limits of the store.
fn checked_outputs(run: &Run) -> Result<Value, ErrorBody> {
    let outputs = outputs(run)?;
    let text = Json::encode(&outputs).map_err(|error| ErrorBody::new(Code::ValidationFailed, error.to_string()))?;
    if text.as_str().len() > limits::RESULT_BYTES_MAX {
        return Err(ErrorBody::new(Code::PayloadTooLarge, "the result of the run is too large"));
    }
    Ok(outputs)
}

/// Ends the run, in this turn or, if too much has to be written, in a later one.
pub(crate) fn finish(run: &mut Run, status: RunStatus, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    if !run.tasks.close_drafted(status == RunStatus::Completed, &mut cx.turn) {
        update_status(run, &mut cx.turn);
        return Ok(());
    }
    apply::drop_proposals(run, cx)?;
    run.status = status;
    run.completed_at = Some(cx.env.now);
    cx.turn.status = Some(status);
    cx.turn.ended = true;
    apply::close(run, cx)?;
    if replay::replay_mode(run) == Some(ReplayMode::Shadow) {
        let compared = json!({"result": run.result.as_deref(), "differences": replay::differences(run)});
        run.result = Some(Arc::new(compared));
    }
    let (event, by) = match status {
        RunStatus::Completed => ("run.completed", None),
        RunStatus::Cancelled => ("run.cancelled", run.stopping.cancellation().map(|stop| stop.by.clone())),
        _ => ("run.failed", None),
    };
    let digest = run.result.as_deref().map(Digest32::of);
    let error = run.stopping.failure().map(|error| json!({"code": error.code, "message": error.message}));
    let reason = run.stopping.cancellation().and_then(|stop| stop.reason.clone());
    cx.turn.add_note(event, None, by, json!({"result_digest": digest, "error": error, "reason": reason}));
    if run.stopping.cancellation().is_some() && run.stopping.failure().is_none() {
        let reason = reason.unwrap_or_else(|| "the run was cancelled".to_owned());
        run.stopping.fail_with(ErrorBody::new(Code::Cancelled, reason));
    }
    if let Some((parent, step)) = run.head.parent {
        let error = run.stopping.failure().cloned();
        let kind = SignalKind::WorkEnded {
            step,
            work: Some(Elsewhere::Run(run.head.id)),
            status: match status {
                RunStatus::Completed => WorkStatus::Completed,
                RunStatus::Cancelled => WorkStatus::Cancelled,
                _ => WorkStatus::Failed,
            },
            result: run.result.as_deref().cloned(),
            error,
            may_have_happened: false,
            took_ms: 0,
            changed_by: requesters::contributors_to_end(run),
        };
        cx.turn.send_signal(&run.head.tenant, parent, &kind, &mut cx.env)?;
        cx.turn.effects.push(Effect::Wake(parent));
    }
    // Dry runs and replays without effects send no notifications.
    let real = !run.head.dry_run && replay::replay_mode(run).is_none_or(|mode| mode == ReplayMode::Retry);
    if run.head.level != Level::ExecuteSilent && run.head.parent.is_none() && real {
        notify(run, cx)?;
    }
    Ok(())
}

/// At L0, nothing else starts while an approval is pending.
pub(crate) fn is_blocked_by_approval(run: &Run) -> bool {
    run.head.level == Level::Ask && run.tasks.awaiting_approval() > 0
}

/// Whether the run can leave memory until a signal arrives or a timer is due.
pub(crate) fn can_park(run: &Run, env: &Env<'_>) -> bool {
    // A node that claims a parked run assumes that no other process works on it.
    if run.tasks.has_lost_call() {
        return false;
    }
    let far = |due: crate::time::Timestamp| due > env.now.plus_seconds(limits::PARK_SECONDS_MIN);
    is_idle(run) && run.next_deadline().is_none_or(far)
}

/// Whether nothing is in flight and nothing can start before a signal arrives or a timer is due.
pub(crate) fn is_idle(run: &Run) -> bool {
    run.tasks.are_idle()
        && !run.drafting.is_under_way()
        && run.rollback.may_park()
        && (!run.tasks.has_ready() || run.stopping.is_paused() || is_blocked_by_approval(run))
}

/// Whether nothing is in flight and the run only waits for a slot.
pub(crate) fn waits_for_slot(run: &Run, env: &Env<'_>) -> bool {
    let far = |due: crate::time::Timestamp| due > env.now.plus_seconds(limits::PARK_SECONDS_MIN);
    run.wants_slot()
        && run.tasks.are_idle()
        && !run.drafting.is_under_way()
        // A rollback stays with its owner.
        && !run.rollback.is_under_way()
        && !run.tasks.has_lost_call()
        && run.next_deadline().is_none_or(far)
}

/// Adds the notifications that the run has ended. Without a recipient, it goes to the actor's inbox.
fn notify(run: &Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let head = &run.head;
    let named = |channel: &'static str| {
        let target = head.notify.as_ref()?.get(channel)?.as_str()?;
        Some((channel, target))
    };
    let targets: Vec<(&str, &str)> = ["webhook", "email"].into_iter().filter_map(named).collect();
    let (event_type, at) = (format!("run.{}", run.status.as_str()), cx.env.now);
    if targets.is_empty() {
        cx.turn.insert(inbox_row((cx.env.ids)(), head, &head.actor, (&event_type, None), at)?);
        return Ok(());
    }
    let payload = RunEndedMessage {
        data: RunEndedData {
            actor: &head.actor,
            error: run.stopping.failure(),
            result: run.result.as_deref(),
            run_id: head.id,
            status: run.status.as_str(),
            trace_id: id::trace_id(head.id),
            workflow_id: &head.workflow.id,
        },
        timestamp: at.to_string(),
        event_type,
    };
    for (channel, target) in targets {
        let message = OutboxMessage { id: (cx.env.ids)(), approval: None, channel, target, at };
        cx.turn.insert(outbox_row(head, &message, &payload)?);
        cx.turn.effects.push(Effect::Notify);
    }
    Ok(())
}

/// The message that a run has ended.
#[derive(Serialize)]
struct RunEndedMessage<'a> {
    data: RunEndedData<'a>,
    timestamp: String,
    #[serde(rename = "type")]
    event_type: String,
}

#[derive(Serialize)]
struct RunEndedData<'a> {
    actor: &'a str,
    error: Option<&'a ErrorBody>,
    result: Option<&'a serde_json::Value>,
    run_id: Uuid,
    status: &'static str,
    trace_id: String,
    workflow_id: &'a str,
}
