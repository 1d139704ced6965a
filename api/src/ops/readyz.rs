//! `GET /readyz`: whether every part that requests need works now.
//!
//! The parts are asked at the same time, each within its own limit, so that one that hangs does not
//! hide the others. One that takes longer goes on, so that what it finds out counts. Anybody may ask, and asking makes
//! stores write: so one caller asks them at a time, and the answer is kept for a moment.

use crate::edge::{Check, Edge};
use crate::ops::schema::ProblemDocument;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::State;
use chimera_core::error::Code;
use chimera_core::limits::READINESS_CACHED_MS;
use chimera_core::time::Timestamp;
use futures::future::join_all;
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

/// Every part works.
#[derive(Serialize, ToSchema)]
pub(crate) struct Ready {
    /// Always `ready`.
    status: &'static str,
    /// What was asked.
    checks: Vec<Part>,
}

/// What the parts said, and when.
pub(crate) struct KeptAnswer {
    at: Timestamp,
    parts: Vec<Part>,
}

/// One part.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct Part {
    /// Its name.
    name: &'static str,
    /// Whether it works.
    ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    reason: Option<String>,
    /// What an operator should look at, though the part works.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    note: Option<String>,
}

/// Says whether requests can be served, and which part is missing if not.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "ops",
    responses(
        (status = 200, body = Ready, description = "Ready"),
        (status = 503, body = ProblemDocument, content_type = "application/problem+json", description = "NOT_READY"),
    )
)]
pub(crate) async fn readyz(State(edge): State<Edge>) -> Result<Json<Ready>, ApiError> {
    let mut checks = parts(&edge).await;
    if edge.is_stopping() {
        checks.push(Part { name: "process", ok: false, reason: Some("stopping".to_owned()), note: None });
    }
    let missing: Vec<&str> = checks.iter().filter(|part| !part.ok).map(|part| part.name).collect();
    if missing.is_empty() {
        return Ok(Json(Ready { status: "ready", checks }));
    }
    let message = format!("not ready: {}", missing.join(", "));
    let checks = serde_json::to_value(&checks).unwrap_or_default();
    Err(ApiError::new(Code::NotReady, message).with("checks", checks).retry_after(1))
}

async fn parts(edge: &Edge) -> Vec<Part> {
    let mut kept = edge.kept_answer.lock().await;
    let now = edge.clock.steady();
    let age_ms = |kept: &KeptAnswer| now.millis() - kept.at.millis();
    if let Some(kept) = kept.as_ref().filter(|kept| age_ms(kept) < READINESS_CACHED_MS) {
        return kept.parts.clone();
    }
    let parts = join_all(edge.checks.iter().map(|check| ask(check, edge.check_timeout))).await;
    *kept = Some(KeptAnswer { at: edge.clock.steady(), parts: parts.clone() });
    parts
}

async fn ask(check: &Check, limit: Duration) -> Part {
    let reason = check.run_within(limit).await.err();
    let note = check.note().filter(|_| reason.is_none());
    Part { name: check.name, ok: reason.is_none(), reason, note }
}
