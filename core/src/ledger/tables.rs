//! The ledger's tables.

use crate::record::{Column, Kind, Table};

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

/// Chain head, node lease and fence of each lane.
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

/// The room's tables.
pub static ALL: &[&Table] = &[&AUDIT_LOG_ENTRIES, &LEDGER_LANES];
