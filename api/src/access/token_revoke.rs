//! `POST /auth/revoke`: takes a token back before its time.

use crate::caller::Caller;
use crate::edge::Edge;
use crate::extract::OptionalJson;
use crate::gate::door;
use crate::gate::shown::Shown;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// What is taken back.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeBody {
    /// An access token, or a refresh token with its whole sign-in. Without one: the token of this very
    /// request and its sign-in.
    token: Option<String>,
}

/// It is done.
#[derive(Serialize, ToSchema)]
pub(crate) struct RevokedDocument {
    /// Whether there was a token to end; one that nobody knows counts for nothing anyway.
    revoked: bool,
}

/// Takes a token back.
#[utoipa::path(
    post,
    path = "/auth/revoke",
    tag = "access",
    request_body(content = Option<RevokeBody>, description = "May be left out"),
    responses((status = 200, body = RevokedDocument, description = "It counts no more"), Changing)
)]
pub(crate) async fn revoke(
    State(edge): State<Edge>,
    caller: Caller,
    Extension(shown): Extension<Arc<Shown>>,
    OptionalJson(body): OptionalJson<RevokeBody>,
) -> Result<Json<RevokedDocument>, ApiError> {
    let revoked = door(&edge)?.revoke(&caller.permit, shown.bearer(), body.token.as_deref()).await?;
    Ok(Json(RevokedDocument { revoked }))
}
