//! `POST /runs/{id}/approve`: a person decides about what a run wants to do.
//!
//! A decision covers a digest. Without a digest or a step it counts only while exactly one first
//! approval waits. A request without a body approves, under the same rule.

use crate::caller::Caller;
use crate::extract::OptionalJson;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::Path;
use chimera_engine::flow::{Decide, Decision};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// What a person says.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// It may run.
    #[default]
    Approve,
    /// It may not.
    Reject,
    /// Not like this.
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

/// A decision.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionBody {
    /// What is said.
    decision: Word,
    /// The step, by its id or its node's.
    step_id: Option<String>,
    /// What was looked at: 64 hex digits.
    digest: Option<String>,
    /// The request itself.
    #[schema(value_type = Option<String>)]
    approval_id: Option<Uuid>,
    /// Why.
    reason: Option<String>,
}

/// What a decision is about, and why.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    /// The step, by its id or its node's.
    step_id: Option<String>,
    /// What was looked at: 64 hex digits.
    digest: Option<String>,
    /// The request itself.
    #[schema(value_type = Option<String>)]
    approval_id: Option<Uuid>,
    /// Why.
    reason: Option<String>,
}

/// What became of the request.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecidedDocument {
    /// The run.
    run_id: String,
    /// The request.
    approval_id: String,
    /// What was said.
    decision: &'static str,
    /// `approved`, `denied`, or `pending` while more people must approve.
    approval_status: &'static str,
    /// How many have approved.
    approvals: usize,
    /// How many it takes in all, at the least: who counts for one demand may not for another.
    approvals_needed: i64,
}

/// Decides about an approval.
#[utoipa::path(
    post,
    path = "/runs/{id}/approve",
    tag = "flow",
    params(("id" = String, Path, description = "The run's id")),
    request_body(content = Option<DecisionBody>, description = "May be left out, which approves"),
    responses((status = 200, body = DecidedDocument, description = "What became of the request"), Changing)
)]
pub(crate) async fn approve(
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<DecisionBody>,
) -> Result<Json<DecidedDocument>, ApiError> {
    let DecisionBody { decision, step_id, digest, approval_id, reason } = body;
    decide(&caller, &id, decision.into(), About { step_id, digest, approval_id, reason }).await.map(Json)
}

/// Decides, for every endpoint that lets people do so.
pub(super) async fn decide(
    caller: &Caller,
    id: &str,
    decision: Decision,
    about: About,
) -> Result<DecidedDocument, ApiError> {
    let run = place::run(id)?;
    let step = match &about.step_id {
        Some(step) => Some(place::step(caller, run, step).await?),
        None => None,
    };
    let digest = about.digest.as_deref().map(place::digest).transpose()?;
    let ask = Decide { run, decision, approval: about.approval_id, step, digest, reason: about.reason };
    let decided = caller.flow.decide(&caller.permit, ask).await?;
    Ok(DecidedDocument {
        run_id: run.to_string(),
        approval_id: decided.approval.to_string(),
        decision: decision.as_str(),
        approval_status: decided.status,
        approvals: decided.approvals,
        approvals_needed: decided.needed,
    })
}
