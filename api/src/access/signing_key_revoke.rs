//! `DELETE /signing-keys/{kid}`: revokes a signing key.

use super::actor_get::directory;
use super::signing_key_list::SigningKeyDocument;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::ApiQuery;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::access;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeQuery {
    reason: Option<String>,
}

/// Revokes a signing key, at once and for good. The key can't be registered again.
#[utoipa::path(
    delete,
    path = "/signing-keys/{kid}",
    tag = "access",
    params(
        ("kid" = String, Path, description = "Key id"),
        ("reason" = Option<String>, Query, description = "Why, for the ledger; 500 characters at most"),
    ),
    responses((status = 200, body = SigningKeyDocument, description = "The revoked key"), WriteErrors)
)]
pub(crate) async fn revoke(
    State(edge): State<Edge>,
    caller: Caller,
    Path(kid): Path<String>,
    ApiQuery(query): ApiQuery<RevokeQuery>,
) -> Result<Json<SigningKeyDocument>, ApiError> {
    let reason = query.reason.as_deref();
    Ok(Json(access::revoke_signing_key(directory(&edge)?, &caller.permit, &kid, reason).await?.into()))
}
