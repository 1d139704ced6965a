//! Tool calls.

use super::{flag, json, optional_word, text};
use chimera_core::flow::call::CallEnd;
use chimera_core::flow::run::RunStatus;
use chimera_core::record::{DamagedRows, Json, Row};
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
    pub(in crate::flow) fn of(row: &Row) -> Result<Self, DamagedRows> {
        Ok(Self {
            tool_name: row.text("tool_name").to_owned(),
            tool_input: json(row, "tool_input"),
            tool_output: json(row, "tool_output"),
            error: text(row, "error"),
            duration_ms: row.get("duration_ms").as_int(),
            dry_run: flag(row, "dry_run"),
            idempotency_key: text(row, "idempotency_key"),
            attempt: row.int("attempt"),
            outcome: optional_word(row, "outcome", CallEnd::parse)?,
            created_at: row.get("created_at").as_time(),
            completed_at: row.get("completed_at").as_time(),
        })
    }
}

impl ListedCall {
    pub(in crate::flow) fn of(row: &Row, run_status: Option<RunStatus>) -> Result<Self, DamagedRows> {
        Ok(Self {
            call: CallView::of(row)?,
            run_id: row.uuid("run_id"),
            actor: text(row, "actor"),
            run_status,
            step_id: row.get("step_id").as_uuid(),
        })
    }
}
