//! `POST /actors/{id}/signing-keys`: registers the public half of an Ed25519 key pair.

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
use axum::http::StatusCode;
use chimera_engine::access::{self, NewSigningKey};
use serde::Deserialize;
use utoipa::ToSchema;

/// A new signing key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SigningKeyBody {
    /// The public key: 32 bytes in Base64 or URL-safe Base64 (the `x` of a JWK), or a PEM document.
    #[schema(example = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")]
    public_key: String,
    /// What it is for, for people.
    label: Option<String>,
    /// RFC 3339 time from which it is valid; now if omitted.
    not_before: Option<String>,
    /// RFC 3339 time at which it expires; never if omitted.
    expires_at: Option<String>,
}

impl SigningKeyBody {
    fn into_new(self) -> Result<NewSigningKey, ApiError> {
        Ok(NewSigningKey {
            public_key: self.public_key,
            label: self.label,
            not_before: params::time("not_before", self.not_before.as_deref())?,
            expires_at: params::time("expires_at", self.expires_at.as_deref())?,
        })
    }
}

/// Registers a public key of an actor. Your own need no scope.
///
/// The server never sees the private half. If the actor has the key already, nothing changes.
#[utoipa::path(
    post,
    path = "/actors/{id}/signing-keys",
    tag = "access",
    params(("id" = String, Path, description = "Actor name")),
    request_body = SigningKeyBody,
    responses(
        (status = 200, body = SigningKeyDocument, description = "The actor had the key already"),
        (status = 201, body = SigningKeyDocument, description = "The key"),
        WriteErrors,
    )
)]
pub(crate) async fn add(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    ApiJson(body): ApiJson<SigningKeyBody>,
) -> Result<(StatusCode, Json<SigningKeyDocument>), ApiError> {
    let added = access::add_signing_key(directory(&edge)?, &caller.permit, &id, body.into_new()?).await?;
    let status = if added.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(added.added.into())))
}
