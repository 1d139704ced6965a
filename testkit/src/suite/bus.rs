//! The contract of `chimera_engine::port::Bus`.

use bytes::Bytes;
use chimera_core::limits::{BUS_BACKLOG_MAX, BUS_MESSAGE_BYTES_MAX, BUS_TOPIC_BYTES_MAX};
use chimera_engine::port::{Bus, BusError, BusEvent, Subscription};
use futures::{FutureExt, StreamExt};
use std::sync::Arc;

/// Two ends of one bus; on a shared one, two nodes.
pub struct Fixture {
    /// Publishes.
    pub near: Arc<dyn Bus>,
    /// Subscribes.
    pub far: Arc<dyn Bus>,
}

/// Runs the whole contract. `make` creates a fresh bus.
pub async fn contract(make: impl AsyncFn() -> Fixture) {
    messages_arrive_once_and_in_order(&make().await).await;
    topics_are_kept_apart(&make().await).await;
    nobody_hears_what_was_said_before(&make().await).await;
    a_slow_listener_is_told_and_holds_up_nobody(&make().await).await;
    a_listener_may_leave(&make().await).await;
    what_is_too_large_is_refused(&make().await).await;
}

/// Subscribes, or fails the test.
pub async fn subscribe(bus: &Arc<dyn Bus>, topic: &str) -> Subscription {
    bus.subscribe(topic).await.unwrap()
}

/// Publishes, or fails the test.
pub async fn publish(bus: &Arc<dyn Bus>, topic: &str, text: &str) {
    bus.publish(topic, Bytes::copy_from_slice(text.as_bytes())).await.unwrap();
}

/// The event of a message with this text.
#[must_use]
pub fn message(text: &str) -> Option<BusEvent> {
    Some(BusEvent::Message(Bytes::copy_from_slice(text.as_bytes())))
}

async fn messages_arrive_once_and_in_order(on: &Fixture) {
    let mut ears =
        [subscribe(&on.far, "runs").await, subscribe(&on.far, "runs").await, subscribe(&on.near, "runs").await];
    for number in 0..100 {
        publish(&on.near, "runs", &number.to_string()).await;
    }
    for ear in &mut ears {
        for number in 0..100 {
            assert_eq!(ear.next().await, message(&number.to_string()));
        }
        assert_eq!(ear.next().now_or_never(), None, "nothing comes twice");
    }
    assert_eq!(on.near.ready().await, Ok(()));
}

async fn topics_are_kept_apart(on: &Fixture) {
    let (mut one, mut two) = (subscribe(&on.far, "one").await, subscribe(&on.far, "o*").await);
    publish(&on.near, "one", "for one").await;
    publish(&on.near, "o*", "for two").await;
    publish(&on.near, "one", "again").await;
    assert_eq!((one.next().await, one.next().await), (message("for one"), message("again")));
    assert_eq!(two.next().await, message("for two"), "a topic is no pattern");
}

async fn nobody_hears_what_was_said_before(on: &Fixture) {
    publish(&on.near, "early", "to nobody").await;
    let mut first = subscribe(&on.far, "early").await;
    publish(&on.near, "early", "to one").await;
    let mut second = subscribe(&on.far, "early").await;
    publish(&on.near, "early", "to both").await;
    assert_eq!(first.next().await, message("to one"));
    assert_eq!((first.next().await, second.next().await), (message("to both"), message("to both")));
}

async fn a_slow_listener_is_told_and_holds_up_nobody(on: &Fixture) {
    let (mut slow, mut quick) = (subscribe(&on.far, "busy").await, subscribe(&on.far, "busy").await);
    let count = BUS_BACKLOG_MAX + 50;
    for number in 0..count {
        publish(&on.near, "busy", &number.to_string()).await;
        assert_eq!(quick.next().await, message(&number.to_string()));
    }
    assert_eq!(slow.next().await, Some(BusEvent::Lagged { missed: Some(50) }));
    for number in 50..count {
        assert_eq!(slow.next().await, message(&number.to_string()));
    }
}

async fn a_listener_may_leave(on: &Fixture) {
    let (gone, mut stays) = (subscribe(&on.far, "leave").await, subscribe(&on.far, "leave").await);
    drop(gone);
    publish(&on.near, "leave", "still here").await;
    assert_eq!(stays.next().await, message("still here"));
    for _ in 0..50 {
        drop(stays);
        publish(&on.near, "leave", "to nobody").await;
        stays = subscribe(&on.far, "leave").await;
        publish(&on.near, "leave", "back").await;
        assert_eq!(stays.next().await, message("back"), "who comes back hears nothing from between");
    }
}

async fn what_is_too_large_is_refused(on: &Fixture) {
    let mut ear = subscribe(&on.far, "large").await;
    let largest = Bytes::from(vec![0xff; BUS_MESSAGE_BYTES_MAX]);
    let larger = Bytes::from(vec![0xff; BUS_MESSAGE_BYTES_MAX + 1]);
    assert_eq!(on.near.publish("large", larger).await, Err(BusError::MessageTooLarge));
    assert_eq!(on.near.publish("large", largest.clone()).await, Ok(()));
    assert_eq!(ear.next().await, Some(BusEvent::Message(largest)));
    for topic in [String::new(), "x".repeat(BUS_TOPIC_BYTES_MAX + 1)] {
        assert_eq!(on.near.publish(&topic, Bytes::new()).await, Err(BusError::InvalidTopic));
        assert_eq!(on.far.subscribe(&topic).await.err(), Some(BusError::InvalidTopic));
    }
}
