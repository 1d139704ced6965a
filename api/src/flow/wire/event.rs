//! Events of a run.

use crate::wire::{DateTime, JsonObject, wire};
use chimera_engine::flow::view;

wire! {
    /// An event of a run.
    pub EventDocument from view::EventView {
        /// Number within the run.
        run_seq: i64,
        /// Type of the event.
        event_type: String,
        /// What the event is about.
        subject_id: String,
        /// Actor who caused it.
        actor_id: Option<String>,
        /// When it was recorded.
        timestamp: Option<DateTime>,
        /// Details; the members depend on the type.
        data: Option<JsonObject>,
        /// Lane of the ledger entry.
        lane: i64,
        /// Number of the ledger entry within the lane.
        seq: i64,
    }
}
