//! Steps.

use super::CallDocument;
use crate::ops::schema::ErrorDocument;
use crate::wire::{AnyJson, DateTime, wire, words};
use chimera_core::flow::{air, run};
use chimera_engine::flow::view;
use uuid::Uuid;

words! {
    /// Status of a step.
    pub(crate) StepStatus from run::StepStatus {
        Pending = "pending",
        Ready = "ready",
        AwaitingApproval = "awaiting_approval",
        Running = "running",
        Judging = "judging",
        Completed = "completed",
        Failed = "failed",
        Skipped = "skipped",
        Cancelled = "cancelled",
        RolledBack = "rolled_back",
        RetryWait = "retry_wait",
        Paused = "paused",
        Waiting = "waiting",
        OutcomeUnknown = "outcome_unknown",
    }

    /// Type of a node.
    pub(crate) NodeType from air::NodeKind {
        Function = "function",
        Hitl = "hitl",
        Workflow = "workflow",
        Map = "map",
        Wait = "wait",
        Agent = "agent",
        Swarm = "swarm",
    }
}

wire! {
    /// The steps of a run.
    pub StepList from view::StepPage {
        /// In the order of the workflow's nodes; steps that have not started come last.
        steps: Vec<StepDocument>,
        /// Cursor of the next page; null on the last one.
        next_cursor: Option<String>,
    }

    /// A step.
    pub(crate) StepDocument from view::StepView {
        /// Step id; null before the step starts.
        step_id: Option<Uuid>,
        /// Id of the node.
        node_id: String,
        /// Type of the node.
        node_type: NodeType,
        /// Index of the map item.
        map_index: Option<i64>,
        /// Name of the tool.
        tool: Option<String>,
        /// Current status.
        status: StepStatus,
        /// Attempt number.
        attempt: i64,
        /// Input of the tool.
        input: AnyJson,
        /// Digest of the input.
        input_digest: Option<String>,
        /// Outputs of the step, as in `nodes.<id>.outputs` of an expression.
        outputs: AnyJson,
        /// Why it failed.
        error: Option<ErrorDocument>,
        /// Id of the child run that the step started.
        child_run_id: Option<Uuid>,
        /// When the next attempt is due.
        retry_at: Option<DateTime>,
        /// When it started.
        started_at: Option<DateTime>,
        /// When it ended.
        completed_at: Option<DateTime>,
        /// Tool calls of the step.
        tool_calls: Vec<CallDocument>,
    }
}
