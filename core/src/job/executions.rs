//! The execution log: every call of a run that asks for it has a record, from its start on.
//!
//! A record is inserted when the call starts, with the status `timeout` and without an end: if the process dies, it is
//! true as it stands. It is completed once and then frozen. An error without a call has a record of its own, and so has
//! the error of a call that timed out, whose own record says `timeout`. What is reported of a call after its end was
//! recorded as unknown has a record of its own, too.

use crate::error::{Code, ErrorBody};
use crate::flow::air::AgentType;
use crate::flow::projection::{ProjectedRow, Projection, Refusal, StepChange, StepContext};
use crate::id;
use crate::job::tables::{AGENT_EXECUTIONS, agent_executions};
use crate::json::Digest32;
use crate::ledger::tables::{RECORD_SCOPES, record_scopes};
use crate::limits::EXECUTION_DATA_BYTES_MAX;
use crate::record::{Comparison, Condition, Insert, Json, RowCount, Step, Unstorable, Value as Cell};
use crate::redact::Redactor;
use crate::words::words;
use serde_json::{Value, json};
use uuid::Uuid;

words! {
    /// The value of `agent_executions.status`.
    ExecutionStatus {
        Success = "success",
        Failed = "failed",
        /// It timed out, or has not ended.
        Timeout = "timeout",
    }
}

/// Writes `agent_executions`.
pub struct ExecutionLog;

/// A record of its own, as inserted.
struct Record<'a> {
    id: Uuid,
    agent_type: AgentType,
    execution_type: &'a str,
    input: &'a Value,
    status: ExecutionStatus,
    error: Option<&'a ErrorBody>,
}

impl Projection for ExecutionLog {
    fn rows(&self, step: &StepContext<'_>, change: &StepChange<'_>) -> Result<Vec<ProjectedRow>, Unstorable> {
        let (agent_type, execution_type) = (step.logging.agent_type, step.logging.execution_type.as_str());
        match *change {
            StepChange::CallStarted { call, input, .. } => {
                let status = ExecutionStatus::Timeout;
                record(step, &Record { id: call, agent_type, execution_type, input, status, error: None })
            }
            StepChange::CallEnded { tool, attempt, input, ended, duration_ms, is_late: true, fresh, .. } => {
                let status = if ended.is_ok() { ExecutionStatus::Success } else { ExecutionStatus::Failed };
                let mut rows =
                    record(step, &Record { id: fresh, agent_type, execution_type, input, status, error: ended.err() })?;
                let usage = usage(tool, attempt, input, ended.ok());
                if ended.is_ok() {
                    rows.push(ProjectedRow::Change(note_end(fresh, None, &usage)?));
                    rows.push(ProjectedRow::Change(complete(step, fresh, status, ended.ok(), duration_ms)?));
                }
                Ok(rows)
            }
            StepChange::CallEnded { call, tool, attempt, input, ended, duration_ms, fresh, is_late: false } => {
                let usage = usage(tool, attempt, input, ended.ok());
                let error = ended.err();
                let timed_out = error.is_some_and(|error| error.code == Code::RequestTimeout.as_str());
                let status = match ended {
                    Ok(_) => ExecutionStatus::Success,
                    Err(_) if timed_out => ExecutionStatus::Timeout,
                    Err(_) => ExecutionStatus::Failed,
                };
                let mut rows = vec![
                    ProjectedRow::Change(note_end(call, error, &usage)?),
                    ProjectedRow::Change(complete(step, call, status, ended.ok(), duration_ms)?),
                ];
                if timed_out {
                    let status = ExecutionStatus::Failed;
                    rows.extend(record(step, &Record { id: fresh, agent_type, execution_type, input, status, error })?);
                }
                Ok(rows)
            }
            StepChange::Refused { by, input, error, fresh } => {
                let execution_type = match by {
                    Refusal::Policy => "policy_evaluation",
                    Refusal::Judge => "output_validation",
                };
                let (agent_type, status) = (AgentType::Governor, ExecutionStatus::Failed);
                record(step, &Record { id: fresh, agent_type, execution_type, input, status, error: Some(error) })
            }
            StepChange::Failed { input, error, fresh } => {
                let status = ExecutionStatus::Failed;
                record(step, &Record { id: fresh, agent_type, execution_type, input, status, error: Some(error) })
            }
        }
    }
}

/// A new record and its tenant. One with an error has ended.
fn record(step: &StepContext<'_>, record: &Record<'_>) -> Result<Vec<ProjectedRow>, Unstorable> {
    let Record { id, agent_type, execution_type, input, status, error } = *record;
    let mut cells = vec![
        (agent_executions::execution_id, id.into()),
        (agent_executions::agent_id, id::agent(&step.head.tenant, &step.head.actor).into()),
        (agent_executions::agent_type, agent_type.as_str().into()),
        (agent_executions::execution_type, execution_type.into()),
        (agent_executions::input_data, kept(input)?.into()),
        (agent_executions::status, status.into()),
        (agent_executions::started_at, step.at.into()),
    ];
    if let Some(error) = error {
        cells.push((agent_executions::error_data, Json::encode(error)?.into()));
        cells.push((agent_executions::completed_at, step.at.into()));
    }
    let scope = vec![
        (record_scopes::record_kind, "agent_execution".into()),
        (record_scopes::record_id, id.into()),
        (record_scopes::tenant_id, step.head.tenant.as_str().into()),
        (record_scopes::trace_id, id::trace_id(step.head.id).into()),
    ];
    let rows = [Insert::new(&AGENT_EXECUTIONS, cells)?, Insert::new(&RECORD_SCOPES, scope)?];
    Ok(rows.into_iter().map(ProjectedRow::Insert).collect())
}

/// The record of a call, which its end has to find. One that is complete is frozen.
fn record_of(call: Uuid) -> Vec<Condition> {
    let is = |column, value: Cell| Condition { column, compare: Comparison::Is, value };
    vec![is(agent_executions::execution_id, call.into()), is(agent_executions::completed_at, Cell::Null)]
}

/// What the completing change leaves out.
fn note_end(call: Uuid, error: Option<&ErrorBody>, usage: &Value) -> Result<Step, Unstorable> {
    let set = vec![
        (agent_executions::error_data, error.map(Json::encode).transpose()?.into()),
        (agent_executions::resource_usage, Json::encode(usage)?.into()),
    ];
    Ok(Step::update(&AGENT_EXECUTIONS, record_of(call), set, RowCount::AtMost(1))?)
}

/// The completing change. The record is frozen afterwards.
fn complete(
    step: &StepContext<'_>,
    call: Uuid,
    status: ExecutionStatus,
    output: Option<&Value>,
    duration_ms: i64,
) -> Result<Step, Unstorable> {
    let duration = i32::try_from(duration_ms.max(0)).unwrap_or(i32::MAX);
    let set = vec![
        (agent_executions::status, status.into()),
        (agent_executions::output_data, output.map(kept).transpose()?.into()),
        (agent_executions::completed_at, step.at.into()),
        (agent_executions::execution_duration_ms, Cell::from(i64::from(duration))),
    ];
    Ok(Step::update(&AGENT_EXECUTIONS, record_of(call), set, RowCount::AtMost(1))?)
}

/// What a call used.
fn usage(tool: &str, attempt: u32, input: &Value, output: Option<&Value>) -> Value {
    let bytes = |value: &Value| value.to_string().len();
    json!({
        "tool": tool, "attempt": attempt, "input_bytes": bytes(input), "output_bytes": output.map_or(0, bytes),
    })
}

/// A document as the record keeps it: credentials masked, and only its digest if it is too large.
fn kept(value: &Value) -> Result<Json, Unstorable> {
    let mut masked = value.clone();
    Redactor::default().json(&mut masked);
    let text = Json::encode(&masked)?;
    if text.as_str().len() <= EXECUTION_DATA_BYTES_MAX {
        return Ok(text);
    }
    let reference = json!({"truncated": true, "bytes": text.as_str().len(), "sha256": Digest32::of(value)});
    Ok(Json::encode(&reference)?)
}
