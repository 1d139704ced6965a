//! Ledger use cases: checkpoints, the feed, writing entries, idempotency records.
//!
//! `core` defines digests, links, trees and decisions; this module reads rows and builds transactions. Nothing here
//! commits an entry by itself: entries are part of the `Tx` of the change they record.

pub mod audit;
pub mod checkpoint;
pub mod feed;
pub mod idempotency;
pub(crate) mod read;

pub use read::{LedgerError, last_checkpoint};
