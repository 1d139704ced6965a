-- The append-only record of everything, its lanes and checkpoints; idempotency; scope rows.

-- As its document has it.
CREATE TABLE audit_logs (
    audit_log_id BLOB NOT NULL PRIMARY KEY CHECK (length(audit_log_id) = 16),
    event_type TEXT NOT NULL CHECK (length(event_type) <= 50),
    agent_id BLOB CHECK (length(agent_id) = 16),
    action_type TEXT CHECK (length(action_type) <= 50),
    action_data TEXT,
    policy_references TEXT,
    decision_outcome TEXT NOT NULL CHECK (length(decision_outcome) <= 20),
    decision_rationale TEXT NOT NULL,
    event_timestamp INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    metadata TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_audit_logs_event_type ON audit_logs(event_type);
CREATE INDEX idx_audit_logs_agent_id ON audit_logs(agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX idx_audit_logs_action_type ON audit_logs(action_type) WHERE action_type IS NOT NULL;
CREATE INDEX idx_audit_logs_decision_outcome ON audit_logs(decision_outcome);
CREATE INDEX idx_audit_logs_event_timestamp ON audit_logs(event_timestamp);

-- data_json holds the very bytes that were digested. The id has no index:
-- it is random, and the hottest table can't afford random writes.
CREATE TABLE audit_log_entries (
    lane INTEGER NOT NULL,
    seq INTEGER NOT NULL CHECK (seq >= 1),
    id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    subject_type TEXT NOT NULL CHECK (subject_type IN ('task', 'worker_run', 'worker_result', 'judge_decision', 'transaction', 'publish_event', 'other')),
    subject_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    actor_type TEXT NOT NULL CHECK (actor_type IN ('system', 'human', 'external_node')),
    actor_id TEXT,
    timestamp INTEGER NOT NULL,
    data_json TEXT NOT NULL,
    run_id BLOB CHECK (length(run_id) = 16),
    run_seq INTEGER,
    trace_id TEXT,
    salt BLOB NOT NULL,
    content_digest BLOB NOT NULL,
    prev_hash BLOB NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (lane, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_audit_log_entries_run ON audit_log_entries(run_id, run_seq) WHERE run_id IS NOT NULL;
CREATE INDEX idx_audit_log_entries_tenant ON audit_log_entries(tenant_id, lane, seq);

-- Chain head, node lease and fence in one row.
CREATE TABLE ledger_lanes (
    lane INTEGER NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    head_seq INTEGER NOT NULL,
    head_hash BLOB NOT NULL CHECK (length(head_hash) = 32),
    last_batch_id BLOB CHECK (length(last_batch_id) = 16),
    lease_until INTEGER NOT NULL,
    node TEXT
) STRICT;

-- The number leaves no room for two checkpoints at one place of their chain.
CREATE TABLE ledger_checkpoints (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id >= 1),
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    body TEXT NOT NULL,
    signature BLOB NOT NULL CHECK (length(signature) = 64),
    key_id TEXT NOT NULL,
    previous_digest BLOB NOT NULL CHECK (length(previous_digest) = 32)
) STRICT, WITHOUT ROWID;

-- Roots of complete Merkle subtrees: node (level, idx) covers the entries from idx * 2^level on.
CREATE TABLE ledger_nodes (
    lane INTEGER NOT NULL,
    level INTEGER NOT NULL CHECK (level >= 0 AND level <= 63),
    idx INTEGER NOT NULL CHECK (idx >= 0),
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (lane, level, idx)
) STRICT, WITHOUT ROWID;

-- How far a consumer of the feed has come in each lane.
CREATE TABLE feed_cursors (
    consumer TEXT NOT NULL,
    lane INTEGER NOT NULL,
    seq INTEGER NOT NULL CHECK (seq >= 0),
    updated_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (consumer, lane)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency_records (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('in_flight', 'done')),
    answer TEXT,
    resource_id TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT;

CREATE INDEX idx_idempotency_records_expires_at ON idempotency_records(expires_at);

-- Whose a row is, for tables that may not say so themselves. Written with the row.
CREATE TABLE record_scopes (
    record_kind TEXT NOT NULL CHECK (record_kind IN ('objective', 'plan', 'task', 'skill_invocation', 'trend', 'approval_request', 'audit_log', 'agent_execution', 'agent', 'agent_job', 'agent_output')),
    record_id BLOB NOT NULL CHECK (length(record_id) = 16),
    tenant_id TEXT NOT NULL,
    campaign_id TEXT,
    task_id TEXT,
    trace_id TEXT,
    PRIMARY KEY (record_kind, record_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_record_scopes_tenant ON record_scopes(tenant_id, record_kind, record_id);
