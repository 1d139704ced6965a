//! The ledger's tables: entries, lanes, checkpoints, idempotency records, scopes.
//!
//! `audit_logs` has no tenant column: read `scoped_audit_logs`.

use crate::record::{Column, ColumnType, Table, scoped};

scoped! {
    /// Governance decisions and critical events, append-only.
    AUDIT_LOGS = "audit_logs",
    SCOPED_AUDIT_LOGS = "scoped_audit_logs",
    rank: 911,
    key: &["audit_log_id"],
    uniques: &[],
    columns: [
        Column::new("audit_log_id", ColumnType::Uuid),
        Column::new("event_type", ColumnType::Text).chars(50),
        Column::new("agent_id", ColumnType::Uuid).nullable(),
        Column::new("action_type", ColumnType::Text).nullable().chars(50),
        Column::new("action_data", ColumnType::Json).nullable(),
        Column::new("policy_references", ColumnType::Texts).nullable(),
        Column::new("decision_outcome", ColumnType::Text).chars(20),
        Column::new("decision_rationale", ColumnType::Text),
        Column::new("event_timestamp", ColumnType::Time).default(),
        Column::new("metadata", ColumnType::Json).nullable(),
    ],
}

/// Every entry, append-only.
pub static AUDIT_LOG_ENTRIES: Table = Table {
    name: "audit_log_entries",
    columns: &[
        Column::new("lane", ColumnType::Int),
        Column::new("seq", ColumnType::Int),
        Column::new("id", ColumnType::Text),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("subject_type", ColumnType::Text),
        Column::new("subject_id", ColumnType::Text),
        Column::new("event_type", ColumnType::Text),
        Column::new("actor_type", ColumnType::Text),
        Column::new("actor_id", ColumnType::Text).nullable(),
        Column::new("timestamp", ColumnType::Time),
        Column::new("data_json", ColumnType::ExactJson),
        Column::new("run_id", ColumnType::Uuid).nullable(),
        Column::new("run_seq", ColumnType::Int).nullable(),
        Column::new("trace_id", ColumnType::Text).nullable(),
        Column::new("salt", ColumnType::Bytes),
        Column::new("content_digest", ColumnType::Bytes),
        Column::new("prev_hash", ColumnType::Bytes),
        Column::new("hash", ColumnType::Bytes),
    ],
    key: &["lane", "seq"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 900,
};

/// Chain head, lease and fencing epoch of each lane.
pub static LEDGER_LANES: Table = Table {
    name: "ledger_lanes",
    columns: &[
        Column::new("lane", ColumnType::Int),
        Column::new("epoch", ColumnType::Int),
        Column::new("head_seq", ColumnType::Int),
        Column::new("head_hash", ColumnType::Bytes),
        Column::new("last_batch_id", ColumnType::Uuid).nullable(),
        Column::new("lease_until", ColumnType::Time),
        Column::new("node", ColumnType::Text).nullable(),
    ],
    key: &["lane"],
    uniques: &[],
    tenant: None,
    rank: 910,
};

/// Signed checkpoints, append-only.
pub static LEDGER_CHECKPOINTS: Table = Table {
    name: "ledger_checkpoints",
    columns: &[
        Column::new("seq", ColumnType::Int),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("body", ColumnType::ExactJson),
        Column::new("signature", ColumnType::Bytes),
        Column::new("key_id", ColumnType::Text),
        Column::new("digest", ColumnType::Bytes),
    ],
    key: &["seq"],
    uniques: &[],
    tenant: None,
    rank: 914,
};

/// Roots of complete Merkle subtrees.
pub static LEDGER_NODES: Table = Table {
    name: "ledger_nodes",
    columns: &[
        Column::new("lane", ColumnType::Int),
        Column::new("level", ColumnType::Int32),
        Column::new("idx", ColumnType::Int),
        Column::new("hash", ColumnType::Bytes),
    ],
    key: &["lane", "level", "idx"],
    uniques: &[],
    tenant: None,
    rank: 915,
};

/// The position of each feed consumer.
pub static FEED_CURSORS: Table = Table {
    name: "feed_cursors",
    columns: &[
        Column::new("consumer", ColumnType::Text),
        Column::new("lane", ColumnType::Int),
        Column::new("seq", ColumnType::Int),
        Column::new("updated_at", ColumnType::Time).default(),
    ],
    key: &["consumer", "lane"],
    uniques: &[],
    tenant: None,
    rank: 916,
};

/// Idempotency records: what a key was used for, and the stored response.
pub static IDEMPOTENCY_RECORDS: Table = Table {
    name: "idempotency_records",
    columns: &[
        Column::new("owner", ColumnType::Text),
        Column::new("key", ColumnType::Text),
        Column::new("fingerprint", ColumnType::Bytes),
        Column::new("state", ColumnType::Text),
        Column::new("answer", ColumnType::Json).nullable(),
        Column::new("resource_id", ColumnType::Text).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("expires_at", ColumnType::Time),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["owner", "key"],
    uniques: &[],
    tenant: None,
    rank: 917,
};

/// State of the store as a whole: one row with id 1.
pub static STORE_STATE: Table = Table {
    name: "store_state",
    columns: &[
        Column::new("id", ColumnType::Int),
        Column::new("generation", ColumnType::Int).default(),
        Column::new("held_reason", ColumnType::Text).nullable(),
        Column::new("held_at", ColumnType::Time).nullable(),
        Column::new("held_epoch", ColumnType::Int).default(),
    ],
    key: &["id"],
    uniques: &[],
    tenant: None,
    rank: 919,
};

/// The tenant of rows whose table has no tenant column.
pub static RECORD_SCOPES: Table = Table {
    name: "record_scopes",
    columns: &[
        Column::new("record_kind", ColumnType::Text),
        Column::new("record_id", ColumnType::Uuid),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("campaign_id", ColumnType::Text).nullable(),
        Column::new("task_id", ColumnType::Text).nullable(),
        Column::new("trace_id", ColumnType::Text).nullable(),
    ],
    key: &["record_kind", "record_id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 918,
};

/// The room's tables and views.
pub static ALL: &[&Table] = &[
    &AUDIT_LOGS,
    &SCOPED_AUDIT_LOGS,
    &AUDIT_LOG_ENTRIES,
    &LEDGER_LANES,
    &LEDGER_CHECKPOINTS,
    &LEDGER_NODES,
    &FEED_CURSORS,
    &IDEMPOTENCY_RECORDS,
    &RECORD_SCOPES,
    &STORE_STATE,
];
