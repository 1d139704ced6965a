//! Lists the events that are kept, newest first.

use super::KeptEvent;
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::Flow;
use crate::flow::view::ListPage;
use crate::port::ReadError;
use chimera_core::flow::tables::{EventBrief, external_events};
use chimera_core::record::{Comparison, Cursor, Direction, Row, Scope, StoredRow};

/// Which events to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventFilter<'a> {
    pub name: Option<&'a str>,
    pub key: Option<&'a str>,
    pub limit: usize,
    pub cursor: Option<&'a str>,
}

/// The events that the caller sent, or everybody's for those who see the runs of others.
pub async fn list_events(
    flow: &Flow,
    permit: &Permit,
    filter: EventFilter<'_>,
) -> Result<ListPage<KeptEvent>, EngineError> {
    let scope = Scope::Tenant(permit.tenant().to_owned());
    // One that has expired may not be swept yet.
    let mut select = EventBrief::select(scope)
        .by(&[], Direction::Descending)
        .filter(external_events::expires_at, Comparison::Above, flow.inner.parts.clock.steady())
        .take(filter.limit);
    for (column, value) in [(external_events::event_name, filter.name), (external_events::event_key, filter.key)] {
        if let Some(value) = value {
            select = select.with(column, value);
        }
    }
    if !permit.sees("") {
        select = select.with(external_events::sent_by, permit.actor());
    }
    if let Some(cursor) = filter.cursor {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let page = flow.inner.parts.records.read(select).await?;
    let bytes = page.rows.iter().map(Row::bytes).sum();
    let view = |row| Ok::<KeptEvent, EngineError>(EventBrief::decode(row)?.into());
    Ok(ListPage {
        next_cursor: page.next.as_ref().map(Cursor::encode),
        items: page.rows.into_iter().map(view).collect::<Result<_, _>>()?,
        bytes,
    })
}
