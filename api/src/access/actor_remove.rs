//! `DELETE /actors/{id}`: ends an actor's keys and sign-ins, and retires its name.

use super::actor_get::{ActorDocument, directory};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::access;

/// Removes an actor and revokes its keys and sessions.
///
/// Its name is retired: nobody can be registered under it again. If the configuration has an entry of
/// that name, that one counts from then on instead.
#[utoipa::path(
    delete,
    path = "/actors/{id}",
    tag = "access",
    params(("id" = String, Path, description = "Actor name or pattern")),
    responses((status = 200, body = ActorDocument, description = "The entry that applies to the name now"), WriteErrors)
)]
pub(crate) async fn remove(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ActorDocument>, ApiError> {
    Ok(Json(access::remove_actor(directory(&edge)?, &caller.permit, &id).await?.into()))
}
