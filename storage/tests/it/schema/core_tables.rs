//! The audit schema of the core document: its columns first and as written, ours behind them.

use super::shape::{index_texts, shape};
use crate::migrate::shared_postgres;

/// CORE-118, CORE-123
#[tokio::test]
async fn runs_begins_as_written_and_goes_on_with_listed_columns() {
    let client = shared_postgres().await;
    let live = shape(&client, "runs").await;
    let written = [
        "id uuid not null",
        "actor text not null",
        "request_payload jsonb not null",
        "status text not null",
        "autonomy_level text",
        "trace_id text not null",
        "idempotency_key text",
        "created_at timestamp with time zone default now()",
        "completed_at timestamp with time zone",
        "error_message text",
    ];
    assert_eq!(live.columns[..10], written);
    let ours: Vec<&str> = live.columns[10..].iter().filter_map(|column| column.split(' ').next()).collect();
    let listed = [
        "tenant_id",
        "state_version",
        "source",
        "workflow_id",
        "workflow_version",
        "workflow_digest",
        "inputs",
        "plan_digest",
        "patches",
        "priority",
        "dry_run",
        "correlation_id",
        "parent_run_id",
        "parent_step_id",
        "replay_of",
        "replay_mode",
        "cancel_requested",
        "pause_requested",
        "run_seq",
        "owner_lane",
        "owner_epoch",
        "next_deadline",
        "notify",
        "risk",
        "result",
        "error_data",
        "depth",
        "replay_from",
        "timeout_at",
        "plan",
        "rollback",
        "restored_at",
        "in_doubt_since",
        "actor_kind",
        "co_requesters",
        "paused_by",
        "paused_by_kind",
    ];
    assert_eq!(ours, listed);
    for key in ["PRIMARY KEY (id)", "UNIQUE (trace_id)", "UNIQUE (idempotency_key)"] {
        assert!(live.constraints.iter().any(|constraint| constraint == key), "{key}");
    }
    let status_checks = live.constraints.iter().filter(|constraint| constraint.contains("(status "));
    assert_eq!(status_checks.count(), 0, "the status of a run is text without a check");
    let unique_trace = "SELECT count(*) FROM pg_constraint
        WHERE conname = 'idx_runs_trace_id' AND conindid = 'idx_runs_trace_id'::regclass";
    assert_eq!(client.query_one(unique_trace, &[]).await.unwrap().get::<_, i64>(0), 1, "the key's index has the name");
    let indexes = [
        "idx_runs_tenant (tenant_id, id)",
        "idx_runs_owner (owner_lane) WHERE (owner_lane IS NOT NULL)",
        "idx_runs_next_deadline (next_deadline) WHERE (next_deadline IS NOT NULL)",
        "idx_runs_in_doubt (tenant_id, id) WHERE (in_doubt_since IS NOT NULL)",
        "idx_runs_without_owner_and_deadline (id) \
         WHERE ((owner_lane IS NULL) AND (next_deadline IS NULL) AND (completed_at IS NULL))",
    ];
    assert_eq!(live.indexes, index_texts("runs", &indexes));
}

/// CORE-120, CORE-122
#[tokio::test]
async fn tool_calls_begins_as_written_and_goes_on_with_listed_columns() {
    let client = shared_postgres().await;
    let live = shape(&client, "tool_calls").await;
    let written = [
        "id uuid not null",
        "step_id uuid",
        "tool_name text not null",
        "tool_input jsonb not null",
        "tool_output jsonb",
        "error text",
        "duration_ms integer",
        "dry_run boolean default false",
        "idempotency_key text",
        "created_at timestamp with time zone default now()",
    ];
    assert_eq!(live.columns[..10], written);
    let ours: Vec<&str> = live.columns[10..].iter().filter_map(|column| column.split(' ').next()).collect();
    let listed = ["actor", "tenant_id", "run_id", "effect_id", "attempt", "outcome", "error_data", "completed_at"];
    assert_eq!(ours, listed);
    assert_eq!(live.constraints, ["FOREIGN KEY (step_id) REFERENCES steps(id)", "PRIMARY KEY (id)"]);
    let indexes = [
        "idx_tool_calls_actor_time (actor, created_at DESC)",
        "idx_tool_calls_dry (run_id) WHERE (step_id IS NULL)",
        "idx_tool_calls_step (step_id)",
    ];
    assert_eq!(live.indexes, index_texts("tool_calls", &indexes));
}

/// CORE-121
#[tokio::test]
async fn steps_belong_to_runs_and_take_tool_calls() {
    let client = shared_postgres().await;
    let live = shape(&client, "steps").await;
    for column in ["id uuid not null", "run_id uuid not null", "position integer not null", "tool text", "input jsonb"]
    {
        assert!(live.columns.iter().any(|found| found == column), "{column}");
    }
    assert!(live.constraints.contains(&"FOREIGN KEY (run_id) REFERENCES runs(id)".to_owned()));
    assert_eq!(super::shape::referenced_by(&client, "steps").await, ["tool_calls"]);
}
