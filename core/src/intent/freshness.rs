//! How long an envelope may be used.
//!
//! With a signed `issued_at` its age counts from there. Without one it counts from the moment that its content was
//! first seen, which must therefore be remembered for as long as its signature would be accepted.

use super::envelope::Envelope;
use crate::limits::{ENVELOPE_SKEW_SECONDS, SIGHTING_SECONDS_MAX};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    #[error("the envelope expired at {at}")]
    Expired { at: Timestamp },
    #[error("the envelope was issued in the future, at {issued_at}")]
    FromFuture { issued_at: Timestamp },
}

impl Stale {
    /// The word in error details.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Expired { .. } => "expired",
            Self::FromFuture { .. } => "issued_in_future",
        }
    }
}

/// Refuses an envelope that is too old. `first_seen` is when its content was first seen, now if never.
pub fn check_age(envelope: &Envelope, first_seen: Timestamp, now: Timestamp) -> Result<(), Stale> {
    if let Some(issued_at) = envelope.issued_at.filter(|at| *at > now.plus_seconds(ENVELOPE_SKEW_SECONDS)) {
        return Err(Stale::FromFuture { issued_at });
    }
    let since = envelope.issued_at.unwrap_or(first_seen);
    let at = Timestamp::from_micros(since.micros().saturating_add(envelope.ttl_micros));
    // A time to live of zero is over at once.
    if at < now || envelope.ttl_micros == 0 { Err(Stale::Expired { at }) } else { Ok(()) }
}

/// When the sighting of an envelope without `issued_at` may be forgotten: when its key is no longer accepted, and its
/// own time is over.
#[must_use]
pub fn sighting_kept_until(envelope: &Envelope, now: Timestamp, key_expires: Option<Timestamp>) -> Timestamp {
    let over = Timestamp::from_micros(now.micros().saturating_add(envelope.ttl_micros));
    let refused = key_expires.unwrap_or_else(|| now.plus_seconds(SIGHTING_SECONDS_MAX));
    over.max(refused).plus_seconds(ENVELOPE_SKEW_SECONDS)
}
