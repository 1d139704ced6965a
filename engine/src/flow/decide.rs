//! Decisions on approval requests.
//!
//! The rules are in `core`: which request a decision refers to (`RequestReference::find`), and what it makes of the
//! request (`StoredApproval::decide`). This use case reads the request, checks the caller, and commits the outcome together
//! with the signal that tells the run.

use super::error::{check_text, mask_credentials};
use super::registry::disabled;
use super::superseded_requests::SupersededRequests;
use super::{Flow, FlowPorts, link, load, review, signals, undo_scopes};
use crate::access::{APPROVALS_DECIDE, Permit, missing_scope_error};
use crate::error::EngineError;
use crate::ledger::audit::{DecisionRecord as Audited, Writer};
use crate::port::CommitError;
use chimera_core::access::DeciderRefusal;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::approval::{
    Decided, Decision, DecisionOutcome, DecisionRefusal, FindRefusal, People, PersonDecision, RequestReference,
    RequestStatus, RequestedAction, StoredApproval,
};
use chimera_core::flow::run::{RunHead, Signal, SignalKind, affinity};
use chimera_core::flow::tables::{APPROVAL_DETAILS, APPROVAL_REQUESTS, RunRow, approval_details, approval_requests};
use chimera_core::json::Digest32;
use chimera_core::ledger::ActorType;
use chimera_core::ledger::decision::{DecisionSource, Outcome};
use chimera_core::limits;
use chimera_core::record::{Json, Step, Tx, Unstorable, Update};
use serde_json::json;
use uuid::Uuid;

/// A decision and what it is about.
#[derive(Clone, Debug)]
pub struct Decide {
    pub run: Uuid,
    pub decision: Decision,
    pub approval: Option<Uuid>,
    pub step: Option<Uuid>,
    /// The digest of what the person reviewed.
    pub digest: Option<Digest32>,
    pub reason: Option<String>,
}

/// The state of the request after the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionResult {
    pub approval: Uuid,
    /// Approved, denied, or pending while more people must approve.
    pub status: RequestStatus,
    pub approvals: usize,
    pub needed: i64,
}

/// Records a decision and wakes the run.
pub async fn decide(flow: &Flow, permit: &Permit, ask: Decide) -> Result<DecisionResult, EngineError> {
    decide_with_link(flow, permit, ask, None).await
}

/// Like `decide`; an approval link is consumed with the decision.
pub(super) async fn decide_with_link(
    flow: &Flow,
    permit: &Permit,
    ask: Decide,
    link: Option<&str>,
) -> Result<DecisionResult, EngineError> {
    if permit.kind() != ActorType::Human {
        return Err(not_decider(&DeciderRefusal::NotAPerson));
    }
    check_text("reason", ask.reason.as_deref())?;
    let mut ask = ask;
    // Expressions may use the notes of an approval; those of a refusal are only displayed.
    if ask.decision != Decision::Approve {
        ask.reason = ask.reason.as_deref().map(mask_credentials);
    }
    for _ in 1..limits::DECIDE_TRIES_MAX {
        match try_decide(flow, permit, &ask, link).await {
            // A concurrent decision: retry with the current state.
            Err(EngineError::Commit(error @ CommitError::Conflict(_))) if !permit.is_alongside_conflict(&error) => {}
            decided => return decided,
        }
    }
    try_decide(flow, permit, &ask, link).await
}

async fn try_decide(
    flow: &Flow,
    permit: &Permit,
    ask: &Decide,
    link: Option<&str>,
) -> Result<DecisionResult, EngineError> {
    let used_up = match link {
        Some(link) => Some(link::consume_link(flow, link).await?),
        None => None,
    };
    let records = &*flow.inner.parts.records;
    let run = load::decidable_run(records, permit, ask.run).await?;
    let rows = review::requests_of(flow, permit.tenant(), ask.run).await?;
    let all = StoredApproval::of_rows(&rows)?;
    let Decide { decision, approval, step, digest, .. } = *ask;
    let approval = RequestReference { decision, approval, step, digest }.find(&all).map_err(not_found)?;
    let row = rows.iter().find(|row| row.approval_request_id == approval.id);
    let row = row.ok_or_else(|| not_found(FindRefusal::Unknown))?;
    review::check_open(&review::of_row(&run, row, &[], flow.inner.parts.clock.steady())?)?;
    check_decider(flow, permit, approval)?;
    let unchanged = check_stored_decider(flow, permit, &run.actor).await?;
    if decision == Decision::Approve {
        review::check_approvable(approval)?;
        check_tool_versions(flow, permit, &run, approval).await?;
    }
    check_narrowed_token(flow, permit, ask, approval).await?;
    let decided = apply_decision(flow, permit, ask, approval, &run.actor)?;
    let superseded = SupersededRequests::of_decision(&all, approval, &decided.outcome);
    let mut tx = decision_tx(flow, permit, ask, (approval, &decided), &superseded)?;
    tx.steps.extend(unchanged);
    if let Some(used_up) = used_up {
        tx.updates.extend(used_up.updates);
        tx.steps.extend(used_up.steps);
        let (subject, data) = (approval.id.to_string(), json!({"decision": decision.as_str()}));
        signals::record(flow, &mut tx, permit, permit.event(subject, "approval.link_used", data).of_run(ask.run))?;
    }
    flow.inner.parts.records.commit(tx).await?;
    let Decided { outcome, approvals, needed, .. } = decided;
    if outcome != DecisionOutcome::Pending {
        flow.inner.wake(ask.run);
    }
    Ok(DecisionResult { approval: approval.id, status: outcome.status(), approvals, needed })
}

fn apply_decision(
    flow: &Flow,
    permit: &Permit,
    ask: &Decide,
    approval: &StoredApproval,
    requester: &str,
) -> Result<Decided, EngineError> {
    let recipients = &flow.inner.parts.asking.recipients;
    let people = People {
        same: &|one, other| recipients.is_same_person(one, other),
        may_still_decide: &|who| recipients.not_decider(permit.tenant(), who, requester).is_none(),
    };
    let said = PersonDecision {
        at: flow.inner.parts.clock.now().to_string(),
        by: permit.actor().to_owned(),
        counts: true,
        decision: ask.decision,
        notes: ask.reason.clone(),
    };
    approval.decide(said, flow.inner.parts.clock.steady(), &people).map_err(refused)
}

/// Refuses a caller who may no longer decide by what the store says at this moment. The step makes the decision
/// conflict if that changes before it is committed.
async fn check_stored_decider(flow: &Flow, permit: &Permit, requester: &str) -> Result<Option<Step>, EngineError> {
    let recipients = &flow.inner.parts.asking.recipients;
    let Some(stored) = recipients.stored_decider(permit.tenant(), permit.actor(), requester).await? else {
        return Ok(None);
    };
    match stored.refusal {
        Some(reason) => Err(not_decider(&reason)),
        None => Ok(Some(stored.unchanged)),
    }
}

/// Refuses a caller who may not decide on this request.
pub(super) fn check_decider(flow: &Flow, permit: &Permit, approval: &StoredApproval) -> Result<(), EngineError> {
    // An operator's own contributions in the tenant are not recorded under their name there.
    if permit.acts_for().is_some() && approval.requirement.excludes_requesters() {
        return Err(not_decider(&DeciderRefusal::ActsForTenant));
    }
    let same = |one: &str, other: &str| flow.inner.parts.asking.recipients.is_same_person(one, other);
    let reason = approval.requirement.exclusion_reason(permit.actor(), &approval.requesters, &same);
    reason.map_or(Ok(()), |reason| Err(not_decider(&reason)))
}

/// Refuses to approve a call of a tool in another definition than the one that the run would call. The definition of
/// a declared tool is fixed when its run begins, so it is still the same after a reload; that of any other tool
/// may have changed with the program, and then the run asks again.
async fn check_tool_versions(
    flow: &Flow,
    permit: &Permit,
    run: &RunRow,
    approval: &StoredApproval,
) -> Result<(), EngineError> {
    let FlowPorts { records, registry, .. } = &flow.inner.parts;
    let pins = load::pins(&**records, &RunHead::of_row(run)?, run.id).await?;
    for (name, version) in approval.data.tools() {
        if let Some(reason) = registry.snapshot().why_disabled(name) {
            let message = format!("{name} can't be called: {}", disabled(reason));
            return Err(EngineError::refused(Code::ToolUnavailable, message));
        }
        let expected = match pins.tool(name).filter(|_| !registry.snapshot().is_built_in(name)) {
            Some(pinned) => Some(pinned.to_owned()),
            None => registry.get(permit.tenant(), name).map(|tool| tool.spec().version.clone()),
        };
        if expected.is_some_and(|expected| expected != version) {
            flow.inner.wake(run.id);
            let message =
                format!("{name} changed since this approval was requested; fetch the run for the current digest");
            return Err(EngineError::refused(Code::StaleApproval, message));
        }
    }
    Ok(())
}

/// A narrowed token can't release what it could not request, unless it has the scope for deciding. A rejection
/// counts too: the graph may continue after it.
async fn check_narrowed_token(
    flow: &Flow,
    permit: &Permit,
    ask: &Decide,
    approval: &StoredApproval,
) -> Result<(), EngineError> {
    if !permit.is_narrowed() || permit.may(APPROVALS_DECIDE) {
        return Ok(());
    }
    match (&approval.action, ask.decision) {
        // The patch is not part of the run yet.
        (RequestedAction::Patch, Decision::Approve) => Err(EngineError::missing_scope(APPROVALS_DECIDE)),
        // Nothing has run, and nothing will.
        (RequestedAction::Plan, Decision::Reject | Decision::RequestChanges) => {
            undo_scopes::check_end_scopes(flow, permit, ask.run, APPROVALS_DECIDE).await
        }
        _ => undo_scopes::check_continue_scopes(flow, permit, ask.run, APPROVALS_DECIDE).await,
    }
}

fn decision_tx(
    flow: &Flow,
    permit: &Permit,
    ask: &Decide,
    (approval, decided): (&StoredApproval, &Decided),
    superseded: &SupersededRequests,
) -> Result<Tx, EngineError> {
    let now = flow.inner.parts.clock.steady();
    let (approval_id, notes) = (approval.id, ask.reason.clone());
    let json = Json::encode(&decided.decisions).map_err(Unstorable::from)?;
    let set = vec![(approval_details::decisions, json.into())];
    let details = Update::versioned(&APPROVAL_DETAILS, vec![approval_id.into()], approval.version, set);
    let mut set = vec![(approval_requests::status, decided.outcome.status().into())];
    if decided.outcome != DecisionOutcome::Pending {
        set.extend([
            (approval_requests::reviewed_at, now.into()),
            (approval_requests::reviewed_by, permit.actor().into()),
            (approval_requests::review_decision, ask.decision.as_str().into()),
            (approval_requests::review_notes, notes.clone().into()),
        ]);
    }
    let pending = vec![(approval_requests::status, RequestStatus::Pending.into())];
    let request = Update::new(&APPROVAL_REQUESTS, vec![approval_id.into()], pending, set);
    let mut tx = Tx {
        updates: vec![details.map_err(Unstorable::from)?, request.map_err(Unstorable::from)?],
        affinity: affinity(ask.run),
        ..Tx::default()
    };
    let kind = match &decided.outcome {
        DecisionOutcome::Pending => None,
        DecisionOutcome::Approved { by } => Some(SignalKind::Approved { approval: approval_id, by: by.clone(), notes }),
        DecisionOutcome::Denied { changes } => {
            Some(SignalKind::Denied { approval: approval_id, by: permit.by(), notes, changes: *changes })
        }
    };
    if let Some(kind) = kind {
        let mut signal = Signal::new(flow.inner.id(), kind);
        superseded.close(&mut tx, &mut signal, permit, now)?;
        tx.inserts.push(signal.row(permit.tenant(), ask.run, now)?);
    }
    let writer = Writer { random: &*flow.inner.parts.random, clock: &*flow.inner.parts.clock };
    let mut entry = decision_record(permit, ask, approval, decided);
    superseded.add_to_entry(&mut entry.event.data);
    writer.decision(&mut tx, entry)?;
    permit.add_alongside(&mut tx);
    Ok(tx)
}

/// The refusal of a decision that refers to no request.
pub(super) fn not_found(refusal: FindRefusal) -> EngineError {
    let code = match refusal {
        FindRefusal::Unknown => Code::NotFound,
        FindRefusal::StaleDigest | FindRefusal::StaleStep => Code::StaleApproval,
        FindRefusal::OtherStep | FindRefusal::NonePending | FindRefusal::NotFirst | FindRefusal::Several => {
            Code::InvalidTransition
        }
    };
    EngineError::refused(code, refusal.to_string())
}

fn refused(refusal: DecisionRefusal) -> EngineError {
    EngineError::refused(Code::InvalidTransition, refusal.to_string())
}

/// The refusal of a caller who may not decide.
pub(super) fn not_decider(reason: &DeciderRefusal) -> EngineError {
    let body = match reason {
        DeciderRefusal::LacksScope => missing_scope_error(APPROVALS_DECIDE),
        reason => ErrorBody::new(Code::RbacForbidden, reason.message()),
    };
    EngineError::Refused(Box::new(body.with("reason", reason.as_str())))
}

fn decision_record(permit: &Permit, ask: &Decide, approval: &StoredApproval, decided: &Decided) -> Audited {
    let outcome = match decided.outcome {
        DecisionOutcome::Approved { .. } => Outcome::Approved,
        DecisionOutcome::Denied { .. } => Outcome::Rejected,
        DecisionOutcome::Pending => Outcome::Deferred,
    };
    let data = json!({
        "run_id": ask.run, "digest": approval.digest, "decision": ask.decision.as_str(),
        "approvals": decided.approvals, "needed": decided.needed,
    });
    Audited {
        event: permit.event(approval.id, "approval.decided", data).of_run(ask.run),
        source: DecisionSource::Approval,
        outcome,
        rationale: ask.reason.as_deref().map_or_else(|| ask.decision.as_str().to_owned(), mask_credentials),
        agent_id: None,
        action_type: Some(approval.action.as_str().to_owned()),
        action_data: None,
        policies: Vec::new(),
        campaign_id: None,
        task_id: None,
    }
}
