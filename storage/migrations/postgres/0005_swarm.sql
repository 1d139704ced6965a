-- Objectives, plans and tasks; goals, worker results, judge decisions, publications, payments.

-- The first five tables are exactly as their document has them: not one column, constraint or
-- index more. What the swarm adds lives in tables of its own.
CREATE TABLE objectives (
    objective_id UUID NOT NULL PRIMARY KEY,
    objective_type VARCHAR(50) NOT NULL,
    objective_data JSONB NOT NULL,
    status VARCHAR(20) NOT NULL DEFAULT 'pending',
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    completed_at TIMESTAMPTZ,
    spec_version VARCHAR(20) NOT NULL
);

CREATE INDEX idx_objectives_status ON objectives(status);
CREATE INDEX idx_objectives_created_at ON objectives(created_at);
CREATE INDEX idx_objectives_spec_version ON objectives(spec_version);

CREATE TABLE plans (
    plan_id UUID NOT NULL PRIMARY KEY,
    objective_id UUID NOT NULL REFERENCES objectives(objective_id),
    plan_data JSONB NOT NULL,
    status VARCHAR(20) NOT NULL DEFAULT 'pending',
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    completed_at TIMESTAMPTZ,
    spec_version VARCHAR(20) NOT NULL
);

CREATE INDEX idx_plans_objective_id ON plans(objective_id);
CREATE INDEX idx_plans_status ON plans(status);
CREATE INDEX idx_plans_created_at ON plans(created_at);

CREATE TABLE tasks (
    task_id UUID NOT NULL PRIMARY KEY,
    plan_id UUID NOT NULL REFERENCES plans(plan_id),
    task_type VARCHAR(50) NOT NULL,
    required_skill VARCHAR(100) NOT NULL,
    input_parameters JSONB NOT NULL,
    success_criteria JSONB NOT NULL,
    depends_on UUID[],
    status VARCHAR(20) NOT NULL DEFAULT 'pending',
    assigned_agent_id UUID,
    priority INTEGER NOT NULL DEFAULT 5 CHECK (priority >= 1 AND priority <= 10),
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    started_at TIMESTAMPTZ,
    completed_at TIMESTAMPTZ,
    output_data JSONB,
    error_data JSONB
);

CREATE INDEX idx_tasks_plan_id ON tasks(plan_id);
CREATE INDEX idx_tasks_status ON tasks(status);
CREATE INDEX idx_tasks_assigned_agent_id ON tasks(assigned_agent_id);
CREATE INDEX idx_tasks_priority ON tasks(priority);
CREATE INDEX idx_tasks_depends_on ON tasks USING GIN (depends_on);

-- A running invocation stands as 'timeout' with a completed_at that lies ahead.
CREATE TABLE skill_invocations (
    invocation_id UUID NOT NULL PRIMARY KEY,
    task_id UUID REFERENCES tasks(task_id),
    skill_id VARCHAR(100) NOT NULL,
    agent_id UUID NOT NULL,
    input_parameters JSONB NOT NULL,
    output_data JSONB,
    status VARCHAR(20) NOT NULL,
    error_data JSONB,
    execution_duration_ms INTEGER NOT NULL DEFAULT 0 CHECK (execution_duration_ms >= 0),
    resource_usage JSONB,
    idempotency_key VARCHAR(255) UNIQUE,
    invoked_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    completed_at TIMESTAMPTZ NOT NULL
);

CREATE INDEX idx_skill_invocations_task_id ON skill_invocations(task_id);
CREATE INDEX idx_skill_invocations_skill_id ON skill_invocations(skill_id);
CREATE INDEX idx_skill_invocations_agent_id ON skill_invocations(agent_id);
CREATE INDEX idx_skill_invocations_status ON skill_invocations(status);
CREATE INDEX idx_skill_invocations_invoked_at ON skill_invocations(invoked_at);
CREATE INDEX idx_skill_invocations_idempotency_key ON skill_invocations(idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE TABLE trends (
    trend_id UUID NOT NULL PRIMARY KEY,
    title VARCHAR(500) NOT NULL,
    description TEXT,
    source VARCHAR(50) NOT NULL,
    source_agent_id UUID,
    relevance_score DECIMAL(3,2) NOT NULL CHECK (relevance_score >= 0.0 AND relevance_score <= 1.0),
    observed_at TIMESTAMPTZ NOT NULL,
    metadata JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

CREATE INDEX idx_trends_source ON trends(source);
CREATE INDEX idx_trends_source_agent_id ON trends(source_agent_id) WHERE source_agent_id IS NOT NULL;
CREATE INDEX idx_trends_relevance_score ON trends(relevance_score);
CREATE INDEX idx_trends_observed_at ON trends(observed_at);
CREATE INDEX idx_trends_created_at ON trends(created_at);

-- From here on every key begins with the tenant and every reference carries it along: a row of
-- one tenant can't name a row of another, nor learn from a clash that it exists.
CREATE TABLE swarm_campaigns (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants(id),
    id TEXT COLLATE "C" NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'in_progress', 'paused', 'complete', 'failed', 'cancelled')),
    persona_id TEXT,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE swarm_goals (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    campaign_id TEXT COLLATE "C" NOT NULL,
    description TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'in_progress', 'paused', 'complete', 'failed', 'cancelled')),
    objective_id UUID REFERENCES objectives(objective_id),
    run_id UUID,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, campaign_id, id),
    FOREIGN KEY (tenant_id, campaign_id) REFERENCES swarm_campaigns(tenant_id, id)
);

-- The planner's specification is kept byte for byte and never changes; a new version is a new
-- task that names the one it replaces. `plan_task_id` is the task of the plan it stands for.
CREATE TABLE swarm_tasks (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    campaign_id TEXT COLLATE "C" NOT NULL,
    goal_id TEXT NOT NULL,
    task_type TEXT NOT NULL
        CHECK (task_type IN ('trend_research', 'content_generation', 'engagement', 'media_production', 'commerce',
            'other')),
    priority TEXT NOT NULL DEFAULT 'normal' CHECK (priority IN ('low', 'normal', 'high', 'critical')),
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'in_progress', 'complete', 'failed', 'cancelled', 'rejected', 'approved',
            'escalated')),
    spec_json JSON NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    replaces_task_id TEXT,
    plan_task_id UUID UNIQUE REFERENCES tasks(task_id),
    run_id UUID,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, campaign_id, id),
    UNIQUE (tenant_id, idempotency_key),
    FOREIGN KEY (tenant_id, campaign_id, goal_id) REFERENCES swarm_goals(tenant_id, campaign_id, id),
    FOREIGN KEY (tenant_id, replaces_task_id) REFERENCES swarm_tasks(tenant_id, id)
);

CREATE INDEX idx_swarm_tasks_goal ON swarm_tasks(tenant_id, goal_id);

CREATE TABLE swarm_task_dependencies (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    task_id TEXT COLLATE "C" NOT NULL,
    depends_on_task_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, task_id, depends_on_task_id),
    FOREIGN KEY (tenant_id, task_id) REFERENCES swarm_tasks(tenant_id, id),
    FOREIGN KEY (tenant_id, depends_on_task_id) REFERENCES swarm_tasks(tenant_id, id),
    CHECK (task_id <> depends_on_task_id)
);

CREATE INDEX idx_swarm_task_dependencies_depends_on ON swarm_task_dependencies(tenant_id, depends_on_task_id);

-- An envelope may name a task that it is about to create, so only its tenant is a reference.
CREATE TABLE swarm_envelopes (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants(id),
    id TEXT COLLATE "C" NOT NULL,
    campaign_id TEXT,
    goal_id TEXT,
    task_id TEXT,
    correlation_id TEXT,
    created_at TIMESTAMPTZ NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('planner', 'worker', 'judge', 'skill', 'system')),
    type TEXT NOT NULL,
    status TEXT NOT NULL
        CHECK (status IN ('pending', 'in_progress', 'complete', 'failed', 'rejected', 'approved', 'escalated')),
    confidence_score NUMERIC,
    risk_tags TEXT[] NOT NULL DEFAULT '{}',
    idempotency_key TEXT,
    payload JSONB NOT NULL,
    error JSONB,
    received_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (tenant_id, id)
);

CREATE INDEX idx_swarm_envelopes_task ON swarm_envelopes(tenant_id, task_id) WHERE task_id IS NOT NULL;

CREATE TABLE swarm_worker_runs (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    task_id TEXT COLLATE "C" NOT NULL,
    attempt_number INTEGER NOT NULL CHECK (attempt_number >= 1),
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'in_progress', 'complete', 'failed', 'cancelled')),
    envelope_id TEXT,
    job_id UUID REFERENCES agent_jobs(id),
    started_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    finished_at TIMESTAMPTZ,
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, task_id, attempt_number),
    UNIQUE (tenant_id, task_id, id),
    FOREIGN KEY (tenant_id, task_id) REFERENCES swarm_tasks(tenant_id, id),
    FOREIGN KEY (tenant_id, envelope_id) REFERENCES swarm_envelopes(tenant_id, id)
);

CREATE TABLE swarm_worker_results (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    task_id TEXT COLLATE "C" NOT NULL,
    worker_run_id TEXT COLLATE "C" NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('complete', 'failed')),
    confidence_score NUMERIC NOT NULL,
    risk_tags_json JSONB NOT NULL,
    outputs_json JSONB NOT NULL,
    error_json JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, worker_run_id),
    UNIQUE (tenant_id, task_id, id),
    FOREIGN KEY (tenant_id, task_id, worker_run_id) REFERENCES swarm_worker_runs(tenant_id, task_id, id)
);

-- Decisions on one result are numbered without a gap, and each after the first supersedes the one
-- before: the one with the greatest round is in force, and there is never more than one.
CREATE TABLE swarm_judge_decisions (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    task_id TEXT COLLATE "C" NOT NULL,
    worker_result_id TEXT COLLATE "C" NOT NULL,
    round INTEGER NOT NULL DEFAULT 1 CHECK (round >= 1),
    supersedes_round INTEGER,
    decision TEXT NOT NULL CHECK (decision IN ('approve', 'reject', 'escalate')),
    state_version_used BIGINT NOT NULL,
    reason_summary TEXT NOT NULL,
    policy_checks_json JSONB NOT NULL,
    required_actions_json JSONB,
    override_json JSONB,
    human_review_required BOOLEAN NOT NULL,
    human_reviewer_id TEXT,
    envelope_id TEXT,
    decided_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, worker_result_id, round),
    UNIQUE (tenant_id, task_id, id),
    FOREIGN KEY (tenant_id, task_id, worker_result_id) REFERENCES swarm_worker_results(tenant_id, task_id, id),
    FOREIGN KEY (tenant_id, worker_result_id, supersedes_round)
        REFERENCES swarm_judge_decisions(tenant_id, worker_result_id, round),
    FOREIGN KEY (tenant_id, envelope_id) REFERENCES swarm_envelopes(tenant_id, id),
    CHECK ((round = 1 AND supersedes_round IS NULL) OR (supersedes_round IS NOT NULL AND supersedes_round = round - 1))
);

CREATE TABLE swarm_media_assets (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    campaign_id TEXT NOT NULL,
    task_id TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('image', 'video', 'audio', 'other')),
    storage_uri TEXT NOT NULL,
    duration_seconds NUMERIC,
    width INTEGER,
    height INTEGER,
    format TEXT,
    character_id TEXT,
    metadata_json JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, campaign_id) REFERENCES swarm_campaigns(tenant_id, id),
    FOREIGN KEY (tenant_id, campaign_id, task_id) REFERENCES swarm_tasks(tenant_id, campaign_id, id)
);

CREATE INDEX idx_swarm_media_assets_task ON swarm_media_assets(tenant_id, task_id) WHERE task_id IS NOT NULL;

-- Nothing is published without a decision.
CREATE TABLE swarm_publish_events (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    campaign_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    media_asset_id TEXT,
    judge_decision_id TEXT,
    channel TEXT NOT NULL,
    external_post_id TEXT,
    published_at TIMESTAMPTZ,
    status TEXT NOT NULL DEFAULT 'scheduled' CHECK (status IN ('scheduled', 'published', 'failed', 'cancelled')),
    disclosure_applied BOOLEAN NOT NULL DEFAULT FALSE,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, idempotency_key),
    FOREIGN KEY (tenant_id, campaign_id, task_id) REFERENCES swarm_tasks(tenant_id, campaign_id, id),
    FOREIGN KEY (tenant_id, media_asset_id) REFERENCES swarm_media_assets(tenant_id, id),
    FOREIGN KEY (tenant_id, task_id, judge_decision_id) REFERENCES swarm_judge_decisions(tenant_id, task_id, id),
    CHECK (status <> 'published' OR judge_decision_id IS NOT NULL)
);

CREATE INDEX idx_swarm_publish_events_external ON swarm_publish_events(tenant_id, external_post_id)
    WHERE external_post_id IS NOT NULL;
CREATE INDEX idx_swarm_publish_events_task ON swarm_publish_events(tenant_id, task_id);

CREATE TABLE swarm_wallets (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants(id),
    id TEXT COLLATE "C" NOT NULL,
    agent_or_campaign_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('commerce', 'internal')),
    provider_ref TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (tenant_id, id)
);

-- A decision gates at most one transaction, and none is approved without one.
CREATE TABLE swarm_transactions (
    tenant_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    wallet_id TEXT NOT NULL,
    task_id TEXT,
    judge_decision_id TEXT COLLATE "C",
    direction TEXT NOT NULL CHECK (direction IN ('debit', 'credit')),
    amount NUMERIC NOT NULL CHECK (amount >= 0),
    currency TEXT NOT NULL,
    chain_tx_hash TEXT,
    requested_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    executed_at TIMESTAMPTZ,
    status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'approved', 'executed', 'failed', 'cancelled')),
    idempotency_key TEXT COLLATE "C" NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, idempotency_key),
    UNIQUE (tenant_id, judge_decision_id),
    FOREIGN KEY (tenant_id, wallet_id) REFERENCES swarm_wallets(tenant_id, id),
    FOREIGN KEY (tenant_id, task_id) REFERENCES swarm_tasks(tenant_id, id),
    FOREIGN KEY (tenant_id, task_id, judge_decision_id) REFERENCES swarm_judge_decisions(tenant_id, task_id, id),
    CHECK (judge_decision_id IS NULL OR task_id IS NOT NULL),
    CHECK (status NOT IN ('approved', 'executed') OR judge_decision_id IS NOT NULL)
);

CREATE INDEX idx_swarm_transactions_chain ON swarm_transactions(tenant_id, chain_tx_hash)
    WHERE chain_tx_hash IS NOT NULL;
CREATE INDEX idx_swarm_transactions_wallet ON swarm_transactions(tenant_id, wallet_id);

CREATE TABLE swarm_budgets (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants(id),
    id TEXT COLLATE "C" NOT NULL,
    campaign_id TEXT,
    wallet_id TEXT,
    currency TEXT NOT NULL,
    limit_amount NUMERIC NOT NULL CHECK (limit_amount >= 0),
    reserved_amount NUMERIC NOT NULL DEFAULT 0 CHECK (reserved_amount >= 0),
    spent_amount NUMERIC NOT NULL DEFAULT 0 CHECK (spent_amount >= 0),
    period_start TIMESTAMPTZ,
    period_end TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, campaign_id) REFERENCES swarm_campaigns(tenant_id, id),
    FOREIGN KEY (tenant_id, wallet_id) REFERENCES swarm_wallets(tenant_id, id)
);
