//! `GET /tenants`: every tenant, for an operator.

use super::actor_get::directory;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::problem::ApiError;
use crate::refusals::Asking;
use axum::Json;
use axum::extract::State;
use chimera_engine::access::TenantView;
use serde::Serialize;
use utoipa::ToSchema;

/// A tenant.
#[derive(Serialize, ToSchema)]
pub(crate) struct TenantDocument {
    /// Its id, which says nothing and never changes.
    id: String,
    /// What people call it.
    slug: String,
    /// Its name in full.
    name: String,
    /// Its actors are let in no more.
    disabled: bool,
    /// Since when it is there.
    created_at: Option<String>,
}

impl From<TenantView> for TenantDocument {
    fn from(shown: TenantView) -> Self {
        let TenantView { id, slug, name, disabled, created_at, .. } = shown;
        Self { id, slug, name, disabled, created_at: created_at.map(|at| at.to_string()) }
    }
}

/// The tenants.
#[derive(Serialize, ToSchema)]
pub(crate) struct TenantPage {
    /// By their slugs.
    items: Vec<TenantDocument>,
    /// Always null: the list is whole.
    next_cursor: Option<String>,
}

/// Lists the tenants.
#[utoipa::path(
    get,
    path = "/tenants",
    tag = "access",
    responses((status = 200, body = TenantPage, description = "Every tenant"), Asking)
)]
pub(crate) async fn list(State(edge): State<Edge>, caller: Caller) -> Result<Json<TenantPage>, ApiError> {
    let items = directory(&edge)?.list_tenants(&caller.permit)?.into_iter().map(TenantDocument::from).collect();
    Ok(Json(TenantPage { items, next_cursor: None }))
}
