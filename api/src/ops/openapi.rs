//! `GET /openapi.json`: this interface, described for machines.

use axum::Json;

/// The OpenAPI 3.1 document.
#[utoipa::path(get, path = "/openapi.json", tag = "ops", responses((status = 200, body = Object, description = "The document")))]
pub(crate) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(crate::routes::document())
}
