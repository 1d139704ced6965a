//! Runs.

use super::{
    ClosedApproval, DoubtView, DryRunResult, MessageView, NotifyTargets, PatchView, PendingApproval, PlanView,
    RiskView, RollbackView,
};
use chimera_core::access::Level;
use chimera_core::error::ErrorBody;
use chimera_core::flow::cause::ScheduleCause;
use chimera_core::flow::run::{ReplayMode, RunStatus};
use chimera_core::flow::tables::ListedRun;
use chimera_core::flow::title::title_of_request;
use chimera_core::record::Json;
use chimera_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

/// A run in a list.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    pub run_id: Uuid,
    /// What a person calls it.
    pub title: String,
    pub status: RunStatus,
    pub workflow_id: Option<String>,
    pub workflow_version: Option<i64>,
    pub actor: String,
    pub autonomy_level: Option<Level>,
    pub trace_id: String,
    pub created_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub priority: i64,
    pub dry_run: bool,
    pub paused: bool,
    pub cancel_requested: bool,
    pub state_version: i64,
    /// The number of the last event.
    pub run_seq: i64,
    pub parent_run_id: Option<Uuid>,
    pub replay_of: Option<Uuid>,
    pub replay_mode: Option<ReplayMode>,
    pub error_message: Option<String>,
    pub in_doubt_since: Option<Timestamp>,
}

impl RunSummary {
    pub(in crate::flow) fn of(run: ListedRun) -> Self {
        Self {
            run_id: run.id,
            title: run.workflow_id.clone().unwrap_or_default(),
            status: run.status,
            workflow_id: run.workflow_id,
            workflow_version: run.workflow_version,
            actor: run.actor,
            autonomy_level: run.autonomy_level,
            trace_id: run.trace_id,
            created_at: run.created_at,
            completed_at: run.completed_at,
            priority: run.priority.into(),
            dry_run: run.dry_run,
            paused: run.pause_requested,
            cancel_requested: run.cancel_requested,
            state_version: run.state_version,
            run_seq: run.run_seq,
            parent_run_id: run.parent_run_id,
            replay_of: run.replay_of,
            replay_mode: run.replay_mode,
            error_message: run.error_message,
            in_doubt_since: run.in_doubt_since,
        }
    }
}

/// The title of a run: what it was requested with, else the name of its workflow.
pub(in crate::flow) fn title(request: &Json, workflow: Option<&str>) -> String {
    title_of_request(request.as_str()).unwrap_or_else(|| workflow.unwrap_or_default().to_owned())
}

/// A run with everything needed to decide its approvals.
#[derive(Clone, Debug, Serialize)]
pub struct RunDetails {
    #[serde(flatten)]
    pub summary: RunSummary,
    /// The schedule that started it.
    pub schedule: Option<ScheduleCause>,
    pub inputs: Option<Json>,
    pub plan: PlanView,
    /// For a drafted run, in the order of the plan.
    pub dry_run_results: Option<Vec<DryRunResult>>,
    pub risk: Option<RiskView>,
    pub approvals: Vec<PendingApproval>,
    pub decided_approvals: Vec<ClosedApproval>,
    pub approve_url: Option<String>,
    pub doubts: Vec<DoubtView>,
    pub result: Option<Json>,
    /// Why it ended so.
    pub error: Option<ErrorBody>,
    pub rollback: Option<RollbackView>,
    pub notify: Option<NotifyTargets>,
    pub messages: Vec<MessageView>,
    pub patches: Vec<PatchView>,
}
