//! The flow room's tables: workflows, runs, steps, tool calls, effects, signals, approvals.
//!
//! `runs` and `tool_calls` start with the columns that the audit schema prescribes, followed by our own.
//! `approval_requests` may not carry a tenant column: read `scoped_approvals` instead.

use crate::record::{Column, Kind, Table};

/// Workflow documents by version.
pub static WORKFLOWS: Table = Table {
    name: "workflows",
    columns: &[
        Column::new("tenant_id", Kind::Text),
        Column::new("workflow_id", Kind::Text),
        Column::new("version", Kind::Int),
        Column::new("digest", Kind::Bytes),
        Column::new("document", Kind::ExactJson),
        Column::new("created_by", Kind::Text),
        Column::new("created_at", Kind::Time).default(),
        Column::new("shared_from", Kind::Text).nullable(),
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
        Column::new("workflow_id", Kind::Text),
        Column::new("tenant_id", Kind::Text),
        Column::new("shared_by", Kind::Text),
        Column::new("created_at", Kind::Time).default(),
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
        Column::new("id", Kind::Uuid),
        Column::new("actor", Kind::Text),
        Column::new("request_payload", Kind::Json),
        Column::new("status", Kind::Text),
        Column::new("autonomy_level", Kind::Text).nullable(),
        Column::new("trace_id", Kind::Text).fresh(),
        Column::new("idempotency_key", Kind::Text).nullable(),
        Column::new("created_at", Kind::Time).nullable().default(),
        Column::new("completed_at", Kind::Time).nullable(),
        Column::new("error_message", Kind::Text).nullable(),
        Column::new("tenant_id", Kind::Text),
        Column::new("state_version", Kind::Int).default(),
        Column::new("source", Kind::Text).default(),
        Column::new("workflow_id", Kind::Text).nullable(),
        Column::new("workflow_version", Kind::Int).nullable(),
        Column::new("workflow_digest", Kind::Bytes).nullable(),
        Column::new("inputs", Kind::Json).nullable(),
        Column::new("plan_digest", Kind::Bytes).nullable(),
        Column::new("patches", Kind::Int32).default(),
        Column::new("priority", Kind::Int32).default(),
        Column::new("dry_run", Kind::Bool).default(),
        Column::new("correlation_id", Kind::Text).nullable(),
        Column::new("parent_run_id", Kind::Uuid).nullable(),
        Column::new("parent_step_id", Kind::Uuid).nullable(),
        Column::new("replay_of", Kind::Uuid).nullable(),
        Column::new("replay_mode", Kind::Text).nullable(),
        Column::new("cancel_requested", Kind::Bool).default(),
        Column::new("pause_requested", Kind::Bool).default(),
        Column::new("run_seq", Kind::Int).default(),
        Column::new("owner_lane", Kind::Int).nullable(),
        Column::new("owner_epoch", Kind::Int).nullable(),
        Column::new("next_deadline", Kind::Time).nullable(),
        Column::new("notify", Kind::Json).nullable(),
        Column::new("risk", Kind::Json).nullable(),
        Column::new("result", Kind::Json).nullable(),
        Column::new("error_data", Kind::Json).nullable(),
        Column::new("depth", Kind::Int32).default(),
        Column::new("replay_from", Kind::Text).nullable(),
        Column::new("timeout_at", Kind::Time).nullable(),
        Column::new("plan", Kind::Json).nullable(),
        Column::new("rollback", Kind::Json).nullable(),
        Column::new("restored_at", Kind::Time).nullable(),
        Column::new("in_doubt_since", Kind::Time).nullable(),
        Column::new("actor_kind", Kind::Text).nullable(),
        Column::new("co_requesters", Kind::Texts).nullable(),
        Column::new("paused_by", Kind::Text).nullable(),
        Column::new("paused_by_kind", Kind::Text).nullable(),
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
        Column::new("id", Kind::Uuid),
        Column::new("run_id", Kind::Uuid),
        Column::new("tenant_id", Kind::Text),
        Column::new("node_id", Kind::Text),
        Column::new("node_type", Kind::Text).default(),
        Column::new("position", Kind::Int32),
        Column::new("parent_step_id", Kind::Uuid).nullable(),
        Column::new("map_index", Kind::Int32).nullable(),
        Column::new("tool", Kind::Text).nullable(),
        Column::new("tool_version", Kind::Text).nullable(),
        Column::new("input", Kind::Json).nullable(),
        Column::new("input_digest", Kind::Bytes).nullable(),
        Column::new("status", Kind::Text),
        Column::new("attempt", Kind::Int32).default(),
        Column::new("output", Kind::Json).nullable(),
        Column::new("error", Kind::Json).nullable(),
        Column::new("child_run_id", Kind::Uuid).nullable(),
        Column::new("retry_at", Kind::Time).nullable(),
        Column::new("created_at", Kind::Time).default(),
        Column::new("started_at", Kind::Time).nullable(),
        Column::new("completed_at", Kind::Time).nullable(),
        Column::new("completed_seq", Kind::Int).nullable(),
        Column::new("state_version", Kind::Int).default(),
        Column::new("in_doubt_since", Kind::Time).nullable(),
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
        Column::new("id", Kind::Uuid),
        Column::new("step_id", Kind::Uuid).nullable(),
        Column::new("tool_name", Kind::Text),
        Column::new("tool_input", Kind::Json),
        Column::new("tool_output", Kind::Json).nullable(),
        Column::new("error", Kind::Text).nullable(),
        Column::new("duration_ms", Kind::Int32).nullable(),
        Column::new("dry_run", Kind::Bool).nullable().default(),
        Column::new("idempotency_key", Kind::Text).nullable(),
        Column::new("created_at", Kind::Time).nullable().default(),
        Column::new("actor", Kind::Text).nullable(),
        Column::new("tenant_id", Kind::Text),
        Column::new("run_id", Kind::Uuid),
        Column::new("effect_id", Kind::Uuid).nullable(),
        Column::new("attempt", Kind::Int32).default(),
        Column::new("outcome", Kind::Text).nullable(),
        Column::new("error_data", Kind::Json).nullable(),
        Column::new("completed_at", Kind::Time).nullable(),
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
        Column::new("id", Kind::Uuid),
        Column::new("tenant_id", Kind::Text),
        Column::new("run_id", Kind::Uuid),
        Column::new("step_id", Kind::Uuid),
        Column::new("kind", Kind::Text).default(),
        Column::new("tool", Kind::Text),
        Column::new("status", Kind::Text),
        Column::new("idempotency_key", Kind::Text),
        Column::new("attempt", Kind::Int32).default(),
        Column::new("deadline", Kind::Time).nullable(),
        Column::new("input_digest", Kind::Bytes),
        Column::new("result_ref", Kind::Text).nullable(),
        Column::new("created_at", Kind::Time).default(),
        Column::new("dispatched_at", Kind::Time).nullable(),
        Column::new("settled_at", Kind::Time).nullable(),
        Column::new("state_version", Kind::Int).default(),
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
        Column::new("run_id", Kind::Uuid),
        Column::new("id", Kind::Uuid),
        Column::new("tenant_id", Kind::Text),
        Column::new("kind", Kind::Text),
        Column::new("payload", Kind::Json),
        Column::new("created_at", Kind::Time).default(),
    ],
    key: &["run_id", "id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 305,
};

pub static TIMERS: Table = Table {
    name: "timers",
    columns: &[
        Column::new("id", Kind::Uuid),
        Column::new("tenant_id", Kind::Text),
        Column::new("run_id", Kind::Uuid).nullable(),
        Column::new("step_id", Kind::Uuid).nullable(),
        Column::new("kind", Kind::Text),
        Column::new("due_at", Kind::Time),
        Column::new("payload", Kind::Json).nullable(),
        Column::new("created_at", Kind::Time).default(),
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
        Column::new("run_id", Kind::Uuid),
        Column::new("number", Kind::Int32),
        Column::new("tenant_id", Kind::Text),
        Column::new("patch", Kind::ExactJson),
        Column::new("digest", Kind::Bytes),
        Column::new("status", Kind::Text),
        Column::new("actor", Kind::Text),
        Column::new("justification", Kind::Text).nullable(),
        Column::new("approval_request_id", Kind::Uuid).nullable(),
        Column::new("created_at", Kind::Time).default(),
        Column::new("state_version", Kind::Int).default(),
        Column::new("inverse", Kind::Json).nullable(),
        Column::new("reason", Kind::Text).nullable(),
        Column::new("actor_kind", Kind::Text).nullable(),
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
        Column::new("tenant_id", Kind::Text),
        Column::new("workflow_id", Kind::Text),
        Column::new("cache_key", Kind::Text),
        Column::new("tool_version", Kind::Text),
        Column::new("output", Kind::Json),
        Column::new("run_id", Kind::Uuid),
        Column::new("created_at", Kind::Time).default(),
        Column::new("expires_at", Kind::Time).nullable(),
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
        Column::new("tenant_id", Kind::Text),
        Column::new("actor", Kind::Text),
        Column::new("id", Kind::Uuid).fresh(),
        Column::new("run_id", Kind::Uuid),
        Column::new("event_type", Kind::Text),
        Column::new("data", Kind::Json).nullable(),
        Column::new("created_at", Kind::Time).default(),
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
        Column::new("id", Kind::Uuid),
        Column::new("tenant_id", Kind::Text),
        Column::new("run_id", Kind::Uuid).nullable(),
        Column::new("channel", Kind::Text),
        Column::new("target", Kind::Text),
        Column::new("payload", Kind::Json),
        Column::new("status", Kind::Text).default(),
        Column::new("attempt", Kind::Int32).default(),
        Column::new("next_attempt_at", Kind::Time).nullable(),
        Column::new("sent_at", Kind::Time).nullable(),
        Column::new("error", Kind::Json).nullable(),
        Column::new("created_at", Kind::Time).default(),
        Column::new("state_version", Kind::Int).default(),
        Column::new("approval_id", Kind::Uuid).nullable(),
        Column::new("deliveries", Kind::Json).default(),
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
        Column::new("approval_request_id", Kind::Uuid),
        Column::new("action_type", Kind::Text).chars(50),
        Column::new("action_data", Kind::Json),
        Column::new("requester_agent_id", Kind::Uuid),
        Column::new("workflow_type", Kind::Text).chars(50),
        Column::new("status", Kind::Text).default().chars(20),
        Column::new("policy_references", Kind::Texts),
        Column::new("created_at", Kind::Time).default(),
        Column::new("reviewed_at", Kind::Time).nullable(),
        Column::new("reviewed_by", Kind::Text).nullable().chars(255),
        Column::new("review_decision", Kind::Text).nullable().chars(20),
        Column::new("review_notes", Kind::Text).nullable(),
        Column::new("expires_at", Kind::Time).nullable(),
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
        Column::new("approval_request_id", Kind::Uuid),
        Column::new("tenant_id", Kind::Text),
        Column::new("action_digest", Kind::Bytes),
        Column::new("run_id", Kind::Uuid).nullable(),
        Column::new("step_id", Kind::Uuid).nullable(),
        Column::new("node_id", Kind::Text).nullable(),
        Column::new("requester_actor", Kind::Text),
        Column::new("approvals_needed", Kind::Int32).default(),
        Column::new("approvers", Kind::Texts).nullable(),
        Column::new("decisions", Kind::Json).default(),
        Column::new("risk", Kind::Json).nullable(),
        Column::new("state_version", Kind::Int).default(),
        Column::new("co_requesters", Kind::Texts).nullable(),
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
        Column::new("approval_request_id", Kind::Uuid),
        Column::new("action_type", Kind::Text).chars(50),
        Column::new("action_data", Kind::Json),
        Column::new("requester_agent_id", Kind::Uuid),
        Column::new("workflow_type", Kind::Text).chars(50),
        Column::new("status", Kind::Text).chars(20),
        Column::new("policy_references", Kind::Texts),
        Column::new("created_at", Kind::Time),
        Column::new("reviewed_at", Kind::Time).nullable(),
        Column::new("reviewed_by", Kind::Text).nullable().chars(255),
        Column::new("review_decision", Kind::Text).nullable().chars(20),
        Column::new("review_notes", Kind::Text).nullable(),
        Column::new("expires_at", Kind::Time).nullable(),
        Column::new("tenant_id", Kind::Text),
        Column::new("campaign_id", Kind::Text).nullable(),
        Column::new("swarm_task_id", Kind::Text).nullable(),
        Column::new("trace_id", Kind::Text).nullable(),
        Column::new("action_digest", Kind::Bytes),
        Column::new("run_id", Kind::Uuid).nullable(),
        Column::new("step_id", Kind::Uuid).nullable(),
        Column::new("node_id", Kind::Text).nullable(),
        Column::new("requester_actor", Kind::Text),
        Column::new("approvals_needed", Kind::Int32),
        Column::new("approvers", Kind::Texts).nullable(),
        Column::new("decisions", Kind::Json),
        Column::new("risk", Kind::Json).nullable(),
        Column::new("state_version", Kind::Int),
        Column::new("co_requesters", Kind::Texts).nullable(),
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
        Column::new("tenant_id", Kind::Text),
        Column::new("sha256", Kind::Bytes),
        Column::new("size_bytes", Kind::Int),
        Column::new("media_type", Kind::Text),
        Column::new("created_by", Kind::Text).nullable(),
        Column::new("run_id", Kind::Uuid).nullable(),
        Column::new("created_at", Kind::Time).default(),
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
