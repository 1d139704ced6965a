//! The ledger in motion: checkpoints, proofs, exports, verification, the feed, the audit writer,
//! idempotency records.
//!
//! What a digest, a link, a tree or a decision *is* stands in `core`; here rows are read and
//! transactions are built. Nothing here writes an entry by itself: entries ride in the `Tx` of
//! the change they tell of.

pub mod audit;
pub mod checkpoint;
mod export;
pub mod feed;
pub mod idempotency;
mod list;
mod prove;
mod read;
mod verify;

pub use export::{Exported, export};
pub use list::{Filter as EntryFilter, document as entry_document, list as list_entries};
pub use prove::{Proof, prove};
pub use read::{LedgerError, last_checkpoint};
pub use verify::verify;
