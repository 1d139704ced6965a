//! `PATCH /tenants/{slug}`: disables or enables a tenant. Operators only.

use super::actor_get::directory;
use super::tenant_list::TenantDocument;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::access;
use serde::Deserialize;
use utoipa::ToSchema;

/// A change of a tenant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantChange {
    /// True: its actors are refused, its event streams end, and its runs make no further calls.
    disabled: bool,
}

/// Disables or enables a tenant.
#[utoipa::path(
    patch,
    path = "/tenants/{slug}",
    tag = "access",
    params(("slug" = String, Path, description = "Slug of the tenant")),
    request_body = TenantChange,
    responses((status = 200, body = TenantDocument, description = "The updated tenant"), WriteErrors)
)]
pub(crate) async fn set(
    State(edge): State<Edge>,
    caller: Caller,
    Path(slug): Path<String>,
    ApiJson(body): ApiJson<TenantChange>,
) -> Result<Json<TenantDocument>, ApiError> {
    Ok(Json(access::set_tenant_disabled(directory(&edge)?, &caller.permit, &slug, body.disabled).await?.into()))
}
