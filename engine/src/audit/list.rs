//! Lists ledger entries, page by page.

use crate::access::{AUDIT_READ, Permit};
use crate::error::EngineError;
use crate::flow::view::Page;
use crate::port::{ReadError, Records};
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::record::{Comparison, Cursor, DamagedRows, Json, Row, Scope, Select};
use chimera_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

#[derive(Clone, Debug, Default)]
pub struct EntryFilter {
    pub subject_id: Option<String>,
    pub event_type: Option<String>,
    pub actor: Option<String>,
    pub run_id: Option<Uuid>,
    /// Inclusive.
    pub since: Option<Timestamp>,
    pub limit: usize,
    /// The cursor of the previous page.
    pub after: Option<String>,
}

/// A ledger entry without its salt, which would let others guess erased content.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntryView {
    pub lane: i64,
    pub seq: i64,
    pub id: String,
    pub tenant_id: String,
    pub subject_type: String,
    pub subject_id: String,
    pub event_type: String,
    pub actor_type: String,
    pub actor_id: Option<String>,
    pub timestamp: Option<Timestamp>,
    /// `None` if it was erased. Its members depend on `event_type`.
    pub data_json: Option<Json>,
    pub run_id: Option<Uuid>,
    pub run_seq: Option<i64>,
    pub trace_id: Option<String>,
    pub content_digest: String,
    pub prev_hash: String,
    pub hash: String,
}

/// A page of a tenant's entries, in lane order.
pub async fn list(records: &dyn Records, permit: &Permit, filter: EntryFilter) -> Result<Page<EntryView>, EngineError> {
    if !permit.may(AUDIT_READ) {
        return Err(EngineError::missing_scope(AUDIT_READ));
    }
    let mut select = Select::from(&AUDIT_LOG_ENTRIES, Scope::Tenant(permit.tenant().to_owned())).take(filter.limit);
    for (column, value) in
        [("subject_id", filter.subject_id), ("event_type", filter.event_type), ("actor_id", filter.actor)]
    {
        if let Some(value) = value {
            select = select.with(column, value);
        }
    }
    if let Some(run) = filter.run_id {
        select = select.with("run_id", run);
    }
    if let Some(since) = filter.since {
        select = select.filter("timestamp", Comparison::AtLeast, since);
    }
    if let Some(cursor) = &filter.after {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let page = records.read(select).await?;
    Ok(Page {
        items: page.rows.iter().map(EntryView::of).collect::<Result<_, _>>()?,
        next_cursor: page.next.as_ref().map(Cursor::encode),
        bytes: page.rows.iter().map(Row::bytes).sum(),
    })
}

impl EntryView {
    pub fn of(row: &Row) -> Result<Self, DamagedRows> {
        let text = |column: &str| row.get(column).as_text().map(str::to_owned);
        let digest = |column: &str| {
            let damaged = || DamagedRows { what: format!("a ledger entry has no {column}") };
            row.get(column).as_bytes().map(hex::encode).ok_or_else(damaged)
        };
        let data = row.get("data_json");
        Ok(Self {
            lane: row.int("lane"),
            seq: row.int("seq"),
            id: row.text("id").to_owned(),
            tenant_id: row.text("tenant_id").to_owned(),
            subject_type: row.text("subject_type").to_owned(),
            subject_id: row.text("subject_id").to_owned(),
            event_type: row.text("event_type").to_owned(),
            actor_type: row.text("actor_type").to_owned(),
            actor_id: text("actor_id"),
            timestamp: row.get("timestamp").as_time(),
            data_json: data
                .as_json()
                .cloned()
                .or_else(|| data.as_text().map(|text| Json::from_stored(text.to_owned()))),
            run_id: row.get("run_id").as_uuid(),
            run_seq: row.get("run_seq").as_int(),
            trace_id: text("trace_id"),
            content_digest: digest("content_digest")?,
            prev_hash: digest("prev_hash")?,
            hash: digest("hash")?,
        })
    }
}
