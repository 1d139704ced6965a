//! Work elsewhere: the calls of a queue, and what a step waits for.

use chimera_core::flow::tables::{StepRow, WorkItemBrief};
use chimera_core::flow::work::{WorkKind, WorkState};
use chimera_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

/// A call that a worker executes.
#[derive(Clone, Debug, Serialize)]
pub struct WorkItemView {
    pub item_id: Uuid,
    pub queue: String,
    pub state: WorkState,
    pub run_id: Uuid,
    pub step_id: Uuid,
    pub tool: String,
    pub priority: i64,
    /// How often it was claimed.
    pub claims: u32,
    pub claimed_by: Option<String>,
    /// What the worker calls itself.
    pub worker: Option<String>,
    pub claimed_at: Option<Timestamp>,
    pub lease_until: Option<Timestamp>,
    /// The run was stopped, and the worker is asked to stop.
    pub cancel_requested: bool,
    pub deadline: Timestamp,
    pub created_at: Timestamp,
}

impl WorkItemView {
    pub(in crate::flow) fn of(row: WorkItemBrief) -> Self {
        Self {
            item_id: row.id,
            queue: row.queue,
            state: row.state,
            run_id: row.run_id,
            step_id: row.step_id,
            tool: row.tool,
            priority: row.priority.into(),
            claims: row.claims,
            claimed_by: row.claimed_by,
            worker: row.worker,
            claimed_at: row.claimed_at,
            lease_until: row.lease_until,
            cancel_requested: row.cancel_requested,
            deadline: row.deadline,
            created_at: row.created_at,
        }
    }
}

/// Who does the work that a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    Run,
    Job,
    Worker,
}

/// The work elsewhere that a step waits for.
#[derive(Clone, Debug, Serialize)]
pub struct ElsewhereView {
    pub kind: WaitsFor,
    /// The child run, the job or the work item.
    pub id: Uuid,
    /// When the step stops waiting.
    pub until: Option<Timestamp>,
    /// The work item, if a worker does it.
    pub item: Option<WorkItemView>,
}

impl ElsewhereView {
    /// What a running step waits for, if that is work elsewhere. The item is added by who reads it.
    pub(in crate::flow) fn of(step: &StepRow, item: Option<WorkItemBrief>) -> Option<Self> {
        if step.status != chimera_core::flow::run::StepStatus::Running {
            return None;
        }
        let (kind, id) = match (step.child_run_id, step.work_kind) {
            (Some(child), _) => (WaitsFor::Run, child),
            (None, Some(WorkKind::Job)) => (WaitsFor::Job, step.work_id?),
            (None, Some(WorkKind::Worker)) => (WaitsFor::Worker, step.work_id?),
            (None, None) => return None,
        };
        Some(Self { kind, id, until: step.work_until, item: item.map(WorkItemView::of) })
    }
}
