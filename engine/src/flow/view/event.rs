//! The events of a run: its ledger entries.

use chimera_core::ledger::tables::RunEntry;
use chimera_core::record::Json;
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
    pub(in crate::flow) fn of(entry: RunEntry) -> Self {
        Self {
            run_seq: entry.run_seq.unwrap_or_default(),
            event_type: entry.event_type,
            subject_id: entry.subject_id,
            actor_id: entry.actor_id,
            timestamp: Some(entry.timestamp),
            data: Some(entry.data_json),
            lane: entry.lane,
            seq: entry.seq,
        }
    }
}
