//! Notifications to people and systems: webhooks and mail.

use super::ToolError;
use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The same for every attempt, so that a receiver can detect duplicates.
    pub id: Uuid,
    pub tenant: String,
    /// `webhook` or `email`.
    pub channel: String,
    pub target: String,
    /// The members `type`, `timestamp` and `data`.
    pub payload: Value,
}

/// The result of an accepted message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryReceipt {
    /// The receiver's HTTP status, if there is one.
    pub status: Option<u16>,
}

/// Sends messages. Delivery is at least once: an attempt whose reply was lost is repeated.
#[async_trait]
pub trait Notifier: Send + Sync {
    /// Whether the channel is configured and its rules allow the address, as far as that shows without a lookup. Called
    /// before anything is promised; sends nothing.
    fn check(&self, channel: &str, target: &str) -> Result<(), ToolError>;

    /// Sends one message. An error says whether a retry may help.
    async fn send(&self, message: &Message) -> Result<DeliveryReceipt, ToolError>;

    /// The public keys for verifying signatures, the current one first. Empty when messages are signed with a shared
    /// secret or not at all.
    async fn public_keys(&self) -> Vec<String> {
        Vec::new()
    }
}
