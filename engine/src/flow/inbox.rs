//! An actor's inbox: notifications without an address to send them to.
//!
//! An inbox message is not sent: it is committed together with what it is about, and read here.

use super::Flow;
use super::view::{InboxMessage, ListPage, title};
use crate::access::Permit;
use crate::error::EngineError;
use crate::port::ReadError;
use crate::rows;
use chimera_core::flow::tables::{InboxMessageRow, RunEnd, RunRequest, inbox_messages, runs};
use chimera_core::limits::PAGE_BYTES_MAX;
use chimera_core::record::{Cursor, Direction, Json, Scope, StoredRow};
use serde::Serialize;
use uuid::Uuid;

/// The payload for a run that has ended.
#[derive(Serialize)]
struct EndedRun<'a> {
    run_id: Uuid,
    /// The status at that time: the run may have been undone since.
    status: Option<&'a str>,
    workflow_id: Option<&'a str>,
    actor: &'a str,
    result: Option<&'a Json>,
    error: Option<&'a Json>,
    trace_id: &'a str,
}

/// A page of the caller's own inbox, newest first.
pub async fn inbox(
    flow: &Flow,
    permit: &Permit,
    limit: usize,
    cursor: Option<&str>,
) -> Result<ListPage<InboxMessage>, EngineError> {
    let select =
        InboxMessageRow::select(Scope::Tenant(permit.tenant().to_owned())).with(inbox_messages::actor, permit.actor());
    let mut select = select.by(&[], Direction::Descending).take(limit);
    if let Some(cursor) = cursor {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let page = flow.inner.parts.records.read(select.clone()).await?;
    let mut items = Vec::with_capacity(page.rows.len());
    let (mut bytes, mut next, mut last) = (0_usize, page.next, None);
    for row in page.rows {
        let here = Cursor::after(&select, &row);
        let message = message(flow, permit, InboxMessageRow::decode(row)?).await?;
        // What a message shows is larger than its row: the end of a run is read from the run.
        let shown = message.data.as_ref().map_or(0, |data| data.as_str().len());
        if let Some(last) = last
            && bytes.saturating_add(shown) > PAGE_BYTES_MAX
        {
            next = Some(last);
            break;
        }
        bytes = bytes.saturating_add(shown);
        items.push(message);
        last = Some(here);
    }
    Ok(ListPage { items, next_cursor: next.as_ref().map(Cursor::encode), bytes })
}

async fn message(flow: &Flow, permit: &Permit, row: InboxMessageRow) -> Result<InboxMessage, EngineError> {
    let InboxMessageRow { id, run_id, event_type, data, created_at, .. } = row;
    let data = match data {
        Some(data) => Some(data),
        None => end_of(flow, permit, run_id, &event_type).await?,
    };
    let select = RunRequest::select(Scope::Tenant(permit.tenant().to_owned())).with(runs::id, run_id);
    let request: Option<RunRequest> = rows::find(&*flow.inner.parts.records, select).await?;
    let title = request.map(|run| title(&run.request_payload, run.workflow_id.as_deref()));
    let run_id = (!run_id.is_nil()).then_some(run_id);
    Ok(InboxMessage { message_id: id, r#type: event_type, at: Some(created_at), run_id, title, data })
}

async fn end_of(flow: &Flow, permit: &Permit, run: Uuid, event_type: &str) -> Result<Option<Json>, EngineError> {
    let select = RunEnd::select(Scope::Tenant(permit.tenant().to_owned())).with(runs::id, run);
    let end: Option<RunEnd> = rows::find(&*flow.inner.parts.records, select).await?;
    let Some(end) = &end else { return Ok(None) };
    let ended = EndedRun {
        run_id: run,
        status: event_type.strip_prefix("run."),
        workflow_id: end.workflow_id.as_deref(),
        actor: &end.actor,
        result: end.result.as_ref(),
        error: end.error_data.as_ref(),
        trace_id: &end.trace_id,
    };
    Ok(Some(Json::encode(&ended)?))
}
