//! The JSON documents of runs, steps and calls.
//!
//! Tool inputs and outputs are copied as stored text: parsed, a document of many small values takes a hundred times its
//! size in memory.

use super::show::time;
use crate::error::EngineError;
use chimera_core::record::{Json, JsonError, Row, Unstorable, Value as Cell};
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

/// A JSON document as text.
#[derive(Debug)]
pub struct SerializedJson(String);

impl SerializedJson {
    pub(super) fn of(document: &impl Serialize) -> Result<Self, EngineError> {
        let text = serde_json::to_string(document).map_err(JsonError::Serialise).map_err(Unstorable::from)?;
        Ok(Self(text))
    }

    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    /// The parsed document.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// A run with everything needed to approve it.
#[derive(Serialize)]
pub(super) struct RunView<'a> {
    #[serde(flatten)]
    pub(super) members: Map<String, Value>,
    pub(super) inputs: Option<&'a Json>,
    pub(super) result: Option<&'a Json>,
}

#[derive(Serialize)]
pub(super) struct StepPage<'a> {
    pub(super) steps: Vec<StepView<'a>>,
    pub(super) next_cursor: Option<String>,
}

/// A started step, or a node that has not started.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum StepView<'a> {
    Started(Box<StartedStep<'a>>),
    NotStarted(Value),
}

#[derive(Serialize)]
pub(super) struct StartedStep<'a> {
    step_id: Uuid,
    node_id: &'a str,
    node_type: &'a str,
    map_index: Option<i64>,
    tool: Option<&'a str>,
    status: &'a str,
    attempt: i64,
    input: Option<&'a Json>,
    input_digest: Option<String>,
    output: Option<&'a Json>,
    error: Option<&'a Json>,
    child_run_id: Option<Uuid>,
    retry_at: Option<String>,
    started_at: Option<String>,
    completed_at: Option<String>,
    tool_calls: Vec<StepCallView<'a>>,
}

impl<'a> StartedStep<'a> {
    pub(super) fn of(row: &'a Row, tool_calls: Vec<StepCallView<'a>>) -> Self {
        let json = |column: &str| row.get(column).as_json();
        Self {
            step_id: row.uuid("id"),
            node_id: row.text("node_id"),
            node_type: row.text("node_type"),
            map_index: row.get("map_index").as_int(),
            tool: row.get("tool").as_text(),
            status: row.text("status"),
            attempt: row.int("attempt"),
            input: json("input"),
            input_digest: row.get("input_digest").as_bytes().map(hex::encode),
            output: json("output"),
            error: json("error"),
            child_run_id: row.get("child_run_id").as_uuid(),
            // For a finished step the column records that an undo was sent.
            retry_at: time(row, "retry_at").filter(|_| row.get("completed_at").is_null()),
            started_at: time(row, "started_at"),
            completed_at: time(row, "completed_at"),
            tool_calls,
        }
    }
}

/// A simulated or real call.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum StepCallView<'a> {
    Dry(&'a Value),
    Made(Box<CallView<'a>>),
}

#[derive(Serialize)]
pub(super) struct CallView<'a> {
    tool_name: &'a str,
    tool_input: Option<&'a Json>,
    tool_output: Option<&'a Json>,
    error: Option<&'a str>,
    duration_ms: Option<i64>,
    dry_run: bool,
    idempotency_key: Option<&'a str>,
    attempt: i64,
    outcome: Option<&'a str>,
    created_at: Option<String>,
    completed_at: Option<String>,
}

impl<'a> CallView<'a> {
    pub(super) fn of(row: &'a Row) -> Self {
        let json = |column: &str| row.get(column).as_json();
        Self {
            tool_name: row.text("tool_name"),
            tool_input: json("tool_input"),
            tool_output: json("tool_output"),
            error: row.get("error").as_text(),
            duration_ms: row.get("duration_ms").as_int(),
            dry_run: row.get("dry_run") == &Cell::Bool(true),
            idempotency_key: row.get("idempotency_key").as_text(),
            attempt: row.int("attempt"),
            outcome: row.get("outcome").as_text(),
            created_at: time(row, "created_at"),
            completed_at: time(row, "completed_at"),
        }
    }
}

/// A page of calls across runs.
#[derive(Serialize)]
pub(super) struct CallPage<'a> {
    pub(super) items: Vec<ListedCall<'a>>,
    pub(super) next_cursor: Option<String>,
}

/// A call with its run.
#[derive(Serialize)]
pub(super) struct ListedCall<'a> {
    #[serde(flatten)]
    pub(super) call: CallView<'a>,
    pub(super) run_id: Uuid,
    pub(super) actor: Option<&'a str>,
    pub(super) run_status: Option<&'a str>,
    pub(super) step_id: Option<Uuid>,
}
