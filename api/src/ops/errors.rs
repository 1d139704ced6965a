//! `GET /docs/errors/{code}`: what an error means and how to fix it.
//!
//! The pages are the files of `docs/errors/`, embedded in the binary, so that the `type` URL of every
//! problem document works. A test compares the table of codes, the pages and the index.

use crate::ops::schema::ProblemDocument;
use crate::problem::ApiError;
use axum::extract::Path;
use axum::http::header;
use axum::response::IntoResponse;
use chimera_core::error::{Code, EQUIVALENTS};
use std::fmt::Write;

macro_rules! text {
    ($code:literal) => {
        include_str!(concat!("../../../docs/errors/", $code, ".md"))
    };
}

/// The documentation of a code, as Markdown.
#[must_use]
pub const fn page(code: Code) -> &'static str {
    match code {
        Code::SchemaInvalid => text!("SCHEMA_INVALID"),
        Code::Unauthenticated => text!("UNAUTHENTICATED"),
        Code::SignatureInvalid => text!("SIGNATURE_INVALID"),
        Code::ExpiredTtl => text!("EXPIRED_TTL"),
        Code::RbacForbidden => text!("RBAC_FORBIDDEN"),
        Code::PolicyDenied => text!("POLICY_DENIED"),
        Code::PolicyViolation => text!("POLICY_VIOLATION"),
        Code::NotFound => text!("NOT_FOUND"),
        Code::MethodNotAllowed => text!("METHOD_NOT_ALLOWED"),
        Code::ConflictIdempotency => text!("CONFLICT_IDEMPOTENCY"),
        Code::OccConflict => text!("OCC_CONFLICT"),
        Code::InvalidTransition => text!("INVALID_TRANSITION"),
        Code::StaleApproval => text!("STALE_APPROVAL"),
        Code::Cancelled => text!("CANCELLED"),
        Code::NotRecorded => text!("NOT_RECORDED"),
        Code::LeaseLost => text!("LEASE_LOST"),
        Code::DataDirLocked => text!("DATA_DIR_LOCKED"),
        Code::Gone => text!("GONE"),
        Code::PayloadTooLarge => text!("PAYLOAD_TOO_LARGE"),
        Code::UnsupportedMediaType => text!("UNSUPPORTED_MEDIA_TYPE"),
        Code::MalformedArgs => text!("MALFORMED_ARGS"),
        Code::ValidationFailed => text!("VALIDATION_FAILED"),
        Code::ValidationError => text!("VALIDATION_ERROR"),
        Code::RateLimited => text!("RATE_LIMITED"),
        Code::Internal => text!("INTERNAL"),
        Code::ConfigInvalid => text!("CONFIG_INVALID"),
        Code::LedgerBroken => text!("LEDGER_BROKEN"),
        Code::ExternalServiceError => text!("EXTERNAL_SERVICE_ERROR"),
        Code::ExternalServiceUnavailable => text!("EXTERNAL_SERVICE_UNAVAILABLE"),
        Code::ToolUnavailable => text!("TOOL_UNAVAILABLE"),
        Code::StoreHeld => text!("STORE_HELD"),
        Code::StoreUnavailable => text!("STORE_UNAVAILABLE"),
        Code::SchemaMismatch => text!("SCHEMA_MISMATCH"),
        Code::StoreDamaged => text!("STORE_DAMAGED"),
        Code::StoreUnusable => text!("STORE_UNUSABLE"),
        Code::OutcomeUnknown => text!("OUTCOME_UNKNOWN"),
        Code::NotReady => text!("NOT_READY"),
        Code::Overloaded => text!("OVERLOADED"),
        Code::RequestTimeout => text!("REQUEST_TIMEOUT"),
        Code::BodyTimeout => text!("BODY_TIMEOUT"),
    }
}

/// The index of all codes, as Markdown.
#[must_use]
pub fn index() -> String {
    let mut text = String::from(
        "# Error codes\n\nEvery error that leaves Chimera has one of these codes. Over HTTP it comes as \
         `application/problem+json` with the member `error`.\n\n\
         | Code | Status | error_type | Retryable | Title |\n|---|---|---|---|---|\n",
    );
    for code in Code::ALL {
        let retryable = if code.retryable() { "yes" } else { "no" };
        let class = code.error_type().as_str();
        let _ = writeln!(
            text,
            "| [`{code}`](../errors/{code}.md) | {} | `{class}` | {retryable} | {} |",
            code.status(),
            code.title()
        );
    }
    text.push_str("\n## Equivalent codes\n\nEach surface keeps its own spelling; these mean the same.\n\n| Meaning | Codes |\n|---|---|\n");
    for row in EQUIVALENTS {
        let codes: Vec<String> = row.codes.iter().map(|code| format!("`{code}`")).collect();
        let _ = writeln!(text, "| {} | {} |", row.meaning, codes.join(", "));
    }
    text
}

/// Returns the documentation of an error code.
#[utoipa::path(
    get,
    path = "/docs/errors/{code}",
    tag = "ops",
    params(("code" = String, Path, description = "Error code, such as `NOT_FOUND`")),
    responses(
        (status = 200, body = String, content_type = "text/markdown", description = "The documentation as Markdown"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "NOT_FOUND"),
    )
)]
pub(crate) async fn error(Path(code): Path<String>) -> Result<impl IntoResponse, ApiError> {
    let code = Code::parse(&code).ok_or_else(|| ApiError::new(Code::NotFound, "unknown error code"))?;
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], page(code)))
}
