//! Parsing of path and query parameters, and a few shared responses.
//!
//! A malformed id is `NOT_FOUND`, like an id that does not exist.

use crate::caller::Caller;
use crate::flow::wire::Accepted;
use crate::problem::{self, ApiError};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chimera_core::error::Code;
use chimera_core::id::{IdPrefix, InvalidIdPrefix};
use chimera_core::json::Digest32;
use chimera_core::limits::{
    ID_SHOWN_CHARS_MAX, JSON_INLINE_BYTES_MAX, NOTES_BYTES_MAX, PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX, WAIT_SECONDS_MAX,
    WORKFLOW_ID_CHARS_MAX,
};
use chimera_core::time::Timestamp;
use chimera_engine::flow;
use chimera_engine::flow::view::ListPage;
use serde::Serialize;
use std::time::Duration;
use uuid::Uuid;

/// The error for an id that can't exist.
pub(crate) fn malformed(text: &str, what: &str) -> ApiError {
    let text = problem::sanitized(text.to_owned(), ID_SHOWN_CHARS_MAX);
    ApiError::new(Code::NotFound, format!("`{text}` is not {what}"))
}

/// Parses a run id.
pub(crate) fn run(text: &str) -> Result<Uuid, ApiError> {
    Uuid::parse_str(text).map_err(|_| malformed(text, "a run id"))
}

/// Checks a workflow id.
pub(crate) fn workflow(text: &str) -> Result<&str, ApiError> {
    let nameable = !text.contains(char::is_control) && (1..=WORKFLOW_ID_CHARS_MAX).contains(&text.chars().count());
    if nameable { Ok(text) } else { Err(malformed(text, "a workflow id")) }
}

/// Checks the id of a workflow that may not exist yet: a malformed one is `VALIDATION_FAILED`.
pub(crate) fn check_new_workflow_id(text: &str) -> Result<&str, ApiError> {
    workflow(text).map_err(|_| {
        let what = format!("a workflow id must have 1 to {WORKFLOW_ID_CHARS_MAX} letters, digits, '_', '-' or '.'");
        ApiError::new(Code::ValidationFailed, what).with("parameter", "id")
    })
}

/// Parses the `wait` parameter.
pub(crate) fn parse_wait(seconds: Option<f64>) -> Result<Option<Duration>, ApiError> {
    let Some(seconds) = seconds else { return Ok(None) };
    let wait = Duration::try_from_secs_f64(seconds).ok().filter(|wait| wait.as_secs_f64() <= WAIT_SECONDS_MAX);
    let what = format!("wait must be a number of seconds from 0 to {WAIT_SECONDS_MAX}");
    wait.map(Some).ok_or_else(|| ApiError::new(Code::ValidationFailed, what).with("parameter", "wait"))
}

/// Resolves a step by its own id or by its node's id.
pub(crate) async fn resolve_step(caller: &Caller, run: Uuid, text: &str) -> Result<Uuid, ApiError> {
    if let Ok(id) = Uuid::parse_str(text) {
        return Ok(id);
    }
    if text.contains(char::is_control) {
        return Err(malformed(text, "a step id or node id"));
    }
    Ok(flow::find_step(&caller.flow, &caller.permit, run, text).await?)
}

pub(crate) fn digest(text: &str) -> Result<Digest32, ApiError> {
    Digest32::from_hex(text).ok_or_else(|| {
        ApiError::new(Code::SchemaInvalid, "a digest has 64 hex digits")
            .with("pointer", "/digest")
            .with("reason", "expected 64 hex digits")
    })
}

/// Parses the `id_prefix` parameter.
pub(crate) fn id_prefix(text: Option<&str>) -> Result<Option<IdPrefix>, ApiError> {
    let refused = |error: InvalidIdPrefix| {
        ApiError::new(Code::SchemaInvalid, format!("invalid id prefix: {error}")).with("parameter", "id_prefix")
    };
    text.map(|text| IdPrefix::parse(text).map_err(refused)).transpose()
}

/// Parses an RFC 3339 time.
pub(crate) fn time(parameter: &str, text: Option<&str>) -> Result<Option<Timestamp>, ApiError> {
    let refused = |_| {
        let what = format!("{parameter} must be an RFC 3339 time such as 2026-01-31T12:00:00Z");
        ApiError::new(Code::SchemaInvalid, what).with("parameter", parameter)
    };
    text.map(|text| text.parse().map_err(refused)).transpose()
}

/// Parses the `limit` parameter.
pub(crate) fn parse_limit(limit: Option<usize>) -> Result<usize, ApiError> {
    let limit = limit.unwrap_or(PAGE_ROWS_DEFAULT);
    if (1..=PAGE_ROWS_MAX).contains(&limit) {
        return Ok(limit);
    }
    let what = format!("limit must be a number from 1 to {PAGE_ROWS_MAX}");
    Err(ApiError::new(Code::SchemaInvalid, what).with("parameter", "limit"))
}

/// The response after a signal was sent to a run, which processes it in its next turn.
pub(crate) async fn accepted(caller: &Caller, run: Uuid) -> Result<Accepted, ApiError> {
    let status = flow::run_status(&caller.flow, &caller.permit, run).await?;
    Ok(Accepted { run_id: run, status: status.into(), accepted: true })
}

/// Checks the length of a note.
pub(crate) fn check_note(text: Option<String>) -> Result<Option<String>, ApiError> {
    match text {
        Some(text) if text.len() > NOTES_BYTES_MAX => {
            Err(ApiError::new(Code::PayloadTooLarge, "the text is too long").with("bytes_max", NOTES_BYTES_MAX))
        }
        text => Ok(text),
    }
}

/// A JSON response.
pub(crate) fn json(document: &impl Serialize) -> Result<Response, ApiError> {
    let text = serde_json::to_vec(document).map_err(|_| ApiError::internal())?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// A page of a listing. A large one is serialised on a worker thread.
pub(crate) async fn page<T, W>(caller: &Caller, page: ListPage<T>) -> Result<Response, ApiError>
where
    W: From<ListPage<T>> + Serialize,
{
    let large = page.bytes > JSON_INLINE_BYTES_MAX;
    caller.shrink_memory(page.bytes);
    let written = Box::pin(async { json(&W::from(page)) });
    caller.flow.offload(&caller.permit.claimant(), large, written).await?
}
