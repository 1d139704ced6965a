//! Lists ledger entries, page by page.

use crate::access::{AUDIT_READ, Permit};
use crate::error::EngineError;
use crate::port::{ReadError, Records};
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, audit_log_entries};
use chimera_core::record::{Comparison, Cursor, Row, Scope, Select, Value};
use chimera_core::time::Timestamp;
use serde_json::json;
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

/// A page of a tenant's entries, in lane order.
pub async fn list(
    records: &dyn Records,
    permit: &Permit,
    filter: EntryFilter,
) -> Result<serde_json::Value, EngineError> {
    if !permit.may(AUDIT_READ) {
        return Err(EngineError::missing_scope(AUDIT_READ));
    }
    let mut select = Select::from(&AUDIT_LOG_ENTRIES, Scope::Tenant(permit.tenant().to_owned())).take(filter.limit);
    for (column, value) in [
        (audit_log_entries::subject_id, filter.subject_id),
        (audit_log_entries::event_type, filter.event_type),
        (audit_log_entries::actor_id, filter.actor),
    ] {
        if let Some(value) = value {
            select = select.with(column, value);
        }
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
    let items: Vec<_> = page.rows.iter().map(document).collect();
    Ok(json!({"items": items, "next_cursor": page.next.as_ref().map(Cursor::encode)}))
}

/// An entry as JSON: every column except the salt, which would let others guess erased content.
#[must_use]
pub fn document(row: &Row) -> serde_json::Value {
    let columns = row.table.columns.iter().filter(|column| column.name != audit_log_entries::salt);
    let told = columns.map(|column| (column.name.to_owned(), value(row.get(column.name))));
    told.collect::<serde_json::Map<_, _>>().into()
}

fn value(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Int(number) => (*number).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Uuid(id) => id.to_string().into(),
        Value::Time(at) => at.to_string().into(),
        Value::Bytes(bytes) => hex::encode(bytes).into(),
        Value::Json(document) => document.to_value(),
        other => format!("{other:?}").into(),
    }
}
