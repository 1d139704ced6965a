//! `POST /actors/{id}/keys`: creates a key for an actor. The key is returned only once.

use super::actor_get::directory;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::OptionalJson;
use crate::problem::ApiError;
use crate::wire::{DateTime, IntoWire};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chimera_core::limits;
use chimera_engine::access;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Options of a new key.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyBody {
    /// The key; generated if omitted.
    hmac_key: Option<String>,
    /// How long earlier keys stay valid, in seconds; one day if omitted. `0` revokes them now.
    overlap_seconds: Option<u32>,
}

/// A new key.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyDocument {
    /// Name of the actor.
    actor: String,
    /// Id of the key.
    key_id: Uuid,
    /// The key. It cannot be retrieved again.
    hmac_key: String,
    /// When earlier keys expire.
    #[schema(required)]
    keys_before_until: Option<DateTime>,
}

/// Creates a key for an actor.
#[utoipa::path(
    post,
    path = "/actors/{id}/keys",
    tag = "access",
    params(("id" = String, Path, description = "Actor name")),
    request_body(content = Option<KeyBody>, description = "Optional"),
    responses((status = 201, body = KeyDocument, description = "The key, returned only once"), WriteErrors)
)]
pub(crate) async fn add(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<KeyBody>,
) -> Result<Response, ApiError> {
    let overlap = i64::from(body.overlap_seconds.unwrap_or(limits::ACTOR_KEY_OVERLAP_SECONDS));
    let made = access::add_key(directory(&edge)?, &caller.permit, &id, body.hmac_key, Some(overlap)).await?;
    let document = KeyDocument {
        actor: id,
        key_id: made.id,
        hmac_key: made.key,
        keys_before_until: made.before_until.into_wire(),
    };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(document)).into_response())
}
