//! `GET /actors/{id}/signing-keys`: the Ed25519 keys of an actor.

use super::actor_get::directory;
use super::wire::SigningKeyStatus;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::problem::ApiError;
use crate::wire::{DateTime, IntoWire};
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::access::{self, SigningKeyView};
use serde::Serialize;
use utoipa::ToSchema;

/// A signing key: the public half of an Ed25519 key pair.
#[derive(Debug, Serialize, ToSchema)]
pub struct SigningKeyDocument {
    /// Key id: the JWK thumbprint (RFC 7638) of the public key.
    kid: String,
    /// Name of the actor that it belongs to.
    actor: String,
    /// Slug of the actor's tenant.
    tenant: String,
    /// The public key, in URL-safe Base64, as in a JWK.
    x: String,
    /// What the key counts as now.
    status: SigningKeyStatus,
    /// What it is for.
    #[schema(required)]
    label: Option<String>,
    /// When it was added.
    created_at: DateTime,
    /// Who added it.
    created_by: String,
    /// When it becomes valid.
    not_before: DateTime,
    /// When it expires.
    #[schema(required)]
    expires_at: Option<DateTime>,
    /// When it was revoked.
    #[schema(required)]
    revoked_at: Option<DateTime>,
    /// Who revoked it.
    #[schema(required)]
    revoked_by: Option<String>,
    /// Why it was revoked.
    #[schema(required)]
    reason: Option<String>,
}

impl From<SigningKeyView> for SigningKeyDocument {
    fn from(SigningKeyView { key, standing, tenant }: SigningKeyView) -> Self {
        let (revoked_at, revoked_by, reason) = match key.revocation {
            Some(revocation) => (Some(revocation.at), Some(revocation.by), revocation.reason),
            None => (None, None, None),
        };
        Self {
            kid: key.kid,
            actor: key.actor,
            tenant,
            x: key.public.x(),
            status: standing.into(),
            label: key.label,
            created_at: key.created_at.into_wire(),
            created_by: key.created_by,
            not_before: key.not_before.into_wire(),
            expires_at: key.expires_at.into_wire(),
            revoked_at: revoked_at.into_wire(),
            revoked_by,
            reason,
        }
    }
}

/// The signing keys of an actor.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SigningKeyPage {
    /// In the order in which they were added. A key that ended more than 30 days ago is left out.
    items: Vec<SigningKeyDocument>,
    /// Always null: the list is complete.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Lists the signing keys of an actor. Your own need no scope.
#[utoipa::path(
    get,
    path = "/actors/{id}/signing-keys",
    tag = "access",
    params(("id" = String, Path, description = "Actor name")),
    responses((status = 200, body = SigningKeyPage, description = "The keys"), ReadErrors)
)]
pub(crate) async fn list(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SigningKeyPage>, ApiError> {
    let keys = access::list_signing_keys(directory(&edge)?, &caller.permit, &id)?;
    let items = keys.into_iter().map(SigningKeyDocument::from).collect();
    Ok(Json(SigningKeyPage { items, next_cursor: None }))
}
