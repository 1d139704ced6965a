//! `POST /runs/{id}/approve`: a person decides an approval request.
//!
//! A decision covers a digest. Without a digest or a step it is accepted only while exactly one first
//! approval is pending. An empty body approves, under the same rule.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::OptionalJson;
use crate::params;
use crate::problem::ApiError;
use crate::wire::words;
use axum::Json;
use axum::extract::Path;
use chimera_engine::flow::{self, Decide, Decision, RequestStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

words! {
    /// A decision about an approval request.
    pub(crate) DecisionWord from Decision {
        Approve = "approve",
        Reject = "reject",
        RequestChanges = "request_changes",
    }
}

/// Status of an approval request after a decision.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DecidedStatus {
    Approved,
    Denied,
    Pending,
}

impl From<RequestStatus> for DecidedStatus {
    fn from(status: RequestStatus) -> Self {
        match status {
            RequestStatus::Approved => Self::Approved,
            RequestStatus::Pending => Self::Pending,
            RequestStatus::Denied | RequestStatus::Expired | RequestStatus::Superseded | RequestStatus::Cancelled => {
                Self::Denied
            }
        }
    }
}

/// A decision about an approval request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionBody {
    /// The decision.
    decision: DecisionWord,
    /// Step id or node id.
    step_id: Option<String>,
    /// Digest of what was reviewed: 64 hex digits.
    digest: Option<String>,
    /// Id of the approval request.
    approval_id: Option<Uuid>,
    /// Reason for the decision.
    reason: Option<String>,
}

/// The approval request to reject, and the reason.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RejectBody {
    /// Step id or node id.
    step_id: Option<String>,
    /// Digest of what was reviewed: 64 hex digits.
    digest: Option<String>,
    /// Id of the approval request.
    approval_id: Option<Uuid>,
    /// Reason for the decision.
    reason: Option<String>,
}

/// Result of a decision.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecidedDocument {
    /// Id of the run.
    run_id: Uuid,
    /// Id of the approval request.
    approval_id: Uuid,
    /// The decision.
    decision: DecisionWord,
    /// `pending` while more people must approve.
    approval_status: DecidedStatus,
    /// Number of approvals so far.
    approvals: usize,
    /// Minimum number of approvals; more may be needed if one person does not satisfy every requirement.
    approvals_needed: i64,
}

impl Default for DecisionBody {
    fn default() -> Self {
        Self { decision: DecisionWord::Approve, step_id: None, digest: None, approval_id: None, reason: None }
    }
}

/// Decides an approval request: approves it, rejects it or requests changes.
#[utoipa::path(
    post,
    path = "/runs/{id}/approve",
    tag = "flow",
    params(("id" = uuid::Uuid, Path, description = "Run id")),
    request_body(content = Option<DecisionBody>, description = "Optional; an empty body approves"),
    responses((status = 200, body = DecidedDocument, description = "The decision was recorded"), WriteErrors)
)]
pub(crate) async fn approve(
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<DecisionBody>,
) -> Result<Json<DecidedDocument>, ApiError> {
    let DecisionBody { decision, step_id, digest, approval_id, reason } = body;
    decide(&caller, &id, decision.into(), RejectBody { step_id, digest, approval_id, reason }).await.map(Json)
}

/// Shared by the approve and reject endpoints.
pub(super) async fn decide(
    caller: &Caller,
    id: &str,
    decision: Decision,
    request: RejectBody,
) -> Result<DecidedDocument, ApiError> {
    let run = params::run(id)?;
    let step = match &request.step_id {
        Some(step) => Some(params::resolve_step(caller, run, step).await?),
        None => None,
    };
    let digest = request.digest.as_deref().map(params::digest).transpose()?;
    let ask = Decide { run, decision, approval: request.approval_id, step, digest, reason: request.reason };
    let decided = flow::decide(&caller.flow, &caller.permit, ask).await?;
    Ok(DecidedDocument {
        run_id: run,
        approval_id: decided.approval,
        decision: decision.into(),
        approval_status: decided.status.into(),
        approvals: decided.approvals,
        approvals_needed: decided.needed,
    })
}
