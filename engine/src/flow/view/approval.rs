//! Approval requests: pending ones with everything needed to decide, closed ones with how they ended.

use crate::flow::review;
use chimera_core::flow::review::{ApprovalState, Review};
use chimera_core::flow::tables::{ApprovalRow, RunRow};
use chimera_core::record::{DamagedRows, Json};
use chimera_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Clone, Debug, Serialize)]
pub struct PendingApproval {
    pub approval_id: Uuid,
    /// `None` if the request is about the whole plan.
    pub step_id: Option<Uuid>,
    pub node_id: Option<String>,
    /// A tool, or what the request is about instead.
    pub action_type: String,
    /// The action as stored. Its members depend on `action_type`.
    pub action: Option<Json>,
    pub review: Review,
    pub digest: Option<String>,
    pub approvals_needed: i64,
    pub decisions: Vec<ApprovalDecision>,
    pub requested_by: String,
    pub changed_by: Vec<String>,
    pub created_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

/// One person's decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDecision {
    pub by: String,
    pub decision: String,
    /// RFC 3339.
    pub at: String,
    pub notes: Option<String>,
    /// False if the person may no longer decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<bool>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ClosedApproval {
    pub approval_id: Uuid,
    pub node_id: Option<String>,
    pub action_type: String,
    pub digest: Option<String>,
    pub standing: ApprovalState,
}

impl PendingApproval {
    /// `all` are the requests of the run.
    pub(in crate::flow) fn of(
        run: &RunRow,
        request: &ApprovalRow,
        all: &[ApprovalRow],
        now: Timestamp,
    ) -> Result<Self, DamagedRows> {
        let review = review::of_row(run, request, all, now)?;
        Ok(Self {
            approval_id: request.approval_request_id,
            step_id: request.step_id,
            node_id: request.node_id.clone(),
            action_type: request.action_type.clone(),
            action: Some(request.action_data.clone()),
            digest: Some(request.action_digest.to_string()),
            approvals_needed: review.approvals_needed,
            review,
            decisions: request.decisions.decode()?,
            requested_by: request.requester_actor.clone(),
            changed_by: request.co_requesters.clone().unwrap_or_default(),
            created_at: Some(request.created_at),
            expires_at: request.expires_at,
        })
    }
}

impl ClosedApproval {
    pub(in crate::flow) fn of(run: &RunRow, request: &ApprovalRow, now: Timestamp) -> Result<Self, DamagedRows> {
        let review = review::of_row(run, request, &[], now)?;
        Ok(Self {
            approval_id: review.approval_id,
            node_id: review.node_id,
            action_type: request.action_type.clone(),
            digest: review.digest,
            standing: review.standing,
        })
    }
}
