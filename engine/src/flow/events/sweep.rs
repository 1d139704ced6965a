//! Deletes expired events and the marks of old channels, row by row: a statement over many rows could wait for a run
//! that waits for it.

use crate::error::EngineError;
use crate::flow::Flow;
use crate::rows;
use chimera_core::flow::tables::{
    EVENT_CHANNELS, EXTERNAL_EVENTS, EventBrief, EventChannelRow, event_channels, external_events,
};
use chimera_core::limits;
use chimera_core::record::{Comparison, Condition, Direction, RowCount, Scope, Step, StoredRow, Tx};
use uuid::Uuid;

/// Deletes what has expired, as long as there is a full batch of it.
pub(in crate::flow) async fn sweep_expired(flow: &Flow) -> Result<(), EngineError> {
    let parts = &flow.inner.parts;
    loop {
        let steps = expired_rows(flow).await?;
        let is_full = steps.len() >= limits::EVENT_SWEEP_ROWS_MAX;
        if !steps.is_empty() {
            parts.records.commit(Tx { steps, ..Tx::default() }).await?;
        }
        if !is_full {
            return Ok(());
        }
    }
}

async fn expired_rows(flow: &Flow) -> Result<Vec<Step>, EngineError> {
    let parts = &flow.inner.parts;
    let now = parts.clock.earlier();
    let events = EventBrief::select(Scope::System)
        .filter(external_events::expires_at, Comparison::AtMost, now)
        // By the index: in the order of their ids, a store would look at every event that is kept.
        .by(&[external_events::expires_at], Direction::Ascending)
        .take(limits::EVENT_SWEEP_ROWS_MAX);
    let expired = rows::decodable::<EventBrief>(parts.records.read(events).await?.rows);
    let mut steps: Vec<Step> = expired.map(|row| removal(row.id)).collect();
    let is = |column, value| Condition { column, compare: Comparison::Is, value };
    let old = now.plus_seconds(-limits::EVENT_CHANNEL_SECONDS);
    let channels = EventChannelRow::select(Scope::System)
        .filter(event_channels::updated_at, Comparison::AtMost, old)
        .by(&[event_channels::updated_at], Direction::Ascending)
        .take(limits::EVENT_SWEEP_ROWS_MAX);
    for row in rows::decodable::<EventChannelRow>(parts.records.read(channels).await?.rows) {
        // A wait that begins now has made a new mark.
        let conditions = vec![
            is(event_channels::tenant_id, row.tenant_id.into()),
            is(event_channels::event_name, row.event_name.into()),
            is(event_channels::event_key, row.event_key.into()),
            is(event_channels::last_wait, row.last_wait.into()),
        ];
        steps.push(Step::Delete { table: &EVENT_CHANNELS, conditions, rows: RowCount::AtMost(1) });
    }
    Ok(steps)
}

/// The step that deletes an event.
pub(super) fn removal(id: Uuid) -> Step {
    let conditions = vec![Condition { column: external_events::id, compare: Comparison::Is, value: id.into() }];
    Step::Delete { table: &EXTERNAL_EVENTS, conditions, rows: RowCount::AtMost(1) }
}
