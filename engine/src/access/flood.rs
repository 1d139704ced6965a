//! Refusals over a quota: the first of a window is entered in the ledger, and at its end how many more there were. The
//! ledger is not theirs to fill who ask too often.
//!
//! What was counted and not entered yet is lost with the process; that the window was exceeded is not.

use super::directory::Directory;
use super::permit::Permit;
use super::refused;
use chimera_core::limits::{FLOOD_SECONDS, FLOODS_MAX};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who asks for what too often.
type Place = (String, String);

/// Refusals over quotas that are not entered one by one.
#[derive(Default)]
pub(super) struct Floods {
    open: Mutex<BTreeMap<Place, Flood>>,
}

struct Flood {
    permit: Permit,
    until: Timestamp,
    more: u64,
}

/// Refusals of one window that were not entered.
pub(super) struct Sum {
    pub(super) permit: Permit,
    pub(super) target: String,
    pub(super) more: u64,
}

impl Floods {
    fn open(&self) -> MutexGuard<'_, BTreeMap<Place, Flood>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refusal; true if it is the first of its window and must be entered.
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
        open.insert(place, Flood { permit: permit.without_nonce(), until, more: 0 });
        true
    }

    /// The windows that have ended; all of them when nothing follows.
    fn ended(&self, now: Option<Timestamp>) -> Vec<Sum> {
        let mut open = self.open();
        let over = |flood: &Flood| now.is_none_or(|now| flood.until <= now);
        let places: Vec<Place> = open.iter().filter(|(_, flood)| over(flood)).map(|(place, _)| place.clone()).collect();
        let sum = |place: Place| {
            let flood = open.remove(&place)?;
            (flood.more > 0).then_some(Sum { permit: flood.permit, target: place.1, more: flood.more })
        };
        places.into_iter().filter_map(sum).collect()
    }
}

impl Directory {
    /// Enters what was counted in windows that have ended, or in all of them.
    pub(super) async fn sum_floods_up(&self, now: Option<Timestamp>) {
        for sum in self.floods.ended(now) {
            refused::enter_sum(self, &sum).await;
        }
    }
}
