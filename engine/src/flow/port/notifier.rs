//! Telling people and systems that something happened.

use super::ToolError;
use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

/// A message to somebody.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The same for every try, so that a receiver can tell a repetition.
    pub id: Uuid,
    /// Whose it is.
    pub tenant: String,
    /// `webhook` or `email`.
    pub channel: String,
    /// The address.
    pub target: String,
    /// What happened: `type`, `timestamp`, `data`.
    pub payload: Value,
}

/// What is known of a message that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// The status with which the receiver answered, where there is one.
    pub status: Option<u16>,
}

/// Sends messages. Delivery is at least once: a try whose answer was lost is made again.
#[async_trait]
pub trait Notifier: Send + Sync {
    /// Whether a message could go there at all: the channel is set up and its rules allow the
    /// address, as far as that shows without a lookup. Asked before anything is promised; nothing is sent.
    fn check(&self, channel: &str, target: &str) -> Result<(), ToolError>;

    /// Sends one message, or says why not and whether trying again may help.
    async fn send(&self, message: &Message) -> Result<Delivered, ToolError>;

    /// The public keys with which receivers check signatures, the current one first; none when
    /// messages are signed with a shared secret, or not at all.
    async fn public_keys(&self) -> Vec<String> {
        Vec::new()
    }
}
