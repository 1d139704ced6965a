//! The tables of events: what was published, who waits, and the channels between them.

use crate::json::Digest32;
use crate::ledger::ActorType;
use crate::record::{Json, part, table};
use crate::time::Timestamp;
use uuid::Uuid;

table! {
    /// Events that were published, until they expire.
    EXTERNAL_EVENTS = external_events -> EventRow {
        id: Uuid,
        tenant_id: String,
        event_name: String,
        event_key: String,
        event_id: String,
        payload: Json,
        payload_digest: Digest32,
        sent_by: String,
        sent_by_kind: ActorType,
        runs: u32,
        created_at: Timestamp [default],
        expires_at: Timestamp,
    }
    key: [id],
    unique: [tenant_id, event_id],
    tenant: tenant_id,
    rank: 317,
}

part! {
    /// An event without its payload.
    EventBrief of EventRow in external_events {
        id: Uuid,
        event_name: String,
        event_key: String,
        event_id: String,
        payload_digest: Digest32,
        sent_by: String,
        sent_by_kind: ActorType,
        runs: u32,
        created_at: Timestamp,
        expires_at: Timestamp,
    }
}

table! {
    /// Steps that wait for an event.
    EVENT_WAITS = event_waits -> EventWaitRow {
        step_id: Uuid,
        run_id: Uuid,
        tenant_id: String,
        event_name: String,
        event_key: String,
        created_at: Timestamp [default],
    }
    key: [step_id],
    tenant: tenant_id,
    rank: 318,
}

table! {
    /// The last wait that began on each channel. A publisher compares it, so that it misses no wait.
    EVENT_CHANNELS = event_channels -> EventChannelRow {
        tenant_id: String,
        event_name: String,
        event_key: String,
        last_wait: Uuid,
        updated_at: Timestamp [default],
    }
    key: [tenant_id, event_name, event_key],
    tenant: tenant_id,
    rank: 319,
}
