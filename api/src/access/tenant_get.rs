//! `GET /tenants/{slug}`: one tenant. Operators only.

use super::actor_get::directory;
use super::tenant_list::TenantDocument;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::access;

/// Retrieves a tenant.
#[utoipa::path(
    get,
    path = "/tenants/{slug}",
    tag = "access",
    params(("slug" = String, Path, description = "Slug of the tenant")),
    responses((status = 200, body = TenantDocument, description = "The tenant"), ReadErrors)
)]
pub(crate) async fn get(
    State(edge): State<Edge>,
    caller: Caller,
    Path(slug): Path<String>,
) -> Result<Json<TenantDocument>, ApiError> {
    Ok(Json(access::show_tenant(directory(&edge)?, &caller.permit, &slug)?.into()))
}
