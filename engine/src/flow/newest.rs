//! The newest version of each workflow, as this process last read it.
//!
//! Another process may apply a newer one, so an entry is trusted for a second only. Shortly before it expires one
//! request reads it again while all others still use it: otherwise every request in flight would read it at once.

use chimera_core::limits::{WORKFLOW_LATEST_CACHE_SECONDS, WORKFLOW_LATEST_REFRESH_MS, WORKFLOWS_CACHED_MAX};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(super) struct NewestVersions(Mutex<BTreeMap<(String, String), NewestVersion>>);

struct NewestVersion {
    version: i64,
    expires: Timestamp,
    /// Somebody reads it again.
    is_refreshed: bool,
}

impl NewestVersions {
    /// The newest version; `None` if the caller should read it.
    pub(super) fn get(&self, tenant: &str, id: &str, now: Timestamp) -> Option<i64> {
        let mut all = self.lock();
        let known = all.get_mut(&(tenant.to_owned(), id.to_owned())).filter(|known| now < known.expires)?;
        let expires_soon = known.expires.millis() - now.millis() <= WORKFLOW_LATEST_REFRESH_MS;
        if expires_soon && !known.is_refreshed {
            known.is_refreshed = true;
            return None;
        }
        Some(known.version)
    }

    /// Keeps what was read by a request that began at a time, or just committed. A version that is not expired is not
    /// replaced by an older one: that was read before the newer one was applied.
    pub(super) fn keep(&self, tenant: &str, id: &str, version: i64, began: Timestamp) {
        let read =
            NewestVersion { version, expires: began.plus_seconds(WORKFLOW_LATEST_CACHE_SECONDS), is_refreshed: false };
        let mut all = self.lock();
        if all.len() >= WORKFLOWS_CACHED_MAX {
            all.pop_first();
        }
        let known = all.entry((tenant.to_owned(), id.to_owned())).or_insert(NewestVersion { version, ..read });
        if version >= known.version || known.expires <= began {
            *known = read;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), NewestVersion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    #[test]
    fn one_request_reads_a_version_again_before_it_expires_and_the_others_use_it() {
        let newest = NewestVersions::default();
        assert_eq!(newest.get("acme", "w", at(0)), None);
        newest.keep("acme", "w", 1, at(0));
        assert_eq!((newest.get("acme", "w", at(500)), newest.get("bob", "w", at(500))), (Some(1), None));
        assert_eq!([950, 950, 999].map(|now| newest.get("acme", "w", at(now))), [None, Some(1), Some(1)]);
        newest.keep("acme", "w", 2, at(950));
        assert_eq!([1_000, 1_500].map(|now| newest.get("acme", "w", at(now))), [Some(2); 2]);
        assert_eq!([2_000, 2_000].map(|now| newest.get("acme", "w", at(now))), [None; 2], "nobody read it again");
    }

    #[test]
    fn a_version_read_before_a_newer_one_was_applied_does_not_replace_it() {
        let newest = NewestVersions::default();
        newest.keep("acme", "w", 2, at(10));
        newest.keep("acme", "w", 1, at(5));
        assert_eq!(newest.get("acme", "w", at(20)), Some(2));
        newest.keep("acme", "w", 1, at(2_000));
        assert_eq!(newest.get("acme", "w", at(2_001)), Some(1), "the store was restored");
    }
}
