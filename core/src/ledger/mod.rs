//! The ledger: append-only entries, hash-chained per lane, covered by signed checkpoints.
//!
//! Everything here is a pure function: digests, links, trees, signatures, idempotency decisions. The engine reads and
//! writes the rows.

mod chain;
pub mod checkpoint;
pub mod decision;
mod entry;
mod entry_type;
mod fault;
pub mod idempotency;
mod mark;
pub mod merkle;
mod stored;
pub mod tables;

pub use crate::json::Digest32;
pub use chain::{ChainHead, ChainLink, extend};
pub use entry::{ActorType, Entry, EntryError, SealedEntry, SubjectType, content_digest};
pub use entry_type::{ENTRY_TYPES, EntryType, stored_names};
pub use fault::{LedgerFault, LocatedFault};
pub use mark::{MARK_BYTES, Mark, MarkMismatch, StoredLane};
pub use stored::{StoredEntry, StoredLink};
