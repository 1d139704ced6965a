//! Events that were published for runs that wait.

use super::pages;
use crate::wire::{DateTime, wire};
use chimera_engine::flow;

wire! {
    /// An event that was published. It has no payload here, because that is for the runs that wait.
    pub(crate) PublishedEventDocument from flow::KeptEvent {
        /// Event id, unique in the tenant while the event is kept.
        event_id: String,
        /// Name of the event.
        name: String,
        /// Key of the event.
        key: String,
        /// SHA-256 of the payload's canonical JSON.
        payload_digest: String,
        /// Actor who published it.
        sent_by: String,
        /// When it was published.
        sent_at: DateTime,
        /// Runs that begin to wait later do not get it.
        expires_at: DateTime,
        /// Number of runs that waited for it when it was published.
        runs: u32,
    }
}

pages! {
    /// A page of published events.
    pub(crate) PublishedEventPage of PublishedEventDocument from flow::KeptEvent: "Newest first.";
}
