//! Calls in doubt: listing them, and notifying the people who can resolve them.
//!
//! The notification is part of the transaction that records the doubt, so it is sent once and only for what happened.

use super::Flow;
use super::approval_messages::{self, Asking};
use super::engine::EngineState;
use super::show::time;
use crate::access::{Permit, RUNS_READ};
use crate::error::EngineError;
use crate::port::ReadError;
use chimera_core::flow::run::{RunHead, StepStatus, UnknownOutcome};
use chimera_core::flow::tables::{RUNS, STEPS};
use chimera_core::limits;
use chimera_core::record::{Comparison, Cursor, Json, Row, Scope, Select, Tx, Unstorable, Value as Cell};
use chimera_core::redact::Redactor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use uuid::Uuid;

/// The message type for a call in doubt.
pub(super) const OUTCOME_UNKNOWN: &str = "step.outcome_unknown";

#[derive(Clone, Debug, Default)]
pub struct DoubtFilter {
    pub actor: Option<String>,
    pub tool: Option<String>,
    pub limit: usize,
    pub cursor: Option<String>,
}

impl Flow {
    /// Calls in doubt, oldest steps first.
    pub async fn list_doubts(&self, permit: &Permit, filter: DoubtFilter) -> Result<Value, EngineError> {
        let everybody = permit.sees("");
        if !everybody && filter.actor.as_deref().is_some_and(|actor| actor != permit.actor()) {
            return Err(EngineError::missing_scope(RUNS_READ));
        }
        let actor = filter.actor.or_else(|| (!everybody).then(|| permit.actor().to_owned()));
        let scope = || Scope::Tenant(permit.tenant().to_owned());
        let mut select = in_doubt(Select::from(&STEPS, scope())).take(filter.limit);
        if let Some(tool) = filter.tool {
            select = select.with("tool", tool);
        }
        if let Some(cursor) = &filter.cursor {
            select = select.continue_at(cursor).map_err(ReadError::from)?;
        }
        let mut runs: BTreeMap<Uuid, Option<Row>> = BTreeMap::new();
        let mut items = Vec::new();
        // Steps have no actor column, so filling a page for one actor can take several reads.
        for _ in 0..limits::DOUBT_PAGES_MAX {
            let page = self.inner.parts.records.read(select.clone()).await?;
            for step in &page.rows {
                let id = step.uuid("run_id");
                if let Entry::Vacant(place) = runs.entry(id) {
                    let select = Select::from(&RUNS, scope()).with("id", id).take(1);
                    place.insert(self.inner.parts.records.read(select).await?.rows.into_iter().next());
                }
                let run = runs.get(&id).and_then(Option::as_ref);
                let run = run.filter(|run| actor.as_deref().is_none_or(|actor| run.text("actor") == actor));
                items.extend(run.map(|run| document(run, step)));
            }
            select.after = page.next;
            if select.after.is_none() || items.len() >= filter.limit {
                break;
            }
            let room = filter.limit - items.len();
            select = select.take(room);
        }
        Ok(json!({"items": items, "next_cursor": select.after.as_ref().map(Cursor::encode)}))
    }

    /// A run's calls in doubt.
    pub(super) async fn doubts(&self, permit: &Permit, run: &Row) -> Result<Vec<Value>, EngineError> {
        if run.get("in_doubt_since").is_null() {
            return Ok(Vec::new());
        }
        let select = Select::from(&STEPS, Scope::Tenant(permit.tenant().to_owned())).with("run_id", run.uuid("id"));
        let (rows, _) = self.inner.parts.records.first(in_doubt(select), limits::PAGE_ROWS_DEFAULT).await?;
        Ok(rows.iter().map(|step| document(run, step)).collect())
    }
}

/// Restricts a query to steps in doubt.
pub(super) fn in_doubt(select: Select) -> Select {
    select.filter("in_doubt_since", Comparison::IsNot, Cell::Null)
}

/// Adds the notifications about calls in doubt to the transaction that records them.
pub(super) async fn add_doubt_messages(
    tx: &mut Tx,
    inner: &EngineState,
    head: &RunHead,
    doubts: &[UnknownOutcome],
) -> Result<(), Unstorable> {
    if doubts.is_empty() {
        return Ok(());
    }
    let asking = &inner.parts.asking;
    let recipients = approval_messages::effective_recipients(asking.recipients.who_settles(head).await, head);
    let (now, steady) = (inner.parts.clock.now(), inner.parts.clock.steady());
    for doubt in doubts {
        let payload = json!({"type": OUTCOME_UNKNOWN, "timestamp": now.to_string(), "data": data(head, doubt, asking)});
        for recipient in &recipients {
            tx.inserts.push(asking.message(inner.id(), head, None, recipient, payload.clone(), steady)?);
        }
    }
    Ok(())
}

fn data(head: &RunHead, doubt: &UnknownOutcome, asking: &Asking) -> Value {
    let mut reason = Value::String(doubt.reason.clone());
    Redactor::default().json(&mut reason);
    json!({
        "run_id": head.id,
        "trace_id": chimera_core::id::trace_id(head.id),
        "workflow_id": head.workflow.id,
        "actor": head.actor,
        "autonomy_level": head.level.as_str(),
        "step_id": doubt.step,
        "node_id": doubt.node,
        "map_index": doubt.item,
        "tool": doubt.tool,
        "call": call_kind(doubt.undo),
        "since": doubt.since.to_string(),
        "reason": reason,
        "settle_url": format!("{}{}", asking.base_url, settle_url(head.id, doubt.step, doubt.undo)),
        "settle_with": resolve_commands(head.id, doubt.step, doubt.undo),
    })
}

/// A call in doubt as JSON.
fn document(run: &Row, step: &Row) -> Value {
    let (run_id, step_id) = (run.uuid("id"), step.uuid("id"));
    let undo = step.text("status") != StepStatus::OutcomeUnknown.as_str();
    let reason = if undo { undo_reason(run, step_id) } else { call_reason(step) };
    json!({
        "run_id": run_id,
        "workflow_id": run.get("workflow_id").as_text(),
        "actor": run.text("actor"),
        "run_status": run.text("status"),
        "step_id": step_id,
        "node_id": step.text("node_id"),
        "map_index": step.get("map_index").as_int(),
        "tool": step.get("tool").as_text(),
        "call": call_kind(undo),
        "attempt": step.int("attempt"),
        "since": time(step, "in_doubt_since"),
        "reason": reason,
        "resolve_url": (!undo).then(|| settle_url(run_id, step_id, false)),
        "settle_url": settle_url(run_id, step_id, undo),
        "settle_with": resolve_commands(run_id, step_id, undo),
    })
}

fn call_reason(step: &Row) -> Option<String> {
    let error = step.get("error").as_json().map(Json::to_value)?;
    error["message"].as_str().map(str::to_owned)
}

/// Why the outcome of an undo is unknown, according to the last rollback.
fn undo_reason(run: &Row, step: Uuid) -> Option<String> {
    let rollback = run.get("rollback").as_json().map(Json::to_value)?;
    let step = step.to_string();
    let left = rollback["left"].as_array()?.iter().find(|line| line["step_id"] == *step)?;
    left["reason"].as_str().map(str::to_owned)
}

const fn call_kind(undo: bool) -> &'static str {
    if undo { "undo" } else { "execute" }
}

fn settle_url(run: Uuid, step: Uuid, undo: bool) -> String {
    if undo { format!("/runs/{run}/rollback") } else { format!("/runs/{run}/steps/{step}/resolve") }
}

/// The commands that resolve it; one of them suffices.
fn resolve_commands(run: Uuid, step: Uuid, undo: bool) -> [String; 2] {
    if undo {
        [format!("chimera runs rollback {run} --step {step}"), format!("chimera runs rollback {run} --by-hand")]
    } else {
        ["--happened", "--never"].map(|found| format!("chimera runs resolve {run} {step} {found}"))
    }
}
