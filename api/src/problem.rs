//! Errors on their way out.
//!
//! A handler fails with an [`ApiError`]. As a response it is only a status with the error attached:
//! the request layer, which knows the address and the trace, writes the document. A refusal that
//! some library made on its own gets its document there too, by its status.

use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use chimera_core::error::{Code, ErrorBody, ProblemDetails};
use chimera_core::limits::ERROR_TEXT_CHARS_MAX;
use chimera_engine::EngineError;
use chimera_engine::flow::port::{BlobError, InvalidLink};
use chimera_engine::port::{Blocked, CommitError, ReadError};
use serde_json::Value;

/// The media type of a problem document.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// A refusal or a failure that is told to the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// Which one.
    pub code: Code,
    /// What is told.
    pub body: ErrorBody,
}

impl ApiError {
    /// An error with a message for the caller.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, body: ErrorBody::new(code, told(message.into(), ERROR_TEXT_CHARS_MAX)) }
    }

    /// Our own fault: the caller learns nothing but that.
    #[must_use]
    pub fn internal() -> Self {
        Self::new(Code::Internal, "something went wrong inside; the log has it under this trace id")
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::String(text) => Value::String(told(text, ERROR_TEXT_CHARS_MAX)),
            other => other,
        };
        self.body = self.body.with(name, value);
        self
    }

    /// Says when a retry makes sense.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.body = self.body.retry_after(seconds);
        self
    }

    /// The error that a bare status stands for.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        let (code, message) = match status.as_u16() {
            401 => (Code::Unauthenticated, "a valid credential is needed"),
            403 => (Code::RbacForbidden, "the actor may not do this"),
            404 => (Code::NotFound, "nothing is here"),
            405 => (Code::MethodNotAllowed, "the address does not take this method"),
            408 => (Code::BodyTimeout, "the body arrived too slowly"),
            504 => (Code::RequestTimeout, "the request took too long"),
            409 => (Code::OccConflict, "somebody else was faster"),
            413 => (Code::PayloadTooLarge, "the body is too large"),
            415 => (Code::UnsupportedMediaType, "the body has a type that is not taken here"),
            422 => (Code::ValidationFailed, "the values are not valid"),
            429 => (Code::RateLimited, "too many requests"),
            503 => (Code::NotReady, "not ready"),
            400..=499 => (Code::SchemaInvalid, "the request can't be read"),
            _ => return Self::internal(),
        };
        Self::new(code, message)
    }

    /// What a client is told to do about its credential (RFC 6750): a token that merely lacks a scope
    /// needs no new one.
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

    /// The document for this error.
    pub(crate) fn problem(&self, instance: &str, trace_id: &str) -> ProblemDetails {
        ProblemDetails::new(self.code, self.body.clone(), instance, trace_id)
    }
}

/// Text that may repeat what the caller sent, made fit for an answer and a log line: of bounded
/// length, and without characters that steer a terminal.
pub(crate) fn told(text: String, chars_max: usize) -> String {
    let bounded = text.len() <= chars_max || text.chars().nth(chars_max).is_none();
    if bounded && !text.contains(char::is_control) {
        return text;
    }
    let harmless = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let cut = if bounded { None } else { Some('…') };
    text.chars().take(chars_max).map(harmless).chain(cut).collect()
}

/// Attached to a response that still needs its document.
#[derive(Clone)]
pub(crate) struct Attached(pub(crate) ApiError);

/// Attached to a response that tells its error in words of its own: only the log needs it.
#[derive(Clone)]
pub(crate) struct Worded(pub(crate) ApiError);

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
        response.extensions_mut().insert(Attached(self));
        response
    }
}

impl From<CommitError> for ApiError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Conflict(_) => Self::new(Code::OccConflict, "somebody else changed the record first"),
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
            BlobError::NotFound(_) => Self::new(Code::NotFound, "there is no such content, or it is no longer kept"),
            BlobError::TooLarge { bytes_max } => {
                Self::new(Code::PayloadTooLarge, format!("the content may have at most {bytes_max} bytes"))
                    .with("bytes_max", bytes_max)
            }
            BlobError::Interrupted => Self::new(Code::SchemaInvalid, "the content ended before its end"),
            BlobError::Damaged(_) => Self::internal(),
            BlobError::Unavailable(why) => why.body("the store is not available").into(),
        }
    }
}

impl From<InvalidLink> for ApiError {
    fn from(refused: InvalidLink) -> Self {
        match refused {
            InvalidLink::Expired => Self::new(Code::ExpiredTtl, "the link has expired; ask for a new one"),
            InvalidLink::Forged => Self::new(Code::SignatureInvalid, "the link is not one that was given out here"),
        }
    }
}

impl From<ErrorBody> for ApiError {
    fn from(body: ErrorBody) -> Self {
        let code = Code::parse(&body.code).unwrap_or(Code::Internal);
        Self { code, body: ErrorBody { message: told(body.message, ERROR_TEXT_CHARS_MAX), ..body } }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let told = Self::from(error.body());
        if told.code == Code::Internal {
            // The caller learns nothing of the inside; whoever runs the server must.
            tracing::error!(reason = %error, "a request of the flow room failed inside");
            return Self::internal();
        }
        told
    }
}
