//! What HTTP adds to the idempotency of `POST /act`: the header, and which members of a body count.
//!
//! Everything else is in engine/src/act/idempotency.

use crate::gate::received::ReceivedRequest;
use crate::problem::ApiError;
use axum::http::{HeaderMap, HeaderName};
use chimera_core::error::Code;
use chimera_core::json::Digest32;
use chimera_core::redact::Redactor;
use chimera_engine::act::{DuplicatePolicy, RequestKey};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Members that differ between retries of the same request, so they are not compared.
const VOLATILE_MEMBERS: [&str; 4] = ["issued_at", "nonce", "wait", "on_duplicate"];

/// What to return for a used idempotency key.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DuplicatePolicy)]
pub(crate) enum DuplicateWord {
    /// A 409 that names the run.
    #[default]
    Conflict,
    /// The run.
    Return,
}

/// Refuses a header that names another key than the body: only the body is signed.
pub(super) fn check_header(headers: &HeaderMap, key: Option<&str>) -> Result<(), ApiError> {
    let header = headers.get(IDEMPOTENCY_KEY).map(|key| key.to_str().unwrap_or_default());
    if header.is_none() || header == key {
        return Ok(());
    }
    let what = "the Idempotency-Key header is not signed: send the same idempotency_key in the body";
    Err(ApiError::new(Code::ValidationFailed, what).with("pointer", "/idempotency_key"))
}

/// The request as it is stored with its run: masked, and without the members that differ between retries.
pub(super) fn stored_request(mut request: Value) -> Value {
    remove_volatile_members(&mut request);
    Redactor::default().json(&mut request);
    request
}

/// The key of a request that has nothing to mask.
pub(super) fn plain_key(key: String, on_duplicate: DuplicateWord) -> RequestKey {
    RequestKey { key, on_duplicate: on_duplicate.into(), unmasked: None }
}

impl From<DuplicateWord> for DuplicatePolicy {
    fn from(word: DuplicateWord) -> Self {
        match word {
            DuplicateWord::Conflict => Self::Conflict,
            DuplicateWord::Return => Self::Return,
        }
    }
}

/// The key of a request whose stored form is `stored`.
pub(super) fn request_key(
    key: String,
    on_duplicate: DuplicateWord,
    stored: &Value,
    (received, headers): (&ReceivedRequest, &HeaderMap),
) -> Result<RequestKey, ApiError> {
    // Masks hide differences between requests.
    let unmasked = match Redactor::is_masked(stored) {
        true => {
            let mut request = received.document(headers)?;
            remove_volatile_members(&mut request);
            Some(Digest32::of(&request))
        }
        false => None,
    };
    Ok(RequestKey { key, on_duplicate: on_duplicate.into(), unmasked })
}

fn remove_volatile_members(request: &mut Value) {
    if let Some(members) = request.as_object_mut() {
        VOLATILE_MEMBERS.iter().for_each(|name| drop(members.remove(*name)));
    }
}
