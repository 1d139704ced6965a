//! Credentials as this process uses them itself: signing in, signing bodies; and the registry of actors
//! as commands look after it.

pub(crate) mod book;

use crate::compose::{Ambient, Example};
use crate::failure::{Failure, Outcome};
use chimera_core::access::{Secret, mac};
use chimera_engine::access::{Access, Presented, SignIn};
use serde_json::json;

/// An access token of an actor whose key is at hand, got like anybody gets one.
pub(crate) async fn sign_in(access: &Access, ambient: &Ambient, example: &Example) -> Outcome<String> {
    let (issued_at, nonce) = (ambient.clock.now().to_string(), ambient.random.opaque_id());
    let body = json!({"actor": example.actor, "issued_at": issued_at, "nonce": nonce}).to_string();
    let signature = sign(&example.hmac_key, &body);
    let shown = Presented {
        bearer: None,
        signature: Some(&signature),
        body: body.as_bytes(),
        signed: true,
        dated: true,
        reads: false,
        peer: None,
        target: "POST /auth/token",
        trace_id: None,
    };
    let ask = SignIn { actor: example.actor.clone(), issued_at: issued_at.into(), nonce, scopes: None };
    let tokens = access.door().sign_in(&ask, &shown).await.map_err(|turned| Failure::told(turned.body))?;
    Ok(tokens.access_token)
}

/// The signature of a body.
pub(crate) fn sign(key: &str, body: &str) -> String {
    mac::sign(&Secret::new(key.as_bytes()), body.as_bytes())
}
