//! The bus: best-effort notifications between parts of the system, in one process or many.

use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::limits::{BUS_MESSAGE_BYTES_MAX, BUS_TOPIC_BYTES_MAX};
use futures::stream::BoxStream;

/// A subscription's stream. It ends when the bus is dropped; dropping it unsubscribes.
pub type Subscription = BoxStream<'static, BusEvent>;

/// Small messages by topic. Best effort: every subscriber also polls.
///
/// **At most once.** A message reaches each subscription of its topic once or not at all. Later subscribers don't
/// receive it; nothing is stored.
/// **Ordered.** Messages of one publisher on one topic arrive in the order they were sent.
/// **From now on.** Once `subscribe` has returned, every later publish is delivered, unless it is lost.
/// **Loss is reported.** A subscriber that falls more than `BUS_BACKLOG_MAX` messages behind, or was disconnected,
/// receives `Lagged` before the next message and should poll once. A slow subscriber never blocks a publisher or
/// another subscriber.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Sends to the current subscribers. Having none is not an error.
    async fn publish(&self, topic: &str, message: Bytes) -> Result<(), BusError>;

    /// Subscribes to exactly this topic.
    async fn subscribe(&self, topic: &str) -> Result<Subscription, BusError>;

    /// Whether messages are delivered now.
    async fn ready(&self) -> Result<(), BusError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusEvent {
    Message(Bytes),
    /// Messages were lost at this point in the stream.
    Lagged {
        /// `None` if the number is unknown.
        missed: Option<u64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    #[error("a bus message is larger than {BUS_MESSAGE_BYTES_MAX} bytes")]
    MessageTooLarge,
    #[error("a bus topic has 1 to {BUS_TOPIC_BYTES_MAX} bytes")]
    InvalidTopic,
    /// This process has too many subscribed topics.
    #[error("too many bus topics are listened to")]
    TooManyTopics,
    /// The message may be lost.
    #[error("the bus is unavailable: {reason}")]
    Unavailable {
        /// For operators: no address, no credential.
        reason: String,
    },
}

impl BusError {
    /// Validates a topic, the same for every bus.
    pub fn check_topic(topic: &str) -> Result<(), Self> {
        if (1..=BUS_TOPIC_BYTES_MAX).contains(&topic.len()) { Ok(()) } else { Err(Self::InvalidTopic) }
    }

    /// Validates a message, the same for every bus.
    pub fn check_message(message: &[u8]) -> Result<(), Self> {
        if message.len() <= BUS_MESSAGE_BYTES_MAX { Ok(()) } else { Err(Self::MessageTooLarge) }
    }
}
