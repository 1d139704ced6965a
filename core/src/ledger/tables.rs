//! The ledger's tables: entries, lanes, checkpoints, idempotency records, scopes.
//!
//! `audit_logs` has no tenant column: read `scoped_audit_logs`.

use crate::record::{Column, Kind, Table, scoped};

scoped! {
    /// Governance decisions and critical events, append-only.
    AUDIT_LOGS = "audit_logs",
    SCOPED_AUDIT_LOGS = "scoped_audit_logs",
    rank: 911,
    key: &["audit_log_id"],
    uniques: &[],
    columns: [
        Column::new("audit_log_id", Kind::Uuid),
        Column::new("event_type", Kind::Text).chars(50),
        Column::new("agent_id", Kind::Uuid).nullable(),
        Column::new("action_type", Kind::Text).nullable().chars(50),
        Column::new("action_data", Kind::Json).nullable(),
        Column::new("policy_references", Kind::Texts).nullable(),
        Column::new("decision_outcome", Kind::Text).chars(20),
        Column::new("decision_rationale", Kind::Text),
        Column::new("event_timestamp", Kind::Time).default(),
        Column::new("metadata", Kind::Json).nullable(),
    ],
}

/// Every entry, append-only.
pub static AUDIT_LOG_ENTRIES: Table = Table {
    name: "audit_log_entries",
    columns: &[
        Column::new("lane", Kind::Int),
        Column::new("seq", Kind::Int),
        Column::new("id", Kind::Text),
        Column::new("tenant_id", Kind::Text),
        Column::new("subject_type", Kind::Text),
        Column::new("subject_id", Kind::Text),
        Column::new("event_type", Kind::Text),
        Column::new("actor_type", Kind::Text),
        Column::new("actor_id", Kind::Text).nullable(),
        Column::new("timestamp", Kind::Time),
        Column::new("data_json", Kind::ExactJson),
        Column::new("run_id", Kind::Uuid).nullable(),
        Column::new("run_seq", Kind::Int).nullable(),
        Column::new("trace_id", Kind::Text).nullable(),
        Column::new("salt", Kind::Bytes),
        Column::new("content_digest", Kind::Bytes),
        Column::new("prev_hash", Kind::Bytes),
        Column::new("hash", Kind::Bytes),
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
        Column::new("lane", Kind::Int),
        Column::new("epoch", Kind::Int),
        Column::new("head_seq", Kind::Int),
        Column::new("head_hash", Kind::Bytes),
        Column::new("last_batch_id", Kind::Uuid).nullable(),
        Column::new("lease_until", Kind::Time),
        Column::new("node", Kind::Text).nullable(),
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
        Column::new("seq", Kind::Int),
        Column::new("created_at", Kind::Time).default(),
        Column::new("body", Kind::ExactJson),
        Column::new("signature", Kind::Bytes),
        Column::new("key_id", Kind::Text),
        Column::new("digest", Kind::Bytes),
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
        Column::new("lane", Kind::Int),
        Column::new("level", Kind::Int32),
        Column::new("idx", Kind::Int),
        Column::new("hash", Kind::Bytes),
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
        Column::new("consumer", Kind::Text),
        Column::new("lane", Kind::Int),
        Column::new("seq", Kind::Int),
        Column::new("updated_at", Kind::Time).default(),
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
        Column::new("owner", Kind::Text),
        Column::new("key", Kind::Text),
        Column::new("fingerprint", Kind::Bytes),
        Column::new("state", Kind::Text),
        Column::new("answer", Kind::Json).nullable(),
        Column::new("resource_id", Kind::Text).nullable(),
        Column::new("created_at", Kind::Time).default(),
        Column::new("expires_at", Kind::Time),
        Column::new("state_version", Kind::Int).default(),
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
        Column::new("id", Kind::Int),
        Column::new("generation", Kind::Int).default(),
        Column::new("held_reason", Kind::Text).nullable(),
        Column::new("held_at", Kind::Time).nullable(),
        Column::new("held_epoch", Kind::Int).default(),
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
        Column::new("record_kind", Kind::Text),
        Column::new("record_id", Kind::Uuid),
        Column::new("tenant_id", Kind::Text),
        Column::new("campaign_id", Kind::Text).nullable(),
        Column::new("task_id", Kind::Text).nullable(),
        Column::new("trace_id", Kind::Text).nullable(),
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
