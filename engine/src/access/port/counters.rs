//! Counters: short-lived claims and rate limit windows, shared by all nodes.

use async_trait::async_trait;
use chimera_core::access::window::{Quota, RateDecision};
use chimera_core::limits::{CLAIM_TTL_MIN, CLAIM_TTL_SECONDS_MAX, COUNTER_KEY_BYTES_MAX, COUNTER_VALUE_BYTES_MAX};
use chimera_core::time::Timestamp;
use std::time::Duration;

/// Small shared state that expires by itself and may be lost at any time.
///
/// Not the source of truth: a lost store forgets claims and hits, and the record store decides what really happened.
/// Keys are used exactly as given; the caller prefixes them with their purpose (`idempotency:…`, `rate_limit:…`) so
/// that purposes don't collide.
///
/// **Atomic.** Of concurrent calls on one key, from any number of nodes, each sees the whole effect of those before it.
/// A window never counts more than its limit.
/// **Time is an argument.** Window arithmetic uses `now`, so nodes whose clocks differ by seconds use windows that
/// differ by as much. Expiry follows `now` in an in-process store, and the store's own clock in a shared one.
/// **Recovering.** After `Unavailable` the same call works again once the store is back.
#[async_trait]
pub trait Counters: Send + Sync {
    /// Claims `key` for `ttl`, unless somebody holds it, the caller included. A claim whose reply was lost is
    /// recognised by its value.
    async fn claim(&self, key: &str, value: &str, ttl: Duration, now: Timestamp) -> Result<ClaimOutcome, CounterError>;

    /// The value that holds `key`; `None` if it is free or expired.
    async fn read(&self, key: &str, now: Timestamp) -> Result<Option<String>, CounterError>;

    /// Releases `key` if `value` holds it. Otherwise returns false and changes nothing.
    async fn release(&self, key: &str, value: &str, now: Timestamp) -> Result<bool, CounterError>;

    /// Counts one hit against a sliding window, unless the window is full. The counts are stored under
    /// `key:window_start` in Unix seconds and expire one window length after their last hit; a store at its key limit
    /// may forget them earlier.
    async fn hit(&self, key: &str, quota: Quota, now: Timestamp) -> Result<RateDecision, CounterError>;

    /// Whether the store is reachable.
    async fn ready(&self) -> Result<(), CounterError>;
}

/// The result of [`Counters::claim`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The caller holds it now.
    Claimed,
    /// Somebody else holds it, with this value.
    Held(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    #[error("a counter key must have 1 to {COUNTER_KEY_BYTES_MAX} bytes")]
    InvalidKey,
    #[error("a claim's value must have at most {COUNTER_VALUE_BYTES_MAX} bytes")]
    ValueTooLarge,
    /// Zero, or beyond the limit.
    #[error("a claim lives 1 millisecond to {CLAIM_TTL_SECONDS_MAX} seconds")]
    InvalidTtl,
    /// The store is at its limit of claims. None was evicted to make room.
    #[error("too many claims are alive")]
    Full,
    /// Whether the call took effect is unknown.
    #[error("the counter store is unavailable: {reason}")]
    Unavailable {
        /// For operators: no address, no credential.
        reason: String,
    },
}

impl CounterError {
    /// Validates a key, the same for every store.
    pub fn check_key(key: &str) -> Result<(), Self> {
        if (1..=COUNTER_KEY_BYTES_MAX).contains(&key.len()) { Ok(()) } else { Err(Self::InvalidKey) }
    }

    /// Validates a claim, the same for every store.
    pub fn check_claim(key: &str, value: &str, ttl: Duration) -> Result<(), Self> {
        Self::check_key(key)?;
        if value.len() > COUNTER_VALUE_BYTES_MAX {
            return Err(Self::ValueTooLarge);
        }
        let longest = Duration::from_secs(CLAIM_TTL_SECONDS_MAX);
        if (CLAIM_TTL_MIN..=longest).contains(&ttl) { Ok(()) } else { Err(Self::InvalidTtl) }
    }
}
