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
mod work;

pub use approval::{ApprovalDecision, ClosedApproval, PendingApproval};
pub use call::{CallView, ListedCall};
pub use catalog::{ToolView, WorkflowEntry, WorkflowView};
pub use doubt::{DoubtView, DoubtfulCall};
pub use event::EventView;
pub use inbox::InboxMessage;
pub use message::{DeliveryAttempt, DeliveryOutcome, MessageView, NotifyTargets};
pub use patch::{DigestChange, GraphDiff, MemberDiff, PatchChanges, PatchInverse, PatchView};
pub use plan::{
    CheckedCall, CoveredItems, Deferral, DryRunResult, LineKind, LineStatus, PlanLine, PlanView, PlannedChild,
    PlannedJudge, PlannedMap,
};
pub use risk::RiskView;
pub use rollback::{RollbackLine, RollbackView};
pub(super) use run::title;
pub use run::{RunDetails, RunSummary};
pub use step::{StepPage, StepView};
pub use work::{ElsewhereView, WaitsFor, WorkItemView};

use serde::Serialize;

/// A page of a listing.
#[derive(Clone, Debug, Serialize)]
pub struct ListPage<T> {
    pub items: Vec<T>,
    /// `None` on the last page.
    pub next_cursor: Option<String>,
    /// The size of the rows that it was read from.
    #[serde(skip)]
    pub bytes: usize,
}
