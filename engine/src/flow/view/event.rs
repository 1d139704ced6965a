//! The events of a run: its ledger entries.

use super::text;
use chimera_core::record::{Json, Row};
use chimera_core::time::Timestamp;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventView {
    /// Its number within the run.
    pub run_seq: i64,
    pub event_type: String,
    pub subject_id: String,
    pub actor_id: Option<String>,
    pub timestamp: Option<Timestamp>,
    /// Its members depend on `event_type`.
    pub data: Option<Json>,
    pub lane: i64,
    pub seq: i64,
}

impl EventView {
    pub(in crate::flow) fn of(row: &Row) -> Self {
        Self {
            run_seq: row.int("run_seq"),
            event_type: row.text("event_type").to_owned(),
            subject_id: row.text("subject_id").to_owned(),
            actor_id: text(row, "actor_id"),
            timestamp: row.get("timestamp").as_time(),
            data: super::json(row, "data_json")
                .or_else(|| row.get("data_json").as_text().map(|text| Json::from_stored(text.to_owned()))),
            lane: row.int("lane"),
            seq: row.int("seq"),
        }
    }
}
