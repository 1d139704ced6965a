//! What was called, over all runs that somebody may see.

use super::show::call;
use super::{Flow, FlowError};
use crate::access::{Permit, RUNS_READ};
use crate::port::ReadError;
use chimera_core::flow::tables::{RUNS, TOOL_CALLS};
use chimera_core::record::{Compare, Cursor, Direction, Scope, Select};
use chimera_core::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use uuid::Uuid;

/// Which calls are listed.
#[derive(Clone, Debug, Default)]
pub struct CallFilter {
    /// Of this actor's runs.
    pub actor: Option<String>,
    /// Of this tool.
    pub tool: Option<String>,
    /// From then on.
    pub since: Option<Timestamp>,
    /// At most so many.
    pub limit: usize,
    /// Behind this place.
    pub cursor: Option<String>,
}

impl Flow {
    /// Calls of tools, the newest first.
    pub async fn list_calls(&self, permit: &Permit, filter: CallFilter) -> Result<Value, FlowError> {
        let scope = || Scope::Tenant(permit.tenant().to_owned());
        let everybody = permit.sees("");
        if !everybody && filter.actor.as_deref().is_some_and(|actor| actor != permit.actor()) {
            return Err(FlowError::lacking(RUNS_READ));
        }
        let mut select = Select::from(&TOOL_CALLS, scope()).by(&[], Direction::Descending);
        if let Some(actor) = filter.actor.or_else(|| (!everybody).then(|| permit.actor().to_owned())) {
            select = select.with("actor", actor);
        }
        if let Some(tool) = filter.tool {
            select = select.with("tool_name", tool);
        }
        if let Some(since) = filter.since {
            select = select.filter("created_at", Compare::AtLeast, since);
        }
        select = select.take(filter.limit);
        if let Some(cursor) = &filter.cursor {
            select = select.continue_at(cursor).map_err(ReadError::from)?;
        }
        let page = self.inner.parts.records.read(select).await?;
        let mut statuses: BTreeMap<Uuid, Option<String>> = BTreeMap::new();
        for row in &page.rows {
            let run = row.uuid("run_id");
            if let Entry::Vacant(place) = statuses.entry(run) {
                let found = self.inner.parts.records.read(Select::from(&RUNS, scope()).with("id", run).take(1)).await?;
                place.insert(found.rows.first().map(|row| row.text("status").to_owned()));
            }
        }
        let items: Vec<Value> = page
            .rows
            .iter()
            .map(|row| {
                let run = row.uuid("run_id");
                let mut shown = call(row);
                shown["run_id"] = run.to_string().into();
                shown["actor"] = json!(row.get("actor").as_text());
                shown["run_status"] = json!(statuses.get(&run));
                shown["step_id"] = json!(row.get("step_id").as_uuid());
                shown
            })
            .collect();
        Ok(json!({"items": items, "next_cursor": page.next.as_ref().map(Cursor::encode)}))
    }
}
