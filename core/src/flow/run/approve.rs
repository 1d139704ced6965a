//! Requests approvals, and applies what people decide.
//!
//! An approval is bound to a digest of exactly what would run, and to an expiry. It is stored in
//! `approval_requests`, so it survives restarts. A decision reaches the run as a signal.

use super::approval_rows::NewRequest;
use super::drafting::plan;
use super::event::GovernanceDecision;
use super::patches::apply;
use super::replay::RecordedOutcome;
use super::scope::RunScope;
use super::start::{Work, too_deep, validate_input};
use super::stopping::rejection_reason;
use super::tasks::edges;
use super::tasks::task::{Task, TaskState};
use super::turn_builder::TurnContext;
use super::{
    Run, RunPlace, answer, approval_rows, demands, judge, map_calls, policy_verdict, replay, requesters, start, stop,
};
use crate::access::Actor;
use crate::error::{Code, ErrorBody};
use crate::flow::air::Body;
use crate::flow::approval::{
    ApprovalRequest, ApprovalRequirement, Decision, EDITED_BY, RequestStatus, RequestedAction, StepApproval,
};
use crate::flow::expr::{RenderError, Template};
use crate::flow::outputs;
use crate::flow::policy::{Policy, PolicyVerdict};
use crate::json::{CanonicalJson, Digest32};
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::record::Unstorable;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The digest of exactly what a place would do.
pub(crate) fn action_digest(run: &Run, at: RunPlace) -> Digest32 {
    let mut input = run.tasks.input_digest(at);
    let (tool, version) = match start::work(run, at) {
        Work::Map => {
            input = Some(map_calls::calls_of_map(run, at.node).digest());
            ("map".to_owned(), String::new())
        }
        Work::Tool(spec) => (spec.name.clone(), spec.version.clone()),
        Work::Child { workflow, version } => (format!("workflow {workflow}"), format!("{version:?}")),
        _ => ("hitl".to_owned(), String::new()),
    };
    // An output was returned by the tool as it was then.
    let held = run.tasks.task(at).and_then(Task::held);
    let version = if held.is_some() { String::new() } else { version };
    let mut action = json!({
        "run_id": run.head.id,
        "node": run.tasks.name(at),
        "item": at.item,
        "tool": tool,
        "tool_version": version,
        "input": input,
    });
    if let Some(held) = held {
        action["output"] = json!(Digest32::of(&held.output));
    }
    Digest32::of(&action)
}

/// Marks requests that were withdrawn together with a signal.
pub(crate) fn mark_withdrawn(run: &mut Run, requests: &[Uuid]) {
    for request in requests {
        if let Some((at, mut asked)) = place_awaiting(run, *request) {
            asked.withdraw();
            run.tasks.enter(at, TaskState::AwaitingApproval(asked));
        }
        run.drafting.withdraw(*request);
        run.patches.withdraw(*request);
    }
}

/// The action type of an approval request and the data that it shows.
fn request_data(
    run: &Run,
    at: RunPlace,
    demand: &ApprovalRequirement,
    policy: &dyn Policy,
) -> (RequestedAction, Value) {
    let input = || run.tasks.input(at).cloned();
    let (node, item, reason) = (run.tasks.name(at), at.item, &demand.reason);
    let task = run.tasks.task(at);
    if let Some(held) = task.and_then(Task::held) {
        let data = json!({
            "node": node, "item": item, "tool": run.tasks.tool(at).map_or("workflow", |spec| spec.name.as_str()),
            "input": input(), "output": *held.output, "judgement": task.and_then(Task::judgement), "reason": reason,
        });
        return (RequestedAction::Output, data);
    }
    match start::work(run, at) {
        Work::Map => {
            let calls = map_calls::calls_of_map(run, at.node);
            let data = json!({
                "node": node, "calls": calls.lines, "items": calls.total, "items_listed": calls.inputs.len(),
                "reason": reason, "risk": map_calls::score_known(run, policy),
            });
            (RequestedAction::Map, data)
        }
        Work::Tool(spec) => {
            let input = input().unwrap_or_default();
            let mut data = json!({
                "node": node, "item": item, "tool": spec.name, "tool_version": spec.version, "reason": reason,
                "risk": policy.score_call(&spec, &input), "input": input,
            });
            if let Some(judgement) = task.and_then(Task::input_judgement) {
                data["judgement"] = json!(judgement);
            }
            (RequestedAction::Call(spec.name.clone()), data)
        }
        Work::Child { workflow, version } => {
            let data = json!({
                "node": node, "item": item, "tool": "workflow", "workflow_id": workflow, "version": version,
                "input": input(), "reason": reason,
            });
            (RequestedAction::ChildRun, data)
        }
        _ => {
            let data = json!({"node": node, "item": item, "tool": "hitl", "input": input(), "reason": reason});
            (RequestedAction::Question, data)
        }
    }
}

/// Requests approval. The place waits.
pub(crate) fn request_approval(
    run: &mut Run,
    at: RunPlace,
    demand: &ApprovalRequirement,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    if run.approvals.is_exhausted() {
        let error = ErrorBody::new(Code::ValidationFailed, "the run exceeds its limit of approval requests");
        return answer::fail_step(run, at, error, cx);
    }
    let step = run.tasks.ensure_step(at, &mut cx.env);
    let digest = run.approvals.next_digest(action_digest(run, at));
    let asked = run.approvals.next(digest, demand, &mut cx.env);
    let (action, mut data) = request_data(run, at, demand, cx.env.policy);
    if let Some(task) = run.tasks.task(at).filter(|task| !task.editors().is_empty()) {
        data[EDITED_BY] = task.editors().to_vec().into();
    }
    let requesters = requesters::requesters_of(run, at);
    let request = NewRequest {
        asked: &asked,
        step: Some((step, run.tasks.name(at))),
        action: &action,
        data,
        demand,
        requesters,
        at: run.approvals.last_at(),
    };
    approval_rows::add_request(&run.head, request, &mut cx.turn)?;
    let rationale = demand.reason.clone();
    let verdict = GovernanceDecision {
        source: DecisionSource::Approval,
        outcome: Outcome::Deferred,
        rationale,
        policies: Vec::new(),
    };
    let data =
        json!({"node": run.tasks.name(at), "approval_id": asked.id, "digest": digest, "needed": demand.people()});
    cx.turn.add_decision("approval.requested", Some(step), data, verdict);
    run.tasks.enter(at, TaskState::AwaitingApproval(asked));
    run.tasks.mark_dirty(at, cx);
    Ok(())
}

/// Starts a `hitl` node.
pub(crate) fn start_person(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let compiled = &run.tasks.graph().nodes[at.node];
    let Body::Hitl(hitl) = &compiled.node.body else { return Ok(()) };
    let demand = demands::demand(&hitl.approval, "a person decides here");
    let shown = match question(run, at) {
        Ok(shown) => shown,
        Err(error) => {
            let error = ErrorBody::new(Code::ValidationFailed, format!("the question can't be rendered: {error}"));
            return answer::fail_step(run, at, error, cx);
        }
    };
    match CanonicalJson::new(shown) {
        Ok(shown) => drop(run.tasks.fix_input(at, shown)),
        Err(error) => return answer::fail_step(run, at, too_deep("the question", &error), cx),
    }
    match replay::recorded_outcome(run, at, None) {
        RecordedOutcome::NotUsed => request_approval(run, at, &demand, cx),
        RecordedOutcome::Output(output) => complete_decision(run, at, output, cx),
        RecordedOutcome::Failed(error) => answer::fail_step(run, at, error, cx),
        RecordedOutcome::Missing => replay::not_recorded(run, at, cx),
    }
}

/// The prompt and the data of a question. The decision covers both.
fn question(run: &Run, at: RunPlace) -> Result<Value, RenderError> {
    let (compiled, view) = (&run.tasks.graph().nodes[at.node], RunScope::at(run, at));
    let rendered = |template: &Option<Template>| template.as_ref().map(|template| template.render(&view)).transpose();
    let show = rendered(&compiled.show)?.unwrap_or_else(|| json!({}));
    Ok(match rendered(&compiled.prompt)? {
        None => show,
        Some(prompt) => json!({"prompt": prompt, "show": show}),
    })
}

/// Enough people approved.
pub(crate) fn apply_approval(
    run: &mut Run,
    approval: Uuid,
    by: Vec<String>,
    notes: Option<String>,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    if plan::approved(run, approval, &by, &mut cx.turn)? || apply::approved(run, approval, &by, cx)? {
        return Ok(());
    }
    let Some((at, asked)) = place_awaiting(run, approval) else { return Ok(()) };
    if let Some(task) = run.tasks.task_mut(at) {
        let ApprovalRequest { digest, earlier_requests, asked_for, .. } = asked;
        let (by, notes) = (by.clone(), notes.clone());
        task.approve(StepApproval { digest, earlier_requests, by, notes, asked_for });
    }
    if matches!(start::work(run, at), Work::Person) {
        // Later steps may use their notes.
        requesters::add_co_requesters(run, by.iter().filter(|_| notes.is_some()).map(String::as_str));
        return complete_decision(run, at, outputs::approved(&by, notes.as_deref()), cx);
    }
    let held = run.tasks.task(at).and_then(Task::held).cloned();
    cx.turn.add_note(
        "step.approved",
        run.tasks.step_id(at),
        by.first().map(Actor::person),
        json!({"node": run.tasks.name(at), "by": by}),
    );
    if let Some(held) = held {
        // They chose the output that later steps use.
        requesters::add_co_requesters(run, by.iter().map(String::as_str));
        return judge::release(run, at, held, cx);
    }
    run.tasks.enter(at, TaskState::Ready);
    run.tasks.mark_dirty(at, cx);
    run.tasks.push_ready_first(at);
    Ok(())
}

/// Completes a `hitl` node.
fn complete_decision(run: &mut Run, at: RunPlace, output: Value, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let given = Digest32::of(&output);
    let data = json!({"node": run.tasks.name(at), "how": "decided", "output_digest": given});
    run.tasks.ensure_step(at, &mut cx.env);
    let seq = cx.turn.add_note("step.completed", run.tasks.step_id(at), None, data);
    requesters::add_requesters_of_place(run, at);
    run.tasks.enter(at, TaskState::Completed { output: Arc::new(output), seq, items: Vec::new() });
    run.tasks.mark_dirty(at, cx);
    edges::place_ended(run, at, cx)
}

/// A person's rejection of a request.
pub(crate) struct Rejection {
    pub(crate) approval: Uuid,
    pub(crate) by: Actor,
    pub(crate) notes: Option<String>,
    /// Rejected for good, or until it is changed.
    pub(crate) decision: Decision,
}

/// A person's change of the input of a step that awaits approval.
pub(crate) struct StepEdit {
    pub(crate) step: Uuid,
    pub(crate) input: Value,
    pub(crate) by: Actor,
    /// The request that was withdrawn with the change.
    pub(crate) approval: Option<Uuid>,
}

/// A person rejected the request. At a `hitl` node, or if the judge of the step escalated, that is a failure which the
/// graph may handle; anywhere else it cancels the run.
pub(crate) fn apply_rejection(run: &mut Run, rejection: Rejection, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Rejection { approval, by, notes, decision } = rejection;
    if apply::denied(run, approval, &by, &mut cx.turn)? {
        return Ok(());
    }
    let reason = rejection_reason(&by, decision);
    if run.drafting.reject_plan(approval) {
        stop::cancel_run(run, by, notes.or(Some(reason)), cx);
        return Ok(());
    }
    let Some((at, _)) = place_awaiting(run, approval) else { return Ok(()) };
    if matches!(start::work(run, at), Work::Person) || judge::is_escalated(run, at) {
        requesters::add_co_requesters(run, notes.is_some().then_some(by.id.as_str()));
        let error = ErrorBody::new(Code::PolicyDenied, reason).with("decision", decision.as_str()).with("notes", notes);
        return answer::fail_step(run, at, error, cx);
    }
    run.tasks.enter(at, TaskState::Cancelled { items: Vec::new() });
    run.tasks.mark_dirty(at, cx);
    edges::place_ended(run, at, cx)?;
    stop::cancel_run(run, by, notes.or(Some(reason)), cx);
    Ok(())
}

/// The request expired: cancels the step and the run.
pub(crate) fn expire(
    run: &mut Run,
    at: RunPlace,
    asked: &ApprovalRequest,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    cx.turn.close_approval_request(asked, RequestStatus::Expired, cx.env.now)?;
    let rationale = "nobody decided in time".to_owned();
    let verdict = GovernanceDecision {
        source: DecisionSource::Approval,
        outcome: Outcome::Rejected,
        rationale: rationale.clone(),
        policies: Vec::new(),
    };
    cx.turn.add_decision("approval.expired", run.tasks.step_id(at), json!({"approval_id": asked.id}), verdict);
    run.tasks.enter(at, TaskState::Cancelled { items: Vec::new() });
    run.tasks.mark_dirty(at, cx);
    edges::place_ended(run, at, cx)?;
    stop::cancel_run(run, Actor::system(), Some(rationale), cx);
    Ok(())
}

/// A person changed the input of a step that awaits approval. The old request was withdrawn with their
/// signal; a new one with a new digest replaces it.
pub(crate) fn apply_edit(run: &mut Run, edit: StepEdit, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let StepEdit { step, input, by, approval } = edit;
    let Some(at) = run.tasks.place_of_step(step) else { return Ok(()) };
    let Some(TaskState::AwaitingApproval(asked)) = run.tasks.state(at).cloned() else {
        return Ok(());
    };
    let Work::Tool(spec) = start::work(run, at) else { return Ok(()) };
    // What was already called has no input to change.
    if run.tasks.task(at).is_some_and(|task| task.held().is_some()) {
        return Ok(());
    }
    // The signal is about an earlier request, which was already replaced.
    if asked.is_pending() && approval.is_some_and(|approval| approval != asked.id) {
        return Ok(());
    }
    if approval.is_none() {
        cx.turn.close_approval_request(&asked, RequestStatus::Superseded, cx.env.now)?;
    }
    let edited = match validate_input(&spec, input).and_then(|input| judge::check_edit(run, at, &spec, input)) {
        Err(error) => {
            let data = json!({"code": error.code, "message": error.message});
            cx.turn.add_note("step.edit_refused", Some(step), Some(by), data);
            format!("an edit of the input was refused: {}", error.message)
        }
        Ok(input) => {
            let data = json!({"node": run.tasks.name(at), "input_digest": input.digest()});
            cx.turn.add_note("step.edited", Some(step), Some(by.clone()), data);
            // An edit that changes nothing does not make its author a requester. The input stays as written, since
            // numbers in different notations have the same digest.
            let same = run.tasks.input_digest(at) == Some(input.digest());
            if !same {
                run.tasks.fix_input(at, input);
            }
            if let Some(task) = run.tasks.task_mut(at).filter(|_| !same) {
                task.edited_by(&by.id);
            }
            "the input was edited".to_owned()
        }
    };
    judge::judge_edited(run, at, &spec, cx)?;
    let edited = ApprovalRequirement::one_approval(edited);
    match policy_verdict::evaluate_without_approvals(run, at, &spec, &cx.env) {
        PolicyVerdict::Deny { rule, reason } => policy_verdict::refuse_by_policy(run, at, rule, reason, cx),
        PolicyVerdict::Ask(demand) => request_approval(run, at, &demand.and(edited), cx),
        PolicyVerdict::Allow => request_approval(run, at, &edited, cx),
    }
}

fn place_awaiting(run: &Run, approval: Uuid) -> Option<(RunPlace, ApprovalRequest)> {
    run.tasks.places().find_map(|at| match run.tasks.state(at)? {
        TaskState::AwaitingApproval(asked) if asked.id == approval => Some((at, asked.clone())),
        _ => None,
    })
}
