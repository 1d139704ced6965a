//! `POST /actors/{id}/keys`: makes a key for an actor. It is told once.

use super::actor_get::directory;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::extract::OptionalJson;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chimera_core::limits;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How the key is made.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyBody {
    /// The key; without it a random one is made.
    hmac_key: Option<String>,
    /// Seconds that the keys before it still count: a day without it; `0` ends them now.
    overlap_seconds: Option<u32>,
}

/// A key.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyDocument {
    /// The actor.
    actor: String,
    /// The key's id.
    key_id: String,
    /// The key. Nobody can read it again.
    hmac_key: String,
    /// Until when the keys before it count.
    keys_before_until: Option<String>,
}

/// Makes a key.
#[utoipa::path(
    post,
    path = "/actors/{id}/keys",
    tag = "access",
    params(("id" = String, Path, description = "The actor's name")),
    request_body(content = Option<KeyBody>, description = "May be left out"),
    responses((status = 201, body = KeyDocument, description = "The key, told once"), Changing)
)]
pub(crate) async fn add(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<KeyBody>,
) -> Result<Response, ApiError> {
    let overlap = i64::from(body.overlap_seconds.unwrap_or(limits::ACTOR_KEY_OVERLAP_SECONDS));
    let made = directory(&edge)?.add_key(&caller.permit, &id, body.hmac_key, Some(overlap)).await?;
    let document = KeyDocument {
        actor: id,
        key_id: made.id.to_string(),
        hmac_key: made.key,
        keys_before_until: made.before_until.map(|until| until.to_string()),
    };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(document)).into_response())
}
