//! `GET /.well-known/jwks.json`: the public keys that verify access tokens.

use crate::edge::Edge;
use crate::wire::IntoWire;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chimera_core::access::token::Jwk;
use serde::Serialize;
use utoipa::ToSchema;

/// A JSON Web Key Set (RFC 7517).
#[derive(Serialize, ToSchema)]
pub(crate) struct KeySet {
    /// Valid keys: the signing key, and earlier ones during a rotation.
    keys: Vec<WebKey>,
}

/// An Ed25519 public key as a JSON Web Key.
#[derive(Serialize, ToSchema)]
pub(crate) struct WebKey {
    /// Always `OKP`.
    kty: &'static str,
    /// Always `Ed25519`.
    crv: &'static str,
    /// The key, in URL-safe Base64.
    x: String,
    /// Key id, as in the header of a token.
    kid: String,
    /// Always `EdDSA`.
    alg: &'static str,
    /// Always `sig`.
    r#use: &'static str,
}

impl IntoWire<WebKey> for Jwk {
    fn into_wire(self) -> WebKey {
        let Self { kty, crv, x, kid, alg, r#use } = self;
        WebKey { kty, crv, x, kid, alg, r#use }
    }
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
    ([(header::CACHE_CONTROL, "public, max-age=300")], Json(KeySet { keys: keys.into_wire() })).into_response()
}
