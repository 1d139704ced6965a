//! `GET /.well-known/intent-keys.json`: the public keys that verify what actors sign.
//!
//! It says when a key is valid, and not whose it is: who works here is nobody else's business.

use crate::edge::Edge;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chimera_core::access::SigningKey;
use chimera_core::limits::{INTENT_KEYS_CACHE_SECONDS, INTENT_KEYS_REBUILD_SECONDS};
use chimera_core::time::Timestamp;
use chimera_engine::access::Snapshot;
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError, Weak};
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

/// The document as it was last built. Anybody may ask for it, and it can be large.
#[derive(Default)]
pub(crate) struct IntentKeysDocument(Mutex<Option<BuiltDocument>>);

struct BuiltDocument {
    of: Weak<Snapshot>,
    at: Timestamp,
    text: Bytes,
}

impl IntentKeysDocument {
    /// The document of a snapshot. Keys begin and end also while the snapshot stays.
    fn text(&self, snapshot: &Arc<Snapshot>, now: Timestamp) -> Bytes {
        let mut built = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |built: &&BuiltDocument| {
            let since = now.micros().saturating_sub(built.at.micros());
            std::ptr::eq(built.of.as_ptr(), Arc::as_ptr(snapshot))
                && (0..INTENT_KEYS_REBUILD_SECONDS * 1_000_000).contains(&since)
        };
        if let Some(built) = built.as_ref().filter(is_current) {
            return built.text.clone();
        }
        let keys = snapshot.published_signing_keys(now).map(|key| IntentKey::from(&**key)).collect();
        let text = Bytes::from(serde_json::to_vec(&IntentKeySet { keys }).unwrap_or_default());
        *built = Some(BuiltDocument { of: Arc::downgrade(snapshot), at: now, text: text.clone() });
        text
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
    let snapshot = edge.access.as_ref().map(|access| access.directory().snapshot()).unwrap_or_default();
    let text = edge.intent_keys.text(&snapshot, edge.clock.now());
    let cached = format!("public, max-age={INTENT_KEYS_CACHE_SECONDS}");
    ([(header::CACHE_CONTROL, cached), (header::CONTENT_TYPE, "application/json".to_owned())], text).into_response()
}
