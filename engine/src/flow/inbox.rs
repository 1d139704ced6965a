//! An actor's inbox: notifications without an address to send them to.
//!
//! An inbox message is not sent: it is committed together with what it is about, and read here.

use super::Flow;
use super::view::{InboxMessage, Listing, title};
use crate::access::Permit;
use crate::error::EngineError;
use crate::port::ReadError;
use chimera_core::flow::tables::{INBOX_MESSAGES, RUNS, runs};
use chimera_core::limits::PAGE_BYTES_MAX;
use chimera_core::record::{Cursor, Direction, Json, Row, Scope, Select};
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

impl Flow {
    /// A page of the caller's own inbox, newest first.
    pub async fn inbox(
        &self,
        permit: &Permit,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Listing<InboxMessage>, EngineError> {
        let select =
            Select::from(&INBOX_MESSAGES, Scope::Tenant(permit.tenant().to_owned())).with("actor", permit.actor());
        let mut select = select.by(&[], Direction::Descending).take(limit);
        if let Some(cursor) = cursor {
            select = select.continue_at(cursor).map_err(ReadError::from)?;
        }
        let page = self.inner.parts.records.read(select.clone()).await?;
        let mut items = Vec::with_capacity(page.rows.len());
        let (mut bytes, mut next, mut last) = (0_usize, page.next, None);
        for row in &page.rows {
            let message = self.message(permit, row).await?;
            // What a message shows is larger than its row: the end of a run is read from the run.
            let shown = message.data.as_ref().map_or(0, |data| data.as_str().len());
            if let Some(last) = last
                && bytes.saturating_add(shown) > PAGE_BYTES_MAX
            {
                next = Some(Cursor::after(&select, last));
                break;
            }
            bytes = bytes.saturating_add(shown);
            items.push(message);
            last = Some(row);
        }
        Ok(Listing { items, next_cursor: next.as_ref().map(Cursor::encode), bytes })
    }

    async fn message(&self, permit: &Permit, row: &Row) -> Result<InboxMessage, EngineError> {
        let event_type = row.text("event_type");
        let stored = row.get("data").as_json();
        let unread: &[&str] = match stored {
            Some(_) => &[runs::inputs, runs::plan, runs::result],
            None => &[runs::inputs, runs::plan],
        };
        let select = Select::from(&RUNS, Scope::Tenant(permit.tenant().to_owned())).with(runs::id, row.uuid("run_id"));
        let run = self.inner.parts.records.read(select.without(unread).take(1)).await?.rows;
        let data = match (stored, run.first()) {
            (Some(data), _) => Some(data.clone()),
            (None, Some(run)) => Some(end_of(run, event_type)?),
            (None, None) => None,
        };
        Ok(InboxMessage {
            message_id: row.uuid("id"),
            r#type: event_type.to_owned(),
            at: row.get("created_at").as_time(),
            run_id: row.uuid("run_id"),
            title: run.first().map(title),
            data,
        })
    }
}

/// The payload for the end of a run.
fn end_of(run: &Row, event_type: &str) -> Result<Json, EngineError> {
    let ended = EndedRun {
        run_id: run.uuid("id"),
        status: event_type.strip_prefix("run."),
        workflow_id: run.get("workflow_id").as_text(),
        actor: run.text("actor"),
        result: run.get("result").as_json(),
        error: run.get("error_data").as_json(),
        trace_id: run.text("trace_id"),
    };
    Ok(Json::encode(&ended)?)
}
