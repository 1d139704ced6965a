//! The bus: in-process, or between processes through Redis.

mod local;
mod redis;

pub use local::LocalBus;
pub use redis::RedisBus;

use chimera_core::limits::BUS_BACKLOG_MAX;
use chimera_engine::port::{BusEvent, Subscription};
use futures::StreamExt;
use futures::stream;
use tokio::sync::broadcast::{self, error::RecvError};

/// The bounded backlog of one topic.
fn topic_channel() -> broadcast::Sender<BusEvent> {
    broadcast::Sender::new(BUS_BACKLOG_MAX)
}

/// A subscription to a topic that reports when it is dropped.
struct Listener {
    receiver: Option<broadcast::Receiver<BusEvent>>,
    leave: Option<Box<dyn FnOnce() + Send>>,
}

impl Listener {
    fn new(receiver: broadcast::Receiver<BusEvent>, leave: impl FnOnce() + Send + 'static) -> Self {
        Self { receiver: Some(receiver), leave: Some(Box::new(leave)) }
    }

    async fn next(&mut self) -> Option<BusEvent> {
        match self.receiver.as_mut()?.recv().await {
            Ok(heard) => Some(heard),
            Err(RecvError::Lagged(missed)) => Some(BusEvent::Lagged { missed: Some(missed) }),
            Err(RecvError::Closed) => None,
        }
    }

    fn into_subscription(self) -> Subscription {
        stream::unfold(self, async |mut listener| Some((listener.next().await?, listener))).boxed()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Drop the receiver first: `leave` counts the remaining ones.
        self.receiver = None;
        if let Some(leave) = self.leave.take() {
            leave();
        }
    }
}
