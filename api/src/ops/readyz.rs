//! `GET /readyz`: whether every component that requests need works now.
//!
//! Checks run concurrently, each with its own timeout, so that one that hangs does not hide the others. A check that
//! times out keeps running, so that its result counts later. The endpoint is public and checks make stores write, so only
//! one caller runs them at a time, and the result is cached briefly.

use crate::edge::{Edge, Readiness, ReadinessCheck};
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

/// Readiness of the process.
#[derive(Serialize, ToSchema)]
pub(crate) struct Ready {
    /// Always `ready`.
    status: &'static str,
    /// Result of each check.
    checks: Vec<ReadinessResult>,
}

/// A cached result.
pub(crate) struct CachedReadiness {
    at: Timestamp,
    parts: Vec<ReadinessResult>,
}

/// Result of one readiness check.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct ReadinessResult {
    /// Name of the check.
    name: &'static str,
    /// Whether the check passed.
    ok: bool,
    /// Why the check failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    reason: Option<String>,
    /// A hint for the operator although the check passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    note: Option<String>,
}

/// Reports whether requests can be served, and which checks fail if not.
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
    let mut checks = check_all(&edge).await;
    if edge.is_stopping() {
        checks.push(ReadinessResult { name: "process", ok: false, reason: Some("stopping".to_owned()), note: None });
    }
    let missing: Vec<&str> = checks.iter().filter(|part| !part.ok).map(|part| part.name).collect();
    if missing.is_empty() {
        return Ok(Json(Ready { status: "ready", checks }));
    }
    let message = format!("not ready: {}", missing.join(", "));
    let checks = serde_json::to_value(&checks).unwrap_or_default();
    Err(ApiError::new(Code::NotReady, message).with("checks", checks).retry_after(1))
}

async fn check_all(edge: &Edge) -> Vec<ReadinessResult> {
    let mut kept = edge.readiness.cached.lock().await;
    let now = edge.clock.steady();
    let age_ms = |kept: &CachedReadiness| now.millis() - kept.at.millis();
    if let Some(kept) = kept.as_ref().filter(|kept| age_ms(kept) < READINESS_CACHED_MS) {
        return kept.parts.clone();
    }
    let Readiness { checks, check_timeout, .. } = &edge.readiness;
    let parts = join_all(checks.iter().map(|check| run_check(check, *check_timeout))).await;
    *kept = Some(CachedReadiness { at: edge.clock.steady(), parts: parts.clone() });
    parts
}

async fn run_check(check: &ReadinessCheck, limit: Duration) -> ReadinessResult {
    let reason = check.run_within(limit).await.err();
    let note = check.note().filter(|_| reason.is_none());
    ReadinessResult { name: check.name, ok: reason.is_none(), reason, note }
}
