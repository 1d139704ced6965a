//! Runs.

use super::{
    ClosedApproval, DoubtView, DryRunResult, MessageView, NotifyTargets, PatchView, PendingApproval, PlanView,
    RiskView, RollbackView, flag, optional_word, text, word,
};
use chimera_core::access::Level;
use chimera_core::error::ErrorBody;
use chimera_core::flow::run::{ReplayMode, RunStatus};
use chimera_core::flow::tables::runs;
use chimera_core::flow::title::title_of_request;
use chimera_core::record::{DamagedRows, Json, Row};
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
    pub(in crate::flow) fn of(row: &Row) -> Result<Self, DamagedRows> {
        Ok(Self {
            run_id: row.uuid("id"),
            title: title(row),
            status: word(row, "status", RunStatus::parse)?,
            workflow_id: text(row, "workflow_id"),
            workflow_version: row.get("workflow_version").as_int(),
            actor: row.text("actor").to_owned(),
            autonomy_level: optional_word(row, "autonomy_level", Level::parse)?,
            trace_id: row.text("trace_id").to_owned(),
            created_at: row.get("created_at").as_time(),
            completed_at: row.get("completed_at").as_time(),
            priority: row.int("priority"),
            dry_run: flag(row, "dry_run"),
            paused: flag(row, "pause_requested"),
            cancel_requested: flag(row, "cancel_requested"),
            state_version: row.int("state_version"),
            run_seq: row.int("run_seq"),
            parent_run_id: row.get("parent_run_id").as_uuid(),
            replay_of: row.get("replay_of").as_uuid(),
            replay_mode: optional_word(row, "replay_mode", ReplayMode::parse)?,
            error_message: text(row, "error_message"),
            in_doubt_since: row.get("in_doubt_since").as_time(),
        })
    }
}

/// The title of a run: what it was requested with, if that was read, else the name of its workflow.
pub(in crate::flow) fn title(row: &Row) -> String {
    let requested = row.get(runs::request_payload).as_json().and_then(|request| title_of_request(request.as_str()));
    requested.unwrap_or_else(|| row.text(runs::workflow_id).to_owned())
}

/// A run with everything needed to decide its approvals.
#[derive(Clone, Debug, Serialize)]
pub struct RunDetails {
    #[serde(flatten)]
    pub summary: RunSummary,
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
