//! `GET /.well-known/jwks.json`: the public keys that verify access tokens.

use crate::edge::Edge;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// A JSON Web Key Set (RFC 7517).
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct KeySet {
    /// Valid keys: the signing key, and earlier ones during a rotation.
    #[schema(value_type = Vec<Object>)]
    keys: Vec<Value>,
}

/// Returns the public keys that verify access tokens.
#[utoipa::path(
    get,
    path = "/.well-known/jwks.json",
    tag = "access",
    responses((status = 200, body = KeySet, description = "The keys"))
)]
pub(crate) async fn jwks(State(edge): State<Edge>) -> Response {
    let keys = edge.access.as_ref().map(|access| access.public_keys()).unwrap_or_default();
    ([(header::CACHE_CONTROL, "public, max-age=300")], Json(json!({"keys": keys}))).into_response()
}
