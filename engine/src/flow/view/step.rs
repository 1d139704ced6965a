//! Steps. A node that has not started has no row: it is shown as pending, or as skipped or cancelled once the run has
//! ended.

use super::{CallView, decoded, json, text, word};
use chimera_core::error::ErrorBody;
use chimera_core::flow::air::{CompiledNode, NodeKind};
use chimera_core::flow::run::StepStatus;
use chimera_core::record::{DamagedRows, Json, Row};
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
    /// As in `nodes.<id>.outputs` of an expression.
    pub outputs: Option<Json>,
    pub error: Option<ErrorBody>,
    pub child_run_id: Option<Uuid>,
    pub retry_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    /// Dry calls first.
    pub tool_calls: Vec<CallView>,
}

impl StepView {
    pub(in crate::flow) fn started(row: &Row, tool_calls: Vec<CallView>) -> Result<Self, DamagedRows> {
        Ok(Self {
            step_id: Some(row.uuid("id")),
            node_id: row.text("node_id").to_owned(),
            node_type: word(row, "node_type", NodeKind::parse)?,
            map_index: row.get("map_index").as_int(),
            tool: text(row, "tool"),
            status: word(row, "status", StepStatus::parse)?,
            attempt: row.int("attempt"),
            input: json(row, "input"),
            input_digest: row.get("input_digest").as_bytes().map(hex::encode),
            outputs: json(row, "output"),
            error: decoded(row, "error")?,
            child_run_id: row.get("child_run_id").as_uuid(),
            // For a finished step the column records that an undo was sent.
            retry_at: row.get("retry_at").as_time().filter(|_| row.get("completed_at").is_null()),
            started_at: row.get("started_at").as_time(),
            completed_at: row.get("completed_at").as_time(),
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
            outputs: None,
            error: None,
            child_run_id: None,
            retry_at: None,
            started_at: None,
            completed_at: None,
            tool_calls: tried,
        }
    }
}
