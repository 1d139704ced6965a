//! `GET /.well-known/webhooks.json`: the public key with which receivers check our webhooks.

use crate::edge::Edge;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

/// What signatures are checked with.
#[derive(Serialize, ToSchema)]
pub(crate) struct WebhookKeys {
    /// The current Ed25519 key, `whpk_…`; null when webhooks are signed with a shared secret.
    public_key: Option<String>,
    /// All keys that sign now: more than one while they are changed.
    public_keys: Vec<String>,
}

/// The keys that sign webhooks.
#[utoipa::path(
    get,
    path = "/.well-known/webhooks.json",
    tag = "ops",
    responses((status = 200, body = WebhookKeys, description = "The public keys that sign webhooks"))
)]
pub(crate) async fn keys(State(edge): State<Edge>) -> Json<WebhookKeys> {
    let public_keys = match &edge.flow {
        Some(flow) => flow.webhook_keys().await,
        None => Vec::new(),
    };
    Json(WebhookKeys { public_key: public_keys.first().cloned(), public_keys })
}
