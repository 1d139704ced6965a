//! The tables of the job room: agents, their jobs, outputs and executions.
//!
//! None of the four has a tenant column: read the `scoped_…` views.

use crate::record::{Decimal, Json, Table, scoped_table, table};
use crate::time::Timestamp;
use uuid::Uuid;

scoped_table! {
    /// Execution profiles.
    AGENTS = agents -> AgentRow,
    SCOPED_AGENTS = scoped_agents -> ScopedAgentRow {
        id: Uuid,
        name: String,
        agent_level: String,
        llm_provider: String,
        llm_model: String,
        max_tokens: i32,
        temperature: Decimal [default],
        allowed_skills: Vec<String>,
        created_at: Timestamp [local, default],
    }
    key: [id],
    rank: 400,
}

scoped_table! {
    /// One execution of an agent.
    AGENT_JOBS = agent_jobs -> AgentJobRow,
    SCOPED_AGENT_JOBS = scoped_agent_jobs -> ScopedAgentJobRow {
        id: Uuid,
        command_id: Uuid,
        plan_step_id: Uuid,
        agent_id: Uuid,
        identity_id: Uuid,
        context_id: Uuid,
        status: String [default],
        token_limit: i32,
        tokens_used: Option<i32> [default],
        started_at: Option<Timestamp> [local],
        finished_at: Option<Timestamp> [local],
        created_at: Timestamp [local, default],
    }
    key: [id],
    rank: 401,
}

scoped_table! {
    /// References to what a job produced.
    AGENT_OUTPUTS = agent_outputs -> AgentOutputRow,
    SCOPED_AGENT_OUTPUTS = scoped_agent_outputs -> ScopedAgentOutputRow {
        id: Uuid,
        job_id: Uuid,
        output_type: String,
        reference: Json,
        created_at: Timestamp [local, default],
    }
    key: [id],
    rank: 402,
}

scoped_table! {
    /// Execution records: completed once, then frozen.
    AGENT_EXECUTIONS = agent_executions -> AgentExecutionRow,
    SCOPED_AGENT_EXECUTIONS = scoped_agent_executions -> ScopedAgentExecutionRow {
        execution_id: Uuid,
        agent_id: Uuid,
        agent_type: String [chars(20)],
        execution_type: String [chars(50)],
        input_data: Option<Json>,
        output_data: Option<Json>,
        status: String [chars(20)],
        error_data: Option<Json>,
        execution_duration_ms: i32 [default],
        resource_usage: Option<Json>,
        started_at: Timestamp [default],
        completed_at: Option<Timestamp>,
    }
    key: [execution_id],
    rank: 403,
}

table! {
    /// Job data that its own table has no columns for.
    JOB_DETAILS = job_details -> JobDetailRow {
        job_id: Uuid,
        tenant_id: String,
        run_id: Option<Uuid>,
        step_id: Option<Uuid>,
        effect_id: Option<Uuid>,
        constraints: Option<Json>,
        input_digest: Option<Vec<u8>>,
        failure_category: Option<String>,
        usage: Option<Json>,
        sandbox_state: String [default],
        deadline: Option<Timestamp>,
        state_version: i64 [default],
    }
    key: [job_id],
    tenant: tenant_id,
    rank: 404,
}

/// The room's tables and views.
pub static ALL: &[&Table] = &[
    &AGENTS,
    &SCOPED_AGENTS,
    &AGENT_JOBS,
    &SCOPED_AGENT_JOBS,
    &AGENT_OUTPUTS,
    &SCOPED_AGENT_OUTPUTS,
    &AGENT_EXECUTIONS,
    &SCOPED_AGENT_EXECUTIONS,
    &JOB_DETAILS,
];
