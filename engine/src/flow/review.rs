//! The review of an approval request, the same for every interface.

use super::Flow;
use super::decide::people_needed;
use crate::error::EngineError;
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::review::{ApprovalRecord, ApprovalStatus, Review, refusals};
use chimera_core::flow::run::{ApprovalRequested, RunHead};
use chimera_core::flow::tables::SCOPED_APPROVALS;
use chimera_core::limits;
use chimera_core::record::{Json, Row, Scope, Select};
use chimera_core::time::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

/// The review of a stored request. `all` are the requests of its run.
pub(super) fn of_row(run: &Row, row: &Row, all: &[Row], now: Timestamp) -> Review {
    let data = json_of(row, "action_data");
    let before = before(all, row).map(|row| json_of(row, "action_data"));
    let risk = run.get("risk").as_json().map(Json::to_value);
    let notify = run.get("notify").as_json().map(Json::to_value);
    Review::of(&ApprovalRecord {
        approval_id: row.uuid("approval_request_id"),
        run_id: run.uuid("id"),
        workflow_id: run.get("workflow_id").as_text().unwrap_or_default(),
        requested_by: row.text("requester_actor"),
        changed_by: row.get("co_requesters").as_texts(),
        autonomy_level: run.get("autonomy_level").as_text().unwrap_or_default(),
        node_id: row.get("node_id").as_text(),
        action_type: row.text("action_type"),
        data: &data,
        digest: row.get("action_digest").as_bytes().map(hex::encode),
        created_at: row.get("created_at").as_time(),
        expires_at: row.get("expires_at").as_time(),
        approvals_needed: people_needed(row, &|one, other| one == other),
        decisions: &json_of(row, "decisions"),
        status: row.text("status"),
        reviewed_at: row.get("reviewed_at").as_time(),
        reviewed_by: row.get("reviewed_by").as_text(),
        notes: row.get("review_notes").as_text(),
        run_risk: risk.as_ref(),
        notify: notify.as_ref(),
        before: before.as_ref(),
        now,
    })
}

/// The review of a request that is being created.
pub(super) fn of_request(head: &RunHead, requested: &ApprovalRequested, all: &[Row], now: Timestamp) -> Review {
    let step = requested.step.as_ref().map(|(step, _)| *step);
    let before = latest(all, requested.approval, step, &requested.action, None);
    let before = before.map(|row| json_of(row, "action_data"));
    Review::of(&ApprovalRecord {
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
    })
}

fn json_of(row: &Row, column: &str) -> Value {
    row.get(column).as_json().map(Json::to_value).unwrap_or_default()
}

/// The previous request for the same action.
fn before<'a>(all: &'a [Row], row: &Row) -> Option<&'a Row> {
    let step = row.get("step_id").as_uuid();
    let at = row.get("created_at").as_time();
    latest(all, row.uuid("approval_request_id"), step, row.text("action_type"), at)
}

fn latest<'a>(
    all: &'a [Row],
    but: Uuid,
    step: Option<Uuid>,
    action: &str,
    until: Option<Timestamp>,
) -> Option<&'a Row> {
    let same = |row: &&Row| {
        row.get("step_id").as_uuid() == step
            && row.text("action_type") == action
            && action != "graph.patch"
            && row.uuid("approval_request_id") != but
            && until.is_none_or(|until| row.get("created_at").as_time().is_some_and(|at| at < until))
    };
    all.iter().filter(same).max_by_key(|row| row.get("created_at").as_time())
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
pub(super) fn check_approvable(row: &Row) -> Result<(), EngineError> {
    let refused = refusals(row.text("action_type"), &json_of(row, "action_data"));
    let Some(first) = refused.first() else { return Ok(()) };
    let message =
        format!("the dry run was refused at {first}; reject the plan, or change the step's input to run it again");
    Err(EngineError::Refused(Box::new(ErrorBody::new(Code::PolicyDenied, message).with("refusals", refused))))
}

impl Flow {
    pub(super) async fn requests_of(&self, tenant: &str, run: Uuid) -> Result<Vec<Row>, EngineError> {
        let select = Select::from(&SCOPED_APPROVALS, Scope::Tenant(tenant.to_owned())).with("run_id", run);
        rows::all(&*self.inner.parts.records, select, limits::RUN_ROWS_MAX).await
    }
}
