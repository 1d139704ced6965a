//! Lists tool calls across the runs that the caller may see.

use super::view::{ListedCall, Listing};
use super::{Flow, load};
use crate::access::{Permit, RUNS_READ};
use crate::error::EngineError;
use crate::port::ReadError;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::tables::{RUNS, TOOL_CALLS};
use chimera_core::limits::JSON_INLINE_BYTES_MAX;
use chimera_core::record::{Comparison, Cursor, Direction, Row, Scope, Select};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use uuid::Uuid;

#[derive(Clone, Debug, Default)]
pub struct CallFilter {
    pub actor: Option<String>,
    pub tool: Option<String>,
    /// Inclusive.
    pub since: Option<Timestamp>,
    pub limit: usize,
    pub cursor: Option<String>,
}

impl Flow {
    /// Tool calls, newest first, as `render` writes them. A large page is rendered off the request threads.
    pub async fn list_calls<T>(
        &self,
        permit: &Permit,
        filter: CallFilter,
        render: impl FnOnce(Listing<ListedCall>) -> T,
    ) -> Result<T, EngineError> {
        let scope = || Scope::Tenant(permit.tenant().to_owned());
        let everybody = permit.sees("");
        if !everybody && filter.actor.as_deref().is_some_and(|actor| actor != permit.actor()) {
            return Err(EngineError::missing_scope(RUNS_READ));
        }
        let mut select = Select::from(&TOOL_CALLS, scope()).by(&[], Direction::Descending);
        if let Some(actor) = filter.actor.or_else(|| (!everybody).then(|| permit.actor().to_owned())) {
            select = select.with("actor", actor);
        }
        if let Some(tool) = filter.tool {
            select = select.with("tool_name", tool);
        }
        if let Some(since) = filter.since {
            select = select.filter("created_at", Comparison::AtLeast, since);
        }
        select = select.take(filter.limit);
        if let Some(cursor) = &filter.cursor {
            select = select.continue_at(cursor).map_err(ReadError::from)?;
        }
        let page = self.inner.parts.records.read(select).await?;
        let mut statuses: BTreeMap<Uuid, Option<RunStatus>> = BTreeMap::new();
        for row in &page.rows {
            let run = row.uuid("run_id");
            if let Entry::Vacant(place) = statuses.entry(run) {
                let select = Select::from(&RUNS, scope()).with("id", run).without(load::RUN_DOCUMENTS).take(1);
                let found = self.inner.parts.records.read(select).await?;
                place.insert(found.rows.first().and_then(|row| RunStatus::parse(row.text("status"))));
            }
        }
        let bytes: usize = page.rows.iter().map(Row::bytes).sum();
        let next_cursor = page.next.as_ref().map(Cursor::encode);
        let written = async {
            let status = |row: &Row| statuses.get(&row.uuid("run_id")).copied().flatten();
            let items = page.rows.iter().map(|row| ListedCall::of(row, status(row))).collect::<Result<_, _>>()?;
            Ok(render(Listing { items, next_cursor, bytes }))
        };
        self.offload(&permit.claimant(), bytes > JSON_INLINE_BYTES_MAX, Box::pin(written)).await?
    }
}
