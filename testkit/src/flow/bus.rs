//! An in-process bus. A publisher receives its own messages, as on every real bus.

use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::limits::BUS_BACKLOG_MAX;
use chimera_engine::port::{Bus, BusError, BusEvent, Subscription};
use futures::StreamExt;
use futures::stream;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast::{self, error::RecvError};

/// A bus shared by all its clones.
#[derive(Clone, Default)]
pub struct BroadcastBus {
    topics: Arc<Mutex<BTreeMap<String, broadcast::Sender<Bytes>>>>,
}

impl BroadcastBus {
    fn topic(&self, topic: &str) -> broadcast::Sender<Bytes> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.entry(topic.to_owned()).or_insert_with(|| broadcast::Sender::new(BUS_BACKLOG_MAX)).clone()
    }
}

#[async_trait]
impl Bus for BroadcastBus {
    async fn publish(&self, topic: &str, message: Bytes) -> Result<(), BusError> {
        // No subscriber is no error.
        let _ = self.topic(topic).send(message);
        Ok(())
    }

    async fn subscribe(&self, topic: &str) -> Result<Subscription, BusError> {
        let receiver = self.topic(topic).subscribe();
        let heard = stream::unfold(receiver, |mut receiver| async {
            let heard = match receiver.recv().await {
                Ok(message) => BusEvent::Message(message),
                Err(RecvError::Lagged(missed)) => BusEvent::Lagged { missed: Some(missed) },
                Err(RecvError::Closed) => return None,
            };
            Some((heard, receiver))
        });
        Ok(heard.boxed())
    }

    async fn ready(&self) -> Result<(), BusError> {
        Ok(())
    }
}
