//! Span ids of a run, and the `traceparent` header that propagates them.
//!
//! A run is one trace, whose id is derived from the run id. A span id is derived from the id of the
//! run, step or call, so it is the same after a restart and on another node. Span ids are never stored:
//! a call made today still finds its place under a run requested last week.

use crate::id;
use crate::time::Timestamp;
use sha2::{Digest, Sha256};
use std::fmt;
use uuid::Uuid;

/// A W3C span id: eight bytes, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

impl SpanId {
    /// The span of the request that started a run.
    #[must_use]
    pub fn request(run: Uuid) -> Self {
        Self::derive("request", run)
    }

    #[must_use]
    pub fn run(run: Uuid) -> Self {
        Self::derive("run", run)
    }

    #[must_use]
    pub fn step(step: Uuid) -> Self {
        Self::derive("step", step)
    }

    /// The span of a tool call. Each attempt has its own.
    #[must_use]
    pub fn call(call: Uuid) -> Self {
        Self::derive("call", call)
    }

    /// Parses sixteen hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 8];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    #[must_use]
    pub const fn bytes(self) -> [u8; 8] {
        self.0
    }

    fn derive(kind: &str, of: Uuid) -> Self {
        let digest: [u8; 32] = Sha256::new().chain_update(kind).chain_update(of.as_bytes()).finalize().into();
        let first = u64::from_be_bytes(*digest.first_chunk().unwrap_or(&[1; 8]));
        Self(first.max(1).to_be_bytes())
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// The W3C `traceparent` header value for a span of a run.
#[must_use]
pub fn traceparent(run: Uuid, span: SpanId) -> String {
    format!("00-{}-{span}-01", id::trace_id(run))
}

/// The creation time of a time-ordered id, in milliseconds. `None` for any other id.
#[must_use]
pub fn created_at(id: Uuid) -> Option<Timestamp> {
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    let micros = i64::try_from(seconds).ok()?.checked_mul(1_000_000)?;
    Some(Timestamp::from_micros(micros.checked_add(i64::from(nanos / 1_000))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_the_same_id_for_ever_and_shares_it_with_nothing() {
        let id = Uuid::from_u128(7);
        let ids = [SpanId::request(id), SpanId::run(id), SpanId::step(id), SpanId::call(id), SpanId::run(Uuid::max())];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{at}");
            assert_eq!(SpanId::parse(&id.to_string()), Some(*id));
        }
        assert_eq!(SpanId::run(id).to_string(), "70bdc0ba02671bb8");
    }

    #[test]
    fn what_is_no_span_id_is_not_read_as_one() {
        for text in ["", "0000000000000000", "00f067aa0ba902b", "00f067aa0ba902b7a", "00f067aa0ba902bx"] {
            assert_eq!(SpanId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_header_names_the_runs_trace_and_the_span() {
        let run = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001);
        let span = SpanId::call(run);
        assert_eq!(traceparent(run, span), format!("00-01920000000070008000000000000001-{span}-01"));
    }

    #[test]
    fn a_time_ordered_id_tells_when_it_was_made() {
        let now = Timestamp::from_micros(1_700_000_000_123_000);
        assert_eq!(created_at(id::time_ordered(now, [9; 10])), Some(now));
        assert_eq!(created_at(Uuid::from_u128(7)), None);
    }
}
