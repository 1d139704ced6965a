//! The read models of the room: what a caller is shown of runs, steps, calls, approvals and messages.
//!
//! They are typed and belong to no interface: the API maps each to its wire type, whose names they share. What a
//! caller or a tool wrote stays JSON text that is copied without being parsed: parsed, a document of many small values
//! takes a hundred times its size in memory.

mod approval;
mod call;
mod catalog;
mod doubt;
mod event;
mod inbox;
mod message;
mod patch;
mod plan;
mod risk;
mod rollback;
mod run;
mod step;

pub use approval::{ApprovalDecision, ClosedApproval, PendingApproval};
pub use call::{CallView, ListedCall};
pub use catalog::{ToolView, WorkflowEntry, WorkflowView};
pub use doubt::{DoubtView, DoubtfulCall};
pub use event::EventView;
pub use inbox::InboxMessage;
pub use message::{DeliveryAttempt, DeliveryOutcome, MessageView, NotifyTargets};
pub use patch::{DigestChange, GraphDiff, MemberDiff, PatchInverse, PatchView, PreviewView};
pub use plan::{Deferral, DryRunResult, LineKind, LineStatus, PlanLine, PlanView};
pub use risk::RiskView;
pub use rollback::{RollbackLine, RollbackView};
pub(super) use run::title;
pub use run::{RunDetails, RunSummary};
pub use step::{StepPage, StepView};

use chimera_core::record::{DamagedRows, Json, Row, Value as Cell};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A page of a listing.
#[derive(Clone, Debug, Serialize)]
pub struct Listing<T> {
    pub items: Vec<T>,
    /// `None` on the last page.
    pub next_cursor: Option<String>,
    /// The size of the rows that it was read from.
    #[serde(skip)]
    pub bytes: usize,
}

/// A word of a column.
pub(super) fn word<T>(row: &Row, column: &str, parse: fn(&str) -> Option<T>) -> Result<T, DamagedRows> {
    let unknown = || DamagedRows { what: format!("unknown {column} `{}` in {}", row.text(column), row.table.name) };
    parse(row.text(column)).ok_or_else(unknown)
}

/// A word of a column that may be null.
pub(super) fn optional_word<T>(
    row: &Row,
    column: &str,
    parse: fn(&str) -> Option<T>,
) -> Result<Option<T>, DamagedRows> {
    if row.get(column).is_null() { Ok(None) } else { word(row, column, parse).map(Some) }
}

pub(super) fn flag(row: &Row, column: &str) -> bool {
    row.get(column) == &Cell::Bool(true)
}

pub(super) fn text(row: &Row, column: &str) -> Option<String> {
    row.get(column).as_text().map(str::to_owned)
}

/// The text of a JSON column.
pub(super) fn json(row: &Row, column: &str) -> Option<Json> {
    row.get(column).as_json().cloned()
}

/// A JSON column whose shape is ours.
pub(super) fn decoded<T: DeserializeOwned>(row: &Row, column: &str) -> Result<Option<T>, DamagedRows> {
    let Some(json) = row.get(column).as_json() else { return Ok(None) };
    let damaged = |error| DamagedRows { what: format!("{column} of {}: {error}", row.table.name) };
    serde_json::from_str(json.as_str()).map(Some).map_err(damaged)
}
