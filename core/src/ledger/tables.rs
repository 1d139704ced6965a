//! The ledger's tables: entries, lanes, checkpoints, idempotency records, scopes.
//!
//! `audit_logs` has no tenant column: read `scoped_audit_logs`.

use super::decision::{EventType, Outcome};
use super::idempotency::RecordWord;
use super::{ActorType, SubjectType};
use crate::json::Digest32;
use crate::record::{Json, Table, part, scoped_table, table};
use crate::time::Timestamp;
use uuid::Uuid;

scoped_table! {
    /// Governance decisions and critical events, append-only.
    AUDIT_LOGS = audit_logs -> DecisionRow,
    SCOPED_AUDIT_LOGS = scoped_audit_logs -> ScopedDecisionRow {
        audit_log_id: Uuid,
        event_type: EventType [chars(50)],
        agent_id: Option<Uuid>,
        action_type: Option<String> [chars(50)],
        action_data: Option<Json>,
        policy_references: Option<Vec<String>>,
        decision_outcome: Outcome [chars(20)],
        decision_rationale: String,
        event_timestamp: Timestamp [default],
        metadata: Option<Json>,
    }
    key: [audit_log_id],
    rank: 911,
}

table! {
    /// Every entry, append-only.
    AUDIT_LOG_ENTRIES = audit_log_entries -> EntryRow {
        lane: i64,
        seq: i64,
        id: String,
        tenant_id: String,
        subject_type: SubjectType,
        subject_id: String,
        event_type: String,
        actor_type: ActorType,
        actor_id: Option<String>,
        timestamp: Timestamp,
        data_json: Json [exact],
        run_id: Option<Uuid>,
        run_seq: Option<i64>,
        trace_id: Option<String>,
        salt: [u8; 16],
        content_digest: Digest32,
        prev_hash: Digest32,
        hash: Digest32,
    }
    key: [lane, seq],
    tenant: tenant_id,
    rank: 900,
}

part! {
    /// What happened, to what and by whom, without the data.
    EntryHead of EntryRow in audit_log_entries {
        lane: i64,
        seq: i64,
        subject_type: SubjectType,
        subject_id: String,
        event_type: String,
        actor_type: ActorType,
        actor_id: Option<String>,
        timestamp: Timestamp,
    }
}

part! {
    /// An entry of a run, without what proves it.
    RunEntry of EntryRow in audit_log_entries {
        lane: i64,
        seq: i64,
        subject_id: String,
        event_type: String,
        actor_id: Option<String>,
        timestamp: Timestamp,
        data_json: Json,
        run_seq: Option<i64>,
    }
}

part! {
    /// The position of an entry.
    EntryPlace of EntryRow in audit_log_entries {
        lane: i64,
        seq: i64,
        id: String,
    }
}

part! {
    /// An entry's link in the chain.
    LinkRow of EntryRow in audit_log_entries {
        lane: i64,
        seq: i64,
        content_digest: Digest32,
        prev_hash: Digest32,
        hash: Digest32,
    }
}

table! {
    /// Chain head, lease and fencing epoch of each lane.
    LEDGER_LANES = ledger_lanes -> LaneRow {
        lane: i64,
        epoch: i64,
        head_seq: i64,
        head_hash: Digest32,
        last_batch_id: Option<Uuid>,
        lease_until: Timestamp,
        node: Option<String>,
    }
    key: [lane],
    rank: 910,
}

table! {
    /// Signed checkpoints, append-only.
    LEDGER_CHECKPOINTS = ledger_checkpoints -> CheckpointRow {
        seq: i64,
        created_at: Timestamp [default],
        body: Json [exact],
        signature: [u8; 64],
        key_id: String,
        digest: Digest32,
    }
    key: [seq],
    rank: 914,
}

part! {
    CheckpointSeq of CheckpointRow in ledger_checkpoints {
        seq: i64,
    }
}

table! {
    /// Roots of complete Merkle subtrees.
    LEDGER_NODES = ledger_nodes -> MerkleNodeRow {
        lane: i64,
        level: i32,
        idx: u64,
        hash: Digest32,
    }
    key: [lane, level, idx],
    rank: 915,
}

table! {
    /// The position of each feed consumer.
    FEED_CURSORS = feed_cursors -> FeedCursorRow {
        consumer: String,
        lane: i64,
        seq: i64,
        updated_at: Timestamp [default],
    }
    key: [consumer, lane],
    rank: 916,
}

table! {
    /// Idempotency records: what a key was used for, and the stored response.
    IDEMPOTENCY_RECORDS = idempotency_records -> IdempotencyRow {
        owner: String,
        key: String,
        fingerprint: Digest32,
        state: RecordWord,
        answer: Option<Json>,
        resource_id: Option<String>,
        created_at: Timestamp [default],
        expires_at: Timestamp,
        state_version: i64 [default],
    }
    key: [owner, key],
    rank: 917,
}

table! {
    /// State of the store as a whole: one row with id 1.
    STORE_STATE = store_state -> StoreStateRow {
        id: i64,
        generation: i64 [default],
        held_reason: Option<String>,
        held_at: Option<Timestamp>,
        held_epoch: i64 [default],
    }
    key: [id],
    rank: 919,
}

table! {
    /// The tenant of rows whose table has no tenant column.
    RECORD_SCOPES = record_scopes -> RecordScopeRow {
        record_kind: String,
        record_id: Uuid,
        tenant_id: String,
        campaign_id: Option<String>,
        task_id: Option<String>,
        trace_id: Option<String>,
    }
    key: [record_kind, record_id],
    tenant: tenant_id,
    rank: 918,
}

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
