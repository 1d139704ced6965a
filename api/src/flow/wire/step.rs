//! Steps.

use super::{CallDocument, ElsewhereDocument};
use crate::ops::schema::ErrorDocument;
use crate::wire::{AnyJson, DateTime, wire, words};
use chimera_core::flow::{air, judgement, run};
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

    /// What of a step was judged.
    pub(crate) JudgedPart from judgement::JudgedPart {
        Input = "input",
        Output = "output",
    }

    /// Verdict of a judge.
    pub(crate) JudgeVerdict from judgement::Verdict {
        Passed = "passed",
        Rejected = "rejected",
        Escalated = "escalated",
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

    /// What the judge of a step decided.
    pub(crate) JudgementDocument from judgement::Judgement {
        /// What was judged.
        of: JudgedPart,
        /// The verdict.
        verdict: JudgeVerdict,
        /// Digest of what was judged.
        digest: String,
        /// How often the step was rejected so far.
        rejections: u32,
        /// Checks that failed.
        failed: Vec<FailedCheckDocument>,
    }

    /// A check of a judge that failed.
    pub(crate) FailedCheckDocument from judgement::CheckFailure {
        /// `schema`, `bytes_max` or `checks/N`.
        check: String,
        /// Why it failed.
        message: String,
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
        outputs in result: AnyJson,
        /// Output that the node's judge has not released; no other step sees it.
        held_output in result: AnyJson,
        /// What the node's judge decided last; null without a judge.
        judgement in result: Option<JudgementDocument>,
        /// Why it failed.
        error in result: Option<ErrorDocument>,
        /// Id of the child run that the step started.
        child_run_id: Option<Uuid>,
        /// What a running step waits for, if its work is done elsewhere.
        elsewhere: Option<ElsewhereDocument>,
        /// When the next attempt is due.
        retry_at in times: Option<DateTime>,
        /// When it started.
        started_at in times: Option<DateTime>,
        /// When it ended.
        completed_at in times: Option<DateTime>,
        /// Tool calls of the step.
        tool_calls: Vec<CallDocument>,
    }
}
