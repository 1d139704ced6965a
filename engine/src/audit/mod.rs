//! Audit use cases: list, prove, export and verify ledger entries.
//!
//! Read only: it changes nothing.

mod export;
mod list;
mod prove;
mod verify;

pub use export::{ExportSummary, export};
pub use list::{EntryFilter, EntryView, list as list_entries};
pub use prove::{InclusionProof, prove};
pub use verify::verify;
