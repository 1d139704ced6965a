//! `POST /tenants`: creates a tenant. Operators only.

use super::actor_get::directory;
use super::tenant_list::TenantDocument;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chimera_engine::access;
use serde::Deserialize;
use utoipa::ToSchema;

/// A new tenant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantBody {
    /// Lower-case letters, digits and hyphens, starting with a letter.
    #[schema(example = "acme")]
    slug: String,
    /// Display name; the slug if omitted.
    name: Option<String>,
}

/// Creates a tenant. Nothing is shared with it until the configuration says so.
#[utoipa::path(
    post,
    path = "/tenants",
    tag = "access",
    request_body = TenantBody,
    responses((status = 201, body = TenantDocument, description = "The tenant, with its id"), WriteErrors)
)]
pub(crate) async fn add(
    State(edge): State<Edge>,
    caller: Caller,
    ApiJson(body): ApiJson<TenantBody>,
) -> Result<(StatusCode, Json<TenantDocument>), ApiError> {
    let added = access::add_tenant(directory(&edge)?, &caller.permit, &body.slug, body.name.as_deref()).await?;
    Ok((StatusCode::CREATED, Json(added.into())))
}
