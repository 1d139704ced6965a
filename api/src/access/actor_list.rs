//! `GET /actors`: the registry of a tenant.

use super::actor_get::{ActorDocument, directory};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::problem::ApiError;
use crate::refusals::Asking;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

/// The registry.
#[derive(Serialize, ToSchema)]
pub(crate) struct ActorPage {
    /// Names in their order, then patterns, the longest first.
    items: Vec<ActorDocument>,
    /// Always null: the list is whole.
    next_cursor: Option<String>,
}

/// Lists the registry.
#[utoipa::path(
    get,
    path = "/actors",
    tag = "access",
    responses((status = 200, body = ActorPage, description = "Every entry"), Asking)
)]
pub(crate) async fn list(State(edge): State<Edge>, caller: Caller) -> Result<Json<ActorPage>, ApiError> {
    let items = directory(&edge)?.actors(&caller.permit)?.into_iter().map(ActorDocument::from).collect();
    Ok(Json(ActorPage { items, next_cursor: None }))
}
