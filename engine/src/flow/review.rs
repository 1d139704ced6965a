//! The review of an approval request, the same for every interface.

use super::Flow;
use crate::error::EngineError;
use crate::rows;
use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::approval::{RequestedAction, StoredApproval};
use chimera_core::flow::cause::ScheduleCause;
use chimera_core::flow::review::{ApprovalRecord, ApprovalStatus, Review, refusals};
use chimera_core::flow::run::{ApprovalRequested, RunHead};
use chimera_core::flow::tables::{ApprovalRow, RunRow, scoped_approvals};
use chimera_core::limits;
use chimera_core::record::{DamagedRows, Json, Scope, StoredRow};
use chimera_core::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

/// The review of a stored request. `all` are the requests of its run.
pub(super) fn of_row(
    run: &RunRow,
    row: &ApprovalRow,
    all: &[ApprovalRow],
    now: Timestamp,
) -> Result<Review, DamagedRows> {
    let stored = StoredApproval::of_row(row)?;
    let before = before(all, row).map(|row| row.action_data.value()).transpose()?;
    let risk = run.risk.as_ref().map(Json::value).transpose()?;
    let notify = run.notify.as_ref().map(Json::value).transpose()?;
    let schedule = ScheduleCause::of_text(run.request_payload.as_str());
    let review = Review::of(&ApprovalRecord {
        approval_id: row.approval_request_id,
        run_id: run.id,
        workflow_id: run.workflow_id.as_deref().unwrap_or_default(),
        requested_by: &row.requester_actor,
        changed_by: row.co_requesters.as_deref().unwrap_or_default(),
        autonomy_level: run.autonomy_level.map(Level::as_str).unwrap_or_default(),
        node_id: row.node_id.as_deref(),
        action_type: &row.action_type,
        data: stored.data.as_value(),
        digest: Some(row.action_digest.to_string()),
        created_at: Some(row.created_at),
        expires_at: row.expires_at,
        approvals_needed: stored.people_needed(&|one, other| one == other),
        decisions: &row.decisions.value()?,
        status: row.status.as_str(),
        reviewed_at: row.reviewed_at,
        reviewed_by: row.reviewed_by.as_deref(),
        notes: row.review_notes.as_deref(),
        run_risk: risk.as_ref(),
        notify: notify.as_ref(),
        before: before.as_ref(),
        now,
    });
    Ok(Review { schedule, ..review })
}

/// The review of a request that is being created.
pub(super) fn of_request(head: &RunHead, requested: &ApprovalRequested, all: &[ApprovalRow], now: Timestamp) -> Review {
    let step = requested.step.as_ref().map(|(step, _)| *step);
    let before = all.iter().filter(|row| row.step_id == step && row.approval_request_id != requested.approval);
    let before = latest(before, &requested.action);
    // The earlier request is context only: without it the review still says what would run.
    let before = before.and_then(|row| row.action_data.value().inspect_err(rows::log_skipped).ok());
    let review = Review::of(&ApprovalRecord {
        approval_id: requested.approval,
        run_id: head.id,
        workflow_id: &head.workflow.id,
        requested_by: &head.actor,
        changed_by: requested.requesters.get(1..).unwrap_or_default(),
        autonomy_level: head.level.as_str(),
        node_id: requested.step.as_ref().map(|(_, node)| node.as_str()),
        action_type: &requested.action,
        data: &requested.data,
        digest: Some(requested.digest.to_string()),
        created_at: Some(now),
        expires_at: Some(requested.expires_at),
        approvals_needed: i64::from(requested.demand.people()),
        decisions: &json!([]),
        status: "pending",
        reviewed_at: None,
        reviewed_by: None,
        notes: None,
        run_risk: head.risk.as_deref(),
        notify: head.notify.as_ref(),
        before: before.as_ref(),
        now,
    });
    Review { schedule: ScheduleCause::of_request(&head.request), ..review }
}

/// The previous request for the same action.
fn before<'a>(all: &'a [ApprovalRow], row: &ApprovalRow) -> Option<&'a ApprovalRow> {
    let same = |other: &&ApprovalRow| {
        other.step_id == row.step_id
            && other.approval_request_id != row.approval_request_id
            && other.created_at < row.created_at
    };
    latest(all.iter().filter(same), &row.action_type)
}

/// The newest of these requests for an action. Two patches have nothing in common.
fn latest<'a>(requests: impl Iterator<Item = &'a ApprovalRow>, action: &str) -> Option<&'a ApprovalRow> {
    let same = requests.filter(|row| row.action_type == action && action != RequestedAction::Patch.as_str());
    same.max_by_key(|row| row.created_at)
}

/// Refuses a request that is no longer open, and says who or what closed it, and when.
pub(super) fn check_open(review: &Review) -> Result<(), EngineError> {
    let code = match review.standing.status {
        ApprovalStatus::Open => return Ok(()),
        ApprovalStatus::Superseded | ApprovalStatus::Cancelled => Code::StaleApproval,
        ApprovalStatus::Expired | ApprovalStatus::Approved | ApprovalStatus::Denied => Code::InvalidTransition,
    };
    let standing = serde_json::to_value(&review.standing).unwrap_or_default();
    let body = ErrorBody::new(code, review.standing.describe());
    Err(EngineError::Refused(Box::new(
        body.with("approval_id", review.approval_id.to_string()).with("standing", standing),
    )))
}

/// Refuses to approve what the dry run already refused.
pub(super) fn check_approvable(approval: &StoredApproval) -> Result<(), EngineError> {
    let refused = refusals(approval.action.as_str(), approval.data.as_value());
    let Some(first) = refused.first() else { return Ok(()) };
    let message =
        format!("the dry run was refused at {first}; reject the plan, or change the step's input to run it again");
    Err(EngineError::Refused(Box::new(ErrorBody::new(Code::PolicyDenied, message).with("refusals", refused))))
}

pub(super) async fn requests_of(flow: &Flow, tenant: &str, run: Uuid) -> Result<Vec<ApprovalRow>, EngineError> {
    let select = ApprovalRow::select(Scope::Tenant(tenant.to_owned())).with(scoped_approvals::run_id, run);
    rows::list(&*flow.inner.parts.records, select, limits::RUN_ROWS_MAX).await
}
