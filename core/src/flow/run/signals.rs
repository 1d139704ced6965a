//! Applies signals to a run.
//!
//! The turn that applies a signal deletes its row in the same commit, even if the signal no longer has
//! any effect. So a duplicate or late signal is harmless.

use super::approve::{Rejection, StepEdit};
use super::drafting::plan;
use super::drafting::plan::PlanChange;
use super::event::{Signal, SignalKind};
use super::patches::apply;
use super::patches::apply::{PatchVersion, ProposedPatch};
use super::refused_turn::TURN_REFUSED;
use super::rollback::child_undo;
use super::rollback::undo;
use super::rollback::undo::RollbackRequest;
use super::start::Work;
use super::tasks::task::TaskState;
use super::turn_builder::TurnContext;
use super::{
    EffectStatus, Run, RunPlace, answer, approve, approvers, children, elsewhere, policy_verdict, requesters, start,
    stop, waits,
};
use crate::access::Actor;
use crate::flow::approval::{ApprovalRequirement, Decision};
use crate::flow::policy::PolicyVerdict;
use crate::flow::work::WorkEnd;
use crate::record::Unstorable;
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) fn apply(run: &mut Run, signal: Signal, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    if !cx.turn.consume_signal(run.head.id, signal.id) {
        return Ok(());
    }
    approve::mark_withdrawn(run, &signal.withdrawn);
    if run.stopping.ignores_signals() {
        let data = json!({"kind": signal.kind.name(), "signal": signal.id});
        cx.turn.add_note("run.signal_ignored", None, None, data);
        return Ok(());
    }
    match signal.kind {
        SignalKind::Rollback { steps, by, reason, for_parent } => {
            undo::begin(run, RollbackRequest { steps, by, reason, for_parent }, cx)
        }
        SignalKind::ChildUndone { step, whole } => child_undo::child_undone(run, step, whole, cx),
        SignalKind::MarkRolledBack { by, reason } => {
            undo::mark_rolled_back(run, by, reason, &mut cx.turn);
            Ok(())
        }
        SignalKind::Unreadable { kind } => {
            cx.turn.add_note("run.signal_discarded", None, None, json!({"kind": kind, "signal": signal.id}));
            Ok(())
        }
        SignalKind::Patch { number, by, .. } if run.status.is_final() => {
            apply::refuse(run, PatchVersion::proposed(number), &by, "the run has ended", &mut cx.turn)
        }
        _ if run.status.is_final() => Ok(()),
        SignalKind::Patch { number, by, .. } if run.stopping.can_only_end() => {
            apply::refuse(run, PatchVersion::proposed(number), &by, TURN_REFUSED, &mut cx.turn)
        }
        // A run that can only end ignores signals that would let it continue.
        SignalKind::Approved { .. }
        | SignalKind::Denied { .. }
        | SignalKind::Edited { .. }
        | SignalKind::PlanEdited { .. }
        | SignalKind::EventReceived { .. }
        | SignalKind::Unpatch { .. }
            if run.stopping.can_only_end() =>
        {
            Ok(())
        }
        SignalKind::Approved { approval, by, notes } => approve::apply_approval(run, approval, by, notes, cx),
        SignalKind::Denied { approval, by, notes, changes } => {
            let decision = if changes { Decision::RequestChanges } else { Decision::Reject };
            approve::apply_rejection(run, Rejection { approval, by, notes, decision }, cx)
        }
        SignalKind::Edited { step, input, by, approval } => {
            approve::apply_edit(run, StepEdit { step, input, by, approval }, cx)
        }
        SignalKind::PlanEdited { node, input, by, approval } => {
            plan::edited(run, PlanChange { node, input, by, approval }, cx)
        }
        SignalKind::WorkEnded { step, work, status, result, error, may_have_happened, took_ms, changed_by } => {
            requesters::add_co_requesters(run, changed_by.iter().map(String::as_str));
            let end = WorkEnd { status, result, error, may_have_happened, took_ms };
            elsewhere::work_ended(run, step, work, end, cx)
        }
        SignalKind::EventReceived { event } => waits::event_received(run, event, cx),
        SignalKind::Cancel { by, reason } => {
            stop::cancel_run(run, by, reason, cx);
            Ok(())
        }
        SignalKind::Pause { by } => {
            run.stopping.set_paused(true, by, &mut cx.turn);
            Ok(())
        }
        SignalKind::Resume { by } => {
            run.stopping.set_paused(false, by, &mut cx.turn);
            Ok(())
        }
        // It is about another attempt: two people have resolved it, and the first one counted.
        SignalKind::Resolve { step, attempt, .. } if !is_current_attempt(run, step, attempt) => Ok(()),
        SignalKind::Resolve { step, happened, output, by, notes, .. } => {
            let output = happened.then(|| output.unwrap_or_else(|| json!({})));
            resolve_outcome(run, step, Resolution { output, by, notes }, cx)
        }
        SignalKind::Patch { number, patch, by, risk } => {
            apply::propose(run, ProposedPatch { number, document: patch, by, risk }, cx)
        }
        SignalKind::Unpatch { number, by } => apply::revert(run, number, by, cx),
    }
}

fn is_current_attempt(run: &Run, step: Uuid, attempt: u32) -> bool {
    run.tasks.place_of_step(step).and_then(|at| run.tasks.task(at)).is_some_and(|task| task.attempt() == attempt)
}

/// What a person found out about an unknown outcome.
struct Resolution {
    /// The output, if the call took effect.
    output: Option<Value>,
    by: Actor,
    notes: Option<String>,
}

/// A person resolved an unknown outcome: the call took effect with this output, or it never did and
/// may be sent again.
fn resolve_outcome(
    run: &mut Run,
    step: Uuid,
    resolution: Resolution,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Resolution { output, by, notes } = resolution;
    let Some(at) = run.tasks.place_of_step(step) else { return Ok(()) };
    let Some(TaskState::OutcomeUnknown { .. }) = run.tasks.state(at) else { return Ok(()) };
    let work = start::work(run, at);
    if !matches!(work, Work::Tool(_) | Work::Child { .. }) {
        return Ok(());
    }
    let data = json!({"node": run.tasks.name(at), "happened": output.is_some(), "notes": notes});
    // They count as requesters: they chose the output that later steps use, or that the call is made.
    requesters::add_co_requesters(run, [by.id.as_str()]);
    cx.turn.add_note("step.resolved", Some(step), Some(by), data);
    run.doubts.end(at, &mut cx.turn);
    elsewhere::forget_lost_item(run, at, cx)?;
    let Work::Tool(spec) = work else { return resolve_child_outcome(run, at, output, cx) };
    let now = cx.env.now;
    let Some(task) = run.tasks.task_mut(at) else { return Ok(()) };
    match output {
        Some(output) => {
            task.set_in_doubt(false);
            cx.turn.settle_effect(task, EffectStatus::Succeeded, now)?;
            answer::complete_without_call(run, at, output, "resolved", cx)
        }
        None => {
            cx.turn.settle_effect(task, EffectStatus::Failed, now)?;
            task.reset_doubt();
            let demand = match policy_verdict::evaluate_without_approvals(run, at, &spec, &cx.env) {
                PolicyVerdict::Ask(demand) => Some(demand),
                PolicyVerdict::Allow | PolicyVerdict::Deny { .. } => None,
            };
            send_settled(run, at, demand, cx)
        }
    }
}

/// A person resolved whether a child run was started: its output is used, or it is started now.
fn resolve_child_outcome(
    run: &mut Run,
    at: RunPlace,
    output: Option<Value>,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    if let Some(output) = output {
        return children::complete_nested(run, at, output, "resolved", cx);
    }
    let now = cx.env.now;
    if let Some(task) = run.tasks.task_mut(at) {
        task.begin_again(now);
    }
    let demand = children::demand_of_child(run, at, &cx.env);
    send_settled(run, at, demand, cx)
}

/// What never happened is done now. If people had to approve it, they are asked again: they let it happen once, and
/// whoever settles it, on their word alone, must not make it happen twice.
fn send_settled(
    run: &mut Run,
    at: RunPlace,
    demand: Option<ApprovalRequirement>,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let was_approved = approvers::was_approved(run, at);
    if (demand.is_some() || was_approved) && !run.stopping.is_stopping() {
        let again =
            ApprovalRequirement::one_approval("the call was settled as never happened, and would be made again");
        let demand = demand.map_or_else(|| again.clone(), |demand| demand.and(again.clone()));
        return approve::request_approval(run, at, &demand, cx);
    }
    run.tasks.enter(at, TaskState::Ready);
    run.tasks.mark_dirty(at, cx);
    run.tasks.push_ready(at);
    Ok(())
}
