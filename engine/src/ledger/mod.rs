//! The ledger in motion: checkpoints, the feed, the writer of entries, idempotency records.
//!
//! What a digest, a link, a tree or a decision *is* stands in `core`; here rows are read and
//! transactions are built. Nothing here writes an entry by itself: entries ride in the `Tx` of
//! the change they tell of.

pub mod audit;
pub mod checkpoint;
pub mod feed;
pub mod idempotency;
pub(crate) mod read;

pub use read::{LedgerError, last_checkpoint};
