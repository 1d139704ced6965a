//! The tables of the job room: agents, their jobs, outputs and executions.
//!
//! None of the four has a tenant column: read the `scoped_…` views.

use crate::record::{Column, Kind, Table, scoped};

scoped! {
    /// Execution profiles.
    AGENTS = "agents",
    SCOPED_AGENTS = "scoped_agents",
    rank: 400,
    key: &["id"],
    uniques: &[],
    columns: [
        Column::new("id", Kind::Uuid),
        Column::new("name", Kind::Text),
        Column::new("agent_level", Kind::Text),
        Column::new("llm_provider", Kind::Text),
        Column::new("llm_model", Kind::Text),
        Column::new("max_tokens", Kind::Int32),
        Column::new("temperature", Kind::Decimal).default(),
        Column::new("allowed_skills", Kind::Texts),
        Column::new("created_at", Kind::LocalTime).default(),
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
        Column::new("id", Kind::Uuid),
        Column::new("command_id", Kind::Uuid),
        Column::new("plan_step_id", Kind::Uuid),
        Column::new("agent_id", Kind::Uuid),
        Column::new("identity_id", Kind::Uuid),
        Column::new("context_id", Kind::Uuid),
        Column::new("status", Kind::Text).default(),
        Column::new("token_limit", Kind::Int32),
        Column::new("tokens_used", Kind::Int32).nullable().default(),
        Column::new("started_at", Kind::LocalTime).nullable(),
        Column::new("finished_at", Kind::LocalTime).nullable(),
        Column::new("created_at", Kind::LocalTime).default(),
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
        Column::new("id", Kind::Uuid),
        Column::new("job_id", Kind::Uuid),
        Column::new("output_type", Kind::Text),
        Column::new("reference", Kind::Json),
        Column::new("created_at", Kind::LocalTime).default(),
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
        Column::new("execution_id", Kind::Uuid),
        Column::new("agent_id", Kind::Uuid),
        Column::new("agent_type", Kind::Text).chars(20),
        Column::new("execution_type", Kind::Text).chars(50),
        Column::new("input_data", Kind::Json).nullable(),
        Column::new("output_data", Kind::Json).nullable(),
        Column::new("status", Kind::Text).chars(20),
        Column::new("error_data", Kind::Json).nullable(),
        Column::new("execution_duration_ms", Kind::Int32).default(),
        Column::new("resource_usage", Kind::Json).nullable(),
        Column::new("started_at", Kind::Time).default(),
        Column::new("completed_at", Kind::Time).nullable(),
    ],
}

/// Job data that its own table has no columns for.
pub static JOB_DETAILS: Table = Table {
    name: "job_details",
    columns: &[
        Column::new("job_id", Kind::Uuid),
        Column::new("tenant_id", Kind::Text),
        Column::new("run_id", Kind::Uuid).nullable(),
        Column::new("step_id", Kind::Uuid).nullable(),
        Column::new("effect_id", Kind::Uuid).nullable(),
        Column::new("constraints", Kind::Json).nullable(),
        Column::new("input_digest", Kind::Bytes).nullable(),
        Column::new("failure_category", Kind::Text).nullable(),
        Column::new("usage", Kind::Json).nullable(),
        Column::new("sandbox_state", Kind::Text).default(),
        Column::new("deadline", Kind::Time).nullable(),
        Column::new("state_version", Kind::Int).default(),
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
