//! Approval requests: pending ones with everything needed to decide, closed ones with how they ended.

use super::{decoded, json};
use crate::flow::decide::people_needed;
use crate::flow::review;
use chimera_core::flow::review::{ApprovalState, Review};
use chimera_core::record::{DamagedRows, Json, Row};
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
    pub(in crate::flow) fn of(run: &Row, row: &Row, all: &[Row], now: Timestamp) -> Result<Self, DamagedRows> {
        Ok(Self {
            approval_id: row.uuid("approval_request_id"),
            step_id: row.get("step_id").as_uuid(),
            node_id: super::text(row, "node_id"),
            action_type: row.text("action_type").to_owned(),
            action: json(row, "action_data"),
            review: review::of_row(run, row, all, now),
            digest: row.get("action_digest").as_bytes().map(hex::encode),
            approvals_needed: people_needed(row, &|one, other| one == other),
            decisions: decoded(row, "decisions")?.unwrap_or_default(),
            requested_by: row.text("requester_actor").to_owned(),
            changed_by: row.get("co_requesters").as_texts().to_vec(),
            created_at: row.get("created_at").as_time(),
            expires_at: row.get("expires_at").as_time(),
        })
    }
}

impl ClosedApproval {
    pub(in crate::flow) fn of(run: &Row, row: &Row, now: Timestamp) -> Self {
        let review = review::of_row(run, row, &[], now);
        Self {
            approval_id: review.approval_id,
            node_id: review.node_id,
            action_type: row.text("action_type").to_owned(),
            digest: review.digest,
            standing: review.standing,
        }
    }
}
