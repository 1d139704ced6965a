//! Counters of a single process: bounded maps that forget what has expired.
//!
//! Claims are never forgotten early. A rate limit window is, when there are too many: to let one caller begin a new
//! window is better than to refuse all others.

use async_trait::async_trait;
use chimera_core::access::window::{self, Quota, RateDecision};
use chimera_core::limits::COUNTER_KEYS_MAX;
use chimera_core::time::Timestamp;
use chimera_engine::access::port::{ClaimOutcome, CounterError, Counters};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
pub struct LocalCounters {
    state: Mutex<CounterState>,
}

#[derive(Default)]
struct CounterState {
    claims: ExpiringMap<String>,
    hits: ExpiringMap<u32>,
}

impl LocalCounters {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of keys, including expired ones that no call has swept yet.
    #[must_use]
    pub fn key_count(&self) -> usize {
        let state = self.locked();
        state.claims.entries.len() + state.hits.entries.len()
    }

    /// No code panics while holding the lock, so a poisoned map is still consistent.
    fn locked(&self) -> MutexGuard<'_, CounterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn swept(&self, now: Timestamp) -> MutexGuard<'_, CounterState> {
        let mut state = self.locked();
        state.claims.sweep(now);
        state.hits.sweep(now);
        state
    }
}

#[async_trait]
impl Counters for LocalCounters {
    async fn claim(&self, key: &str, value: &str, ttl: Duration, now: Timestamp) -> Result<ClaimOutcome, CounterError> {
        CounterError::check_claim(key, value, ttl)?;
        let mut state = self.swept(now);
        if let Some(held) = state.claims.get(key) {
            return Ok(ClaimOutcome::Held(held.clone()));
        }
        state.claims.set(key, value.to_owned(), later(now, ttl))?;
        Ok(ClaimOutcome::Claimed)
    }

    async fn read(&self, key: &str, now: Timestamp) -> Result<Option<String>, CounterError> {
        CounterError::check_key(key)?;
        Ok(self.swept(now).claims.get(key).cloned())
    }

    async fn release(&self, key: &str, value: &str, now: Timestamp) -> Result<bool, CounterError> {
        CounterError::check_key(key)?;
        let mut state = self.swept(now);
        let ours = state.claims.get(key).is_some_and(|held| held == value);
        if ours {
            state.claims.remove(key);
        }
        Ok(ours)
    }

    async fn hit(&self, key: &str, quota: Quota, now: Timestamp) -> Result<RateDecision, CounterError> {
        CounterError::check_key(key)?;
        let (current_key, previous_key) = window::keys(key, quota, now);
        let mut state = self.swept(now);
        let count = |key: &str| state.hits.get(key).copied().unwrap_or(0);
        let (current, previous) = (count(&current_key), count(&previous_key));
        let hit = quota.decide(previous, current, now);
        if matches!(hit, RateDecision::Allowed { .. }) {
            state.hits.count_input(&current_key);
            state.hits.set(&current_key, current + 1, later(now, quota.window()))?;
        }
        Ok(hit)
    }

    async fn ready(&self) -> Result<(), CounterError> {
        Ok(())
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.micros().saturating_add(micros))
}

/// A map with expiring entries, ordered by expiry, so that sweeping costs only what it removes.
struct ExpiringMap<V> {
    entries: HashMap<Arc<str>, (V, Timestamp)>,
    ends: BTreeSet<(Timestamp, Arc<str>)>,
}

impl<V> Default for ExpiringMap<V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), ends: BTreeSet::new() }
    }
}

impl<V> ExpiringMap<V> {
    fn sweep(&mut self, now: Timestamp) {
        while self.ends.first().is_some_and(|(end, _)| *end <= now) {
            if let Some((_, key)) = self.ends.pop_first() {
                self.entries.remove(&key);
            }
        }
    }

    fn get(&self, key: &str) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    fn set(&mut self, key: &str, value: V, end: Timestamp) -> Result<(), CounterError> {
        if !self.entries.contains_key(key) && self.entries.len() >= COUNTER_KEYS_MAX {
            return Err(CounterError::Full);
        }
        self.remove(key);
        let key: Arc<str> = key.into();
        self.ends.insert((end, key.clone()));
        self.entries.insert(key, (value, end));
        Ok(())
    }

    /// Removes what ends first if there is no room for a key.
    fn count_input(&mut self, key: &str) {
        if self.entries.len() >= COUNTER_KEYS_MAX
            && !self.entries.contains_key(key)
            && let Some((_, first)) = self.ends.pop_first()
        {
            self.entries.remove(&first);
        }
    }

    fn remove(&mut self, key: &str) {
        if let Some((key, (_, end))) = self.entries.remove_entry(key) {
            self.ends.remove(&(end, key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_is_bounded_and_given_back_when_keys_expire() {
        let counters = LocalCounters::new();
        let (now, ttl) = (Timestamp::from_micros(0), Duration::from_secs(1));
        for key in 0..COUNTER_KEYS_MAX {
            assert_eq!(counters.claim(&key.to_string(), "v", ttl, now).await, Ok(ClaimOutcome::Claimed));
        }
        assert_eq!(counters.claim("one more", "v", ttl, now).await, Err(CounterError::Full));
        assert_eq!(
            counters.claim("0", "v", ttl, now).await,
            Ok(ClaimOutcome::Held("v".into())),
            "the old ones still answer"
        );
        assert_eq!(counters.claim("one more", "v", ttl, now.plus_seconds(1)).await, Ok(ClaimOutcome::Claimed));
        assert_eq!(counters.key_count(), 1);
    }

    #[tokio::test]
    async fn however_many_are_counted_one_more_is_counted_too() {
        let (counters, quota) = (LocalCounters::new(), Quota::new(2, 60).unwrap());
        for key in 0..=COUNTER_KEYS_MAX {
            let now = Timestamp::from_micros(i64::try_from(key).unwrap());
            assert!(matches!(
                counters.hit(&key.to_string(), quota, now).await,
                Ok(RateDecision::Allowed { remaining: 1, .. })
            ));
        }
        assert_eq!(counters.key_count(), COUNTER_KEYS_MAX);
        let now = Timestamp::from_micros(200_000);
        let last = counters.hit(&COUNTER_KEYS_MAX.to_string(), quota, now).await;
        assert!(
            matches!(last, Ok(RateDecision::Allowed { remaining: 0, .. })),
            "the window that ends first was forgotten"
        );
    }
}
