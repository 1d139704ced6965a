//! Callers without valid credentials: how many addresses are counted one by one, and how many refusals are recorded.
//!
//! Both are bounded for the whole process, because anybody can come from any number of addresses. Addresses beyond the
//! limit share one counter. Refusals beyond it are summed up in one entry of the ledger at the end of their window.

use chimera_core::access::address;
use chimera_core::limits::{FLOOD_SECONDS, RATE_WINDOW_SECONDS, STRANGER_ADDRESSES_MAX, STRANGER_ENTRIES_MAX};
use chimera_core::time::Timestamp;
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(super) struct Strangers {
    state: Mutex<ReportState>,
}

#[derive(Default)]
struct ReportState {
    /// The number of the rate limit window that `addresses` belong to.
    window: i64,
    /// The addresses of this window, and whether a refusal over the limit was recorded for each.
    addresses: BTreeMap<Option<IpAddr>, bool>,
    entries: Option<Entries>,
}

/// The recorded refusals of one window.
struct Entries {
    until: Timestamp,
    recorded: usize,
    more: u64,
}

impl Strangers {
    fn state(&self, now: Timestamp) -> MutexGuard<'_, ReportState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let window = now.millis().div_euclid(i64::from(RATE_WINDOW_SECONDS) * 1_000);
        if state.window != window {
            state.window = window;
            state.addresses.clear();
        }
        state
    }

    /// The address that a caller is counted by; `None` for all that have no counter of their own.
    pub(super) fn counted(&self, peer: Option<IpAddr>, now: Timestamp) -> Option<IpAddr> {
        let address = address::counted(peer?);
        let mut state = self.state(now);
        if !state.addresses.contains_key(&Some(address)) {
            if state.addresses.len() >= STRANGER_ADDRESSES_MAX {
                return None;
            }
            state.addresses.insert(Some(address), false);
        }
        Some(address)
    }

    /// Whether this is the first refusal over the limit in this window, of an address that `counted` returned.
    pub(super) fn is_first_over(&self, address: Option<IpAddr>, now: Timestamp) -> bool {
        self.state(now).addresses.insert(address, true) != Some(true)
    }

    /// Whether to record a refusal; otherwise it is added to the sum.
    pub(super) fn may_record(&self, now: Timestamp) -> bool {
        let mut state = self.state(now);
        let new = || Entries { until: now.plus_seconds(FLOOD_SECONDS), recorded: 0, more: 0 };
        let entries = state.entries.get_or_insert_with(new);
        if entries.recorded < STRANGER_ENTRIES_MAX {
            entries.recorded += 1;
            return true;
        }
        entries.more = entries.more.saturating_add(1);
        false
    }

    /// How many refusals were not recorded in the window, if it has ended; without a time it ends now.
    pub(super) fn ended(&self, now: Option<Timestamp>) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = state.entries.take_if(|entries| now.is_none_or(|now| entries.until <= now))?;
        (ended.more > 0).then_some(ended.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn peer(n: usize) -> Option<IpAddr> {
        Some(Ipv4Addr::from_bits(u32::try_from(n).unwrap()).into())
    }

    #[test]
    fn addresses_beyond_the_limit_share_one_counter_until_the_window_ends() {
        let (strangers, now) = (Strangers::default(), Timestamp::from_micros(0));
        for n in 0..STRANGER_ADDRESSES_MAX {
            assert_eq!(strangers.counted(peer(n), now), peer(n));
        }
        let beyond = [STRANGER_ADDRESSES_MAX, STRANGER_ADDRESSES_MAX + 1].map(|n| strangers.counted(peer(n), now));
        assert_eq!(beyond, [None, None]);
        assert_eq!(strangers.counted(peer(0), now), peer(0), "those that are known keep theirs");
        assert_eq!(
            [peer(0), None, peer(0), None].map(|of| strangers.is_first_over(of, now)),
            [true, true, false, false]
        );
        let later = now.plus_seconds(i64::from(RATE_WINDOW_SECONDS));
        assert_eq!(strangers.counted(peer(STRANGER_ADDRESSES_MAX), later), peer(STRANGER_ADDRESSES_MAX));
    }

    #[test]
    fn refusals_beyond_the_limit_are_summed_up() {
        let (strangers, now) = (Strangers::default(), Timestamp::from_micros(0));
        let recorded = (0..STRANGER_ENTRIES_MAX + 5).filter(|_| strangers.may_record(now)).count();
        assert_eq!((recorded, strangers.ended(Some(now))), (STRANGER_ENTRIES_MAX, None));
        assert_eq!(strangers.ended(Some(now.plus_seconds(FLOOD_SECONDS))), Some(5));
        assert!(strangers.may_record(now));
        assert_eq!(strangers.ended(None), None, "nothing was left out");
    }
}
