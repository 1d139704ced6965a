//! `GET /.well-known/webhooks.json`: the public keys with which receivers verify webhooks.

use crate::edge::Edge;
use axum::Json;
use axum::extract::State;
use chimera_engine::flow;
use serde::Serialize;
use utoipa::ToSchema;

/// Public keys of webhook signatures.
#[derive(Serialize, ToSchema)]
pub(crate) struct WebhookKeys {
    /// Current Ed25519 key, `whpk_…`; null when webhooks are signed with a shared secret.
    public_key: Option<String>,
    /// All keys in use; more than one during a rotation.
    public_keys: Vec<String>,
}

/// Returns the public keys that verify webhooks.
#[utoipa::path(
    get,
    path = "/.well-known/webhooks.json",
    tag = "ops",
    responses((status = 200, body = WebhookKeys, description = "The public keys"))
)]
pub(crate) async fn keys(State(edge): State<Edge>) -> Json<WebhookKeys> {
    let public_keys = match &edge.flow {
        Some(flow) => flow::webhook_keys(flow).await,
        None => Vec::new(),
    };
    Json(WebhookKeys { public_key: public_keys.first().cloned(), public_keys })
}
