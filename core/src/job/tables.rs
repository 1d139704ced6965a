//! The tables of the job room: agents, their jobs, outputs and executions.
//!
//! None of the four has a tenant column: read the `scoped_…` views.

use crate::record::{Column, ColumnType, Table, scoped};

scoped! {
    /// Execution profiles.
    AGENTS = "agents",
    SCOPED_AGENTS = "scoped_agents",
    rank: 400,
    key: &["id"],
    uniques: &[],
    columns: [
        Column::new("id", ColumnType::Uuid),
        Column::new("name", ColumnType::Text),
        Column::new("agent_level", ColumnType::Text),
        Column::new("llm_provider", ColumnType::Text),
        Column::new("llm_model", ColumnType::Text),
        Column::new("max_tokens", ColumnType::Int32),
        Column::new("temperature", ColumnType::Decimal).default(),
        Column::new("allowed_skills", ColumnType::Texts),
        Column::new("created_at", ColumnType::LocalTime).default(),
    ],
}

scoped! {
    /// One execution of an agent.
    AGENT_JOBS = "agent_jobs",
    SCOPED_AGENT_JOBS = "scoped_agent_jobs",
    rank: 401,
    key: &["id"],
    uniques: &[],
    columns: [
        Column::new("id", ColumnType::Uuid),
        Column::new("command_id", ColumnType::Uuid),
        Column::new("plan_step_id", ColumnType::Uuid),
        Column::new("agent_id", ColumnType::Uuid),
        Column::new("identity_id", ColumnType::Uuid),
        Column::new("context_id", ColumnType::Uuid),
        Column::new("status", ColumnType::Text).default(),
        Column::new("token_limit", ColumnType::Int32),
        Column::new("tokens_used", ColumnType::Int32).nullable().default(),
        Column::new("started_at", ColumnType::LocalTime).nullable(),
        Column::new("finished_at", ColumnType::LocalTime).nullable(),
        Column::new("created_at", ColumnType::LocalTime).default(),
    ],
}

scoped! {
    /// References to what a job produced.
    AGENT_OUTPUTS = "agent_outputs",
    SCOPED_AGENT_OUTPUTS = "scoped_agent_outputs",
    rank: 402,
    key: &["id"],
    uniques: &[],
    columns: [
        Column::new("id", ColumnType::Uuid),
        Column::new("job_id", ColumnType::Uuid),
        Column::new("output_type", ColumnType::Text),
        Column::new("reference", ColumnType::Json),
        Column::new("created_at", ColumnType::LocalTime).default(),
    ],
}

scoped! {
    /// Execution records: completed once, then frozen.
    AGENT_EXECUTIONS = "agent_executions",
    SCOPED_AGENT_EXECUTIONS = "scoped_agent_executions",
    rank: 403,
    key: &["execution_id"],
    uniques: &[],
    columns: [
        Column::new("execution_id", ColumnType::Uuid),
        Column::new("agent_id", ColumnType::Uuid),
        Column::new("agent_type", ColumnType::Text).chars(20),
        Column::new("execution_type", ColumnType::Text).chars(50),
        Column::new("input_data", ColumnType::Json).nullable(),
        Column::new("output_data", ColumnType::Json).nullable(),
        Column::new("status", ColumnType::Text).chars(20),
        Column::new("error_data", ColumnType::Json).nullable(),
        Column::new("execution_duration_ms", ColumnType::Int32).default(),
        Column::new("resource_usage", ColumnType::Json).nullable(),
        Column::new("started_at", ColumnType::Time).default(),
        Column::new("completed_at", ColumnType::Time).nullable(),
    ],
}

/// Job data that its own table has no columns for.
pub static JOB_DETAILS: Table = Table {
    name: "job_details",
    columns: &[
        Column::new("job_id", ColumnType::Uuid),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("run_id", ColumnType::Uuid).nullable(),
        Column::new("step_id", ColumnType::Uuid).nullable(),
        Column::new("effect_id", ColumnType::Uuid).nullable(),
        Column::new("constraints", ColumnType::Json).nullable(),
        Column::new("input_digest", ColumnType::Bytes).nullable(),
        Column::new("failure_category", ColumnType::Text).nullable(),
        Column::new("usage", ColumnType::Json).nullable(),
        Column::new("sandbox_state", ColumnType::Text).default(),
        Column::new("deadline", ColumnType::Time).nullable(),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["job_id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 404,
};

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
