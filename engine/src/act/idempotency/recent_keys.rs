//! Keys that this process saw recently, and those in flight.
//!
//! Only a hint for when to check the store: a key that is not here may be used, and one that is here may be free.

use crate::access::Permit;
use chimera_core::limits::RECENT_KEYS_MAX;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The oldest keys are evicted first.
#[derive(Default)]
pub(super) struct RecentKeys(Mutex<KeyTable>);

#[derive(Default)]
struct KeyTable {
    known: BTreeSet<u64>,
    order: VecDeque<u64>,
    under_way: BTreeMap<u64, Arc<tokio::sync::Mutex<()>>>,
}

/// Serializes requests with one key. Released on drop.
pub(super) struct KeyLock<'a> {
    recent: &'a RecentKeys,
    digest: u64,
    /// The key was seen before.
    pub(super) seen_before: bool,
    guard: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl RecentKeys {
    /// Records a request with this key, and waits until earlier ones are done.
    pub(super) async fn lock(&self, permit: &Permit, key: &str) -> KeyLock<'_> {
        let mut hasher = DefaultHasher::new();
        (permit.tenant(), permit.actor(), key).hash(&mut hasher);
        let digest = hasher.finish();
        let (again, mine) = self.keys().insert(digest);
        // Created before the wait, so that a cancelled waiter cleans up.
        let mut turn = KeyLock { recent: self, digest, seen_before: again, guard: None };
        turn.guard = Some(mine.lock_owned().await);
        turn
    }

    fn keys(&self) -> MutexGuard<'_, KeyTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyTable {
    fn insert(&mut self, digest: u64) -> (bool, Arc<tokio::sync::Mutex<()>>) {
        let again = !self.known.insert(digest);
        if !again {
            self.order.push_back(digest);
        }
        if self.order.len() > RECENT_KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        (again, Arc::clone(self.under_way.entry(digest).or_default()))
    }
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut keys = self.recent.keys();
        // No other request holds it or waits for it.
        if keys.under_way.get(&self.digest).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            keys.under_way.remove(&self.digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::local_operator;
    use futures::FutureExt;

    #[tokio::test]
    async fn whoever_comes_second_waits_and_nobody_leaves_anything_behind() {
        let (recent, permit) = (RecentKeys::default(), local_operator("acme"));
        let first = recent.lock(&permit, "k").await;
        assert!(!first.seen_before);
        assert!(recent.lock(&permit, "k").now_or_never().is_none(), "it waits, and then stops waiting");
        assert!(!recent.lock(&permit, "other").await.seen_before, "another key has its own turn");
        let (second, ()) = tokio::join!(recent.lock(&permit, "k"), async { drop(first) });
        assert!(second.seen_before);
        drop(second);
        assert!(recent.keys().under_way.is_empty());
    }

    #[test]
    fn the_oldest_keys_are_forgotten() {
        let mut keys = KeyTable::default();
        (0..=RECENT_KEYS_MAX as u64).for_each(|digest| drop(keys.insert(digest)));
        assert_eq!((keys.known.len(), keys.order.len()), (RECENT_KEYS_MAX, RECENT_KEYS_MAX));
        assert!(keys.insert(1).0 && !keys.insert(0).0);
    }
}
