//! Errors as responses.
//!
//! A handler fails with an [`ApiError`]. Its response is only a status with the error attached; the
//! request layer, which knows the path and the trace, writes the problem document. An error response
//! from a library gets its document there too, derived from the status.

use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use chimera_core::error::{Code, ErrorBody, ProblemDetails};
use chimera_core::limits::ERROR_TEXT_CHARS_MAX;
use chimera_engine::EngineError;
use chimera_engine::flow::port::{BlobError, InvalidLink};
use chimera_engine::port::{Blocked, CommitError, ReadError};
use serde_json::Value;

pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// An error that is shown to the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub code: Code,
    pub body: ErrorBody,
}

impl ApiError {
    /// The message is truncated and stripped of control characters.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, body: ErrorBody::new(code, sanitized(message.into(), ERROR_TEXT_CHARS_MAX)) }
    }

    /// An internal error. It reveals nothing else to the caller.
    #[must_use]
    pub fn internal() -> Self {
        Self::new(Code::Internal, "internal error; the server log has the details under this trace id")
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::String(text) => Value::String(sanitized(text, ERROR_TEXT_CHARS_MAX)),
            other => other,
        };
        self.body = self.body.with(name, value);
        self
    }

    /// Sets `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.body = self.body.retry_after(seconds);
        self
    }

    /// The error for a response that has only a status.
    pub(crate) fn from_status(status: StatusCode) -> Self {
        let (code, message) = match status.as_u16() {
            401 => (Code::Unauthenticated, "a valid credential is required"),
            403 => (Code::RbacForbidden, "the actor is not allowed to do this"),
            404 => (Code::NotFound, "not found"),
            405 => (Code::MethodNotAllowed, "this method is not allowed here"),
            408 => (Code::BodyTimeout, "the body arrived too slowly"),
            504 => (Code::RequestTimeout, "the request took too long"),
            409 => (Code::OccConflict, "another request changed the record first; reload it and retry"),
            413 => (Code::PayloadTooLarge, "the body is too large"),
            415 => (Code::UnsupportedMediaType, "this content type is not supported here"),
            422 => (Code::ValidationFailed, "a value is missing or invalid"),
            429 => (Code::RateLimited, "too many requests"),
            503 => (Code::NotReady, "not ready"),
            400..=499 => (Code::SchemaInvalid, "malformed request"),
            _ => return Self::internal(),
        };
        Self::new(code, message)
    }

    /// The `WWW-Authenticate` header (RFC 6750). It tells a missing scope, which a new token would not
    /// fix, from an invalid token.
    fn challenge(&self) -> Option<HeaderValue> {
        match (self.code, self.body.details.get("required_scope").and_then(Value::as_str)) {
            (Code::RbacForbidden, Some(scope)) => {
                HeaderValue::from_str(&format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"")).ok()
            }
            (Code::Unauthenticated | Code::SignatureInvalid | Code::ExpiredTtl, _) => {
                let invalid = self.body.details.get("reason").is_some_and(|reason| reason != "missing");
                Some(HeaderValue::from_static(if invalid { "Bearer error=\"invalid_token\"" } else { "Bearer" }))
            }
            _ => None,
        }
    }

    pub(crate) fn problem(&self, instance: &str, trace_id: &str) -> ProblemDetails {
        ProblemDetails::new(self.code, self.body.clone(), instance, trace_id)
    }
}

/// Makes text that may echo the caller's input safe for responses and log lines: truncates it and
/// replaces control characters.
pub(crate) fn sanitized(text: String, chars_max: usize) -> String {
    let bounded = text.len() <= chars_max || text.chars().nth(chars_max).is_none();
    if bounded && !text.contains(char::is_control) {
        return text;
    }
    let harmless = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let cut = if bounded { None } else { Some('…') };
    text.chars().take(chars_max).map(harmless).chain(cut).collect()
}

/// Response extension: the request layer must still write the problem document.
#[derive(Clone)]
pub(crate) struct PendingProblem(pub(crate) ApiError);

/// Response extension: the response has its own body (an HTML page), and the error is only logged.
#[derive(Clone)]
pub(crate) struct RenderedError(pub(crate) ApiError);

impl IntoResponse for ApiError {
    fn into_response(self) -> axum::response::Response {
        let mut response = Response::new(axum::body::Body::empty());
        *response.status_mut() = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(seconds) = self.body.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(challenge) = self.challenge() {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response.extensions_mut().insert(PendingProblem(self));
        response
    }
}

impl From<CommitError> for ApiError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Conflict(_) => {
                Self::new(Code::OccConflict, "another request changed the record first; reload it and retry")
            }
            CommitError::Invalid(_) | CommitError::Rejected { .. } => Self::internal(),
            CommitError::Unavailable(why) => why.body("the store is not available; nothing was changed").into(),
            CommitError::Fenced => {
                Self::new(Code::StoreUnavailable, "the store is not available; nothing was changed").retry_after(1)
            }
            CommitError::Blocked(Blocked::Schema(error)) => Self::new(Code::SchemaMismatch, error.to_string()),
            CommitError::Overloaded => {
                Self::new(Code::Overloaded, "too many changes are waiting; nothing was changed").retry_after(1)
            }
            CommitError::Blocked(Blocked::Held(hold)) => hold.body().into(),
            CommitError::Unknown => Self::new(Code::OutcomeUnknown, "the outcome of the change is unknown"),
        }
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unavailable(why) => why.body("the store is not available").into(),
            ReadError::Schema(error) => Self::new(Code::SchemaMismatch, error.to_string()),
            ReadError::Cursor(_) => Self::new(Code::SchemaInvalid, "the cursor belongs to another listing")
                .with("pointer", "/cursor")
                .with("reason", "not a cursor of this listing"),
            ReadError::Invalid { .. } => Self::internal(),
        }
    }
}

impl From<BlobError> for ApiError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::NotFound(_) => Self::new(Code::NotFound, "no such artifact, or it has been deleted"),
            BlobError::TooLarge { bytes_max } => {
                Self::new(Code::PayloadTooLarge, format!("the content is larger than {bytes_max} bytes"))
                    .with("bytes_max", bytes_max)
            }
            BlobError::Interrupted => Self::new(Code::SchemaInvalid, "the content ended early"),
            BlobError::Damaged(_) => Self::internal(),
            BlobError::Unavailable(why) => why.body("the store is not available").into(),
        }
    }
}

impl From<InvalidLink> for ApiError {
    fn from(refused: InvalidLink) -> Self {
        match refused {
            InvalidLink::Expired => Self::new(Code::ExpiredTtl, "the link has expired; ask for a new one"),
            InvalidLink::Forged => Self::new(Code::SignatureInvalid, "the link's signature is not valid"),
        }
    }
}

impl From<ErrorBody> for ApiError {
    fn from(body: ErrorBody) -> Self {
        let code = Code::parse(&body.code).unwrap_or(Code::Internal);
        Self { code, body: ErrorBody { message: sanitized(body.message, ERROR_TEXT_CHARS_MAX), ..body } }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let sanitized = Self::from(error.body());
        if sanitized.code == Code::Internal {
            // The caller sees no details; the operator needs them.
            tracing::error!(reason = %error, "a request failed with an internal error");
            return Self::internal();
        }
        sanitized
    }
}
