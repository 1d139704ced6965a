//! The document of all published signing keys, as it was last built.
//!
//! Anybody may ask for it, and it can be large: it is built again once a key has changed, and otherwise once a second,
//! because keys begin and end also while none changes.

use super::directory::Snapshot;
use super::signing_key_cache::published_keys;
use bytes::Bytes;
use chimera_core::access::SigningKey;
use chimera_core::limits::INTENT_KEYS_REBUILD_SECONDS;
use chimera_core::time::Timestamp;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub(super) struct PublishedKeys(Mutex<Option<BuiltDocument>>);

struct BuiltDocument {
    of: Weak<Snapshot>,
    at: Timestamp,
    text: Bytes,
}

impl PublishedKeys {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The document at this moment. `build` writes it from the keys, which are ordered by their ids.
    pub(super) fn document(
        &self,
        snapshot: &Arc<Snapshot>,
        now: Timestamp,
        build: impl FnOnce(&mut dyn Iterator<Item = &SigningKey>) -> Bytes,
    ) -> Bytes {
        let mut built = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |built: &&BuiltDocument| {
            let since = now.micros().saturating_sub(built.at.micros());
            std::ptr::eq(built.of.as_ptr(), Arc::as_ptr(snapshot))
                && (0..INTENT_KEYS_REBUILD_SECONDS * 1_000_000).contains(&since)
        };
        if let Some(built) = built.as_ref().filter(is_current) {
            return built.text.clone();
        }
        let text = build(&mut published_keys(snapshot, now));
        *built = Some(BuiltDocument { of: Arc::downgrade(snapshot), at: now, text: text.clone() });
        text
    }
}
