//! An entry with its place, as a row of the ledger.

use super::chain::Link;
use super::entry::SealedEntry;
use super::tables::AUDIT_LOG_ENTRIES;
use crate::record::{Json, Row, Value};

impl SealedEntry {
    /// The row at `link` in `lane`, its cells in the order of the table's columns.
    #[must_use]
    pub fn row(&self, lane: i64, link: &Link) -> Row {
        let entry = &self.entry;
        let cells = vec![
            Value::Int(lane),
            Value::Int(link.seq),
            entry.id.as_str().into(),
            entry.tenant_id.as_str().into(),
            entry.subject_type.as_str().into(),
            entry.subject_id.as_str().into(),
            entry.event_type.as_str().into(),
            entry.actor_type.as_str().into(),
            entry.actor_id.clone().into(),
            entry.timestamp.into(),
            Value::Json(Json::stored(self.data_json.clone())),
            entry.run_id.into(),
            entry.run_seq.into(),
            entry.trace_id.clone().into(),
            self.salt.to_vec().into(),
            self.content_digest.0.to_vec().into(),
            link.prev_hash.0.to_vec().into(),
            link.hash.0.to_vec().into(),
        ];
        Row { table: &AUDIT_LOG_ENTRIES, cells }
    }
}
