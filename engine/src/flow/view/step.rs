//! Steps. A node that has not started has no row: it is shown as pending, or as skipped or cancelled once the run has
//! ended.

use super::{CallView, ElsewhereView};
use chimera_core::error::ErrorBody;
use chimera_core::flow::air::{CompiledNode, NodeKind};
use chimera_core::flow::judgement::Judgement;
use chimera_core::flow::run::StepStatus;
use chimera_core::flow::tables::{StepRow, WorkItemBrief};
use chimera_core::record::{DamagedRows, Json};
use chimera_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

#[derive(Clone, Debug, Serialize)]
pub struct StepPage {
    pub steps: Vec<StepView>,
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepView {
    /// `None` before it starts.
    pub step_id: Option<Uuid>,
    pub node_id: String,
    pub node_type: NodeKind,
    pub map_index: Option<i64>,
    pub tool: Option<String>,
    pub status: StepStatus,
    pub attempt: i64,
    pub input: Option<Json>,
    pub input_digest: Option<String>,
    #[serde(flatten)]
    pub result: StepResult,
    pub child_run_id: Option<Uuid>,
    /// What a running step waits for, if its work is done elsewhere.
    pub elsewhere: Option<ElsewhereView>,
    #[serde(flatten)]
    pub times: StepTimes,
    /// Dry calls first.
    pub tool_calls: Vec<CallView>,
}

/// What came out of a step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepResult {
    /// As in `nodes.<id>.outputs` of an expression.
    pub outputs: Option<Json>,
    /// An output that the judge has not released, which no expression sees.
    pub held_output: Option<Json>,
    /// What the node's judge decided last.
    pub judgement: Option<Judgement>,
    pub error: Option<ErrorBody>,
}

/// When a step started and ended, and when it is tried again.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct StepTimes {
    pub retry_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
}

impl StepView {
    pub(in crate::flow) fn started(
        step: StepRow,
        item: Option<WorkItemBrief>,
        tool_calls: Vec<CallView>,
    ) -> Result<Self, DamagedRows> {
        let elsewhere = ElsewhereView::of(&step, item);
        let is_held = matches!(step.status, StepStatus::Judging | StepStatus::AwaitingApproval);
        let (held_output, outputs) = if is_held { (step.output, None) } else { (None, step.output) };
        Ok(Self {
            step_id: Some(step.id),
            node_id: step.node_id,
            node_type: step.node_type,
            map_index: step.map_index.map(i64::from),
            tool: step.tool,
            status: step.status,
            attempt: step.attempt.into(),
            input: step.input,
            input_digest: step.input_digest.map(|digest| digest.to_string()),
            result: StepResult {
                outputs,
                held_output,
                judgement: step.judgement.as_ref().map(Json::decode).transpose()?,
                error: step.error.as_ref().map(Json::decode).transpose()?,
            },
            child_run_id: step.child_run_id,
            elsewhere,
            times: StepTimes {
                // For a finished step the column records that an undo was sent.
                retry_at: step.retry_at.filter(|_| step.completed_at.is_none()),
                started_at: step.started_at,
                completed_at: step.completed_at,
            },
            tool_calls,
        })
    }

    pub(in crate::flow) fn not_started(compiled: &CompiledNode, status: StepStatus, tried: Vec<CallView>) -> Self {
        Self {
            step_id: None,
            node_id: compiled.node.id.clone(),
            node_type: compiled.node.body.node_kind(),
            map_index: None,
            tool: compiled.tool.as_ref().map(|tool| tool.name.clone()),
            status,
            attempt: 0,
            input: None,
            input_digest: None,
            result: StepResult::default(),
            child_run_id: None,
            elsewhere: None,
            times: StepTimes::default(),
            tool_calls: tried,
        }
    }
}
