//! `POST /runs/{id}/approve`: a person decides an approval request.
//!
//! A decision covers a digest. Without a digest or a step it is accepted only while exactly one first
//! approval is pending. An empty body approves, under the same rule.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::OptionalJson;
use crate::params;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use chimera_engine::flow::{Decide, Decision};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A decision about an approval request.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// Approve the request.
    #[default]
    Approve,
    /// Reject the request.
    Reject,
    /// Ask for changes.
    RequestChanges,
}

impl From<Word> for Decision {
    fn from(word: Word) -> Self {
        match word {
            Word::Approve => Self::Approve,
            Word::Reject => Self::Reject,
            Word::RequestChanges => Self::RequestChanges,
        }
    }
}

/// A decision about an approval request.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionBody {
    /// The decision.
    decision: Word,
    /// Step id or node id.
    step_id: Option<String>,
    /// Digest of what was reviewed: 64 hex digits.
    digest: Option<String>,
    /// Id of the approval request.
    #[schema(value_type = Option<String>)]
    approval_id: Option<Uuid>,
    /// Reason for the decision.
    reason: Option<String>,
}

/// The approval request to reject, and the reason.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    /// Step id or node id.
    step_id: Option<String>,
    /// Digest of what was reviewed: 64 hex digits.
    digest: Option<String>,
    /// Id of the approval request.
    #[schema(value_type = Option<String>)]
    approval_id: Option<Uuid>,
    /// Reason for the decision.
    reason: Option<String>,
}

/// Result of a decision.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecidedDocument {
    /// Id of the run.
    run_id: String,
    /// Id of the approval request.
    approval_id: String,
    /// The decision.
    decision: &'static str,
    /// `approved`, `denied`, or `pending` while more people must approve.
    approval_status: &'static str,
    /// Number of approvals so far.
    approvals: usize,
    /// Minimum number of approvals; more may be needed if one person does not satisfy every requirement.
    approvals_needed: i64,
}

/// Decides an approval request.
#[utoipa::path(
    post,
    path = "/runs/{id}/approve",
    tag = "flow",
    params(("id" = String, Path, description = "Run id")),
    request_body(content = Option<DecisionBody>, description = "Optional; an empty body approves"),
    responses((status = 200, body = DecidedDocument, description = "The decision was recorded"), WriteErrors)
)]
pub(crate) async fn approve(
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<DecisionBody>,
) -> Result<Json<DecidedDocument>, ApiError> {
    let DecisionBody { decision, step_id, digest, approval_id, reason } = body;
    decide(&caller, &id, decision.into(), About { step_id, digest, approval_id, reason }).await.map(Json)
}

/// Shared by the approve and reject endpoints.
pub(super) async fn decide(
    caller: &Caller,
    id: &str,
    decision: Decision,
    about: About,
) -> Result<DecidedDocument, ApiError> {
    let run = params::run(id)?;
    let step = match &about.step_id {
        Some(step) => Some(params::resolve_step(caller, run, step).await?),
        None => None,
    };
    let digest = about.digest.as_deref().map(params::digest).transpose()?;
    let ask = Decide { run, decision, approval: about.approval_id, step, digest, reason: about.reason };
    let decided = caller.flow.decide(&caller.permit, ask).await?;
    Ok(DecidedDocument {
        run_id: run.to_string(),
        approval_id: decided.approval.to_string(),
        decision: decision.as_str(),
        approval_status: decided.status.as_str(),
        approvals: decided.approvals,
        approvals_needed: decided.needed,
    })
}
