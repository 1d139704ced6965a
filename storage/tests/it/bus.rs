//! The bus within a process and through Redis: the contract on both, and a lost Redis.

use bytes::Bytes;
use chimera_engine::port::{Bus, BusError, BusEvent};
use chimera_storage::Redis;
use chimera_storage::bus::{LocalBus, RedisBus};
use chimera_testkit::redis::PrivateRedis;
use chimera_testkit::suite::bus::{Fixture, contract, message, publish, subscribe};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

fn node(server: &PrivateRedis) -> Arc<dyn Bus> {
    Arc::new(RedisBus::new(Redis::new(&server.url()).unwrap()))
}

#[tokio::test]
async fn the_bus_of_a_process_keeps_the_contract() {
    contract(async || {
        let bus = Arc::new(LocalBus::new());
        Fixture { near: bus.clone(), far: bus }
    })
    .await;
}

#[tokio::test]
async fn the_bus_through_redis_keeps_the_contract_between_nodes() {
    let server = PrivateRedis::start();
    contract(async || Fixture { near: node(&server), far: node(&server) }).await;
}

#[tokio::test]
async fn a_topic_of_a_process_is_forgotten_with_its_last_listener() {
    let local = LocalBus::new();
    let bus: Arc<dyn Bus> = Arc::new(local.clone());
    let (one, two) = (subscribe(&bus, "topic").await, subscribe(&bus, "topic").await);
    drop(one);
    assert_eq!(local.topic_count(), 1);
    drop(two);
    assert_eq!(local.topic_count(), 0);
    let half_heard = async {
        let mut ear = subscribe(&bus, "topic").await;
        ear.next().await
    };
    assert!(timeout(Duration::from_millis(1), half_heard).await.is_err());
    assert_eq!(local.topic_count(), 0, "also when it was dropped while it waited");
}

#[tokio::test]
async fn a_topic_of_redis_is_left_with_its_last_listener() {
    let server = PrivateRedis::start();
    let bus = node(&server);
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut listeners = async || {
        let mut count = redis::cmd("PUBSUB");
        count.arg("NUMSUB").arg("topic").query_async::<(String, u32)>(&mut connection).await.unwrap().1
    };
    let (one, two) = (subscribe(&bus, "topic").await, subscribe(&bus, "topic").await);
    assert_eq!(listeners().await, 1, "one connection listens for all");
    drop(one);
    drop(two);
    timeout(SOON, async { while listeners().await > 0 {} }).await.unwrap();
}

#[tokio::test]
async fn a_lost_redis_is_told_and_the_bus_comes_back_by_itself() {
    let mut server = PrivateRedis::start();
    let bus = node(&server);
    let mut ears = [subscribe(&bus, "one").await, subscribe(&bus, "two").await];
    publish(&bus, "one", "before").await;
    assert_eq!(ears[0].next().await, message("before"));

    server.stop();
    for error in [
        bus.publish("one", Bytes::from_static(b"lost")).await.unwrap_err(),
        bus.ready().await.unwrap_err(),
        bus.subscribe("three").await.err().unwrap(),
    ] {
        assert!(matches!(&error, BusError::Unavailable { reason } if !reason.contains("127.0.0.1")), "{error}");
    }

    server.restart();
    for ear in &mut ears {
        assert_eq!(timeout(SOON, ear.next()).await.unwrap(), Some(BusEvent::Lagged { missed: None }));
    }
    publish(&bus, "one", "after").await;
    publish(&bus, "two", "after").await;
    for ear in &mut ears {
        assert_eq!(ear.next().await, message("after"));
    }
    let mut late = subscribe(&bus, "three").await;
    publish(&bus, "three", "new").await;
    assert_eq!(late.next().await, message("new"));
}

#[tokio::test]
async fn the_bus_starts_before_redis_does() {
    let mut server = PrivateRedis::start();
    server.stop();
    let bus = node(&server);
    assert!(matches!(bus.subscribe("topic").await.err(), Some(BusError::Unavailable { .. })));
    server.restart();
    let mut ear = subscribe(&bus, "topic").await;
    publish(&bus, "topic", "hello").await;
    assert_eq!(ear.next().await, message("hello"));
}

#[tokio::test]
async fn a_subscription_ends_with_its_bus() {
    let server = PrivateRedis::start();
    let bus = node(&server);
    let mut ear = subscribe(&bus, "topic").await;
    drop(bus);
    assert_eq!(ear.next().await, None);
}
