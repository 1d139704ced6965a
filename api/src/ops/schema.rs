//! OpenAPI schemas of the problem document and of binary content.
//!
//! The types that are sent live in `core`, which does not depend on OpenAPI; these only describe them.
//! A test compares the two.

use utoipa::ToSchema;

/// Binary content.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[allow(dead_code)]
pub(crate) struct Octets(Vec<u8>);

/// RFC 9457 problem document.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ProblemDocument {
    /// URL of the documentation of the code.
    #[schema(example = "/docs/errors/NOT_FOUND")]
    r#type: String,
    /// Short title of the code.
    title: String,
    /// HTTP status.
    status: u16,
    /// Message for this occurrence.
    detail: String,
    /// Path of the request.
    instance: String,
    /// The error in the format that the API, the CLI and runs share.
    error: ErrorDocument,
    /// Trace id, for finding the request in logs and traces.
    trace_id: String,
}

/// An error.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ErrorDocument {
    /// Stable error code.
    #[schema(example = "NOT_FOUND")]
    code: String,
    /// Message for people.
    message: String,
    /// Class of the error.
    error_type: ErrorClass,
    /// Whether the same request may succeed on retry.
    retryable: bool,
    /// Details; the members depend on the code.
    #[schema(value_type = Object)]
    details: serde_json::Value,
    /// Seconds to wait before a retry.
    #[schema(required = false)]
    retry_after_seconds: Option<u64>,
}

/// Class of an error.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[allow(dead_code, clippy::enum_variant_names)]
pub(crate) enum ErrorClass {
    SkillError,
    ValidationError,
    ResourceError,
    ExternalServiceError,
    PolicyViolationError,
    SystemError,
}
