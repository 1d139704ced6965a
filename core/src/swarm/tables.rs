//! The tables of the swarm room: plans and tasks, goals, results, decisions, publications, payments.
//!
//! Tables without the prefix are fixed by their specification and have no tenant column: read the `scoped_…` views.
//! In tables with the prefix every key begins with the tenant.

use crate::record::{Column, ColumnType, Table, scoped};

scoped! {
    /// Objectives that planners decompose.
    OBJECTIVES = "objectives",
    SCOPED_OBJECTIVES = "scoped_objectives",
    rank: 500,
    key: &["objective_id"],
    uniques: &[],
    columns: [
        Column::new("objective_id", ColumnType::Uuid),
        Column::new("objective_type", ColumnType::Text).chars(50),
        Column::new("objective_data", ColumnType::Json),
        Column::new("status", ColumnType::Text).default().chars(20),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("completed_at", ColumnType::Time).nullable(),
        Column::new("spec_version", ColumnType::Text).chars(20),
    ],
}

scoped! {
    /// Plans as created.
    PLANS = "plans",
    SCOPED_PLANS = "scoped_plans",
    rank: 501,
    key: &["plan_id"],
    uniques: &[],
    columns: [
        Column::new("plan_id", ColumnType::Uuid),
        Column::new("objective_id", ColumnType::Uuid),
        Column::new("plan_data", ColumnType::Json),
        Column::new("status", ColumnType::Text).default().chars(20),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("completed_at", ColumnType::Time).nullable(),
        Column::new("spec_version", ColumnType::Text).chars(20),
    ],
}

scoped! {
    TASKS = "tasks",
    SCOPED_TASKS = "scoped_tasks",
    rank: 502,
    key: &["task_id"],
    uniques: &[],
    columns: [
        Column::new("task_id", ColumnType::Uuid),
        Column::new("plan_id", ColumnType::Uuid),
        Column::new("task_type", ColumnType::Text).chars(50),
        Column::new("required_skill", ColumnType::Text).chars(100),
        Column::new("input_parameters", ColumnType::Json),
        Column::new("success_criteria", ColumnType::Json),
        Column::new("depends_on", ColumnType::Uuids).nullable(),
        Column::new("status", ColumnType::Text).default().chars(20),
        Column::new("assigned_agent_id", ColumnType::Uuid).nullable(),
        Column::new("priority", ColumnType::Int32).default(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("started_at", ColumnType::Time).nullable(),
        Column::new("completed_at", ColumnType::Time).nullable(),
        Column::new("output_data", ColumnType::Json).nullable(),
        Column::new("error_data", ColumnType::Json).nullable(),
    ],
}

scoped! {
    /// Skill invocations.
    SKILL_INVOCATIONS = "skill_invocations",
    SCOPED_SKILL_INVOCATIONS = "scoped_skill_invocations",
    rank: 503,
    key: &["invocation_id"],
    uniques: &[&["idempotency_key"]],
    columns: [
        Column::new("invocation_id", ColumnType::Uuid),
        Column::new("task_id", ColumnType::Uuid).nullable(),
        Column::new("skill_id", ColumnType::Text).chars(100),
        Column::new("agent_id", ColumnType::Uuid),
        Column::new("input_parameters", ColumnType::Json),
        Column::new("output_data", ColumnType::Json).nullable(),
        Column::new("status", ColumnType::Text).chars(20),
        Column::new("error_data", ColumnType::Json).nullable(),
        Column::new("execution_duration_ms", ColumnType::Int32).default(),
        Column::new("resource_usage", ColumnType::Json).nullable(),
        Column::new("idempotency_key", ColumnType::Text).nullable().chars(255),
        Column::new("invoked_at", ColumnType::Time).default(),
        Column::new("completed_at", ColumnType::Time),
    ],
}

scoped! {
    /// Observed trends.
    TRENDS = "trends",
    SCOPED_TRENDS = "scoped_trends",
    rank: 504,
    key: &["trend_id"],
    uniques: &[],
    columns: [
        Column::new("trend_id", ColumnType::Uuid),
        Column::new("title", ColumnType::Text).chars(500),
        Column::new("description", ColumnType::Text).nullable(),
        Column::new("source", ColumnType::Text).chars(50),
        Column::new("source_agent_id", ColumnType::Uuid).nullable(),
        Column::new("relevance_score", ColumnType::Decimal),
        Column::new("observed_at", ColumnType::Time),
        Column::new("metadata", ColumnType::Json).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
    ],
}

pub static SWARM_CAMPAIGNS: Table = Table {
    name: "swarm_campaigns",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("name", ColumnType::Text),
        Column::new("status", ColumnType::Text).default(),
        Column::new("persona_id", ColumnType::Text).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 505,
};

pub static SWARM_GOALS: Table = Table {
    name: "swarm_goals",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("campaign_id", ColumnType::Text),
        Column::new("description", ColumnType::Text),
        Column::new("status", ColumnType::Text).default(),
        Column::new("objective_id", ColumnType::Uuid).nullable(),
        Column::new("run_id", ColumnType::Uuid).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[&["tenant_id", "campaign_id", "id"]],
    tenant: Some("tenant_id"),
    rank: 506,
};

/// Tasks with their immutable specification.
pub static SWARM_TASKS: Table = Table {
    name: "swarm_tasks",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("campaign_id", ColumnType::Text),
        Column::new("goal_id", ColumnType::Text),
        Column::new("task_type", ColumnType::Text),
        Column::new("priority", ColumnType::Text).default(),
        Column::new("status", ColumnType::Text).default(),
        Column::new("spec_json", ColumnType::ExactJson),
        Column::new("idempotency_key", ColumnType::Text),
        Column::new("replaces_task_id", ColumnType::Text).nullable(),
        Column::new("plan_task_id", ColumnType::Uuid).nullable(),
        Column::new("run_id", ColumnType::Uuid).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[&["plan_task_id"], &["tenant_id", "campaign_id", "id"], &["tenant_id", "idempotency_key"]],
    tenant: Some("tenant_id"),
    rank: 507,
};

/// Dependencies between tasks.
pub static SWARM_TASK_DEPENDENCIES: Table = Table {
    name: "swarm_task_dependencies",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("task_id", ColumnType::Text),
        Column::new("depends_on_task_id", ColumnType::Text),
    ],
    key: &["tenant_id", "id"],
    uniques: &[&["tenant_id", "task_id", "depends_on_task_id"]],
    tenant: Some("tenant_id"),
    rank: 508,
};

pub static SWARM_ENVELOPES: Table = Table {
    name: "swarm_envelopes",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("campaign_id", ColumnType::Text).nullable(),
        Column::new("goal_id", ColumnType::Text).nullable(),
        Column::new("task_id", ColumnType::Text).nullable(),
        Column::new("correlation_id", ColumnType::Text).nullable(),
        Column::new("created_at", ColumnType::Time),
        Column::new("role", ColumnType::Text),
        Column::new("type", ColumnType::Text),
        Column::new("status", ColumnType::Text),
        Column::new("confidence_score", ColumnType::Decimal).nullable(),
        Column::new("risk_tags", ColumnType::Texts).default(),
        Column::new("idempotency_key", ColumnType::Text).nullable(),
        Column::new("payload", ColumnType::Json),
        Column::new("error", ColumnType::Json).nullable(),
        Column::new("received_at", ColumnType::Time).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 509,
};

pub static SWARM_WORKER_RUNS: Table = Table {
    name: "swarm_worker_runs",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("task_id", ColumnType::Text),
        Column::new("attempt_number", ColumnType::Int32),
        Column::new("status", ColumnType::Text).default(),
        Column::new("envelope_id", ColumnType::Text).nullable(),
        Column::new("job_id", ColumnType::Uuid).nullable(),
        Column::new("started_at", ColumnType::Time).default(),
        Column::new("finished_at", ColumnType::Time).nullable(),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[&["tenant_id", "task_id", "attempt_number"], &["tenant_id", "task_id", "id"]],
    tenant: Some("tenant_id"),
    rank: 510,
};

/// Results of attempts.
pub static SWARM_WORKER_RESULTS: Table = Table {
    name: "swarm_worker_results",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("task_id", ColumnType::Text),
        Column::new("worker_run_id", ColumnType::Text),
        Column::new("status", ColumnType::Text),
        Column::new("confidence_score", ColumnType::Decimal),
        Column::new("risk_tags_json", ColumnType::Json),
        Column::new("outputs_json", ColumnType::Json),
        Column::new("error_json", ColumnType::Json).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[&["tenant_id", "worker_run_id"], &["tenant_id", "task_id", "id"]],
    tenant: Some("tenant_id"),
    rank: 511,
};

const DECISION_COLUMNS: &[Column] = &[
    Column::new("tenant_id", ColumnType::Text),
    Column::new("id", ColumnType::Text),
    Column::new("task_id", ColumnType::Text),
    Column::new("worker_result_id", ColumnType::Text),
    Column::new("round", ColumnType::Int32).default(),
    Column::new("supersedes_round", ColumnType::Int32).nullable(),
    Column::new("decision", ColumnType::Text),
    Column::new("state_version_used", ColumnType::Int),
    Column::new("reason_summary", ColumnType::Text),
    Column::new("policy_checks_json", ColumnType::Json),
    Column::new("required_actions_json", ColumnType::Json).nullable(),
    Column::new("override_json", ColumnType::Json).nullable(),
    Column::new("human_review_required", ColumnType::Bool),
    Column::new("human_reviewer_id", ColumnType::Text).nullable(),
    Column::new("envelope_id", ColumnType::Text).nullable(),
    Column::new("decided_at", ColumnType::Time).default(),
];

/// Verdicts on results, append-only.
pub static SWARM_JUDGE_DECISIONS: Table = Table {
    name: "swarm_judge_decisions",
    columns: DECISION_COLUMNS,
    key: &["tenant_id", "id"],
    uniques: &[&["tenant_id", "worker_result_id", "round"], &["tenant_id", "task_id", "id"]],
    tenant: Some("tenant_id"),
    rank: 512,
};

/// The effective decision for each result.
pub static SWARM_DECISIONS_IN_FORCE: Table = Table {
    name: "swarm_decisions_in_force",
    columns: DECISION_COLUMNS,
    key: &["tenant_id", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 950,
};

pub static SWARM_MEDIA_ASSETS: Table = Table {
    name: "swarm_media_assets",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("campaign_id", ColumnType::Text),
        Column::new("task_id", ColumnType::Text).nullable(),
        Column::new("kind", ColumnType::Text),
        Column::new("storage_uri", ColumnType::Text),
        Column::new("duration_seconds", ColumnType::Decimal).nullable(),
        Column::new("width", ColumnType::Int32).nullable(),
        Column::new("height", ColumnType::Int32).nullable(),
        Column::new("format", ColumnType::Text).nullable(),
        Column::new("character_id", ColumnType::Text).nullable(),
        Column::new("metadata_json", ColumnType::Json).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 513,
};

pub static SWARM_PUBLISH_EVENTS: Table = Table {
    name: "swarm_publish_events",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("campaign_id", ColumnType::Text),
        Column::new("task_id", ColumnType::Text),
        Column::new("media_asset_id", ColumnType::Text).nullable(),
        Column::new("judge_decision_id", ColumnType::Text).nullable(),
        Column::new("channel", ColumnType::Text),
        Column::new("external_post_id", ColumnType::Text).nullable(),
        Column::new("published_at", ColumnType::Time).nullable(),
        Column::new("status", ColumnType::Text).default(),
        Column::new("disclosure_applied", ColumnType::Bool).default(),
        Column::new("idempotency_key", ColumnType::Text),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[&["tenant_id", "idempotency_key"]],
    tenant: Some("tenant_id"),
    rank: 514,
};

pub static SWARM_WALLETS: Table = Table {
    name: "swarm_wallets",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("agent_or_campaign_id", ColumnType::Text),
        Column::new("kind", ColumnType::Text),
        Column::new("provider_ref", ColumnType::Text),
        Column::new("created_at", ColumnType::Time).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 515,
};

pub static SWARM_TRANSACTIONS: Table = Table {
    name: "swarm_transactions",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("wallet_id", ColumnType::Text),
        Column::new("task_id", ColumnType::Text).nullable(),
        Column::new("judge_decision_id", ColumnType::Text).nullable(),
        Column::new("direction", ColumnType::Text),
        Column::new("amount", ColumnType::Decimal),
        Column::new("currency", ColumnType::Text),
        Column::new("chain_tx_hash", ColumnType::Text).nullable(),
        Column::new("requested_at", ColumnType::Time).default(),
        Column::new("executed_at", ColumnType::Time).nullable(),
        Column::new("status", ColumnType::Text).default(),
        Column::new("idempotency_key", ColumnType::Text),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[&["tenant_id", "idempotency_key"], &["tenant_id", "judge_decision_id"]],
    tenant: Some("tenant_id"),
    rank: 516,
};

/// Spending limits.
pub static SWARM_BUDGETS: Table = Table {
    name: "swarm_budgets",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("id", ColumnType::Text),
        Column::new("campaign_id", ColumnType::Text).nullable(),
        Column::new("wallet_id", ColumnType::Text).nullable(),
        Column::new("currency", ColumnType::Text),
        Column::new("limit_amount", ColumnType::Decimal),
        Column::new("reserved_amount", ColumnType::Decimal).default(),
        Column::new("spent_amount", ColumnType::Decimal).default(),
        Column::new("period_start", ColumnType::Time).nullable(),
        Column::new("period_end", ColumnType::Time).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["tenant_id", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 517,
};

/// The room's tables and views.
pub static ALL: &[&Table] = &[
    &OBJECTIVES,
    &SCOPED_OBJECTIVES,
    &PLANS,
    &SCOPED_PLANS,
    &TASKS,
    &SCOPED_TASKS,
    &SKILL_INVOCATIONS,
    &SCOPED_SKILL_INVOCATIONS,
    &TRENDS,
    &SCOPED_TRENDS,
    &SWARM_CAMPAIGNS,
    &SWARM_GOALS,
    &SWARM_TASKS,
    &SWARM_TASK_DEPENDENCIES,
    &SWARM_ENVELOPES,
    &SWARM_WORKER_RUNS,
    &SWARM_WORKER_RESULTS,
    &SWARM_JUDGE_DECISIONS,
    &SWARM_DECISIONS_IN_FORCE,
    &SWARM_MEDIA_ASSETS,
    &SWARM_PUBLISH_EVENTS,
    &SWARM_WALLETS,
    &SWARM_TRANSACTIONS,
    &SWARM_BUDGETS,
];
