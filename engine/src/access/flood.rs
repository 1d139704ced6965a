//! Rate limit refusals: the first of a window is recorded in the ledger, and at its end the number of further ones, so
//! that a caller can't flood the ledger.
//!
//! A count that is not recorded yet is lost with the process; the window's first refusal is not.

use super::directory::Directory;
use super::permit::Permit;
use super::refusals;
use chimera_core::limits::{FLOOD_SECONDS, FLOODS_MAX};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Actor and target.
type FloodKey = (String, String);

/// Rate limit refusals that are aggregated instead of recorded one by one.
#[derive(Default)]
pub(super) struct Floods {
    open: Mutex<BTreeMap<FloodKey, Flood>>,
}

struct Flood {
    permit: Permit,
    until: Timestamp,
    more: u64,
}

/// The unrecorded refusals of one window.
pub(super) struct FloodSummary {
    /// `None`: callers without valid credentials, whatever they asked for.
    pub(super) permit: Option<Permit>,
    pub(super) target: String,
    pub(super) more: u64,
}

impl Floods {
    fn open(&self) -> MutexGuard<'_, BTreeMap<FloodKey, Flood>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refusal; true if it is the first of its window and must be recorded.
    pub(super) fn is_first(&self, permit: &Permit, target: &str, now: Timestamp) -> bool {
        let mut open = self.open();
        let place = (permit.actor().to_owned(), target.to_owned());
        if let Some(flood) = open.get_mut(&place) {
            flood.more = flood.more.saturating_add(1);
            return false;
        }
        if open.len() >= FLOODS_MAX {
            metrics::counter!("chimera_access_refusals_not_entered_total").increment(1);
            return false;
        }
        let until = now.plus_seconds(FLOOD_SECONDS);
        open.insert(place, Flood { permit: permit.for_side_effects(), until, more: 0 });
        true
    }

    /// The windows that have ended; all of them without a time.
    fn take_ended(&self, now: Option<Timestamp>) -> Vec<FloodSummary> {
        let mut open = self.open();
        let over = |flood: &Flood| now.is_none_or(|now| flood.until <= now);
        let places: Vec<FloodKey> =
            open.iter().filter(|(_, flood)| over(flood)).map(|(place, _)| place.clone()).collect();
        let sum = |place: FloodKey| {
            let flood = open.remove(&place)?;
            (flood.more > 0).then_some(FloodSummary { permit: Some(flood.permit), target: place.1, more: flood.more })
        };
        places.into_iter().filter_map(sum).collect()
    }
}

/// Records the counts of windows that have ended, or of all.
pub(super) async fn record_floods(directory: &Directory, now: Option<Timestamp>) {
    for sum in directory.floods.take_ended(now) {
        refusals::record_flood(directory, &sum).await;
    }
    if let Some(more) = directory.strangers.ended(now) {
        let sum = FloodSummary { permit: None, target: "*".to_owned(), more };
        refusals::record_flood(directory, &sum).await;
    }
}
