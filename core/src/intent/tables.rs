//! The tables of the intent room: signed intents. The keys that sign them are in the access room.

use crate::json::Digest32;
use crate::record::{Json, Table, table};
use crate::time::Timestamp;
use uuid::Uuid;

table! {
    /// Every intent, accepted or rejected.
    INTENT_LOG = intent_log -> IntentRow {
        id: Uuid,
        tenant_id: Option<String>,
        actor: Option<String>,
        intent_type: Option<String>,
        result: String,
        trace_id: Option<String>,
        error_code: Option<String>,
        policy_id: Option<String>,
        envelope_digest: Digest32,
        kid: Option<String>,
        idempotency_key: Option<String>,
        run_id: Option<Uuid>,
        latency_ms: Option<i32>,
        received_at: Timestamp [default],
        policy_input_digest: Option<Digest32>,
    }
    key: [id],
    tenant: tenant_id,
    rank: 201,
}

table! {
    /// When an envelope was first seen.
    INTENT_SIGHTINGS = intent_sightings -> IntentSightingRow {
        envelope_digest: Digest32,
        first_seen_at: Timestamp [default],
        expires_at: Timestamp,
    }
    key: [envelope_digest],
    rank: 202,
}

table! {
    /// Documents of the knowledge base.
    KB_DOCUMENTS = kb_documents -> DocumentRow {
        tenant_id: String,
        id: String,
        title: String,
        source_uri: Option<String>,
        sha256: Digest32,
        size_bytes: i64,
        media_type: String,
        metadata: Option<Json>,
        indexed_at: Option<Timestamp>,
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        state_version: i64 [default],
    }
    key: [tenant_id, id],
    tenant: tenant_id,
    rank: 204,
}

/// The room's tables and views.
pub static ALL: &[&Table] = &[&INTENT_LOG, &INTENT_SIGHTINGS, &KB_DOCUMENTS];
