//! The ledger: append-only entries, chained per lane, under signed checkpoints.
//!
//! Everything here is a pure function of its arguments: canonical JSON, digests, links, trees,
//! signatures, the export format and its verification, idempotency decisions. Reading and writing
//! the rows is the engine's part.

mod blob;
mod chain;
pub mod checkpoint;
pub mod decision;
mod entry;
pub mod export;
pub mod idempotency;
pub mod jcs;
mod mark;
pub mod merkle;
pub mod proof;
mod redact;
mod stored;
mod strict;
pub mod tables;
mod verify;
mod walk;

pub use blob::{BlobId, InvalidBlobId};
pub use chain::{Digest32, Head, Link, extend};
pub use entry::{ActorType, Entry, EntryError, SealedEntry, SubjectType, content_digest};
pub use mark::{Behind, LaneRow, MARK_BYTES, Mark};
pub use redact::{REDACTED, Redactor};
pub use stored::{DamagedRow, StoredEntry, StoredLink};
pub use verify::{Report, Verifier, verify, verify_entry};
pub use walk::{Broken, Fault, Walk};
