//! Looks for the event of a run that has begun to wait.

use crate::error::EngineError;
use crate::flow::engine::EngineState;
use crate::rows;
use chimera_core::flow::event::{EventLookup, ReceivedEvent};
use chimera_core::flow::run::{EventQuery, RunHead};
use chimera_core::flow::tables::{EventBrief, EventRow, external_events};
use chimera_core::limits;
use chimera_core::record::{Comparison, Scope, StoredRow};

/// The oldest event that is kept and that the run has not received.
pub(in crate::flow) async fn look_up(inner: &EngineState, head: &RunHead, query: &EventQuery) -> EventLookup {
    match find(inner, head, query).await {
        Ok(Some(event)) => EventLookup::Found(Box::new(event)),
        Ok(None) => EventLookup::NotFound,
        Err(error) => {
            tracing::warn!(run_id = %head.id, %error, "the event of a waiting run could not be looked up");
            tokio::time::sleep(limits::EVENT_LOOKUP_PAUSE).await;
            EventLookup::Failed
        }
    }
}

async fn find(inner: &EngineState, head: &RunHead, query: &EventQuery) -> Result<Option<ReceivedEvent>, EngineError> {
    let records = &*inner.parts.records;
    let scope = || Scope::Tenant(head.tenant.clone());
    // A few more than `EVENTS_PER_KEY_MAX` may be kept.
    let kept = EventBrief::select(scope())
        .with(external_events::event_name, query.name.as_str())
        .with(external_events::event_key, query.key.as_str())
        .filter(external_events::expires_at, Comparison::Above, inner.parts.clock.steady());
    let mut next = None;
    rows::pages(records, kept, |page| {
        let mut kept = rows::decodable::<EventBrief>(page);
        next = next.take().or_else(|| kept.find(|event| !query.received.contains(&event.event_id)));
        Ok(())
    })
    .await?;
    let Some(next) = next else { return Ok(None) };
    let select = EventRow::select(scope()).with(external_events::id, next.id);
    // It may have expired just now.
    let Some(row) = rows::find::<EventRow>(records, select).await? else { return Ok(None) };
    Ok(Some(ReceivedEvent {
        event_id: row.event_id,
        name: row.event_name,
        key: row.event_key,
        payload: row.payload.value()?,
        sent_by: row.sent_by,
        sent_at: row.created_at.to_string(),
    }))
}
