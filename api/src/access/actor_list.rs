//! `GET /actors`: lists the actors of a tenant.

use super::actor_get::{ActorDocument, directory};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::State;
use chimera_engine::access;
use serde::Serialize;
use utoipa::ToSchema;

/// The actors of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ActorPage {
    /// Names in alphabetical order, then patterns, longest first.
    items: Vec<ActorDocument>,
    /// Always null: the list is complete.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Lists actors.
#[utoipa::path(
    get,
    path = "/actors",
    tag = "access",
    responses((status = 200, body = ActorPage, description = "All actors"), ReadErrors)
)]
pub(crate) async fn list(State(edge): State<Edge>, caller: Caller) -> Result<Json<ActorPage>, ApiError> {
    let items = access::list_actors(directory(&edge)?, &caller.permit)?.into_iter().map(ActorDocument::from).collect();
    Ok(Json(ActorPage { items, next_cursor: None }))
}
