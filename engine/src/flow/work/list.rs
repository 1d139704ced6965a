//! The calls that wait for a worker or are held by one, for people.

use crate::access::{Permit, RUNS_READ};
use crate::error::EngineError;
use crate::flow::Flow;
use crate::flow::view::{ListPage, WorkItemView};
use crate::port::ReadError;
use chimera_core::flow::tables::{WorkItemBrief, work_items};
use chimera_core::flow::work::WorkState;
use chimera_core::record::{Cursor, Direction, Row, Scope, StoredRow};

/// Which items to list.
#[derive(Clone, Debug)]
pub struct WorkFilter {
    pub state: WorkState,
    pub queue: Option<String>,
    pub limit: usize,
    pub cursor: Option<String>,
}

/// Lists the items of a state, the oldest first.
pub async fn list(flow: &Flow, permit: &Permit, filter: WorkFilter) -> Result<ListPage<WorkItemView>, EngineError> {
    permit.require(RUNS_READ)?;
    let mut select = WorkItemBrief::select(Scope::Tenant(permit.tenant().to_owned()))
        .with(work_items::state, filter.state)
        .by(&[], Direction::Ascending)
        .take(filter.limit);
    if let Some(queue) = filter.queue {
        select = select.with(work_items::queue, queue);
    }
    if let Some(cursor) = &filter.cursor {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let page = flow.inner.parts.records.read(select).await?;
    let bytes = page.rows.iter().map(Row::bytes).sum();
    let next_cursor = page.next.as_ref().map(Cursor::encode);
    let items = page.rows.into_iter().map(|row| Ok(WorkItemView::of(WorkItemBrief::decode(row)?)));
    Ok(ListPage { items: items.collect::<Result<_, EngineError>>()?, next_cursor, bytes })
}
