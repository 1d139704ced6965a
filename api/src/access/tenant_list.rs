//! `GET /tenants`: all tenants. Operators only.

use super::actor_get::directory;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::problem::ApiError;
use crate::wire::{DateTime, IntoWire};
use axum::Json;
use axum::extract::State;
use chimera_engine::access::{self, TenantView};
use serde::Serialize;
use utoipa::ToSchema;

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct TenantDocument {
    /// Opaque id; never changes.
    id: String,
    /// Short name, used in paths and parameters.
    slug: String,
    /// Display name.
    name: String,
    /// Whether its actors are refused.
    disabled: bool,
    /// When it was created.
    #[schema(required)]
    created_at: Option<DateTime>,
}

impl From<TenantView> for TenantDocument {
    fn from(shown: TenantView) -> Self {
        let TenantView { id, slug, name, disabled, created_at, .. } = shown;
        Self { id, slug, name, disabled, created_at: created_at.into_wire() }
    }
}

/// All tenants.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantPage {
    /// Ordered by slug.
    items: Vec<TenantDocument>,
    /// Always null: the list is complete.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Lists tenants.
#[utoipa::path(
    get,
    path = "/tenants",
    tag = "access",
    responses((status = 200, body = TenantPage, description = "All tenants"), ReadErrors)
)]
pub(crate) async fn list(State(edge): State<Edge>, caller: Caller) -> Result<Json<TenantPage>, ApiError> {
    let items =
        access::list_tenants(directory(&edge)?, &caller.permit)?.into_iter().map(TenantDocument::from).collect();
    Ok(Json(TenantPage { items, next_cursor: None }))
}
