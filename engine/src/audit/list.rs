//! Lists ledger entries, page by page.

use crate::access::{AUDIT_READ, Permit};
use crate::error::EngineError;
use crate::flow::view::ListPage;
use crate::port::{ReadError, Records};
use chimera_core::ledger::stored_names;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, EntryRow, audit_log_entries};
use chimera_core::record::{Comparison, Cursor, DamagedRows, Json, Row, Scope, Select, StoredRow};
use chimera_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

#[derive(Clone, Debug, Default)]
pub struct EntryFilter {
    pub subject_id: Option<String>,
    /// Entries with a former name of this type are found too.
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
    #[serde(flatten)]
    pub position: ChainPosition,
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
    #[serde(flatten)]
    pub run: EntryRun,
}

/// Where an entry is in the chain of its lane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainPosition {
    pub lane: i64,
    pub seq: i64,
    pub content_digest: String,
    pub prev_hash: String,
    pub hash: String,
}

/// The run that an entry belongs to, if any.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntryRun {
    pub run_id: Option<Uuid>,
    pub run_seq: Option<i64>,
    pub trace_id: Option<String>,
}

/// A page of a tenant's entries, in lane order.
pub async fn list(
    records: &dyn Records,
    permit: &Permit,
    filter: EntryFilter,
) -> Result<ListPage<EntryView>, EngineError> {
    if !permit.may(AUDIT_READ) {
        return Err(EngineError::missing_scope(AUDIT_READ));
    }
    let mut select = Select::from(&AUDIT_LOG_ENTRIES, Scope::Tenant(permit.tenant().to_owned())).take(filter.limit);
    for (column, value) in
        [(audit_log_entries::subject_id, filter.subject_id), (audit_log_entries::actor_id, filter.actor)]
    {
        if let Some(value) = value {
            select = select.with(column, value);
        }
    }
    if let Some(event) = &filter.event_type {
        select = select.one_of(audit_log_entries::event_type, stored_names(event));
    }
    if let Some(run) = filter.run_id {
        select = select.with(audit_log_entries::run_id, run);
    }
    if let Some(since) = filter.since {
        select = select.filter(audit_log_entries::timestamp, Comparison::AtLeast, since);
    }
    if let Some(cursor) = &filter.after {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let page = records.read(select).await?;
    Ok(ListPage {
        items: page.rows.iter().map(EntryView::of).collect::<Result<_, _>>()?,
        next_cursor: page.next.as_ref().map(Cursor::encode),
        bytes: page.rows.iter().map(Row::bytes).sum(),
    })
}

impl EntryView {
    pub fn of(row: &Row) -> Result<Self, DamagedRows> {
        let entry = EntryRow::decode(row.clone())?;
        Ok(Self {
            position: ChainPosition {
                lane: entry.lane,
                seq: entry.seq,
                content_digest: entry.content_digest.to_string(),
                prev_hash: entry.prev_hash.to_string(),
                hash: entry.hash.to_string(),
            },
            id: entry.id,
            tenant_id: entry.tenant_id,
            subject_type: entry.subject_type.as_str().to_owned(),
            subject_id: entry.subject_id,
            event_type: entry.event_type,
            actor_type: entry.actor_type.as_str().to_owned(),
            actor_id: entry.actor_id,
            timestamp: Some(entry.timestamp),
            data_json: Some(entry.data_json),
            run: EntryRun { run_id: entry.run_id, run_seq: entry.run_seq, trace_id: entry.trace_id },
        })
    }
}
