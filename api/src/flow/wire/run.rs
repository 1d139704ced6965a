//! Runs.

use super::{
    ApprovalDocument, DecidedApprovalDocument, DoubtDocument, DryRunDocument, MessageDocument, PlanDocument,
    RiskDocument, RollbackDocument, pages,
};
use crate::access::notify::Notify;
use crate::access::wire::AutonomyLevel;
use crate::ops::schema::ErrorDocument;
use crate::wire::{AnyJson, DateTime, IntoWire, wire, words};
use chimera_core::flow::{cause, run, status};
use chimera_engine::flow::view;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

words! {
    /// Status of a run.
    pub(crate) RunStatus from run::RunStatus {
        Pending = "pending",
        Running = "running",
        AwaitingApproval = "awaiting_approval",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        RolledBack = "rolled_back",
    }

    /// `freeze` uses recorded outputs only, `shadow` has no effects and reports differences, `retry` executes for real.
    pub(crate) ReplayMode from run::ReplayMode {
        Freeze = "freeze",
        Shadow = "shadow",
        Retry = "retry",
    }

    /// Status of a patch.
    pub(crate) PatchStatus from status::PatchStatus {
        Proposed = "proposed",
        Applied = "applied",
        Reverted = "reverted",
        Refused = "refused",
    }
}

wire! {
    /// A schedule that started a run.
    pub(crate) ScheduleCause from cause::ScheduleCause {
        /// Schedule id.
        schedule_id: Uuid,
        /// Name of the schedule.
        name: String,
        /// Time of the tick; null if somebody started the run by hand.
        tick_at: Option<String>,
    }

    /// A run in a list.
    pub(crate) RunSummary from view::RunSummary {
        /// Run id.
        run_id: Uuid,
        /// What a person calls the run: the goal, the tools of its steps, or the id of its workflow.
        title: String,
        /// Current status.
        status: RunStatus,
        /// Id of the workflow.
        workflow_id: Option<String>,
        /// Version number.
        workflow_version: Option<i64>,
        /// Actor who requested the run.
        actor: String,
        /// Autonomy level.
        autonomy_level: Option<AutonomyLevel>,
        /// W3C trace id.
        trace_id: String,
        /// When the run was created.
        created_at: Option<DateTime>,
        /// When it ended.
        completed_at: Option<DateTime>,
        /// Priority from 1 (highest) to 10 (lowest).
        priority: i64,
        /// Whether the run is a dry run.
        dry_run: bool,
        /// Whether the run is paused: no new step starts until it is resumed.
        paused: bool,
        /// Whether cancellation was requested.
        cancel_requested: bool,
        /// Increases with every change of the run.
        state_version: i64,
        /// Number of the last event.
        run_seq: i64,
        /// Id of the run that started this one.
        parent_run_id: Option<Uuid>,
        /// Id of the run that this one replays.
        replay_of: Option<Uuid>,
        /// Replay mode.
        replay_mode: Option<ReplayMode>,
        /// Why the run failed.
        error_message: Option<String>,
        /// Since when the outcome of a tool call is unknown.
        in_doubt_since: Option<DateTime>,
    }

    /// A patch of a run.
    pub(crate) PatchState from view::PatchView {
        /// Patch number within the run.
        number: i64,
        /// Current status.
        status: PatchStatus,
        /// Actor who proposed the patch.
        actor: String,
        /// Reason.
        justification: Option<String>,
        /// Why the patch was refused.
        reason: Option<String>,
        /// Id of the approval request for the patch.
        approval_id: Option<Uuid>,
        /// When the patch was proposed.
        created_at: Option<DateTime>,
    }
}

pages! {
    /// A page of runs.
    pub RunPage of RunSummary from view::RunSummary: "Newest first.";
}

/// A run with everything needed to decide its approvals.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunDocument {
    #[serde(flatten)]
    #[schema(inline)]
    summary: RunSummary,
    /// The schedule that started the run; null if none did.
    #[schema(required)]
    schedule: Option<ScheduleCause>,
    /// Inputs of the run.
    inputs: AnyJson,
    /// The plan.
    plan: PlanDocument,
    /// Dry-run results of the same steps; null if there was no dry run.
    #[schema(required)]
    dry_run_results: Option<Vec<DryRunDocument>>,
    /// Risk score of the plan, with reasons.
    #[schema(required)]
    risk: Option<RiskDocument>,
    /// Pending approval requests.
    approvals: Vec<ApprovalDocument>,
    /// Closed approval requests: decided, superseded, expired or cancelled.
    decided_approvals: Vec<DecidedApprovalDocument>,
    /// URL of the decision endpoint.
    #[schema(required)]
    approve_url: Option<String>,
    /// Tool calls whose outcome is unknown and not resolved yet.
    doubts: Vec<DoubtDocument>,
    /// Result of the run.
    result: AnyJson,
    /// Why it failed.
    #[schema(required)]
    error: Option<ErrorDocument>,
    /// State of the rollback: what was undone, and what is left.
    #[schema(required)]
    rollback: Option<RollbackDocument>,
    /// Where notifications are sent.
    #[schema(required)]
    notify: Option<Notify>,
    /// Delivery status of the notifications.
    messages: Vec<MessageDocument>,
    /// Patches of the run.
    patches: Vec<PatchState>,
}

impl From<view::RunDetails> for RunDocument {
    fn from(run: view::RunDetails) -> Self {
        Self {
            summary: run.summary.into(),
            schedule: run.schedule.into_wire(),
            inputs: run.inputs.into_wire(),
            plan: run.plan.into(),
            dry_run_results: run.dry_run_results.into_wire(),
            risk: run.risk.into_wire(),
            approvals: run.approvals.into_wire(),
            decided_approvals: run.decided_approvals.into_wire(),
            approve_url: run.approve_url,
            doubts: run.doubts.into_wire(),
            result: run.result.into_wire(),
            error: run.error.into_wire(),
            rollback: run.rollback.into_wire(),
            notify: run.notify.into_wire(),
            messages: run.messages.into_wire(),
            patches: run.patches.into_wire(),
        }
    }
}

/// A signal was sent to a run, which processes it in its next turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Accepted {
    /// Id of the run.
    pub(crate) run_id: Uuid,
    /// Current status.
    pub(crate) status: RunStatus,
    /// Always true.
    pub(crate) accepted: bool,
}

/// A run that was started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StartedDocument {
    /// Run id.
    pub(crate) run_id: Uuid,
    /// Current status.
    pub(crate) status: RunStatus,
    /// Autonomy level.
    pub(crate) autonomy_level: AutonomyLevel,
    /// W3C trace id.
    pub(crate) trace_id: String,
}
