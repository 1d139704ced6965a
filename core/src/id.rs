//! Identifiers, made from a time and random bytes that the caller supplies.
//!
//! Rows that are written often have a time-ordered UUID (version 7), because an index that grows at its right edge is
//! several times faster than one with random inserts. The id of an effect is derived from its run and key, so a
//! restored store computes the same id again. Swarm entities have 128 random bits as hex, because their specification
//! requires opaque ids. A run's trace id is its UUID as 32 hex digits, which W3C trace context accepts.

mod blob;
mod prefix;

pub use blob::{BlobId, InvalidBlobId};
pub use prefix::{IdPrefix, InvalidIdPrefix};

use crate::time::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A version 7 UUID: 48 bits of milliseconds, 12 bits of sub-millisecond time (RFC 9562, section 6.2, method 3), then
/// random bits. Ids sort by creation time, also within a millisecond.
#[must_use]
pub fn time_ordered(now: Timestamp, mut random: [u8; 10]) -> Uuid {
    let micros = u64::try_from(now.micros()).unwrap_or(0);
    let part = u16::try_from(micros % 1_000 * 4_096 / 1_000).unwrap_or(0);
    random[..2].copy_from_slice(&part.to_be_bytes());
    uuid::Builder::from_unix_timestamp_millis(micros / 1_000, &random).into_uuid()
}

/// An opaque id of 128 random bits, as 32 hex digits.
#[must_use]
pub fn opaque(random: [u8; 16]) -> String {
    hex::encode(random)
}

/// The W3C trace id of a run: its UUID without dashes.
#[must_use]
pub fn trace_id(run: Uuid) -> String {
    run.simple().to_string()
}

/// The id of the effect that a run requests under a key. It is deterministic, so a receiver can be asked about a call
/// whose row was lost. It begins with the timestamp of the run.
#[must_use]
pub fn effect(run: Uuid, key: &str) -> Uuid {
    derive(run, key)
}

/// The id of a signal to a run about one version of something. It is deterministic, so that the store accepts only one
/// of several concurrent duplicates.
#[must_use]
pub fn signal(run: Uuid, about: &str) -> Uuid {
    derive(run, about)
}

/// A deterministic id that begins with the timestamp of its run.
fn derive(run: Uuid, key: &str) -> Uuid {
    let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&run.as_bytes()[..6]);
    bytes[6..].copy_from_slice(&digest[..10]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// A stable, opaque agent id for an actor of a tenant.
#[must_use]
pub fn agent(tenant: &str, actor: &str) -> Uuid {
    let mut hasher = Sha256::new();
    hasher.update(tenant.as_bytes());
    hasher.update([0]);
    hasher.update(actor.as_bytes());
    let digest: [u8; 32] = hasher.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ids_sort_later() {
        let early = time_ordered(Timestamp::from_micros(1_000_000), [0xff; 10]);
        let late = time_ordered(Timestamp::from_micros(1_000_001), [0; 10]);
        assert!(early < late);
        assert_eq!((early.get_version_num(), early.get_variant()), (7, uuid::Variant::RFC4122));
    }

    #[test]
    fn a_trace_id_is_thirty_two_hex_digits_of_its_run() {
        let run = time_ordered(Timestamp::from_micros(0), [7; 10]);
        let trace = trace_id(run);
        assert_eq!(trace.len(), 32);
        assert_eq!(Uuid::parse_str(&trace), Ok(run));
    }

    #[test]
    fn an_effect_has_one_id_and_sorts_with_its_run() {
        let run = time_ordered(Timestamp::from_micros(1_000_000), [7; 10]);
        let later = time_ordered(Timestamp::from_micros(1_001_000), [0; 10]);
        assert_eq!(effect(run, "run:a"), effect(run, "run:a"));
        assert_ne!(effect(run, "run:a"), effect(run, "run:b"));
        assert!(effect(run, "run:a") < later);
        assert_eq!(effect(run, "run:a").get_version_num(), 8);
    }

    /// SWARM-003, SWARM-004
    #[test]
    fn an_opaque_id_keeps_all_128_random_bits() {
        assert_eq!(opaque([0xab; 16]), "ab".repeat(16));
        assert_ne!(opaque([0; 16]), opaque([1; 16]));
    }
}
