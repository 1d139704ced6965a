//! `DELETE /actors/{id}`: removes an actor's entry, ends its keys and its sign-ins.

use super::actor_get::{ActorDocument, directory};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::{Path, State};

/// Removes an actor.
///
/// What was beneath its entry counts for the name from then on: an entry of the configuration, or a
/// pattern that fits it.
#[utoipa::path(
    delete,
    path = "/actors/{id}",
    tag = "access",
    params(("id" = String, Path, description = "The actor's name, or a pattern")),
    responses((status = 200, body = ActorDocument, description = "What counts for the name now"), Changing)
)]
pub(crate) async fn remove(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ActorDocument>, ApiError> {
    Ok(Json(directory(&edge)?.remove_actor(&caller.permit, &id).await?.into()))
}
