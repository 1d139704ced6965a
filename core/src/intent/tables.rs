//! The tables of the intent room: signed intents and the keys that sign them.

use crate::record::{Column, Kind, Table};

/// Keys that sign intents.
pub static INTENT_KEYS: Table = Table {
    name: "intent_keys",
    columns: &[
        Column::new("kid", Kind::Text),
        Column::new("tenant_id", Kind::Text).nullable(),
        Column::new("public_jwk", Kind::Json),
        Column::new("secret_ref", Kind::Text).nullable(),
        Column::new("sealed_key", Kind::Bytes).nullable(),
        Column::new("not_before", Kind::Time).default(),
        Column::new("expires_at", Kind::Time).nullable(),
        Column::new("revoked_at", Kind::Time).nullable(),
        Column::new("created_at", Kind::Time).default(),
    ],
    key: &["kid"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 200,
};

/// Every intent, accepted or rejected.
pub static INTENT_LOG: Table = Table {
    name: "intent_log",
    columns: &[
        Column::new("id", Kind::Uuid),
        Column::new("tenant_id", Kind::Text).nullable(),
        Column::new("actor", Kind::Text).nullable(),
        Column::new("intent_type", Kind::Text).nullable(),
        Column::new("result", Kind::Text),
        Column::new("trace_id", Kind::Text).nullable(),
        Column::new("error_code", Kind::Text).nullable(),
        Column::new("policy_id", Kind::Text).nullable(),
        Column::new("envelope_digest", Kind::Bytes),
        Column::new("kid", Kind::Text).nullable(),
        Column::new("idempotency_key", Kind::Text).nullable(),
        Column::new("run_id", Kind::Uuid).nullable(),
        Column::new("latency_ms", Kind::Int32).nullable(),
        Column::new("received_at", Kind::Time).default(),
    ],
    key: &["id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 201,
};

/// When an envelope was first seen.
pub static INTENT_SIGHTINGS: Table = Table {
    name: "intent_sightings",
    columns: &[
        Column::new("envelope_digest", Kind::Bytes),
        Column::new("first_seen_at", Kind::Time).default(),
        Column::new("expires_at", Kind::Time),
    ],
    key: &["envelope_digest"],
    uniques: &[],
    tenant: None,
    rank: 202,
};

/// Documents of the knowledge base.
pub static KB_DOCUMENTS: Table = Table {
    name: "kb_documents",
    columns: &[
        Column::new("tenant_id", Kind::Text),
        Column::new("id", Kind::Text),
        Column::new("title", Kind::Text),
        Column::new("source_uri", Kind::Text).nullable(),
        Column::new("sha256", Kind::Bytes),
        Column::new("size_bytes", Kind::Int),
        Column::new("media_type", Kind::Text),
        Column::new("metadata", Kind::Json).nullable(),
        Column::new("indexed_at", Kind::Time).nullable(),
        Column::new("created_at", Kind::Time).default(),
        Column::new("updated_at", Kind::Time).default(),
        Column::new("state_version", Kind::Int).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 204,
};

/// The room's tables and views.
pub static ALL: &[&Table] = &[&INTENT_KEYS, &INTENT_LOG, &INTENT_SIGHTINGS, &KB_DOCUMENTS];
