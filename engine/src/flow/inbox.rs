//! An actor's inbox: notifications without an address to send them to.
//!
//! An inbox message is not sent: it is committed together with what it is about, and read here.

use super::Flow;
use super::show::time;
use crate::access::Permit;
use crate::error::EngineError;
use crate::port::ReadError;
use chimera_core::flow::tables::{INBOX_MESSAGES, RUNS};
use chimera_core::record::{Cursor, Direction, Json, Row, Scope, Select};
use serde_json::{Value, json};
use uuid::Uuid;

impl Flow {
    /// A page of the caller's own inbox, newest first.
    pub async fn inbox(&self, permit: &Permit, limit: usize, cursor: Option<&str>) -> Result<Value, EngineError> {
        let select =
            Select::from(&INBOX_MESSAGES, Scope::Tenant(permit.tenant().to_owned())).with("actor", permit.actor());
        let mut select = select.by(&[], Direction::Descending).take(limit);
        if let Some(cursor) = cursor {
            select = select.continue_at(cursor).map_err(ReadError::from)?;
        }
        let page = self.inner.parts.records.read(select).await?;
        let mut items = Vec::with_capacity(page.rows.len());
        for row in &page.rows {
            items.push(self.message(permit, row).await?);
        }
        Ok(json!({"items": items, "next_cursor": page.next.as_ref().map(Cursor::encode)}))
    }

    async fn message(&self, permit: &Permit, row: &Row) -> Result<Value, EngineError> {
        let event_type = row.text("event_type");
        let data = match row.get("data").as_json() {
            Some(data) => data.to_value(),
            None => self.end_of(permit, row.uuid("run_id"), event_type).await?,
        };
        Ok(json!({
            "message_id": row.uuid("id"),
            "type": event_type,
            "at": time(row, "created_at"),
            "run_id": row.uuid("run_id"),
            "data": data,
        }))
    }

    /// The payload for a run that has ended.
    async fn end_of(&self, permit: &Permit, run: Uuid, event_type: &str) -> Result<Value, EngineError> {
        let select = Select::from(&RUNS, Scope::Tenant(permit.tenant().to_owned())).with("id", run).take(1);
        let page = self.inner.parts.records.read(select).await?;
        let Some(row) = page.rows.first() else { return Ok(Value::Null) };
        let document = |column| row.get(column).as_json().map(Json::to_value);
        Ok(json!({
            "run_id": run,
            // The status at that time: the run may have been undone since.
            "status": event_type.strip_prefix("run."),
            "workflow_id": row.get("workflow_id").as_text(),
            "actor": row.text("actor"),
            "result": document("result"),
            "error": document("error_data"),
            "trace_id": row.text("trace_id"),
        }))
    }
}
