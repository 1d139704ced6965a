//! Limits of intents: envelopes, their age, definitions.

use super::CLOCK_SKEW_SECONDS;
use std::time::Duration;

// Envelopes

/// Bytes of an envelope. A larger one is refused with `SCHEMA_INVALID`.
pub const ENVELOPE_BYTES_MAX: usize = 256 * 1024;
/// Findings that are reported about one envelope. Further ones are omitted.
pub const ENVELOPE_FINDINGS_MAX: usize = 20;
/// Characters of an envelope's `trace_id`. A longer one is refused with `SCHEMA_INVALID`.
pub const ENVELOPE_TRACE_CHARS_MAX: usize = 128;
/// Characters of the type of an intent. A longer one is refused with `SCHEMA_INVALID`.
pub const INTENT_TYPE_CHARS_MAX: usize = 64;
/// Characters of the id of a key. A longer one is refused with `SCHEMA_INVALID`.
pub const ENVELOPE_KID_CHARS_MAX: usize = 128;
/// Largest magnitude of a number in an envelope. A larger number is refused with `SCHEMA_INVALID`: not every reader
/// of JSON keeps its digits.
pub const ENVELOPE_NUMBER_MAX: u64 = 9_007_199_254_740_991;
/// Keys that are tried for an envelope that names none. An envelope of an actor with more is refused with
/// `SIGNATURE_INVALID`; it has to name its key.
pub const ENVELOPE_KEYS_TRIED_MAX: usize = 8;

// Age

/// Longest time to live of an envelope. A longer `ttl_sec` is refused with `SCHEMA_INVALID`.
pub const ENVELOPE_TTL_SECONDS_MAX: i64 = 86_400;
/// Time by which an envelope's `issued_at` may be ahead of the server's time. One that is further ahead is refused with
/// `EXPIRED_TTL`.
pub const ENVELOPE_SKEW_SECONDS: i64 = CLOCK_SKEW_SECONDS;
/// Time for which it is remembered when an envelope without `issued_at` was first seen, if its key never expires. After
/// it the envelope would be accepted again.
pub const SIGHTING_SECONDS_MAX: i64 = 100 * 365 * 86_400;
/// Lifetime of the idempotency record of an accepted intent. It is longer than any envelope can be sent again; after
/// it the key can be used for another intent.
pub const INTENT_RECORD_SECONDS: i64 = ENVELOPE_TTL_SECONDS_MAX + 2 * ENVELOPE_SKEW_SECONDS;

// Cached outputs

/// Cached outputs that one intent deletes. An intent that fits more is refused with `MALFORMED_ARGS`; it has to name a
/// workflow or a longer prefix.
pub const CACHE_DELETED_MAX: usize = 10_000;

// Definitions

/// Intents that the folder of intents may define. Further files are not loaded.
pub const INTENT_DEFINITIONS_MAX: usize = 256;
/// Bytes of a file that defines an intent. A larger one is not loaded.
pub const INTENT_FILE_BYTES_MAX: usize = 64 * 1024;
/// Time between two looks at the folder of intents. A changed file takes effect later by up to this time.
pub const INTENT_FILES_INTERVAL: Duration = Duration::from_secs(2);
