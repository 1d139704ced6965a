-- Sandboxed agent jobs. agents, agent_jobs, agent_outputs and agent_executions are as
-- their documents have them.

CREATE TABLE agents (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name TEXT NOT NULL,
    agent_level TEXT NOT NULL CHECK (agent_level IN ('L0', 'L1', 'L2')),
    llm_provider TEXT NOT NULL,
    llm_model TEXT NOT NULL,
    max_tokens INTEGER NOT NULL,
    temperature TEXT NOT NULL DEFAULT '0.2',
    allowed_skills TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_agents_level ON agents(agent_level);
CREATE INDEX idx_agents_provider ON agents(llm_provider);

CREATE TABLE agent_jobs (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    command_id BLOB NOT NULL CHECK (length(command_id) = 16),
    plan_step_id BLOB NOT NULL CHECK (length(plan_step_id) = 16),
    agent_id BLOB NOT NULL REFERENCES agents(id) CHECK (length(agent_id) = 16),
    identity_id BLOB NOT NULL CHECK (length(identity_id) = 16),
    context_id BLOB NOT NULL CHECK (length(context_id) = 16),
    status TEXT NOT NULL DEFAULT 'created' CHECK (status IN ('created', 'running', 'completed', 'failed', 'cancelled')),
    token_limit INTEGER NOT NULL,
    tokens_used INTEGER DEFAULT 0,
    started_at INTEGER,
    finished_at INTEGER,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_jobs_command ON agent_jobs(command_id);
CREATE INDEX idx_jobs_status ON agent_jobs(status);
CREATE INDEX idx_jobs_agent ON agent_jobs(agent_id);

CREATE TABLE agent_outputs (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    job_id BLOB NOT NULL REFERENCES agent_jobs(id) ON DELETE CASCADE CHECK (length(job_id) = 16),
    output_type TEXT NOT NULL CHECK (output_type IN ('file', 'version', 'thread', 'dataset', 'log')),
    reference TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_outputs_job ON agent_outputs(job_id);
CREATE INDEX idx_outputs_type ON agent_outputs(output_type);

-- status and completed_at while it runs: 'timeout' and null. So a crash leaves a true row.
CREATE TABLE agent_executions (
    execution_id BLOB NOT NULL PRIMARY KEY CHECK (length(execution_id) = 16),
    agent_id BLOB NOT NULL CHECK (length(agent_id) = 16),
    agent_type TEXT NOT NULL CHECK (length(agent_type) <= 20),
    execution_type TEXT NOT NULL CHECK (length(execution_type) <= 50),
    input_data TEXT,
    output_data TEXT,
    status TEXT NOT NULL CHECK (length(status) <= 20),
    error_data TEXT,
    execution_duration_ms INTEGER NOT NULL DEFAULT 0 CHECK (execution_duration_ms >= 0),
    resource_usage TEXT,
    started_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    completed_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_agent_executions_agent_id ON agent_executions(agent_id);
CREATE INDEX idx_agent_executions_agent_type ON agent_executions(agent_type);
CREATE INDEX idx_agent_executions_execution_type ON agent_executions(execution_type);
CREATE INDEX idx_agent_executions_status ON agent_executions(status);
CREATE INDEX idx_agent_executions_started_at ON agent_executions(started_at);

-- What a job needs beside its own table: limits, the run it serves, why it failed.
CREATE TABLE job_details (
    job_id BLOB NOT NULL PRIMARY KEY REFERENCES agent_jobs(id) ON DELETE CASCADE CHECK (length(job_id) = 16),
    tenant_id TEXT NOT NULL,
    run_id BLOB CHECK (length(run_id) = 16),
    step_id BLOB CHECK (length(step_id) = 16),
    effect_id BLOB CHECK (length(effect_id) = 16),
    constraints TEXT,
    input_digest BLOB,
    failure_category TEXT CHECK (failure_category IN ('timeout', 'token_limit', 'memory_limit', 'rate_limit', 'crash', 'policy_violation')),
    usage TEXT,
    sandbox_state TEXT NOT NULL DEFAULT 'none' CHECK (sandbox_state IN ('none', 'open', 'locked', 'archived', 'destroyed')),
    deadline INTEGER,
    state_version INTEGER NOT NULL DEFAULT 1
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_job_details_run ON job_details(run_id) WHERE run_id IS NOT NULL;
