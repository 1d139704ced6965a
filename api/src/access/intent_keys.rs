//! `GET /.well-known/intent-keys.json`: the public keys that verify what actors sign.
//!
//! It says when a key is valid, and not whose it is: who works here is nobody else's business.

use crate::edge::Edge;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chimera_core::access::SigningKey;
use chimera_core::limits::INTENT_KEYS_CACHE_SECONDS;
use chimera_core::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// A JSON Web Key Set (RFC 7517).
#[derive(Serialize, ToSchema)]
pub(crate) struct IntentKeySet {
    /// The keys that are valid now, ordered by their ids.
    keys: Vec<IntentKey>,
}

/// An Ed25519 public key as a JSON Web Key (RFC 8037).
#[derive(Serialize, ToSchema)]
pub(crate) struct IntentKey {
    /// Always `OKP`.
    kty: &'static str,
    /// Always `Ed25519`.
    crv: &'static str,
    /// The key, in URL-safe Base64.
    x: String,
    /// Key id: the thumbprint of the key (RFC 7638).
    kid: String,
    /// Always `EdDSA`.
    alg: &'static str,
    /// Always `sig`.
    r#use: &'static str,
    /// From when it is valid, in Unix seconds.
    nbf: i64,
    /// When it expires, in Unix seconds; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<i64>,
}

impl From<&SigningKey> for IntentKey {
    fn from(key: &SigningKey) -> Self {
        let seconds = |at: Timestamp| at.millis().div_euclid(1_000);
        Self {
            kty: "OKP",
            crv: "Ed25519",
            x: key.public.x(),
            kid: key.kid.clone(),
            alg: "EdDSA",
            r#use: "sig",
            nbf: seconds(key.not_before),
            exp: key.expires_at.map(seconds),
        }
    }
}

/// Returns the public keys that verify what actors sign.
#[utoipa::path(
    get,
    path = "/.well-known/intent-keys.json",
    tag = "access",
    responses((status = 200, body = IntentKeySet, description = "The keys"))
)]
pub(crate) async fn keys(State(edge): State<Edge>) -> Response {
    let build = |keys: &mut dyn Iterator<Item = &SigningKey>| {
        let keys = keys.map(IntentKey::from).collect();
        serde_json::to_vec(&IntentKeySet { keys }).unwrap_or_default().into()
    };
    let text = match &edge.access {
        Some(access) => access.signing_keys_document(build),
        None => build(&mut std::iter::empty()),
    };
    let cached = format!("public, max-age={INTENT_KEYS_CACHE_SECONDS}");
    ([(header::CACHE_CONTROL, cached), (header::CONTENT_TYPE, "application/json".to_owned())], text).into_response()
}
