//! The ledger: append-only entries, chained per lane, under signed checkpoints.
//!
//! Everything here is a pure function of its arguments: digests, links, trees,
//! signatures, the export format and its verification, idempotency decisions. Reading and writing
//! the rows is the engine's part.

mod blob;
mod chain;
pub mod checkpoint;
pub mod decision;
mod entry;
pub mod export;
pub mod idempotency;
mod mark;
pub mod merkle;
pub mod proof;
mod redact;
mod stored;
pub mod tables;
mod verify;
mod walk;

pub use crate::json::Digest32;
pub use blob::{BlobId, InvalidBlobId};
pub use chain::{Head, Link, extend};
pub use entry::{ActorType, Entry, EntryError, SealedEntry, SubjectType, content_digest};
pub use mark::{Behind, LaneRow, MARK_BYTES, Mark};
pub use redact::{REDACTED, Redactor};
pub use stored::{DamagedRow, StoredEntry, StoredLink};
pub use verify::{Report, Verifier, verify, verify_entry};
pub use walk::{Broken, Fault, Walk};
