-- Sandboxed agent jobs. agents, agent_jobs, agent_outputs and agent_executions are exactly as
-- their documents have them: not one column, constraint or index more.

CREATE TABLE agents (
    id UUID NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    agent_level TEXT NOT NULL CHECK (agent_level IN ('L0', 'L1', 'L2')),
    llm_provider TEXT NOT NULL,
    llm_model TEXT NOT NULL,
    max_tokens INTEGER NOT NULL,
    temperature NUMERIC NOT NULL DEFAULT 0.2,
    allowed_skills TEXT[] NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT NOW()
);

CREATE INDEX idx_agents_level ON agents(agent_level);
CREATE INDEX idx_agents_provider ON agents(llm_provider);

CREATE TABLE agent_jobs (
    id UUID NOT NULL PRIMARY KEY,
    command_id UUID NOT NULL,
    plan_step_id UUID NOT NULL,
    agent_id UUID NOT NULL REFERENCES agents(id),
    identity_id UUID NOT NULL,
    context_id UUID NOT NULL,
    status TEXT NOT NULL DEFAULT 'created' CHECK (status IN ('created', 'running', 'completed', 'failed', 'cancelled')),
    token_limit INTEGER NOT NULL,
    tokens_used INTEGER DEFAULT 0,
    started_at TIMESTAMP,
    finished_at TIMESTAMP,
    created_at TIMESTAMP NOT NULL DEFAULT NOW()
);

CREATE INDEX idx_jobs_command ON agent_jobs(command_id);
CREATE INDEX idx_jobs_status ON agent_jobs(status);
CREATE INDEX idx_jobs_agent ON agent_jobs(agent_id);

CREATE TABLE agent_outputs (
    id UUID NOT NULL PRIMARY KEY,
    job_id UUID NOT NULL REFERENCES agent_jobs(id) ON DELETE CASCADE,
    output_type TEXT NOT NULL CHECK (output_type IN ('file', 'version', 'thread', 'dataset', 'log')),
    reference JSONB NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT NOW()
);

CREATE INDEX idx_outputs_job ON agent_outputs(job_id);
CREATE INDEX idx_outputs_type ON agent_outputs(output_type);

-- status and completed_at while it runs: 'timeout' and null. So a crash leaves a true row.
CREATE TABLE agent_executions (
    execution_id UUID NOT NULL PRIMARY KEY,
    agent_id UUID NOT NULL,
    agent_type VARCHAR(20) NOT NULL,
    execution_type VARCHAR(50) NOT NULL,
    input_data JSONB,
    output_data JSONB,
    status VARCHAR(20) NOT NULL,
    error_data JSONB,
    execution_duration_ms INTEGER NOT NULL DEFAULT 0 CHECK (execution_duration_ms >= 0),
    resource_usage JSONB,
    started_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    completed_at TIMESTAMPTZ
);

CREATE INDEX idx_agent_executions_agent_id ON agent_executions(agent_id);
CREATE INDEX idx_agent_executions_agent_type ON agent_executions(agent_type);
CREATE INDEX idx_agent_executions_execution_type ON agent_executions(execution_type);
CREATE INDEX idx_agent_executions_status ON agent_executions(status);
CREATE INDEX idx_agent_executions_started_at ON agent_executions(started_at);

-- What a job needs beside its own table: limits, the run it serves, why it failed.
CREATE TABLE job_details (
    job_id UUID NOT NULL PRIMARY KEY REFERENCES agent_jobs(id) ON DELETE CASCADE,
    tenant_id TEXT NOT NULL,
    run_id UUID,
    step_id UUID,
    effect_id UUID,
    constraints JSONB,
    input_digest BYTEA,
    failure_category TEXT CHECK (failure_category IN ('timeout', 'token_limit', 'memory_limit', 'rate_limit', 'crash', 'policy_violation')),
    usage JSONB,
    sandbox_state TEXT NOT NULL DEFAULT 'none' CHECK (sandbox_state IN ('none', 'open', 'locked', 'archived', 'destroyed')),
    deadline TIMESTAMPTZ,
    state_version BIGINT NOT NULL DEFAULT 1
);

CREATE INDEX idx_job_details_run ON job_details(run_id) WHERE run_id IS NOT NULL;
