//! Wire types of errors, and the schema of binary content.

use crate::wire::{JsonObject, wire, words};
use chimera_core::error::{ErrorBody, ErrorType, ProblemDetails};
use serde::Serialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// Binary content.
pub(crate) enum Octets {}

impl PartialSchema for Octets {
    fn schema() -> RefOr<Schema> {
        let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(binary)).into()
    }
}

impl ToSchema for Octets {}

/// RFC 9457 problem document.
#[derive(Debug, Serialize, ToSchema)]
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

impl From<ProblemDetails> for ProblemDocument {
    fn from(problem: ProblemDetails) -> Self {
        let ProblemDetails { kind, title, status, detail, instance, error, trace_id } = problem;
        Self { r#type: kind, title, status, detail, instance, error: error.into(), trace_id }
    }
}

wire! {
    /// An error.
    pub(crate) ErrorDocument from ErrorBody {
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
        details: JsonObject,
    } + maybe {
        /// Seconds to wait before a retry.
        retry_after_seconds: u64,
    }
}

words! {
    /// Class of an error.
    #[expect(clippy::enum_variant_names, reason = "the words of the specification")]
    pub(crate) ErrorClass from ErrorType {
        SkillError = "skill_error",
        ValidationError = "validation_error",
        ResourceError = "resource_error",
        ExternalServiceError = "external_service_error",
        PolicyViolationError = "policy_violation_error",
        SystemError = "system_error",
    }
}
