//! `GET /.well-known/jwks.json`: the public keys that access tokens are signed with.

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
    /// Keys that count now: the one that signs, and those before it while they overlap.
    #[schema(value_type = Vec<Object>)]
    keys: Vec<Value>,
}

/// The public keys of access tokens.
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
