//! Counters: short-lived claims and rate windows, shared by all nodes.

use async_trait::async_trait;
use chimera_core::access::window::{Hit, Quota};
use chimera_core::limits::{CLAIM_TTL_MIN, CLAIM_TTL_SECONDS_MAX, COUNTER_KEY_BYTES_MAX, COUNTER_VALUE_BYTES_MAX};
use chimera_core::time::Timestamp;
use std::time::Duration;

/// Small shared state that may be lost at any time and expires by itself.
///
/// Nothing here is the truth: a lost store forgets claims and hits, and the record store decides
/// what really happened. Keys are used exactly as given; the caller puts its purpose first
/// (`idempotency:…`, `rate_limit:…`) so that purposes don't meet.
///
/// **Atomic.** Of any number of concurrent calls on one key, from any number of nodes, each sees
/// the whole effect of those before it. A window never counts more than its limit.
/// **Time is given.** The arithmetic of windows uses `now`; so nodes whose clocks differ by
/// seconds count in windows that differ by as much. Expiry follows `now` in a store within the
/// process, and the store's own clock in a shared one.
/// **Recovering.** After `Unavailable` the same call works again once the store is back.
#[async_trait]
pub trait Counters: Send + Sync {
    /// Takes `key` for `ttl` unless somebody holds it, whoever that is. A claim whose answer was
    /// lost is found by its value.
    async fn claim(&self, key: &str, value: &str, ttl: Duration, now: Timestamp) -> Result<Claim, CounterError>;

    /// The value that holds `key`; `None` if nobody does, or no longer.
    async fn read(&self, key: &str, now: Timestamp) -> Result<Option<String>, CounterError>;

    /// Gives `key` up, if `value` holds it. False if it doesn't, and then nothing changes.
    async fn release(&self, key: &str, value: &str, now: Timestamp) -> Result<bool, CounterError>;

    /// Counts one hit against a sliding window, unless it is full. The counts stand under
    /// `key:window_start` in Unix seconds and live for one window length after their last hit.
    async fn hit(&self, key: &str, quota: Quota, now: Timestamp) -> Result<Hit, CounterError>;

    /// Whether the store answers now.
    async fn ready(&self) -> Result<(), CounterError>;
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is ours now.
    Claimed,
    /// It belongs to this value.
    Held(String),
}

/// Why a counter gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    /// An empty key or one beyond the limit.
    #[error("a counter key has 1 to {COUNTER_KEY_BYTES_MAX} bytes")]
    InvalidKey,
    /// A value beyond the limit.
    #[error("a claim's value has at most {COUNTER_VALUE_BYTES_MAX} bytes")]
    ValueTooLarge,
    /// A lifetime that is no time, or beyond the limit.
    #[error("a claim lives 1 millisecond to {CLAIM_TTL_SECONDS_MAX} seconds")]
    InvalidTtl,
    /// The store holds as many live keys as it may. Nothing was forgotten to make room.
    #[error("too many counter keys are alive")]
    Full,
    /// The store can't be reached. Whether the call took effect is unknown.
    #[error("the counter store is unavailable: {reason}")]
    Unavailable {
        /// What an operator should know: no address, no credential.
        reason: String,
    },
}

impl CounterError {
    /// Checks what every store demands of a key.
    pub fn check_key(key: &str) -> Result<(), Self> {
        if (1..=COUNTER_KEY_BYTES_MAX).contains(&key.len()) { Ok(()) } else { Err(Self::InvalidKey) }
    }

    /// Checks what every store demands of a claim.
    pub fn check_claim(key: &str, value: &str, ttl: Duration) -> Result<(), Self> {
        Self::check_key(key)?;
        if value.len() > COUNTER_VALUE_BYTES_MAX {
            return Err(Self::ValueTooLarge);
        }
        let longest = Duration::from_secs(CLAIM_TTL_SECONDS_MAX);
        if (CLAIM_TTL_MIN..=longest).contains(&ttl) { Ok(()) } else { Err(Self::InvalidTtl) }
    }
}
