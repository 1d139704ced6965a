//! Counters shared by all nodes: `SET NX PX` for claims, one script for each read-modify-write.
//!
//! A script runs atomically in Redis, so check and increment can't be interleaved. The window formula is the same as
//! in `chimera_core::access::window`; the script returns the counts it saw, and that module computes the answer from
//! them.

use crate::redis::Redis;
use ::redis::{RedisResult, Script};
use async_trait::async_trait;
use chimera_core::access::window::{self, Quota, RateDecision};
use chimera_core::limits;
use chimera_core::time::Timestamp;
use chimera_engine::access::port::{ClaimOutcome, CounterError, Counters};
use std::time::Duration;

const CLAIM: &str = r"
local held = redis.call('GET', KEYS[1])
if held then return held end
redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
return false";

const RELEASE: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

const HIT: &str = r"
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
local previous = tonumber(redis.call('GET', KEYS[2]) or '0')
local limit, window, elapsed = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if previous * (window - elapsed) <= (limit - current - 1) * window then
  redis.call('SET', KEYS[1], string.format('%d', current + 1), 'PX', ARGV[2])
end
return {previous, current}";

pub struct RedisCounters {
    redis: Redis,
    claim: Script,
    release: Script,
    hit: Script,
}

impl RedisCounters {
    #[must_use]
    pub fn new(redis: Redis) -> Self {
        Self { redis, claim: Script::new(CLAIM), release: Script::new(RELEASE), hit: Script::new(HIT) }
    }

    async fn settle<T>(&self, outcome: RedisResult<T>) -> Result<T, CounterError> {
        self.redis.record_outcome(outcome).await.map_err(unavailable)
    }

    async fn connection(&self) -> Result<::redis::aio::MultiplexedConnection, CounterError> {
        match self.redis.connection().await {
            Ok(connection) => Ok(connection),
            Err(error) => self.settle(Err(error)).await,
        }
    }
}

fn unavailable(reason: String) -> CounterError {
    CounterError::Unavailable { reason }
}

#[async_trait]
impl Counters for RedisCounters {
    async fn claim(
        &self,
        key: &str,
        value: &str,
        ttl: Duration,
        _now: Timestamp,
    ) -> Result<ClaimOutcome, CounterError> {
        CounterError::check_claim(key, value, ttl)?;
        let mut connection = self.connection().await?;
        let mut script = self.claim.prepare_invoke();
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let outcome = script.key(key).arg(value).arg(millis).invoke_async::<Option<String>>(&mut connection).await;
        Ok(self.settle(outcome).await?.map_or(ClaimOutcome::Claimed, ClaimOutcome::Held))
    }

    async fn read(&self, key: &str, _now: Timestamp) -> Result<Option<String>, CounterError> {
        CounterError::check_key(key)?;
        let mut connection = self.connection().await?;
        let outcome = ::redis::cmd("GET").arg(key).query_async::<Option<String>>(&mut connection).await;
        self.settle(outcome).await
    }

    async fn release(&self, key: &str, value: &str, _now: Timestamp) -> Result<bool, CounterError> {
        CounterError::check_key(key)?;
        let mut connection = self.connection().await?;
        let outcome = self.release.prepare_invoke().key(key).arg(value).invoke_async::<bool>(&mut connection).await;
        self.settle(outcome).await
    }

    async fn hit(&self, key: &str, quota: Quota, now: Timestamp) -> Result<RateDecision, CounterError> {
        CounterError::check_key(key)?;
        let (current_key, previous_key) = window::keys(key, quota, now);
        let elapsed = quota.position(now).elapsed_ms;
        let mut connection = self.connection().await?;
        let mut script = self.hit.prepare_invoke();
        script.key(current_key).key(previous_key).arg(quota.limit()).arg(quota.window_ms()).arg(elapsed);
        let outcome = script.invoke_async::<(u32, u32)>(&mut connection).await;
        let (previous, current) = self.settle(outcome).await?;
        Ok(quota.decide(previous, current, now))
    }

    /// Runs the same script that counts requests: a full server, a replica, or one without scripting answers every
    /// read and counts nothing.
    async fn ready(&self) -> Result<(), CounterError> {
        let mut connection = self.connection().await?;
        let mut script = self.hit.prepare_invoke();
        script.key("ready").key("ready:before").arg(u32::MAX).arg(limits::COUNTER_READY_MS).arg(0);
        let outcome = script.invoke_async::<(u32, u32)>(&mut connection).await;
        self.settle(outcome).await.map(drop)
    }
}
