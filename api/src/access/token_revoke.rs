//! `POST /auth/revoke`: revokes a token before it expires.

use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::OptionalJson;
use crate::gate::authenticator;
use crate::gate::received::ReceivedRequest;
use crate::problem::ApiError;
use axum::extract::State;
use axum::{Extension, Json};
use chimera_engine::access;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// A revocation request.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeBody {
    /// An access token, or a refresh token, which revokes its whole session. If omitted: the token of this
    /// request and its session.
    token: Option<String>,
}

/// Result of a revocation.
#[derive(Serialize, ToSchema)]
pub(crate) struct RevokedDocument {
    /// Whether a token was revoked; false for an unknown one.
    revoked: bool,
}

/// Revokes a token.
#[utoipa::path(
    post,
    path = "/auth/revoke",
    tag = "access",
    request_body(content = Option<RevokeBody>, description = "Optional"),
    responses((status = 200, body = RevokedDocument, description = "The token is not valid any more"), WriteErrors)
)]
pub(crate) async fn revoke(
    State(edge): State<Edge>,
    caller: Caller,
    Extension(received): Extension<Arc<ReceivedRequest>>,
    OptionalJson(body): OptionalJson<RevokeBody>,
) -> Result<Json<RevokedDocument>, ApiError> {
    let revoked =
        access::revoke_token(authenticator(&edge)?, &caller.permit, received.bearer(), body.token.as_deref()).await?;
    Ok(Json(RevokedDocument { revoked }))
}
