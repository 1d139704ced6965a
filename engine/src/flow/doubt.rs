//! Calls in doubt: listing them, and notifying the people who can resolve them.
//!
//! The notification is part of the transaction that records the doubt, so it is sent once and only for what happened.

use super::Flow;
use super::approval_messages::{self, Asking, RunMessage};
use super::engine::EngineState;
use super::view::{DoubtView, DoubtfulCall, ListPage};
use crate::access::{Permit, RUNS_READ};
use crate::error::EngineError;
use crate::port::ReadError;
use crate::rows;
use chimera_core::flow::run::{RunHead, UnknownOutcome};
use chimera_core::flow::tables::{DoubtfulRun, DoubtfulStep, runs, steps};
use chimera_core::limits;
use chimera_core::record::{Comparison, Cursor, Row, Scope, StoredRow, Tx, Unstorable, Value as Cell};
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

/// Calls in doubt, oldest steps first.
pub async fn list_doubts(
    flow: &Flow,
    permit: &Permit,
    filter: DoubtFilter,
) -> Result<ListPage<DoubtView>, EngineError> {
    let everybody = permit.sees("");
    if !everybody && filter.actor.as_deref().is_some_and(|actor| actor != permit.actor()) {
        return Err(EngineError::missing_scope(RUNS_READ));
    }
    let actor = filter.actor.or_else(|| (!everybody).then(|| permit.actor().to_owned()));
    let scope = || Scope::Tenant(permit.tenant().to_owned());
    let mut select = DoubtfulStep::select(scope()).filter(steps::in_doubt_since, Comparison::IsNot, Cell::Null);
    select = select.take(filter.limit);
    if let Some(tool) = filter.tool {
        select = select.with(steps::tool, tool);
    }
    if let Some(cursor) = &filter.cursor {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let mut runs: BTreeMap<Uuid, Option<DoubtfulRun>> = BTreeMap::new();
    let (mut items, mut bytes) = (Vec::new(), 0_usize);
    // Steps have no actor column, so filling a page for one actor can take several reads.
    for _ in 0..limits::DOUBT_PAGES_MAX {
        let page = flow.inner.parts.records.read(select.clone()).await?;
        bytes = page.rows.iter().map(Row::bytes).fold(bytes, usize::saturating_add);
        for row in page.rows {
            let step = DoubtfulStep::decode(row)?;
            if let Entry::Vacant(place) = runs.entry(step.run_id) {
                let select = DoubtfulRun::select(scope()).with(runs::id, step.run_id);
                place.insert(rows::find(&*flow.inner.parts.records, select).await?);
            }
            let run = runs.get(&step.run_id).and_then(Option::as_ref);
            let run = run.filter(|run| actor.as_deref().is_none_or(|actor| run.actor == actor));
            items.extend(run.map(|run| DoubtView::of(run, step)).transpose()?);
        }
        select.after = page.next;
        if select.after.is_none() || items.len() >= filter.limit {
            break;
        }
        let room = filter.limit - items.len();
        select = select.take(room);
    }
    Ok(ListPage { items, next_cursor: select.after.as_ref().map(Cursor::encode), bytes })
}

/// A run's calls in doubt.
pub(super) async fn doubts(flow: &Flow, permit: &Permit, run: &DoubtfulRun) -> Result<Vec<DoubtView>, EngineError> {
    let select = DoubtfulStep::select(Scope::Tenant(permit.tenant().to_owned())).with(steps::run_id, run.id);
    let select = select.filter(steps::in_doubt_since, Comparison::IsNot, Cell::Null);
    let (rows, _) = flow.inner.parts.records.first(select, limits::PAGE_ROWS_DEFAULT).await?;
    let shown = |row| Ok(DoubtView::of(run, DoubtfulStep::decode(row)?)?);
    rows.into_iter().map(shown).collect()
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
            let message = RunMessage { head, approval: None, payload: payload.clone(), at: steady };
            tx.inserts.push(asking.message(inner.id(), recipient, message)?);
        }
    }
    Ok(())
}

fn data(head: &RunHead, doubt: &UnknownOutcome, asking: &Asking) -> Value {
    let call = if doubt.undo { DoubtfulCall::Undo } else { DoubtfulCall::Execute };
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
        "call": call.as_str(),
        "since": doubt.since.to_string(),
        "reason": reason,
        "resolve_url": format!("{}{}", asking.base_url, call.resolve_url(head.id, doubt.step)),
        "resolve_commands": call.resolve_commands(head.id, doubt.step),
    })
}
