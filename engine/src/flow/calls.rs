//! Lists tool calls across the runs that the caller may see.

use super::Flow;
use super::view::{ListPage, ListedCall};
use crate::access::{Permit, RUNS_READ};
use crate::error::EngineError;
use crate::port::ReadError;
use crate::rows;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::tables::{RunActor, ToolCallRow, runs, tool_calls};
use chimera_core::limits::JSON_INLINE_BYTES_MAX;
use chimera_core::record::{Comparison, Cursor, Direction, Row, Scope, StoredRow};
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

/// Tool calls, newest first, as `render` writes them. A large page is rendered off the request threads.
pub async fn list_calls<T>(
    flow: &Flow,
    permit: &Permit,
    filter: CallFilter,
    render: impl FnOnce(ListPage<ListedCall>) -> T,
) -> Result<T, EngineError> {
    let scope = || Scope::Tenant(permit.tenant().to_owned());
    let everybody = permit.sees("");
    if !everybody && filter.actor.as_deref().is_some_and(|actor| actor != permit.actor()) {
        return Err(EngineError::missing_scope(RUNS_READ));
    }
    let mut select = ToolCallRow::select(scope()).by(&[], Direction::Descending);
    if let Some(actor) = filter.actor.or_else(|| (!everybody).then(|| permit.actor().to_owned())) {
        select = select.with(tool_calls::actor, actor);
    }
    if let Some(tool) = filter.tool {
        select = select.with(tool_calls::tool_name, tool);
    }
    if let Some(since) = filter.since {
        select = select.filter(tool_calls::created_at, Comparison::AtLeast, since);
    }
    select = select.take(filter.limit);
    if let Some(cursor) = &filter.cursor {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let records = &*flow.inner.parts.records;
    let page = records.read(select).await?;
    let bytes: usize = page.rows.iter().map(Row::bytes).sum();
    let next_cursor = page.next.as_ref().map(Cursor::encode);
    let calls = page.rows.into_iter().map(ToolCallRow::decode).collect::<Result<Vec<_>, _>>()?;
    let mut statuses: BTreeMap<Uuid, Option<RunStatus>> = BTreeMap::new();
    for call in &calls {
        if let Entry::Vacant(place) = statuses.entry(call.run_id) {
            let run: Option<RunActor> =
                rows::find(records, RunActor::select(scope()).with(runs::id, call.run_id)).await?;
            place.insert(run.map(|run| run.status));
        }
    }
    let written = async {
        let status = |call: &ToolCallRow| statuses.get(&call.run_id).copied().flatten();
        let items = calls.into_iter().map(|call| ListedCall::of(status(&call), call)).collect();
        render(ListPage { items, next_cursor, bytes })
    };
    flow.offload(&permit.claimant(), bytes > JSON_INLINE_BYTES_MAX, Box::pin(written)).await
}
