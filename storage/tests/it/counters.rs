//! Counters within a process and in Redis: the contract on both, and a lost Redis.

use async_trait::async_trait;
use chimera_core::access::window::{Quota, RateDecision};
use chimera_core::time::Timestamp;
use chimera_engine::access::port::{ClaimOutcome, CounterError, Counters};
use chimera_storage::counter::{LocalCounters, RedisCounters};
use chimera_storage::{InvalidRedisUrl, Redis};
use chimera_testkit::redis::PrivateRedis;
use chimera_testkit::suite::counters::{Fixture, contract};
use redis::aio::MultiplexedConnection;
use std::sync::Arc;
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_micros(1_699_999_990_000_000);
const TTL: Duration = Duration::from_secs(60);

struct InProcess(Arc<LocalCounters>);

#[async_trait]
impl Fixture for InProcess {
    fn nodes(&self) -> [Arc<dyn Counters>; 2] {
        [self.0.clone(), self.0.clone()]
    }

    async fn elapse(&self, _by: Duration) {}
}

struct InRedis {
    server: PrivateRedis,
}

impl InRedis {
    fn new() -> Self {
        Self { server: PrivateRedis::start() }
    }

    fn node(&self) -> Arc<dyn Counters> {
        Arc::new(RedisCounters::new(Redis::new(&self.server.url()).unwrap()))
    }

    async fn raw(&self) -> MultiplexedConnection {
        redis::Client::open(self.server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
    }
}

#[async_trait]
impl Fixture for InRedis {
    fn nodes(&self) -> [Arc<dyn Counters>; 2] {
        [self.node(), self.node()]
    }

    /// Shortens the TTL of every key; a key without one stays.
    async fn elapse(&self, by: Duration) {
        let mut connection = self.raw().await;
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
        for key in keys {
            let left: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.unwrap();
            if left >= 0 {
                let shorter = left - by.as_millis() as i64;
                let () = redis::cmd("PEXPIRE").arg(&key).arg(shorter).query_async(&mut connection).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn counters_of_a_process_keep_the_contract() {
    contract(async || Box::new(InProcess(Arc::default())) as Box<dyn Fixture>).await;
}

/// CORE-056, CORE-057, CORE-089, CORE-096
#[tokio::test]
async fn counters_in_redis_keep_the_contract_between_nodes() {
    contract(async || Box::new(InRedis::new()) as Box<dyn Fixture>).await;
}

/// CORE-090, CORE-094
#[tokio::test]
async fn a_window_lies_in_redis_under_its_start_and_ends_a_minute_after_its_last_hit() {
    let redis = InRedis::new();
    let (counters, mut connection) = (redis.node(), redis.raw().await);
    let minute = Quota::new(2, 60).unwrap();
    let key = "rate_limit:ada:1699999980";
    for count in 1..=2 {
        assert!(matches!(counters.hit("rate_limit:ada", minute, NOW).await, Ok(RateDecision::Allowed { .. })));
        let (value, ttl) = (get(&mut connection, key).await, pttl(&mut connection, key).await);
        assert_eq!(value, Some(count.to_string()));
        assert!((30_001..=60_000).contains(&ttl), "{ttl}");
        redis.elapse(Duration::from_secs(30)).await;
    }
    assert!(matches!(counters.hit("rate_limit:ada", minute, NOW).await, Ok(RateDecision::Refused { .. })));
    assert_eq!(get(&mut connection, key).await, Some("2".into()));
    assert!(pttl(&mut connection, key).await <= 30_000, "a refusal renews nothing");
    redis.elapse(Duration::from_secs(30)).await;
    assert_eq!(get(&mut connection, key).await, None);
}

/// CORE-052, CORE-053
#[tokio::test]
async fn a_claim_lies_in_redis_under_its_very_key_with_its_lifetime() {
    let redis = InRedis::new();
    let (counters, mut connection) = (redis.node(), redis.raw().await);
    let day = Duration::from_secs(86_400);
    assert_eq!(counters.claim("idempotency:cron_1", "run 1", day, NOW).await, Ok(ClaimOutcome::Claimed));
    assert_eq!(get(&mut connection, "idempotency:cron_1").await, Some("run 1".into()));
    assert!((86_300_000..=86_400_000).contains(&pttl(&mut connection, "idempotency:cron_1").await));
}

async fn get(connection: &mut MultiplexedConnection, key: &str) -> Option<String> {
    redis::cmd("GET").arg(key).query_async(connection).await.unwrap()
}

async fn pttl(connection: &mut MultiplexedConnection, key: &str) -> i64 {
    redis::cmd("PTTL").arg(key).query_async(connection).await.unwrap()
}

#[tokio::test]
async fn a_lost_redis_is_told_and_counters_come_back_by_themselves() {
    let mut redis = InRedis::new();
    let counters = redis.node();
    let minute = Quota::new(2, 60).unwrap();
    assert_eq!(counters.claim("k", "v", TTL, NOW).await, Ok(ClaimOutcome::Claimed));
    redis.server.stop();
    for error in [
        counters.claim("k", "v", TTL, NOW).await.unwrap_err(),
        counters.read("k", NOW).await.unwrap_err(),
        counters.release("k", "v", NOW).await.unwrap_err(),
        counters.hit("k", minute, NOW).await.unwrap_err(),
        counters.ready().await.unwrap_err(),
    ] {
        assert!(matches!(&error, CounterError::Unavailable { reason } if !reason.contains("127.0.0.1")), "{error}");
    }
    redis.server.restart();
    assert_eq!(counters.ready().await, Ok(()));
    assert_eq!(counters.claim("k", "w", TTL, NOW).await, Ok(ClaimOutcome::Claimed), "what it held is forgotten");
}

#[tokio::test]
async fn a_redis_that_hangs_is_not_waited_for() {
    let redis = InRedis::new();
    let (counters, mut connection) = (redis.node(), redis.raw().await);
    assert_eq!(counters.read("k", NOW).await, Ok(None));
    let () = redis::cmd("CLIENT").arg(&["PAUSE", "600000", "ALL"]).query_async(&mut connection).await.unwrap();
    let error = counters.read("k", NOW).await.unwrap_err();
    assert_eq!(error, CounterError::Unavailable { reason: "redis does not answer in time".into() });
}

/// One caller waits for an unresponsive server; later callers fail at once.
#[tokio::test]
async fn a_silent_redis_costs_one_caller_the_time_and_not_every_one() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let counters = RedisCounters::new(Redis::new(&url).unwrap());
    let mut asked = Vec::new();
    let calls = async {
        futures::future::join_all((0..20).map(|_| counters.read("k", NOW))).await;
        for _ in 0..20 {
            let error = counters.read("k", NOW).await.unwrap_err();
            assert_eq!(error, CounterError::Unavailable { reason: "redis does not answer in time".into() });
        }
    };
    let accepts = async {
        loop {
            asked.push(silent.accept().await.unwrap());
        }
    };
    tokio::select! {
        () = calls => {}
        () = accepts => {}
    }
    assert_eq!(asked.len(), 1);
}

#[tokio::test]
async fn a_redis_that_refuses_us_says_why_without_our_password() {
    let server = PrivateRedis::start_with(&["--requirepass", "right"]);
    let node = |user_info: &str| {
        let url = server.url().replace("redis://", &format!("redis://{user_info}"));
        RedisCounters::new(Redis::new(&url).unwrap())
    };
    assert_eq!(node(":right@").ready().await, Ok(()));
    let error = node(":wrong-password@").ready().await.unwrap_err().to_string();
    assert_eq!(error, "the counter store is unavailable: redis refuses our credentials");
    assert_eq!(Redis::new("http://u:pw@host").err(), Some(InvalidRedisUrl));
    assert!(!InvalidRedisUrl.to_string().contains("pw"));
}

/// A server that answers but accepts no writes counts nothing, so it is not ready.
#[tokio::test]
async fn a_redis_that_takes_no_writes_is_not_ready() {
    let server = PrivateRedis::start();
    let counters = RedisCounters::new(Redis::new(&server.url()).unwrap());
    let quota = Quota::new(10, 60).unwrap();
    for (refuse, heal, code) in [
        (&["config", "set", "maxmemory", "1"][..], &["config", "set", "maxmemory", "0"][..], "OOM"),
        (&["replicaof", "127.0.0.1", "1"], &["replicaof", "no", "one"], "READONLY"),
    ] {
        assert_eq!(counters.ready().await, Ok(()));
        let _ = server.ask(refuse);
        let refused = counters.ready().await.unwrap_err();
        assert!(refused.to_string().contains(code), "{refused}");
        assert!(counters.hit("key", quota, NOW).await.is_err(), "nothing is counted meanwhile");
        let _ = server.ask(heal);
    }
    assert_eq!(counters.ready().await, Ok(()));
}

/// Requests are counted by a script, so a server that accepts writes but runs no scripts counts nothing.
#[tokio::test]
async fn a_redis_that_runs_no_scripts_is_not_ready() {
    let server = PrivateRedis::start();
    let counters = RedisCounters::new(Redis::new(&server.url()).unwrap());
    assert_eq!(counters.ready().await, Ok(()));
    let _ = server.ask(&["acl", "setuser", "default", "-@scripting"]);
    assert!(counters.hit("key", Quota::new(10, 60).unwrap(), NOW).await.is_err());
    assert!(counters.ready().await.is_err());
    let _ = server.ask(&["acl", "setuser", "default", "+@scripting"]);
    assert_eq!(counters.ready().await, Ok(()));
}
