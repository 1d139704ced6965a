//! The tables of the intent room: signed intents and the keys that sign them.

use crate::record::{Column, ColumnType, Table};

/// Keys that sign intents.
pub static INTENT_KEYS: Table = Table {
    name: "intent_keys",
    columns: &[
        Column::new("kid", ColumnType::Text),
        Column::new("tenant_id", ColumnType::Text).nullable(),
        Column::new("public_jwk", ColumnType::Json),
        Column::new("secret_ref", ColumnType::Text).nullable(),
        Column::new("sealed_key", ColumnType::Bytes).nullable(),
        Column::new("not_before", ColumnType::Time).default(),
        Column::new("expires_at", ColumnType::Time).nullable(),
        Column::new("revoked_at", ColumnType::Time).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
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
        Column::new("id", ColumnType::Uuid),
        Column::new("tenant_id", ColumnType::Text).nullable(),
        Column::new("actor", ColumnType::Text).nullable(),
        Column::new("intent_type", ColumnType::Text).nullable(),
        Column::new("result", ColumnType::Text),
        Column::new("trace_id", ColumnType::Text).nullable(),
        Column::new("error_code", ColumnType::Text).nullable(),
        Column::new("policy_id", ColumnType::Text).nullable(),
        Column::new("envelope_digest", ColumnType::Bytes),
        Column::new("kid", ColumnType::Text).nullable(),
        Column::new("idempotency_key", ColumnType::Text).nullable(),
        Column::new("run_id", ColumnType::Uuid).nullable(),
        Column::new("latency_ms", ColumnType::Int32).nullable(),
        Column::new("received_at", ColumnType::Time).default(),
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
        Column::new("envelope_digest", ColumnType::Bytes),
        Column::new("first_seen_at", ColumnType::Time).default(),
        Column::new("expires_at", ColumnType::Time),
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
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("title", ColumnType::Text),
        Column::new("source_uri", ColumnType::Text).nullable(),
        Column::new("sha256", ColumnType::Bytes),
        Column::new("size_bytes", ColumnType::Int),
        Column::new("media_type", ColumnType::Text),
        Column::new("metadata", ColumnType::Json).nullable(),
        Column::new("indexed_at", ColumnType::Time).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 204,
};

/// The room's tables and views.
pub static ALL: &[&Table] = &[&INTENT_KEYS, &INTENT_LOG, &INTENT_SIGHTINGS, &KB_DOCUMENTS];
