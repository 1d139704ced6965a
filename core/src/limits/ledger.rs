//! Limits of the ledger: entries, lanes, checkpoints, exports, idempotency records and redaction.

use super::JSON_DEPTH_MAX;
use std::time::Duration;

// Entries

/// Bytes of one ledger entry's data. Larger data is shortened.
pub const ENTRY_DATA_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all other fields of one ledger entry. An entry with more is refused, and with it the change.
pub const ENTRY_TEXT_BYTES_MAX: usize = 16 * 1024;
/// Characters of a text in data that is shortened. Longer texts are cut.
pub const ENTRY_SHORTENED_CHARS_MAX: usize = 256;

// Lanes

/// Lanes of a ledger. A node that needs one more waits until a lease has expired.
pub const LANES_MAX: usize = 1_000;
/// Lanes of one process that its metrics and its keeper cover. Further lanes are not covered; `store.lanes` allows no
/// more.
pub const NODE_LANES_MAX: usize = 64;
/// Time that a lane's lease lasts without a renewal. After it another node may take the lane.
pub const LANE_LEASE_SECONDS: i64 = 15;
/// Attempts to add a lane while other nodes add theirs. After the last one the node waits and tries again.
pub const LANE_ADD_TRIES_MAX: usize = 8;
/// Times that a busy lane yields so that its next batch grows as large as the last. After them it sends a smaller
/// batch.
pub const LANE_YIELDS_MAX: usize = 8;

// Checkpoints and exports

/// Entries that one checkpoint adds. The next checkpoint adds the rest.
pub const CHECKPOINT_ENTRIES_MAX: i64 = 200_000;
/// New entries that make a checkpoint due early. With fewer it is made after `ledger.checkpoint_seconds`.
pub const CHECKPOINT_DUE_ENTRIES: i64 = 10_000;
/// Interval between two checks whether a checkpoint is due. A checkpoint is later by up to this time.
pub const CHECKPOINT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Attempts of a stopping node to make its last checkpoint while other nodes make theirs. After the last one another
/// node makes it.
pub const CHECKPOINT_LAST_TRIES_MAX: usize = 4;
/// Bytes of one line of a ledger export. A file with a longer one does not verify.
pub const EXPORT_LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Nesting of one line of a ledger export, around the documents in it. A file with a deeper one does not verify.
pub const EXPORT_LINE_DEPTH_MAX: usize = JSON_DEPTH_MAX + 2;

// Idempotency records

/// Characters of an idempotency key. A longer key is refused with `VALIDATION_FAILED`.
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 256;
/// Default lifetime of an idempotency record. After it the key can be used again.
pub const IDEMPOTENCY_TTL_SECONDS: i64 = 86_400;
/// Attempts to begin a request under a key that others use concurrently. After the last one the request fails with
/// `OCC_CONFLICT`.
pub const IDEMPOTENCY_TRIES_MAX: u32 = 4;

// Redaction

/// Minimum bytes of a secret whose bare value is masked wherever it occurs. Shorter ones would mask ordinary words.
pub const SECRET_MASK_BYTES_MIN: usize = 6;
/// Nested encodings that are searched for a known secret. A secret behind more is not found.
pub const REDACT_DEPTH_MAX: usize = 4;
/// Bytes that are decoded per byte of a text searched for known secrets. What would take more is not decoded.
pub const REDACT_DECODED_RATIO_MAX: usize = 32;
/// Bytes that are decoded of a text regardless of its length. What would take more is not decoded.
pub const REDACT_DECODED_BYTES_MIN: usize = 64 * 1024;
/// Bytes that are decoded of one text or document searched for known secrets. What would take more is not decoded.
pub const REDACT_DECODED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of a text to which each decoder is applied separately, in every order. To a longer text all decoders are
/// applied together.
pub const REDACT_SEPARATE_BYTES_MAX: usize = 4096;
/// Bytes of a text that is also searched backwards. A longer text is searched forwards only.
pub const REDACT_REVERSED_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an output or of a request to `/act` that are searched for secrets on a request thread. A larger one is
/// searched on a worker thread.
pub const REDACT_INLINE_BYTES_MAX: usize = 64 * 1024;
