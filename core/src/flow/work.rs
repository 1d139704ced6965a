//! Work that a run waits for and that is done elsewhere: by another run, by a sandboxed job, by a worker outside.
//!
//! | work item   | on                                    | becomes                 |
//! |-------------|---------------------------------------|-------------------------|
//! | `queued`    | a worker claims it                    | `claimed`               |
//! | `queued`    | its run stops, or its deadline passes | `cancelled`, or `lost` if it was claimed before |
//! | `claimed`   | the worker reports the outcome        | `done`, `failed`        |
//! | `claimed`   | its lease expires                     | `queued` if it is repeatable, else `lost` |
//! | `claimed`   | its deadline passes                   | `lost`, or `cancelled` if its step fails then |
//! | `lost`      | the worker reports the outcome late   | `done`, `failed`        |
//! | `lost`      | its step fails or is cancelled        | `cancelled`             |
//! | `lost`      | a person resolves the outcome         | `cancelled`             |
//! | `done`, `failed`, `cancelled` |                     | final                   |
//!
//! The change of an item and the signal that tells its run about it are one transaction. A cancelled item has no signal:
//! its run cancelled it.

use crate::error::ErrorBody;
use crate::record::{Insert, Step, Unstorable};
use crate::time::Timestamp;
use crate::words::words;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// Who does the work that a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Elsewhere {
    /// A child run.
    Run(Uuid),
    /// A sandboxed job.
    Job(Uuid),
    /// A worker outside, through this work item.
    Worker(Uuid),
}

words! {
    /// Who does the work of a tool's call. Child runs have a column of their own.
    WorkKind {
        Job = "job",
        Worker = "worker",
    }
}

words! {
    /// The state of a work item. See the table at the top.
    WorkState {
        Queued = "queued",
        Claimed = "claimed",
        Done = "done",
        Failed = "failed",
        Cancelled = "cancelled",
        /// Whoever claimed it did not report an outcome in time.
        Lost = "lost",
    }
}

impl WorkState {
    /// Whether a worker has it or may get it.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Claimed)
    }
}

/// How work elsewhere ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkStatus {
    Completed,
    Failed,
    Cancelled,
    /// A child run that was rolled back before its parent heard of its end.
    RolledBack,
    /// A call that came back from its queue before any worker had it.
    Returned,
}

impl WorkStatus {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::RolledBack => "rolled_back",
            Self::Returned => "returned",
        }
    }
}

/// The end of work elsewhere, as its signal reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkEnd {
    pub status: WorkStatus,
    pub result: Option<Value>,
    pub error: Option<ErrorBody>,
    /// It failed, and may have taken effect all the same.
    pub may_have_happened: bool,
    pub took_ms: i64,
}

/// A call to be executed by a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOrder<'a> {
    /// The id of the job, and of the call.
    pub job: Uuid,
    pub tenant: &'a str,
    pub run: Uuid,
    /// The step that the signal about its end names.
    pub step: Uuid,
    pub tool: &'a str,
    /// The same for every attempt.
    pub idempotency_key: &'a str,
    pub attempt: u32,
    pub input: &'a Value,
    pub deadline: Timestamp,
    pub at: Timestamp,
}

/// Starts and cancels sandboxed jobs.
///
/// **Rows only.** Both return rows of the turn that asks for them, so nothing happens before the turn is durable. Whoever
/// runs jobs finds them in the store.
/// **One end.** The end of a job commits with one [`SignalKind::WorkEnded`] to its run, also after a cancel.
///
/// [`SignalKind::WorkEnded`]: super::run::SignalKind::WorkEnded
pub trait Jobs: Send + Sync {
    /// The rows that start a job, or why none can be started.
    fn start(&self, order: &JobOrder<'_>) -> Result<Result<Vec<Insert>, ErrorBody>, Unstorable>;

    /// The rows that ask a job to stop. A job that has ended is left alone.
    fn cancel(&self, job: Uuid, at: Timestamp) -> Result<Vec<Step>, Unstorable>;
}

/// A process without sandboxed jobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJobs;

impl Jobs for NoJobs {
    fn start(&self, order: &JobOrder<'_>) -> Result<Result<Vec<Insert>, ErrorBody>, Unstorable> {
        let message = format!("{} runs in a sandboxed job, and this process runs none", order.tool);
        Ok(Err(ErrorBody::new(crate::error::Code::ToolUnavailable, message).with("tool", order.tool)))
    }

    fn cancel(&self, _: Uuid, _: Timestamp) -> Result<Vec<Step>, Unstorable> {
        Ok(Vec::new())
    }
}
