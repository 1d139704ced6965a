//! The ledger: append-only entries, chained per lane, under signed checkpoints.

mod blob;
mod chain;
mod entry;
pub mod jcs;
mod redact;
pub mod tables;

pub use blob::{BlobId, InvalidBlobId};
pub use chain::{Digest32, Head, Link, extend};
pub use entry::{ActorType, Entry, EntryError, SealedEntry, SubjectType, content_digest};
pub use redact::{REDACTED, Redactor};
