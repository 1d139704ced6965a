//! The bus between processes: Redis pub/sub.
//!
//! One task owns the subscribing connection for all topics of the process, and a local backlog per topic. When the
//! connection is lost, the task reconnects, resubscribes to everything and tells every listener that messages may
//! have been missed. Publishing uses the shared connection, so that a publisher learns at once when Redis is down.

use super::{Listener, topic_channel};
use crate::redis::{Redis, reason};
use ::redis::aio::{PubSub, PubSubSink, PubSubStream};
use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::limits::{
    BUS_REQUESTS_MAX, BUS_ROUNDS_PER_PING, BUS_TOPICS_MAX, BUS_UPKEEP_INTERVAL, REDIS_RESPONSE_TIMEOUT,
};
use chimera_engine::port::{Bus, BusError, BusEvent, Subscription};
use futures::{FutureExt, StreamExt};
use std::collections::HashMap;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::unconstrained;
use tokio::time::{MissedTickBehavior, interval, timeout};

pub struct RedisBus {
    redis: Redis,
    requests: mpsc::Sender<SubscribeRequest>,
}

struct SubscribeRequest {
    topic: String,
    answer: oneshot::Sender<Result<Listener, BusError>>,
}

impl RedisBus {
    /// The bus of this server. Subscribing begins with the first listener. Must be called within a runtime, which
    /// runs the subscriber task until the bus is dropped.
    #[must_use]
    pub fn new(redis: Redis) -> Self {
        let (requests, incoming) = mpsc::channel(BUS_REQUESTS_MAX);
        // At most one message per listener, and listeners are limited; `drop` can't wait.
        #[allow(clippy::disallowed_methods, reason = "bounded by the number of listeners")]
        let (departures, leaving) = mpsc::unbounded_channel();
        let ear = Subscriber {
            redis: redis.clone(),
            topics: HashMap::new(),
            connection: None,
            gap: false,
            rounds: 0,
            departures,
        };
        tokio::spawn(ear.run(incoming, leaving));
        Self { redis, requests }
    }
}

#[async_trait]
impl Bus for RedisBus {
    async fn publish(&self, topic: &str, message: Bytes) -> Result<(), BusError> {
        BusError::check_topic(topic)?;
        BusError::check_message(&message)?;
        let outcome = match self.redis.connection().await {
            Ok(mut connection) => {
                let mut publish = ::redis::cmd("PUBLISH");
                publish.arg(topic).arg(message.as_ref());
                publish.query_async::<i64>(&mut connection).await.map(drop)
            }
            Err(error) => Err(error),
        };
        self.redis.record_outcome(outcome).await.map_err(unavailable)
    }

    async fn subscribe(&self, topic: &str) -> Result<Subscription, BusError> {
        BusError::check_topic(topic)?;
        let (answer, answered) = oneshot::channel();
        let listen = SubscribeRequest { topic: topic.to_owned(), answer };
        self.requests.send(listen).await.map_err(|_| unavailable("the bus is stopping"))?;
        let listener = answered.await.map_err(|_| unavailable("the bus is stopping"))??;
        Ok(listener.into_subscription())
    }

    async fn ready(&self) -> Result<(), BusError> {
        self.redis.ping().await.map_err(unavailable)
    }
}

fn unavailable(reason: impl Into<String>) -> BusError {
    BusError::Unavailable { reason: reason.into() }
}

/// The subscriber task.
struct Subscriber {
    redis: Redis,
    topics: HashMap<String, broadcast::Sender<BusEvent>>,
    connection: Option<(PubSubSink, PubSubStream)>,
    /// The connection was lost while there were listeners.
    gap: bool,
    rounds: u32,
    /// Where dropped listeners report.
    departures: mpsc::UnboundedSender<String>,
}

impl Subscriber {
    async fn run(
        mut self,
        mut requests: mpsc::Receiver<SubscribeRequest>,
        mut leaving: mpsc::UnboundedReceiver<String>,
    ) {
        let mut upkeep = interval(BUS_UPKEEP_INTERVAL);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                request = requests.recv() => match request {
                    Some(SubscribeRequest { topic, answer }) => {
                        let listener = self.join(topic).await;
                        // The requester may be gone; then the listener is dropped here and reports so.
                        let _ = answer.send(listener);
                    }
                    None => return,
                },
                Some(topic) = leaving.recv() => self.leave(&topic).await,
                message = next_message(&mut self.connection) => self.handle_message(message),
                _ = upkeep.tick() => self.upkeep().await,
            }
        }
    }

    async fn join(&mut self, topic: String) -> Result<Listener, BusError> {
        self.drop_abandoned_topics();
        if self.topics.len() >= BUS_TOPICS_MAX && !self.topics.contains_key(&topic) {
            return Err(BusError::TooManyTopics);
        }
        self.connect().await.map_err(unavailable)?;
        // Also for a topic that is already subscribed: once Redis has answered, everything published before has
        // arrived and can be withheld from the new listener.
        self.subscribe_to(&[topic.as_str()]).await.map_err(unavailable)?;
        self.topics.entry(topic.clone()).or_insert_with(topic_channel);
        self.deliver_pending();
        let receiver = self.topics.entry(topic.clone()).or_insert_with(topic_channel).subscribe();
        let departures = self.departures.clone();
        let leave = move || {
            // Fails only when the bus and its topics are gone.
            let _ = departures.send(topic);
        };
        Ok(Listener::new(receiver, leave))
    }

    fn deliver_pending(&mut self) {
        while let Some(message) = unconstrained(next_message(&mut self.connection)).now_or_never() {
            self.handle_message(message);
        }
    }

    async fn leave(&mut self, topic: &str) {
        if self.topics.get(topic).is_none_or(|sender| sender.receiver_count() > 0) {
            return;
        }
        self.topics.remove(topic);
        if let Some((sink, _)) = self.connection.as_mut()
            && !matches!(timeout(REDIS_RESPONSE_TIMEOUT, sink.unsubscribe(topic)).await, Ok(Ok(())))
        {
            self.disconnect();
        }
    }

    fn handle_message(&mut self, message: Option<::redis::Msg>) {
        match message {
            None => self.disconnect(),
            Some(message) => {
                if let Some(sender) = self.topics.get(message.get_channel_name()) {
                    // Fails only if the last listener is just leaving.
                    let _ = sender.send(BusEvent::Message(Bytes::copy_from_slice(message.get_payload_bytes())));
                }
            }
        }
    }

    async fn upkeep(&mut self) {
        self.drop_abandoned_topics();
        self.rounds = (self.rounds + 1) % BUS_ROUNDS_PER_PING;
        match self.connection.as_mut() {
            None if self.topics.is_empty() => self.gap = false,
            None => {
                if let Err(reason) = self.connect().await {
                    tracing::debug!(reason, "the bus is still disconnected");
                }
            }
            // A connection that was cut silently would stay silent forever.
            Some((sink, _)) if self.rounds == 0 => {
                if !matches!(timeout(REDIS_RESPONSE_TIMEOUT, sink.ping::<::redis::Value>()).await, Ok(Ok(_))) {
                    self.disconnect();
                }
            }
            Some(_) => {}
        }
    }

    /// Drops topics whose listeners left while disconnected; they are harmless while connected.
    fn drop_abandoned_topics(&mut self) {
        if self.connection.is_none() {
            self.topics.retain(|_, sender| sender.receiver_count() > 0);
        }
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.gap = !self.topics.is_empty();
    }

    /// Connects if necessary, subscribes to all topics, and reports the gap.
    async fn connect(&mut self) -> Result<(), String> {
        if self.connection.is_some() {
            return Ok(());
        }
        let fresh = timeout(REDIS_RESPONSE_TIMEOUT, self.redis.client().get_async_pubsub()).await;
        let line = fresh.map_err(|_| "redis does not answer in time")?.map_err(|error| reason(&error))?;
        self.connection = Some(PubSub::split(line));
        let topics: Vec<String> = self.topics.keys().cloned().collect();
        if !topics.is_empty() {
            self.subscribe_to(&topics.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        }
        if std::mem::take(&mut self.gap) {
            for sender in self.topics.values() {
                let _ = sender.send(BusEvent::Lagged { missed: None });
            }
        }
        Ok(())
    }

    async fn subscribe_to(&mut self, topics: &[&str]) -> Result<(), String> {
        let Some((sink, _)) = self.connection.as_mut() else { return Err("the connection to redis was lost".into()) };
        let outcome = match timeout(REDIS_RESPONSE_TIMEOUT, sink.subscribe(topics)).await {
            Ok(outcome) => outcome.map_err(|error| reason(&error)),
            Err(_) => Err("redis does not answer in time".into()),
        };
        if outcome.is_err() {
            self.disconnect();
        }
        outcome
    }
}

/// The next message; pending while disconnected.
async fn next_message(line: &mut Option<(PubSubSink, PubSubStream)>) -> Option<::redis::Msg> {
    match line {
        Some((_, stream)) => stream.next().await,
        None => std::future::pending().await,
    }
}
