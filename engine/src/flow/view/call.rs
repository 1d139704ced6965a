//! Tool calls.

use chimera_core::flow::call::CallEnd;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::tables::ToolCallRow;
use chimera_core::record::Json;
use chimera_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

#[derive(Clone, Debug, Serialize)]
pub struct CallView {
    pub tool_name: String,
    pub tool_input: Option<Json>,
    pub tool_output: Option<Json>,
    pub error: Option<String>,
    pub duration_ms: Option<i64>,
    pub dry_run: bool,
    pub idempotency_key: Option<String>,
    pub attempt: i64,
    /// `None` while the call is in flight.
    pub outcome: Option<CallEnd>,
    pub created_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
}

/// A call with its run.
#[derive(Clone, Debug, Serialize)]
pub struct ListedCall {
    #[serde(flatten)]
    pub call: CallView,
    pub run_id: Uuid,
    pub actor: Option<String>,
    pub run_status: Option<RunStatus>,
    pub step_id: Option<Uuid>,
}

impl CallView {
    pub(in crate::flow) fn of(call: ToolCallRow) -> Self {
        Self {
            tool_name: call.tool_name,
            tool_input: Some(call.tool_input),
            tool_output: call.tool_output,
            error: call.error,
            duration_ms: call.duration_ms.map(i64::from),
            dry_run: call.dry_run.unwrap_or_default(),
            idempotency_key: call.idempotency_key,
            attempt: call.attempt.into(),
            outcome: call.outcome,
            created_at: call.created_at,
            completed_at: call.completed_at,
        }
    }
}

impl ListedCall {
    pub(in crate::flow) fn of(run_status: Option<RunStatus>, mut call: ToolCallRow) -> Self {
        let (run_id, step_id, actor) = (call.run_id, call.step_id, call.actor.take());
        Self { call: CallView::of(call), run_id, actor, run_status, step_id }
    }
}
