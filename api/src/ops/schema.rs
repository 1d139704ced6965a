//! The problem document, and plain bytes, in the words of OpenAPI.
//!
//! The types that are sent live in `core`, which knows no OpenAPI; these only describe them. A test
//! compares the two.

use utoipa::ToSchema;

/// Bytes as they are.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[allow(dead_code)]
pub(crate) struct Octets(Vec<u8>);

/// RFC 9457 problem document.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ProblemDocument {
    /// Address of the page that explains the code.
    #[schema(example = "/docs/errors/NOT_FOUND")]
    r#type: String,
    /// Short title of the code.
    title: String,
    /// HTTP status.
    status: u16,
    /// What happened this time.
    detail: String,
    /// The path that was asked for.
    instance: String,
    /// The error in the shape that every surface shares.
    error: ErrorDocument,
    /// Where to find it in logs and traces.
    trace_id: String,
}

/// One error.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ErrorDocument {
    /// Stable code.
    #[schema(example = "NOT_FOUND")]
    code: String,
    /// For people.
    message: String,
    /// Class of the error.
    error_type: ErrorClass,
    /// Whether the same request may succeed when it is sent again.
    retryable: bool,
    /// More about it.
    #[schema(value_type = Object)]
    details: serde_json::Value,
    /// How long to wait before a retry.
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
