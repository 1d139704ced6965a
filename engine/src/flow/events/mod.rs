//! Events from outside: publishing, listing, and what runs read of them.
//!
//! Publishing is one transaction: the event, a signal to every run that waits for it, and the ledger entry. See
//! `chimera_core::flow::event` for how publishers and waits don't miss each other.

mod list;
pub(super) mod lookup;
mod publish;
pub(super) mod sweep;

pub use list::{EventFilter, list_events};
pub use publish::{PublishEvent, PublishedEvent, publish_event};

use chimera_core::flow::tables::EventBrief;
use chimera_core::time::Timestamp;

/// An event that was published, without its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptEvent {
    pub event_id: String,
    pub name: String,
    pub key: String,
    /// In hex.
    pub payload_digest: String,
    pub sent_by: String,
    pub sent_at: Timestamp,
    pub expires_at: Timestamp,
    /// The number of runs that waited for it when it was published.
    pub runs: u32,
}

impl From<EventBrief> for KeptEvent {
    fn from(row: EventBrief) -> Self {
        Self {
            event_id: row.event_id,
            name: row.event_name,
            key: row.event_key,
            payload_digest: row.payload_digest.to_string(),
            sent_by: row.sent_by,
            sent_at: row.created_at,
            expires_at: row.expires_at,
            runs: row.runs,
        }
    }
}
