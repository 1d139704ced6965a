//! `POST /intents/validate`: what would become of an envelope. Nothing is written.

use super::intent_post::router;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract;
use crate::gate::received::ReceivedRequest;
use crate::ops::schema::ErrorDocument;
use crate::problem::ApiError;
use crate::wire::{JsonObject, words};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use chimera_engine::intent::{self, Finding, Stage};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

words! {
    /// A check of the Router, in the order of the checks.
    pub(crate) CheckStage from Stage {
        Shape = "shape",
        Signature = "signature",
        Age = "age",
        Idempotency = "idempotency",
        Arguments = "arguments",
        Rights = "rights",
        Policy = "policy",
        Dispatch = "dispatch",
    }
}

/// A reason why the intent would be refused.
#[derive(Serialize, ToSchema)]
pub(crate) struct FindingDocument {
    /// The check that refuses it.
    stage: CheckStage,
    /// The error that a submission would return if this check was the first to refuse it.
    error: ErrorDocument,
}

impl From<Finding> for FindingDocument {
    fn from(finding: Finding) -> Self {
        Self { stage: finding.stage.into(), error: finding.error.into() }
    }
}

/// What would become of an envelope.
#[derive(Serialize, ToSchema)]
pub(crate) struct ValidatedDocument {
    /// Whether the intent would be accepted now.
    valid: bool,
    /// In the order of the checks. The first one decides the code of a refusal.
    findings: Vec<FindingDocument>,
}

/// Checks an intent without submitting it.
#[utoipa::path(
    post,
    path = "/intents/validate",
    tag = "intent",
    request_body(content = JsonObject, description = "A signed envelope"),
    responses((status = 200, body = ValidatedDocument, description = "What was found"), WriteErrors)
)]
pub(crate) async fn validate(
    State(edge): State<Edge>,
    caller: Caller,
    Extension(shown): Extension<Arc<ReceivedRequest>>,
    headers: HeaderMap,
) -> Result<Json<ValidatedDocument>, ApiError> {
    extract::require_json(&headers)?;
    let report = Box::pin(intent::validate(router(&edge)?, &caller.permit, &shown.body)).await?;
    let findings: Vec<FindingDocument> = report.findings.into_iter().map(FindingDocument::from).collect();
    Ok(Json(ValidatedDocument { valid: findings.is_empty(), findings }))
}
