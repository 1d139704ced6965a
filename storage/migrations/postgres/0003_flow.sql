-- Durable graphs: workflows, runs, steps, tool calls, effects, signals, approvals.
-- runs, steps, tool_calls, effects and run_signals are written all the time: their keys are
-- time-ordered, their indexes few, and they refer to no tenant row, which every writer would lock.

-- The document is kept byte for byte; a version never changes.
CREATE TABLE workflows (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants(id),
    workflow_id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL CHECK (version >= 1),
    digest BYTEA NOT NULL CHECK (length(digest) = 32),
    document JSON NOT NULL,
    created_by TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (tenant_id, workflow_id, version)
);

CREATE INDEX idx_workflows_digest ON workflows(tenant_id, digest);

-- The first ten columns are the audit schema's own; status has no CHECK there and gets none here.
CREATE TABLE runs (
    id UUID NOT NULL PRIMARY KEY,
    actor TEXT NOT NULL,
    request_payload JSONB NOT NULL,
    status TEXT NOT NULL,
    autonomy_level TEXT,
    trace_id TEXT NOT NULL UNIQUE,
    idempotency_key TEXT UNIQUE,
    created_at TIMESTAMPTZ DEFAULT NOW(),
    completed_at TIMESTAMPTZ,
    error_message TEXT,
    tenant_id TEXT NOT NULL,
    state_version BIGINT NOT NULL DEFAULT 1,
    source TEXT NOT NULL DEFAULT 'act' CHECK (source IN ('act', 'intent', 'swarm', 'workflow', 'replay')),
    workflow_id TEXT,
    workflow_version BIGINT,
    workflow_digest BYTEA,
    inputs JSONB,
    plan_digest BYTEA,
    patches INTEGER NOT NULL DEFAULT 0,
    priority INTEGER NOT NULL DEFAULT 5 CHECK (priority >= 1 AND priority <= 10),
    dry_run BOOLEAN NOT NULL DEFAULT FALSE,
    correlation_id TEXT,
    parent_run_id UUID,
    parent_step_id UUID,
    replay_of UUID,
    replay_mode TEXT CHECK (replay_mode IN ('freeze', 'shadow', 'retry')),
    cancel_requested BOOLEAN NOT NULL DEFAULT FALSE,
    pause_requested BOOLEAN NOT NULL DEFAULT FALSE,
    run_seq BIGINT NOT NULL DEFAULT 0,
    owner_lane BIGINT,
    owner_epoch BIGINT,
    next_deadline TIMESTAMPTZ,
    notify JSONB,
    risk JSONB,
    result JSONB,
    error_data JSONB,
    CHECK ((owner_lane IS NULL) = (owner_epoch IS NULL))
);

CREATE INDEX idx_runs_trace_id ON runs(trace_id);
CREATE INDEX idx_runs_tenant ON runs(tenant_id, id);
CREATE INDEX idx_runs_owner ON runs(owner_lane) WHERE owner_lane IS NOT NULL;
CREATE INDEX idx_runs_next_deadline ON runs(next_deadline) WHERE next_deadline IS NOT NULL;

-- `completed_seq` is the run's entry number at completion: rollback goes in its reverse order. The
-- position needs no unique key: a run has one writer.
CREATE TABLE steps (
    id UUID NOT NULL PRIMARY KEY,
    run_id UUID NOT NULL REFERENCES runs(id),
    tenant_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    node_type TEXT NOT NULL DEFAULT 'function'
        CHECK (node_type IN ('function', 'agent', 'hitl', 'swarm', 'workflow', 'map')),
    position INTEGER NOT NULL,
    parent_step_id UUID,
    map_index INTEGER,
    tool TEXT,
    tool_version TEXT,
    input JSONB,
    input_digest BYTEA,
    status TEXT NOT NULL
        CHECK (status IN ('pending', 'ready', 'awaiting_approval', 'running', 'judging', 'completed', 'failed',
            'skipped', 'cancelled', 'rolled_back', 'retry_wait', 'paused', 'outcome_unknown')),
    attempt INTEGER NOT NULL DEFAULT 0,
    output JSONB,
    error JSONB,
    child_run_id UUID,
    retry_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    started_at TIMESTAMPTZ,
    completed_at TIMESTAMPTZ,
    completed_seq BIGINT,
    state_version BIGINT NOT NULL DEFAULT 1
);

CREATE INDEX idx_steps_run ON steps(run_id, position);

-- The first ten columns are the audit schema's own; `actor` is what its index needs.
CREATE TABLE tool_calls (
    id UUID NOT NULL PRIMARY KEY,
    step_id UUID REFERENCES steps(id),
    tool_name TEXT NOT NULL,
    tool_input JSONB NOT NULL,
    tool_output JSONB,
    error TEXT,
    duration_ms INTEGER,
    dry_run BOOLEAN DEFAULT FALSE,
    idempotency_key TEXT,
    created_at TIMESTAMPTZ DEFAULT NOW(),
    actor TEXT,
    tenant_id TEXT NOT NULL,
    run_id UUID NOT NULL,
    effect_id UUID,
    attempt INTEGER NOT NULL DEFAULT 1,
    outcome TEXT,
    error_data JSONB,
    completed_at TIMESTAMPTZ
);

CREATE INDEX idx_tool_calls_actor_time ON tool_calls(actor, created_at DESC);
CREATE INDEX idx_tool_calls_step ON tool_calls(step_id);

-- Written ahead of anything that happens outside. Keys begin with the run's id, so that the
-- unique index grows at its right edge.
CREATE TABLE effects (
    id UUID NOT NULL PRIMARY KEY,
    tenant_id TEXT COLLATE "C" NOT NULL,
    run_id UUID NOT NULL,
    step_id UUID NOT NULL,
    kind TEXT NOT NULL DEFAULT 'tool' CHECK (kind IN ('tool', 'job', 'child_run', 'compensation')),
    tool TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('prepared', 'dispatched', 'succeeded', 'failed', 'unknown')),
    idempotency_key TEXT COLLATE "C" NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 1,
    deadline TIMESTAMPTZ,
    input_digest BYTEA NOT NULL,
    result_ref TEXT,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    dispatched_at TIMESTAMPTZ,
    settled_at TIMESTAMPTZ,
    state_version BIGINT NOT NULL DEFAULT 1,
    UNIQUE (tenant_id, idempotency_key)
);

CREATE INDEX idx_effects_run ON effects(run_id);

-- Anybody adds, only the run's owner takes: a signal is consumed by deleting it.
CREATE TABLE run_signals (
    run_id UUID NOT NULL,
    id UUID NOT NULL,
    tenant_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (run_id, id)
);

CREATE TABLE timers (
    id UUID NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    run_id UUID,
    step_id UUID,
    kind TEXT NOT NULL,
    due_at TIMESTAMPTZ NOT NULL,
    payload JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

CREATE INDEX idx_timers_due_at ON timers(due_at);

-- Overlays on a running graph, in the order in which they apply.
CREATE TABLE run_patches (
    run_id UUID NOT NULL REFERENCES runs(id),
    number INTEGER NOT NULL CHECK (number >= 1),
    tenant_id TEXT NOT NULL,
    patch JSON NOT NULL,
    digest BYTEA NOT NULL CHECK (length(digest) = 32),
    status TEXT NOT NULL CHECK (status IN ('proposed', 'applied', 'reverted', 'refused')),
    actor TEXT NOT NULL,
    justification TEXT,
    approval_request_id UUID,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (run_id, number)
);

CREATE TABLE cache_entries (
    tenant_id TEXT COLLATE "C" NOT NULL,
    workflow_id TEXT COLLATE "C" NOT NULL,
    cache_key TEXT COLLATE "C" NOT NULL,
    tool_version TEXT NOT NULL,
    output JSONB NOT NULL,
    run_id UUID NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    expires_at TIMESTAMPTZ,
    PRIMARY KEY (tenant_id, workflow_id, cache_key)
);

CREATE INDEX idx_cache_entries_expires_at ON cache_entries(expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE notifications (
    id UUID NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    run_id UUID,
    channel TEXT NOT NULL CHECK (channel IN ('webhook', 'email', 'console', 'alert')),
    target TEXT NOT NULL,
    payload JSONB NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'failed', 'unknown')),
    attempt INTEGER NOT NULL DEFAULT 0,
    next_attempt_at TIMESTAMPTZ,
    sent_at TIMESTAMPTZ,
    error JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1
);

CREATE INDEX idx_notifications_tenant ON notifications(tenant_id, id);
CREATE INDEX idx_notifications_next_attempt_at ON notifications(next_attempt_at) WHERE next_attempt_at IS NOT NULL;

-- Exactly as its document has it: not one column, constraint or index more.
CREATE TABLE approval_requests (
    approval_request_id UUID NOT NULL PRIMARY KEY,
    action_type VARCHAR(50) NOT NULL,
    action_data JSONB NOT NULL,
    requester_agent_id UUID NOT NULL,
    workflow_type VARCHAR(50) NOT NULL,
    status VARCHAR(20) NOT NULL DEFAULT 'pending',
    policy_references TEXT[] NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    reviewed_at TIMESTAMPTZ,
    reviewed_by VARCHAR(255),
    review_decision VARCHAR(20),
    review_notes TEXT,
    expires_at TIMESTAMPTZ
);

CREATE INDEX idx_approval_requests_status ON approval_requests(status);
CREATE INDEX idx_approval_requests_requester_agent_id ON approval_requests(requester_agent_id);
CREATE INDEX idx_approval_requests_created_at ON approval_requests(created_at);
CREATE INDEX idx_approval_requests_expires_at ON approval_requests(expires_at) WHERE expires_at IS NOT NULL;

-- What an approval covers and who has decided so far. No foreign key: approval_requests stands
-- alone by its document.
CREATE TABLE approval_details (
    approval_request_id UUID NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    action_digest BYTEA NOT NULL CHECK (length(action_digest) = 32),
    run_id UUID,
    step_id UUID,
    node_id TEXT,
    requester_actor TEXT NOT NULL,
    approvals_needed INTEGER NOT NULL DEFAULT 1 CHECK (approvals_needed >= 1),
    approvers TEXT[],
    decisions JSONB NOT NULL DEFAULT '[]',
    risk JSONB,
    state_version BIGINT NOT NULL DEFAULT 1
);

CREATE INDEX idx_approval_details_run ON approval_details(run_id) WHERE run_id IS NOT NULL;
