//! OpenAPI descriptions of the error responses that many endpoints share.

use crate::ops::schema::ProblemDocument;
use crate::problem::PROBLEM_JSON;
use crate::wire;
use std::collections::BTreeMap;
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, RefOr, Response, ResponseBuilder};

const READ_UNAVAILABLE: &str =
    "STORE_UNAVAILABLE, STORE_DAMAGED, STORE_UNUSABLE, SCHEMA_MISMATCH, NOT_READY, OVERLOADED, REQUEST_TIMEOUT";
const WRITE_UNAVAILABLE: &str = "STORE_UNAVAILABLE, STORE_HELD, STORE_DAMAGED, STORE_UNUSABLE, SCHEMA_MISMATCH, NOT_READY, OVERLOADED, \
                                 REQUEST_TIMEOUT, OUTCOME_UNKNOWN";

/// Errors of endpoints that read.
pub(crate) enum ReadErrors {}

/// Errors of endpoints that change something.
pub(crate) enum WriteErrors {}

/// Errors of sign-in and refresh.
pub(crate) enum SignInErrors {}

impl IntoResponses for ReadErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[
            (400, "SCHEMA_INVALID"),
            (401, "UNAUTHENTICATED, SIGNATURE_INVALID, EXPIRED_TTL"),
            (403, "RBAC_FORBIDDEN"),
            (404, "NOT_FOUND"),
            (429, "RATE_LIMITED"),
            (503, READ_UNAVAILABLE),
        ])
    }
}

impl IntoResponses for WriteErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[
            (400, "SCHEMA_INVALID"),
            (401, "UNAUTHENTICATED, SIGNATURE_INVALID, EXPIRED_TTL"),
            (403, "RBAC_FORBIDDEN, POLICY_DENIED"),
            (404, "NOT_FOUND"),
            (408, "BODY_TIMEOUT"),
            (409, "INVALID_TRANSITION, OCC_CONFLICT, STALE_APPROVAL, CONFLICT_IDEMPOTENCY"),
            (413, "PAYLOAD_TOO_LARGE"),
            (415, "UNSUPPORTED_MEDIA_TYPE"),
            (422, "MALFORMED_ARGS, VALIDATION_FAILED"),
            (429, "RATE_LIMITED"),
            (503, WRITE_UNAVAILABLE),
        ])
    }
}

impl IntoResponses for SignInErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[
            (400, "SCHEMA_INVALID"),
            (401, "UNAUTHENTICATED, SIGNATURE_INVALID, EXPIRED_TTL"),
            (403, "RBAC_FORBIDDEN"),
            (408, "BODY_TIMEOUT"),
            (413, "PAYLOAD_TOO_LARGE"),
            (415, "UNSUPPORTED_MEDIA_TYPE"),
            (422, "VALIDATION_FAILED"),
            (429, "RATE_LIMITED"),
            (503, WRITE_UNAVAILABLE),
        ])
    }
}

/// Problem documents with these statuses and codes.
fn problems(list: &[(u16, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let response = |(status, codes): &(u16, &str)| {
        let body = ContentBuilder::new().schema(Some(wire::reference::<ProblemDocument>())).build();
        let response = ResponseBuilder::new().description(*codes).content(PROBLEM_JSON, body).build();
        (status.to_string(), RefOr::T(response))
    };
    list.iter().map(response).collect()
}
