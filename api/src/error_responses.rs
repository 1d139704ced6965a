//! OpenAPI descriptions of the error responses that many endpoints share.

use crate::ops::schema::ProblemDocument;
use utoipa::IntoResponses;

/// Errors of endpoints that read.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(crate) enum ReadErrors {
    /// SCHEMA_INVALID
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(ProblemDocument),
    /// UNAUTHENTICATED, SIGNATURE_INVALID, EXPIRED_TTL
    #[response(status = 401, content_type = "application/problem+json")]
    Stranger(ProblemDocument),
    /// RBAC_FORBIDDEN
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(ProblemDocument),
    /// NOT_FOUND
    #[response(status = 404, content_type = "application/problem+json")]
    Absent(ProblemDocument),
    /// RATE_LIMITED
    #[response(status = 429, content_type = "application/problem+json")]
    TooMany(ProblemDocument),
    /// STORE_UNAVAILABLE, SCHEMA_MISMATCH
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(ProblemDocument),
}

/// Errors of endpoints that change something.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(crate) enum WriteErrors {
    /// SCHEMA_INVALID
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(ProblemDocument),
    /// UNAUTHENTICATED, SIGNATURE_INVALID, EXPIRED_TTL
    #[response(status = 401, content_type = "application/problem+json")]
    Stranger(ProblemDocument),
    /// RBAC_FORBIDDEN, POLICY_DENIED
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(ProblemDocument),
    /// NOT_FOUND
    #[response(status = 404, content_type = "application/problem+json")]
    Absent(ProblemDocument),
    /// INVALID_TRANSITION, OCC_CONFLICT, STALE_APPROVAL, CONFLICT_IDEMPOTENCY
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(ProblemDocument),
    /// BODY_TIMEOUT
    #[response(status = 408, content_type = "application/problem+json")]
    TooSlow(ProblemDocument),
    /// PAYLOAD_TOO_LARGE
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(ProblemDocument),
    /// UNSUPPORTED_MEDIA_TYPE
    #[response(status = 415, content_type = "application/problem+json")]
    OtherType(ProblemDocument),
    /// MALFORMED_ARGS, VALIDATION_FAILED
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(ProblemDocument),
    /// RATE_LIMITED
    #[response(status = 429, content_type = "application/problem+json")]
    TooMany(ProblemDocument),
    /// STORE_UNAVAILABLE, SCHEMA_MISMATCH, OVERLOADED
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(ProblemDocument),
}

/// Errors of sign-in and refresh.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(crate) enum SignInErrors {
    /// SCHEMA_INVALID
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(ProblemDocument),
    /// UNAUTHENTICATED, SIGNATURE_INVALID, EXPIRED_TTL
    #[response(status = 401, content_type = "application/problem+json")]
    Stranger(ProblemDocument),
    /// RBAC_FORBIDDEN
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(ProblemDocument),
    /// BODY_TIMEOUT
    #[response(status = 408, content_type = "application/problem+json")]
    TooSlow(ProblemDocument),
    /// PAYLOAD_TOO_LARGE
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(ProblemDocument),
    /// UNSUPPORTED_MEDIA_TYPE
    #[response(status = 415, content_type = "application/problem+json")]
    OtherType(ProblemDocument),
    /// VALIDATION_FAILED
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(ProblemDocument),
    /// RATE_LIMITED
    #[response(status = 429, content_type = "application/problem+json")]
    TooMany(ProblemDocument),
    /// STORE_UNAVAILABLE, SCHEMA_MISMATCH
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(ProblemDocument),
}
