//! The flow room's tables: workflows, runs, steps, tool calls, effects, signals, approvals.
//!
//! `runs` and `tool_calls` start with the columns that the audit schema prescribes, followed by our own.
//! `approval_requests` may not carry a tenant column: read `scoped_approvals` instead.

use crate::record::{Column, ColumnType, Table};

/// Workflow documents by version.
pub static WORKFLOWS: Table = Table {
    name: "workflows",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("workflow_id", ColumnType::Text),
        Column::new("version", ColumnType::Int),
        Column::new("digest", ColumnType::Bytes),
        Column::new("document", ColumnType::ExactJson),
        Column::new("created_by", ColumnType::Text),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("shared_from", ColumnType::Text).nullable(),
    ],
    key: &["tenant_id", "workflow_id", "version"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 300,
};

/// Workflows that every tenant may start.
pub static WORKFLOW_SHARES: Table = Table {
    name: "workflow_shares",
    columns: &[
        Column::new("workflow_id", ColumnType::Text),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("shared_by", ColumnType::Text),
        Column::new("created_at", ColumnType::Time).default(),
    ],
    key: &["workflow_id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 301,
};

/// One execution of a plan or workflow.
pub static RUNS: Table = Table {
    name: "runs",
    columns: &[
        Column::new("id", ColumnType::Uuid),
        Column::new("actor", ColumnType::Text),
        Column::new("request_payload", ColumnType::Json),
        Column::new("status", ColumnType::Text),
        Column::new("autonomy_level", ColumnType::Text).nullable(),
        Column::new("trace_id", ColumnType::Text).fresh(),
        Column::new("idempotency_key", ColumnType::Text).nullable(),
        Column::new("created_at", ColumnType::Time).nullable().default(),
        Column::new("completed_at", ColumnType::Time).nullable(),
        Column::new("error_message", ColumnType::Text).nullable(),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("state_version", ColumnType::Int).default(),
        Column::new("source", ColumnType::Text).default(),
        Column::new("workflow_id", ColumnType::Text).nullable(),
        Column::new("workflow_version", ColumnType::Int).nullable(),
        Column::new("workflow_digest", ColumnType::Bytes).nullable(),
        Column::new("inputs", ColumnType::Json).nullable(),
        Column::new("plan_digest", ColumnType::Bytes).nullable(),
        Column::new("patches", ColumnType::Int32).default(),
        Column::new("priority", ColumnType::Int32).default(),
        Column::new("dry_run", ColumnType::Bool).default(),
        Column::new("correlation_id", ColumnType::Text).nullable(),
        Column::new("parent_run_id", ColumnType::Uuid).nullable(),
        Column::new("parent_step_id", ColumnType::Uuid).nullable(),
        Column::new("replay_of", ColumnType::Uuid).nullable(),
        Column::new("replay_mode", ColumnType::Text).nullable(),
        Column::new("cancel_requested", ColumnType::Bool).default(),
        Column::new("pause_requested", ColumnType::Bool).default(),
        Column::new("run_seq", ColumnType::Int).default(),
        Column::new("owner_lane", ColumnType::Int).nullable(),
        Column::new("owner_epoch", ColumnType::Int).nullable(),
        Column::new("next_deadline", ColumnType::Time).nullable(),
        Column::new("notify", ColumnType::Json).nullable(),
        Column::new("risk", ColumnType::Json).nullable(),
        Column::new("result", ColumnType::Json).nullable(),
        Column::new("error_data", ColumnType::Json).nullable(),
        Column::new("depth", ColumnType::Int32).default(),
        Column::new("replay_from", ColumnType::Text).nullable(),
        Column::new("timeout_at", ColumnType::Time).nullable(),
        Column::new("plan", ColumnType::Json).nullable(),
        Column::new("rollback", ColumnType::Json).nullable(),
        Column::new("restored_at", ColumnType::Time).nullable(),
        Column::new("in_doubt_since", ColumnType::Time).nullable(),
        Column::new("actor_kind", ColumnType::Text).nullable(),
        Column::new("co_requesters", ColumnType::Texts).nullable(),
        Column::new("paused_by", ColumnType::Text).nullable(),
        Column::new("paused_by_kind", ColumnType::Text).nullable(),
    ],
    key: &["id"],
    uniques: &[&["trace_id"], &["idempotency_key"]],
    tenant: Some("tenant_id"),
    rank: 301,
};

/// The nodes of a run.
pub static STEPS: Table = Table {
    name: "steps",
    columns: &[
        Column::new("id", ColumnType::Uuid),
        Column::new("run_id", ColumnType::Uuid),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("node_id", ColumnType::Text),
        Column::new("node_type", ColumnType::Text).default(),
        Column::new("position", ColumnType::Int32),
        Column::new("parent_step_id", ColumnType::Uuid).nullable(),
        Column::new("map_index", ColumnType::Int32).nullable(),
        Column::new("tool", ColumnType::Text).nullable(),
        Column::new("tool_version", ColumnType::Text).nullable(),
        Column::new("input", ColumnType::Json).nullable(),
        Column::new("input_digest", ColumnType::Bytes).nullable(),
        Column::new("status", ColumnType::Text),
        Column::new("attempt", ColumnType::Int32).default(),
        Column::new("output", ColumnType::Json).nullable(),
        Column::new("error", ColumnType::Json).nullable(),
        Column::new("child_run_id", ColumnType::Uuid).nullable(),
        Column::new("retry_at", ColumnType::Time).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("started_at", ColumnType::Time).nullable(),
        Column::new("completed_at", ColumnType::Time).nullable(),
        Column::new("completed_seq", ColumnType::Int).nullable(),
        Column::new("state_version", ColumnType::Int).default(),
        Column::new("in_doubt_since", ColumnType::Time).nullable(),
    ],
    key: &["id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 302,
};

/// Every attempt of a tool call, with input and outcome.
pub static TOOL_CALLS: Table = Table {
    name: "tool_calls",
    columns: &[
        Column::new("id", ColumnType::Uuid),
        Column::new("step_id", ColumnType::Uuid).nullable(),
        Column::new("tool_name", ColumnType::Text),
        Column::new("tool_input", ColumnType::Json),
        Column::new("tool_output", ColumnType::Json).nullable(),
        Column::new("error", ColumnType::Text).nullable(),
        Column::new("duration_ms", ColumnType::Int32).nullable(),
        Column::new("dry_run", ColumnType::Bool).nullable().default(),
        Column::new("idempotency_key", ColumnType::Text).nullable(),
        Column::new("created_at", ColumnType::Time).nullable().default(),
        Column::new("actor", ColumnType::Text).nullable(),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("run_id", ColumnType::Uuid),
        Column::new("effect_id", ColumnType::Uuid).nullable(),
        Column::new("attempt", ColumnType::Int32).default(),
        Column::new("outcome", ColumnType::Text).nullable(),
        Column::new("error_data", ColumnType::Json).nullable(),
        Column::new("completed_at", ColumnType::Time).nullable(),
    ],
    key: &["id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 303,
};

/// External effects, written before they are dispatched (write-ahead).
pub static EFFECTS: Table = Table {
    name: "effects",
    columns: &[
        Column::new("id", ColumnType::Uuid),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("run_id", ColumnType::Uuid),
        Column::new("step_id", ColumnType::Uuid),
        Column::new("kind", ColumnType::Text).default(),
        Column::new("tool", ColumnType::Text),
        Column::new("status", ColumnType::Text),
        Column::new("idempotency_key", ColumnType::Text),
        Column::new("attempt", ColumnType::Int32).default(),
        Column::new("deadline", ColumnType::Time).nullable(),
        Column::new("input_digest", ColumnType::Bytes),
        Column::new("result_ref", ColumnType::Text).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("dispatched_at", ColumnType::Time).nullable(),
        Column::new("settled_at", ColumnType::Time).nullable(),
        Column::new("state_version", ColumnType::Int).default(),
    ],
    key: &["id"],
    uniques: &[&["tenant_id", "idempotency_key"]],
    tenant: Some("tenant_id"),
    rank: 304,
};

/// Signals to the node that owns a run.
pub static RUN_SIGNALS: Table = Table {
    name: "run_signals",
    columns: &[
        Column::new("run_id", ColumnType::Uuid),
        Column::new("id", ColumnType::Uuid),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("kind", ColumnType::Text),
        Column::new("payload", ColumnType::Json),
        Column::new("created_at", ColumnType::Time).default(),
    ],
    key: &["run_id", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 305,
};

pub static TIMERS: Table = Table {
    name: "timers",
    columns: &[
        Column::new("id", ColumnType::Uuid),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("run_id", ColumnType::Uuid).nullable(),
        Column::new("step_id", ColumnType::Uuid).nullable(),
        Column::new("kind", ColumnType::Text),
        Column::new("due_at", ColumnType::Time),
        Column::new("payload", ColumnType::Json).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
    ],
    key: &["id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 306,
};

/// Patches to the graph of a run.
pub static RUN_PATCHES: Table = Table {
    name: "run_patches",
    columns: &[
        Column::new("run_id", ColumnType::Uuid),
        Column::new("number", ColumnType::Int32),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("patch", ColumnType::ExactJson),
        Column::new("digest", ColumnType::Bytes),
        Column::new("status", ColumnType::Text),
        Column::new("actor", ColumnType::Text),
        Column::new("justification", ColumnType::Text).nullable(),
        Column::new("approval_request_id", ColumnType::Uuid).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
        Column::new("inverse", ColumnType::Json).nullable(),
        Column::new("reason", ColumnType::Text).nullable(),
        Column::new("actor_kind", ColumnType::Text).nullable(),
    ],
    key: &["run_id", "number"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 307,
};

/// Cached tool outputs.
pub static CACHE_ENTRIES: Table = Table {
    name: "cache_entries",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("workflow_id", ColumnType::Text),
        Column::new("cache_key", ColumnType::Text),
        Column::new("tool_version", ColumnType::Text),
        Column::new("output", ColumnType::Json),
        Column::new("run_id", ColumnType::Uuid),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("expires_at", ColumnType::Time).nullable(),
    ],
    key: &["tenant_id", "workflow_id", "cache_key"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 308,
};

/// Messages in an actor's inbox, in order of arrival.
pub static INBOX_MESSAGES: Table = Table {
    name: "inbox_messages",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("actor", ColumnType::Text),
        Column::new("id", ColumnType::Uuid).fresh(),
        Column::new("run_id", ColumnType::Uuid),
        Column::new("event_type", ColumnType::Text),
        Column::new("data", ColumnType::Json).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
    ],
    key: &["tenant_id", "actor", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 313,
};

/// Outgoing messages to people and systems.
pub static NOTIFICATIONS: Table = Table {
    name: "notifications",
    columns: &[
        Column::new("id", ColumnType::Uuid),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("run_id", ColumnType::Uuid).nullable(),
        Column::new("channel", ColumnType::Text),
        Column::new("target", ColumnType::Text),
        Column::new("payload", ColumnType::Json),
        Column::new("status", ColumnType::Text).default(),
        Column::new("attempt", ColumnType::Int32).default(),
        Column::new("next_attempt_at", ColumnType::Time).nullable(),
        Column::new("sent_at", ColumnType::Time).nullable(),
        Column::new("error", ColumnType::Json).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
        Column::new("approval_id", ColumnType::Uuid).nullable(),
        Column::new("deliveries", ColumnType::Json).default(),
    ],
    key: &["id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 309,
};

/// Approval requests. Read them through `SCOPED_APPROVALS`.
pub static APPROVAL_REQUESTS: Table = Table {
    name: "approval_requests",
    columns: &[
        Column::new("approval_request_id", ColumnType::Uuid),
        Column::new("action_type", ColumnType::Text).chars(50),
        Column::new("action_data", ColumnType::Json),
        Column::new("requester_agent_id", ColumnType::Uuid),
        Column::new("workflow_type", ColumnType::Text).chars(50),
        Column::new("status", ColumnType::Text).default().chars(20),
        Column::new("policy_references", ColumnType::Texts),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("reviewed_at", ColumnType::Time).nullable(),
        Column::new("reviewed_by", ColumnType::Text).nullable().chars(255),
        Column::new("review_decision", ColumnType::Text).nullable().chars(20),
        Column::new("review_notes", ColumnType::Text).nullable(),
        Column::new("expires_at", ColumnType::Time).nullable(),
    ],
    key: &["approval_request_id"],
    uniques: &[],
    tenant: None,
    rank: 310,
};

/// What an approval covers, and the decisions so far.
pub static APPROVAL_DETAILS: Table = Table {
    name: "approval_details",
    columns: &[
        Column::new("approval_request_id", ColumnType::Uuid),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("action_digest", ColumnType::Bytes),
        Column::new("run_id", ColumnType::Uuid).nullable(),
        Column::new("step_id", ColumnType::Uuid).nullable(),
        Column::new("node_id", ColumnType::Text).nullable(),
        Column::new("requester_actor", ColumnType::Text),
        Column::new("approvals_needed", ColumnType::Int32).default(),
        Column::new("approvers", ColumnType::Texts).nullable(),
        Column::new("decisions", ColumnType::Json).default(),
        Column::new("risk", ColumnType::Json).nullable(),
        Column::new("state_version", ColumnType::Int).default(),
        Column::new("co_requesters", ColumnType::Texts).nullable(),
    ],
    key: &["approval_request_id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 311,
};

/// A view: approval requests with their tenant and details.
pub static SCOPED_APPROVALS: Table = Table {
    name: "scoped_approvals",
    columns: &[
        Column::new("approval_request_id", ColumnType::Uuid),
        Column::new("action_type", ColumnType::Text).chars(50),
        Column::new("action_data", ColumnType::Json),
        Column::new("requester_agent_id", ColumnType::Uuid),
        Column::new("workflow_type", ColumnType::Text).chars(50),
        Column::new("status", ColumnType::Text).chars(20),
        Column::new("policy_references", ColumnType::Texts),
        Column::new("created_at", ColumnType::Time),
        Column::new("reviewed_at", ColumnType::Time).nullable(),
        Column::new("reviewed_by", ColumnType::Text).nullable().chars(255),
        Column::new("review_decision", ColumnType::Text).nullable().chars(20),
        Column::new("review_notes", ColumnType::Text).nullable(),
        Column::new("expires_at", ColumnType::Time).nullable(),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("campaign_id", ColumnType::Text).nullable(),
        Column::new("swarm_task_id", ColumnType::Text).nullable(),
        Column::new("trace_id", ColumnType::Text).nullable(),
        Column::new("action_digest", ColumnType::Bytes),
        Column::new("run_id", ColumnType::Uuid).nullable(),
        Column::new("step_id", ColumnType::Uuid).nullable(),
        Column::new("node_id", ColumnType::Text).nullable(),
        Column::new("requester_actor", ColumnType::Text),
        Column::new("approvals_needed", ColumnType::Int32),
        Column::new("approvers", ColumnType::Texts).nullable(),
        Column::new("decisions", ColumnType::Json),
        Column::new("risk", ColumnType::Json).nullable(),
        Column::new("state_version", ColumnType::Int),
        Column::new("co_requesters", ColumnType::Texts).nullable(),
    ],
    key: &["approval_request_id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 950,
};

/// Who may read which blob.
pub static ARTIFACTS: Table = Table {
    name: "artifacts",
    columns: &[
        Column::new("tenant_id", ColumnType::Text),
        Column::new("sha256", ColumnType::Bytes),
        Column::new("size_bytes", ColumnType::Int),
        Column::new("media_type", ColumnType::Text),
        Column::new("created_by", ColumnType::Text).nullable(),
        Column::new("run_id", ColumnType::Uuid).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
    ],
    key: &["tenant_id", "sha256"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 203,
};

/// The room's tables and views.
pub static ALL: &[&Table] = &[
    &WORKFLOWS,
    &WORKFLOW_SHARES,
    &RUNS,
    &STEPS,
    &TOOL_CALLS,
    &EFFECTS,
    &RUN_SIGNALS,
    &TIMERS,
    &RUN_PATCHES,
    &CACHE_ENTRIES,
    &NOTIFICATIONS,
    &INBOX_MESSAGES,
    &APPROVAL_REQUESTS,
    &APPROVAL_DETAILS,
    &SCOPED_APPROVALS,
    &ARTIFACTS,
];
