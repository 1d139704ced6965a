//! The ledger: append-only entries, chained per lane, under signed checkpoints.

mod chain;
mod entry;
pub mod jcs;
mod row;
pub mod tables;

pub use chain::{Digest32, Head, Link, extend};
pub use entry::{ActorType, Entry, EntryError, SealedEntry, SubjectType, content_digest};
