//! The inbox of an actor: what it was to be told and nobody had an address for.
//!
//! A message of an inbox needs no sending: it is written together with what it is about, and read here.

use super::show::time;
use super::{Flow, FlowError};
use crate::access::Permit;
use crate::port::ReadError;
use chimera_core::flow::tables::INBOX_MESSAGES;
use chimera_core::record::{Cursor, Direction, Json, Row, Scope, Select};
use serde_json::{Value, json};

impl Flow {
    /// A page of the caller's own inbox, the newest message first.
    pub async fn inbox(&self, permit: &Permit, limit: usize, cursor: Option<&str>) -> Result<Value, FlowError> {
        let select =
            Select::from(&INBOX_MESSAGES, Scope::Tenant(permit.tenant().to_owned())).with("actor", permit.actor());
        let mut select = select.by(&[], Direction::Descending).take(limit);
        if let Some(cursor) = cursor {
            select = select.continue_at(cursor).map_err(ReadError::from)?;
        }
        let page = self.inner.parts.records.read(select).await?;
        let items: Vec<Value> = page.rows.iter().map(document).collect();
        Ok(json!({"items": items, "next_cursor": page.next.as_ref().map(Cursor::encode)}))
    }
}

fn document(row: &Row) -> Value {
    let payload = row.get("payload").as_json().map(Json::to_value).unwrap_or_default();
    json!({
        "message_id": row.uuid("id"),
        "type": payload["type"],
        "at": time(row, "created_at"),
        "run_id": row.uuid("run_id"),
        "data": payload["data"],
    })
}
