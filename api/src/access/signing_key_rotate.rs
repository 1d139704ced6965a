//! `POST /signing-keys/{kid}/rotate`: replaces a signing key with another.

use super::actor_get::directory;
use super::signing_key_list::SigningKeyDocument;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::params;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::access::{self, NewSigningKey, RotatedSigningKey};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The key that replaces another.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateBody {
    /// The public key: 32 bytes in Base64 or URL-safe Base64 (the `x` of a JWK), or a PEM document.
    #[schema(example = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")]
    public_key: String,
    /// What it is for, for people.
    label: Option<String>,
    /// RFC 3339 time at which the new key expires; never if omitted.
    expires_at: Option<String>,
    /// How long the replaced key stays valid, in seconds; one day if omitted. It never gets a later end than it has.
    #[schema(minimum = 0, maximum = 2_592_000)]
    overlap_seconds: Option<u32>,
}

/// Both keys of a rotation.
#[derive(Debug, Serialize, ToSchema)]
pub struct RotationDocument {
    /// The new key.
    added: SigningKeyDocument,
    /// The key that it replaces, with its new end.
    replaced: SigningKeyDocument,
}

impl From<RotatedSigningKey> for RotationDocument {
    fn from(rotated: RotatedSigningKey) -> Self {
        Self { added: rotated.added.into(), replaced: rotated.replaced.into() }
    }
}

/// Registers a key that replaces another of the same actor, which expires after an overlap.
#[utoipa::path(
    post,
    path = "/signing-keys/{kid}/rotate",
    tag = "access",
    params(("kid" = String, Path, description = "Key id")),
    request_body = RotateBody,
    responses((status = 200, body = RotationDocument, description = "Both keys"), WriteErrors)
)]
pub(crate) async fn rotate(
    State(edge): State<Edge>,
    caller: Caller,
    Path(kid): Path<String>,
    ApiJson(body): ApiJson<RotateBody>,
) -> Result<Json<RotationDocument>, ApiError> {
    let RotateBody { public_key, label, expires_at, overlap_seconds } = body;
    let expires_at = params::time("expires_at", expires_at.as_deref())?;
    let new = NewSigningKey { public_key, label, not_before: None, expires_at };
    let directory = directory(&edge)?;
    let rotated = access::rotate_signing_key(directory, &caller.permit, &kid, new, overlap_seconds).await?;
    Ok(Json(rotated.into()))
}
