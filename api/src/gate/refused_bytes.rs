//! Limits how many body bytes of refused requests are read per sender and minute.
//!
//! A sender is an address or, with a valid token, an actor at an address, so that nobody pays for a neighbour who sends
//! garbage. A body counts once it is read, until the request is proven to be the caller's own and within their quota.
//! As long as no sender is over the limit, a request reads one atomic and takes no lock.

use crate::edge::Edge;
use crate::problem::ApiError;
use crate::server::Peer;
use chimera_core::access::address;
use chimera_core::error::Code;
use chimera_core::limits::{self, REFUSED_BODY_BYTES_DEFAULT, REFUSED_BODY_SENDERS_MAX};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The window in which bytes are counted.
const MINUTE_MS: i64 = limits::RATE_WINDOW_SECONDS as i64 * 1_000;

/// An address, and the actor if it has a valid token.
type Sender = (IpAddr, Option<Arc<str>>);

/// The counts of the current minute.
pub(crate) struct RefusedBytes {
    bytes_max: u64,
    /// Number of senders over the limit; may be stale after the minute ends.
    senders_over_limit: AtomicUsize,
    minute: Mutex<Minute>,
}

#[derive(Default)]
struct Minute {
    number: i64,
    bytes: BTreeMap<Sender, u64>,
}

impl Default for RefusedBytes {
    fn default() -> Self {
        Self::bounded(REFUSED_BODY_BYTES_DEFAULT)
    }
}

impl RefusedBytes {
    pub(crate) fn bounded(bytes_max: u64) -> Self {
        Self { bytes_max, senders_over_limit: AtomicUsize::new(0), minute: Mutex::default() }
    }

    /// The current minute; earlier counts are dropped.
    fn minute(&self, now: Timestamp) -> MutexGuard<'_, Minute> {
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        let number = now.millis().div_euclid(MINUTE_MS);
        if minute.number != number {
            *minute = Minute { number, bytes: BTreeMap::new() };
            self.senders_over_limit.store(0, Ordering::Relaxed);
        }
        minute
    }

    /// Seconds until a sender may send again, if it is over the limit.
    fn retry_after_seconds(&self, sender: &Sender, now: Timestamp) -> Option<u64> {
        if self.senders_over_limit.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let spent = self.minute(now).bytes.get(sender).copied().unwrap_or_default();
        let left_ms = MINUTE_MS - now.millis().rem_euclid(MINUTE_MS);
        (spent >= self.bytes_max).then(|| left_ms.unsigned_abs().div_ceil(1_000))
    }

    fn charge(&self, sender: Sender, bytes: u64, now: Timestamp) {
        let mut minute = self.minute(now);
        // An attacker with this many addresses has as many budgets anyway.
        if minute.bytes.len() >= REFUSED_BODY_SENDERS_MAX && !minute.bytes.contains_key(&sender) {
            return;
        }
        let spent = minute.bytes.entry(sender).or_default();
        let was_under = *spent < self.bytes_max;
        *spent = spent.saturating_add(bytes);
        if was_under && *spent >= self.bytes_max {
            self.senders_over_limit.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Bytes read of one request. Dropping it charges them to the sender, also when the request is cancelled, unless they
/// were forgiven.
pub(crate) struct BodyCharge<'a> {
    edge: &'a Edge,
    /// `None` behind a proxy, where unauthenticated senders cannot be told apart.
    sender: Option<Sender>,
    bytes: u64,
}

impl<'a> BodyCharge<'a> {
    pub(super) fn new(edge: &'a Edge, peer: Option<Peer>, actor: Option<Arc<str>>) -> Self {
        let peer = peer.filter(|peer| actor.is_some() || !peer.is_proxy);
        Self { edge, sender: peer.map(|peer| (address::counted(peer.address), actor)), bytes: 0 }
    }

    /// Refuses a sender that is over the limit.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        let refused = &self.edge.refused_bytes;
        let wait =
            self.sender.as_ref().and_then(|sender| refused.retry_after_seconds(sender, self.edge.clock.steady()));
        let Some(seconds) = wait else { return Ok(()) };
        metrics::counter!("chimera_http_bodies_refused_total", "reason" => "address").increment(1);
        let message = "too many bytes of refused requests came from this address; the body was not read";
        Err(ApiError::new(Code::RateLimited, message)
            .with("refused_bytes_per_minute_max", refused.bytes_max)
            .retry_after(seconds))
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Drops the charge, because the request was the caller's own; returns `got`.
    pub(super) fn forgive<T>(mut self, got: T) -> T {
        self.bytes = 0;
        got
    }
}

impl Drop for BodyCharge<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        metrics::counter!("chimera_http_refused_body_bytes_total").increment(self.bytes);
        if let Some(sender) = self.sender.take() {
            self.edge.refused_bytes.charge(sender, self.bytes, self.edge.clock.steady());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const NOW: Timestamp = Timestamp::from_micros(45_000_000);

    fn sender(number: u32) -> Sender {
        (IpAddr::V4(Ipv4Addr::from_bits(number)), None)
    }

    #[test]
    fn a_sender_over_the_limit_waits_for_the_next_minute_and_nobody_else_does() {
        let refused = RefusedBytes::bounded(100);
        refused.charge(sender(1), 99, NOW);
        assert_eq!(refused.retry_after_seconds(&sender(1), NOW), None);
        refused.charge(sender(1), 1, NOW);
        assert_eq!(
            (refused.retry_after_seconds(&sender(1), NOW), refused.retry_after_seconds(&sender(2), NOW)),
            (Some(15), None)
        );
        assert_eq!(refused.retry_after_seconds(&(sender(1).0, Some("user_ann".into())), NOW), None);
        assert_eq!(refused.retry_after_seconds(&sender(1), NOW.plus_seconds(15)), None);
        assert_eq!(refused.senders_over_limit.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_flood_of_addresses_takes_no_more_memory_than_allowed_and_forgets_nobody_who_is_over() {
        let refused = RefusedBytes::bounded(100);
        refused.charge(sender(0), 100, NOW);
        let most = u32::try_from(REFUSED_BODY_SENDERS_MAX).unwrap();
        (1..2 * most).for_each(|number| refused.charge(sender(number), 100, NOW));
        assert_eq!(refused.minute(NOW).bytes.len(), REFUSED_BODY_SENDERS_MAX);
        assert_eq!(refused.retry_after_seconds(&sender(0), NOW), Some(15));
    }
}
