-- Durable graphs: workflows, runs, steps, tool calls, effects, signals, approvals.
-- runs, steps, tool_calls, effects and run_signals are written all the time: their keys are
-- time-ordered, their indexes few, and they refer to no tenant row, which every writer would lock.

-- The document is kept byte for byte; a version never changes.
CREATE TABLE workflows (
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    workflow_id TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    document TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (tenant_id, workflow_id, version)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_workflows_digest ON workflows(tenant_id, digest);

-- The first ten columns are the audit schema's own; status has no CHECK there and gets none here.
CREATE TABLE runs (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    actor TEXT NOT NULL,
    request_payload TEXT NOT NULL,
    status TEXT NOT NULL,
    autonomy_level TEXT,
    trace_id TEXT NOT NULL UNIQUE,
    idempotency_key TEXT UNIQUE,
    created_at INTEGER DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    completed_at INTEGER,
    error_message TEXT,
    tenant_id TEXT NOT NULL,
    state_version INTEGER NOT NULL DEFAULT 1,
    source TEXT NOT NULL DEFAULT 'act' CHECK (source IN ('act', 'intent', 'swarm', 'workflow', 'replay')),
    workflow_id TEXT,
    workflow_version INTEGER,
    workflow_digest BLOB,
    inputs TEXT,
    plan_digest BLOB,
    patches INTEGER NOT NULL DEFAULT 0,
    priority INTEGER NOT NULL DEFAULT 5 CHECK (priority >= 1 AND priority <= 10),
    dry_run INTEGER NOT NULL DEFAULT 0 CHECK (dry_run IN (0, 1)),
    correlation_id TEXT,
    parent_run_id BLOB CHECK (length(parent_run_id) = 16),
    parent_step_id BLOB CHECK (length(parent_step_id) = 16),
    replay_of BLOB CHECK (length(replay_of) = 16),
    replay_mode TEXT CHECK (replay_mode IN ('freeze', 'shadow', 'retry')),
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    pause_requested INTEGER NOT NULL DEFAULT 0 CHECK (pause_requested IN (0, 1)),
    run_seq INTEGER NOT NULL DEFAULT 0,
    owner_lane INTEGER,
    owner_epoch INTEGER,
    next_deadline INTEGER,
    notify TEXT,
    risk TEXT,
    result TEXT,
    error_data TEXT,
    CHECK ((owner_lane IS NULL) = (owner_epoch IS NULL))
) STRICT;

CREATE INDEX idx_runs_trace_id ON runs(trace_id);
CREATE INDEX idx_runs_tenant ON runs(tenant_id, id);
CREATE INDEX idx_runs_owner ON runs(owner_lane) WHERE owner_lane IS NOT NULL;
CREATE INDEX idx_runs_next_deadline ON runs(next_deadline) WHERE next_deadline IS NOT NULL;

-- `completed_seq` is the run's entry number at completion: rollback goes in its reverse order.
CREATE TABLE steps (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    run_id BLOB NOT NULL REFERENCES runs(id) CHECK (length(run_id) = 16),
    tenant_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    node_type TEXT NOT NULL DEFAULT 'function' CHECK (node_type IN ('function', 'agent', 'hitl', 'swarm', 'workflow', 'map')),
    position INTEGER NOT NULL,
    parent_step_id BLOB CHECK (length(parent_step_id) = 16),
    map_index INTEGER,
    tool TEXT,
    tool_version TEXT,
    input TEXT,
    input_digest BLOB,
    status TEXT NOT NULL CHECK (status IN ('pending', 'ready', 'awaiting_approval', 'running', 'judging', 'completed', 'failed', 'skipped', 'cancelled', 'rolled_back', 'retry_wait', 'paused', 'outcome_unknown')),
    attempt INTEGER NOT NULL DEFAULT 0,
    output TEXT,
    error TEXT,
    child_run_id BLOB CHECK (length(child_run_id) = 16),
    retry_at INTEGER,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    started_at INTEGER,
    completed_at INTEGER,
    completed_seq INTEGER,
    state_version INTEGER NOT NULL DEFAULT 1,
    UNIQUE (run_id, position)
) STRICT;

-- The first ten columns are the audit schema's own; `actor` is what its index needs.
CREATE TABLE tool_calls (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    step_id BLOB REFERENCES steps(id) CHECK (length(step_id) = 16),
    tool_name TEXT NOT NULL,
    tool_input TEXT NOT NULL,
    tool_output TEXT,
    error TEXT,
    duration_ms INTEGER,
    dry_run INTEGER DEFAULT 0 CHECK (dry_run IN (0, 1)),
    idempotency_key TEXT,
    created_at INTEGER DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    actor TEXT,
    tenant_id TEXT NOT NULL,
    run_id BLOB NOT NULL CHECK (length(run_id) = 16),
    effect_id BLOB CHECK (length(effect_id) = 16),
    attempt INTEGER NOT NULL DEFAULT 1,
    outcome TEXT,
    error_data TEXT,
    completed_at INTEGER
) STRICT;

CREATE INDEX idx_tool_calls_actor_time ON tool_calls(actor, created_at DESC);
CREATE INDEX idx_tool_calls_step ON tool_calls(step_id);

-- Written ahead of anything that happens outside. Keys begin with the run's id, so that the
-- unique index grows at its right edge.
CREATE TABLE effects (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    tenant_id TEXT NOT NULL,
    run_id BLOB NOT NULL CHECK (length(run_id) = 16),
    step_id BLOB NOT NULL CHECK (length(step_id) = 16),
    kind TEXT NOT NULL DEFAULT 'tool' CHECK (kind IN ('tool', 'job', 'child_run', 'compensation')),
    tool TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('prepared', 'dispatched', 'succeeded', 'failed', 'unknown')),
    idempotency_key TEXT NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 1,
    deadline INTEGER,
    input_digest BLOB NOT NULL,
    result_ref TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    dispatched_at INTEGER,
    settled_at INTEGER,
    state_version INTEGER NOT NULL DEFAULT 1,
    UNIQUE (tenant_id, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_effects_run ON effects(run_id);

-- Anybody adds, only the run's owner takes: a signal is consumed by deleting it.
CREATE TABLE run_signals (
    run_id BLOB NOT NULL CHECK (length(run_id) = 16),
    id BLOB NOT NULL CHECK (length(id) = 16),
    tenant_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (run_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE timers (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    tenant_id TEXT NOT NULL,
    run_id BLOB CHECK (length(run_id) = 16),
    step_id BLOB CHECK (length(step_id) = 16),
    kind TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    payload TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_timers_due_at ON timers(due_at);

-- Overlays on a running graph, in the order in which they apply.
CREATE TABLE run_patches (
    run_id BLOB NOT NULL REFERENCES runs(id) CHECK (length(run_id) = 16),
    number INTEGER NOT NULL CHECK (number >= 1),
    tenant_id TEXT NOT NULL,
    patch TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    status TEXT NOT NULL CHECK (status IN ('proposed', 'applied', 'reverted', 'refused')),
    actor TEXT NOT NULL,
    justification TEXT,
    approval_request_id BLOB CHECK (length(approval_request_id) = 16),
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    state_version INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE cache_entries (
    tenant_id TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    cache_key TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    output TEXT NOT NULL,
    run_id BLOB NOT NULL CHECK (length(run_id) = 16),
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER,
    PRIMARY KEY (tenant_id, workflow_id, cache_key)
) STRICT;

CREATE INDEX idx_cache_entries_expires_at ON cache_entries(expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE notifications (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    tenant_id TEXT NOT NULL,
    run_id BLOB CHECK (length(run_id) = 16),
    channel TEXT NOT NULL CHECK (channel IN ('webhook', 'email', 'console', 'alert')),
    target TEXT NOT NULL,
    payload TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'failed', 'unknown')),
    attempt INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER,
    sent_at INTEGER,
    error TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    state_version INTEGER NOT NULL DEFAULT 1
) STRICT;

CREATE INDEX idx_notifications_tenant ON notifications(tenant_id, id);
CREATE INDEX idx_notifications_next_attempt_at ON notifications(next_attempt_at) WHERE next_attempt_at IS NOT NULL;

-- As its document has it.
CREATE TABLE approval_requests (
    approval_request_id BLOB NOT NULL PRIMARY KEY CHECK (length(approval_request_id) = 16),
    action_type TEXT NOT NULL CHECK (length(action_type) <= 50),
    action_data TEXT NOT NULL,
    requester_agent_id BLOB NOT NULL CHECK (length(requester_agent_id) = 16),
    workflow_type TEXT NOT NULL CHECK (length(workflow_type) <= 50),
    status TEXT NOT NULL DEFAULT 'pending' CHECK (length(status) <= 20),
    policy_references TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    reviewed_at INTEGER,
    reviewed_by TEXT CHECK (length(reviewed_by) <= 255),
    review_decision TEXT CHECK (length(review_decision) <= 20),
    review_notes TEXT,
    expires_at INTEGER
) STRICT;

CREATE INDEX idx_approval_requests_status ON approval_requests(status);
CREATE INDEX idx_approval_requests_requester_agent_id ON approval_requests(requester_agent_id);
CREATE INDEX idx_approval_requests_created_at ON approval_requests(created_at);
CREATE INDEX idx_approval_requests_expires_at ON approval_requests(expires_at) WHERE expires_at IS NOT NULL;

-- What an approval covers and who has decided so far. No foreign key: approval_requests stands
-- alone by its document.
CREATE TABLE approval_details (
    approval_request_id BLOB NOT NULL PRIMARY KEY CHECK (length(approval_request_id) = 16),
    tenant_id TEXT NOT NULL,
    action_digest BLOB NOT NULL CHECK (length(action_digest) = 32),
    run_id BLOB CHECK (length(run_id) = 16),
    step_id BLOB CHECK (length(step_id) = 16),
    node_id TEXT,
    requester_actor TEXT NOT NULL,
    approvals_needed INTEGER NOT NULL DEFAULT 1 CHECK (approvals_needed >= 1),
    approvers TEXT,
    decisions TEXT NOT NULL DEFAULT '[]',
    risk TEXT,
    state_version INTEGER NOT NULL DEFAULT 1
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_approval_details_run ON approval_details(run_id) WHERE run_id IS NOT NULL;
