//! The sealed link in a queued message.
//!
//! Read access to the store, its log or a backup must not be enough to decide, so a queued message holds its link
//! sealed and bound to that message. It is decrypted when the message is sent.

use crate::flow::port::ToolError;
use crate::port::Random;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chimera_core::access::seal;
use chimera_core::error::Code;
use chimera_core::secret::Secret;
use serde_json::{Value, json};
use uuid::Uuid;

/// The member of a message that holds it.
const SEALED: &str = "sealed";

/// Seals and opens the links in queued messages. Without a key, messages have no links.
#[derive(Clone, Default)]
pub struct LinkSeal(Option<Secret>);

impl LinkSeal {
    /// With a key of 32 bytes.
    #[must_use]
    pub const fn new(key: Secret) -> Self {
        Self(Some(key))
    }

    /// The sealed link for a message; `None` without a key, and then the message has no link.
    pub(super) fn seal(&self, message: Uuid, link: &str, random: &dyn Random) -> Option<Value> {
        let mut nonce = [0; 24];
        random.fill(&mut nonce);
        let sealed = seal::seal(self.key()?, &link_context(message), nonce, &Secret::new(link))?;
        Some(json!({ SEALED: STANDARD.encode(sealed) }))
    }

    /// The message as it is sent. A message from before links were sealed has its link in plain text.
    pub fn open(&self, message: Uuid, mut payload: Value) -> Result<Value, ToolError> {
        let Some(link) = payload.pointer_mut("/data/link") else { return Ok(payload) };
        let Some(sealed) = link.get(SEALED) else { return Ok(payload) };
        let bytes = sealed.as_str().and_then(|text| STANDARD.decode(text).ok());
        let open = |key| seal::open(key, &link_context(message), &bytes?);
        let opened = self.key().and_then(open).and_then(|link| link.expose_text().map(str::to_owned));
        *link = opened.map(Value::from).ok_or_else(wrong_seal_key)?;
        Ok(payload)
    }

    fn key(&self) -> Option<&[u8; 32]> {
        self.0.as_ref()?.expose().try_into().ok()
    }
}

/// Retryable: another node may have the key.
fn wrong_seal_key() -> ToolError {
    let message =
        "the link in this message was sealed with another key; all nodes of a store need the same access.seal_key";
    ToolError::not_sent(Code::ExternalServiceUnavailable, message)
}

/// The associated data of a sealed link.
fn link_context(message: Uuid) -> String {
    format!("approval_link:{message}")
}
