//! The bus: hints between the parts of the system, in one process or many.

use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::limits::{BUS_MESSAGE_BYTES_MAX, BUS_TOPIC_BYTES_MAX};
use futures::stream::BoxStream;

/// What a listener hears, until it or the bus is dropped. Dropping it ends the subscription.
pub type Subscription = BoxStream<'static, Heard>;

/// Small messages by topic. A hint and never the truth: whoever listens also polls.
///
/// **At most once.** A message reaches each subscription of its topic once or not at all; nobody
/// who subscribes later hears it. It is not kept anywhere.
/// **Ordered.** Messages of one publisher on one topic arrive in the order they were sent.
/// **From now on.** When `subscribe` has returned, every later publish is heard, unless it is lost.
/// **Honest about loss.** Whoever falls more than `BUS_BACKLOG_MAX` messages behind, or was cut off
/// from the bus for a while, hears `Lagged` before the next message, and should poll once. A slow
/// listener never holds up a publisher or another listener.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Sends to whoever listens now. Nobody listening is no error.
    async fn publish(&self, topic: &str, message: Bytes) -> Result<(), BusError>;

    /// Listens to exactly this topic.
    async fn subscribe(&self, topic: &str) -> Result<Subscription, BusError>;

    /// Whether messages get through now.
    async fn ready(&self) -> Result<(), BusError>;
}

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Message(Bytes),
    /// Some messages were missed here.
    Lagged {
        /// How many, as far as that can be known.
        missed: Option<u64>,
    },
}

/// Why a message was not sent, or a topic can't be listened to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// A message beyond the limit.
    #[error("a bus message is larger than {BUS_MESSAGE_BYTES_MAX} bytes")]
    MessageTooLarge,
    /// An empty topic or one beyond the limit.
    #[error("a bus topic has 1 to {BUS_TOPIC_BYTES_MAX} bytes")]
    InvalidTopic,
    /// This process listens to too many topics already.
    #[error("too many bus topics are listened to")]
    TooManyTopics,
    /// The bus can't be reached. The message may be lost.
    #[error("the bus is unavailable: {reason}")]
    Unavailable {
        /// What an operator should know: no address, no credential.
        reason: String,
    },
}

impl BusError {
    /// Checks what every bus demands of a topic.
    pub fn check_topic(topic: &str) -> Result<(), Self> {
        if (1..=BUS_TOPIC_BYTES_MAX).contains(&topic.len()) { Ok(()) } else { Err(Self::InvalidTopic) }
    }

    /// Checks what every bus demands of a message.
    pub fn check_message(message: &[u8]) -> Result<(), Self> {
        if message.len() <= BUS_MESSAGE_BYTES_MAX { Ok(()) } else { Err(Self::MessageTooLarge) }
    }
}
