//! The in-process bus. A topic exists while it has listeners.

use super::{Listener, topic_channel};
use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::limits::BUS_TOPICS_MAX;
use chimera_engine::port::{Bus, BusError, BusEvent, Subscription};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

type Topics = HashMap<String, broadcast::Sender<BusEvent>>;

#[derive(Clone, Default)]
pub struct LocalBus {
    topics: Arc<Mutex<Topics>>,
}

impl LocalBus {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of topics with listeners.
    #[must_use]
    pub fn topic_count(&self) -> usize {
        locked(&self.topics).len()
    }
}

/// No code panics while holding the lock, so a poisoned map is still consistent.
fn locked(topics: &Mutex<Topics>) -> MutexGuard<'_, Topics> {
    topics.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Bus for LocalBus {
    async fn publish(&self, topic: &str, message: Bytes) -> Result<(), BusError> {
        BusError::check_topic(topic)?;
        BusError::check_message(&message)?;
        if let Some(sender) = locked(&self.topics).get(topic) {
            // Fails only if the last listener is just leaving.
            let _ = sender.send(BusEvent::Message(message));
        }
        Ok(())
    }

    async fn subscribe(&self, topic: &str) -> Result<Subscription, BusError> {
        BusError::check_topic(topic)?;
        let mut topics = locked(&self.topics);
        if topics.len() >= BUS_TOPICS_MAX && !topics.contains_key(topic) {
            return Err(BusError::TooManyTopics);
        }
        let receiver = topics.entry(topic.to_owned()).or_insert_with(topic_channel).subscribe();
        let (shared, topic) = (Arc::downgrade(&self.topics), topic.to_owned());
        let leave = move || {
            let Some(shared) = shared.upgrade() else { return };
            let mut topics = locked(&shared);
            if topics.get(&topic).is_some_and(|sender| sender.receiver_count() == 0) {
                topics.remove(&topic);
            }
        };
        Ok(Listener::new(receiver, leave).into_subscription())
    }

    async fn ready(&self) -> Result<(), BusError> {
        Ok(())
    }
}
