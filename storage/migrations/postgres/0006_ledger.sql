-- The append-only record of everything, its lanes and checkpoints; idempotency; scope rows.

-- Exactly as its document has it: not one column, constraint or index more.
CREATE TABLE audit_logs (
    audit_log_id UUID NOT NULL PRIMARY KEY,
    event_type VARCHAR(50) NOT NULL,
    agent_id UUID,
    action_type VARCHAR(50),
    action_data JSONB,
    policy_references TEXT[],
    decision_outcome VARCHAR(20) NOT NULL,
    decision_rationale TEXT NOT NULL,
    event_timestamp TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    metadata JSONB
);

CREATE INDEX idx_audit_logs_event_type ON audit_logs(event_type);
CREATE INDEX idx_audit_logs_agent_id ON audit_logs(agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX idx_audit_logs_action_type ON audit_logs(action_type) WHERE action_type IS NOT NULL;
CREATE INDEX idx_audit_logs_decision_outcome ON audit_logs(decision_outcome);
CREATE INDEX idx_audit_logs_event_timestamp ON audit_logs(event_timestamp);

-- data_json is json, not jsonb: it holds the very bytes that were digested. The id has no index:
-- it is random, and the hottest table can't afford random writes.
CREATE TABLE audit_log_entries (
    lane BIGINT NOT NULL,
    seq BIGINT NOT NULL CHECK (seq >= 1),
    id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    subject_type TEXT NOT NULL
        CHECK (subject_type IN ('task', 'worker_run', 'worker_result', 'judge_decision', 'transaction',
            'publish_event', 'other')),
    subject_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    actor_type TEXT NOT NULL CHECK (actor_type IN ('system', 'human', 'external_node')),
    actor_id TEXT,
    timestamp TIMESTAMPTZ NOT NULL,
    data_json JSON NOT NULL,
    run_id UUID,
    run_seq BIGINT,
    trace_id TEXT,
    salt BYTEA NOT NULL,
    content_digest BYTEA NOT NULL,
    prev_hash BYTEA NOT NULL,
    hash BYTEA NOT NULL,
    PRIMARY KEY (lane, seq)
);

CREATE INDEX idx_audit_log_entries_run ON audit_log_entries(run_id, run_seq) WHERE run_id IS NOT NULL;
CREATE INDEX idx_audit_log_entries_tenant ON audit_log_entries(tenant_id, lane, seq);

-- Chain head, node lease and fence in one row.
CREATE TABLE ledger_lanes (
    lane BIGINT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    head_seq BIGINT NOT NULL,
    head_hash BYTEA NOT NULL CHECK (length(head_hash) = 32),
    last_batch_id UUID,
    lease_until TIMESTAMPTZ NOT NULL,
    node TEXT
);

-- The number leaves no room for two checkpoints at one place of their chain.
CREATE TABLE ledger_checkpoints (
    seq BIGINT NOT NULL PRIMARY KEY CHECK (seq >= 1),
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    body JSON NOT NULL,
    signature BYTEA NOT NULL CHECK (length(signature) = 64),
    key_id TEXT NOT NULL,
    digest BYTEA NOT NULL CHECK (length(digest) = 32)
);

-- Roots of complete Merkle subtrees: node (level, idx) covers the entries from idx * 2^level on.
CREATE TABLE ledger_nodes (
    lane BIGINT NOT NULL,
    level INTEGER NOT NULL CHECK (level >= 0 AND level <= 63),
    idx BIGINT NOT NULL CHECK (idx >= 0),
    hash BYTEA NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (lane, level, idx)
);

-- How far a consumer of the feed has come in each lane.
CREATE TABLE feed_cursors (
    consumer TEXT COLLATE "C" NOT NULL,
    lane BIGINT NOT NULL,
    seq BIGINT NOT NULL CHECK (seq >= 0),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (consumer, lane)
);

CREATE TABLE idempotency_records (
    owner TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    fingerprint BYTEA NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('in_flight', 'done')),
    answer JSONB,
    resource_id TEXT,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    expires_at TIMESTAMPTZ NOT NULL,
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (owner, key)
);

CREATE INDEX idx_idempotency_records_expires_at ON idempotency_records(expires_at);

-- Whose a row is, for tables that may not say so themselves. Written with the row.
CREATE TABLE record_scopes (
    record_kind TEXT COLLATE "C" NOT NULL
        CHECK (record_kind IN ('objective', 'plan', 'task', 'skill_invocation', 'trend', 'approval_request',
            'audit_log', 'agent_execution', 'agent', 'agent_job', 'agent_output')),
    record_id UUID NOT NULL,
    tenant_id TEXT NOT NULL,
    campaign_id TEXT,
    task_id TEXT,
    trace_id TEXT,
    PRIMARY KEY (record_kind, record_id)
);

CREATE INDEX idx_record_scopes_tenant ON record_scopes(tenant_id, record_kind, record_id);
