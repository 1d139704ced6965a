//! Wire types of runs, steps, calls, approvals, messages, workflows and tools.

mod approval;
mod call;
mod doubt;
mod event;
mod message;
mod page;
mod plan;
mod published_event;
mod rollback;
mod run;
mod step;
mod tool;
mod work;
mod workflow;

pub(crate) use approval::{ApprovalDocument, DecidedApprovalDocument};
pub(crate) use call::{CallDocument, CallPage};
pub(crate) use doubt::DoubtDocument;
pub use doubt::DoubtPage;
pub use event::EventDocument;
pub use message::InboxPage;
pub(crate) use message::MessageDocument;
pub(crate) use page::pages;
pub(crate) use plan::{DryRunDocument, PlanDocument, RiskDocument};
pub(crate) use published_event::{PublishedEventDocument, PublishedEventPage};
pub(crate) use rollback::RollbackDocument;
pub(crate) use run::{Accepted, ReplayMode, RunStatus, ScheduleCause, StartedDocument};
pub use run::{RunDocument, RunPage};
pub use step::StepList;
pub(crate) use tool::{RiskLevel, ToolFileProblem, ToolPage, ToolProblemPage, ToolReload};
pub use work::WorkItemPage;
pub(crate) use work::{
    ClaimedCallDocument, ClaimedCallList, ElsewhereDocument, RenewedLeaseDocument, Reported, WorkStateWord,
};
pub use workflow::{WorkflowDocument, WorkflowPage};
