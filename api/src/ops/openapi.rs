//! `GET /openapi.json`: the OpenAPI document.

use crate::wire::JsonObject;
use axum::http::header;
use axum::response::IntoResponse;
use bytes::Bytes;
use std::sync::LazyLock;

/// Returns the OpenAPI 3.1 document.
#[utoipa::path(get, path = "/openapi.json", tag = "ops", responses((status = 200, body = JsonObject, description = "The document")))]
pub(crate) async fn openapi() -> impl IntoResponse {
    // Public, so it is serialised once.
    static DOCUMENT: LazyLock<Bytes> =
        LazyLock::new(|| serde_json::to_vec(&crate::routes::document()).unwrap_or_default().into());
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}
