//! The eight tables of the content document, written from the document. An extra column or index
//! fails as a missing one does.

use super::shape::{assert_exactly, referenced_by};
use crate::migrate::shared_postgres;

/// CONTENT-056, CONTENT-058, CONTENT-156
#[tokio::test]
async fn objectives_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "objective_id uuid not null",
        "objective_type character varying(50) not null",
        "objective_data jsonb not null",
        "status character varying(20) not null default 'pending'::character varying",
        "created_at timestamp with time zone not null default now()",
        "updated_at timestamp with time zone not null default now()",
        "completed_at timestamp with time zone",
        "spec_version character varying(20) not null",
    ];
    let indexes = [
        "idx_objectives_status (status)",
        "idx_objectives_created_at (created_at)",
        "idx_objectives_spec_version (spec_version)",
    ];
    assert_exactly(&client, "objectives", &columns, &["PRIMARY KEY (objective_id)"], &indexes).await;
}

/// CONTENT-060, CONTENT-062, CONTENT-156
#[tokio::test]
async fn plans_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "plan_id uuid not null",
        "objective_id uuid not null",
        "plan_data jsonb not null",
        "status character varying(20) not null default 'pending'::character varying",
        "created_at timestamp with time zone not null default now()",
        "updated_at timestamp with time zone not null default now()",
        "completed_at timestamp with time zone",
        "spec_version character varying(20) not null",
    ];
    let constraints = ["PRIMARY KEY (plan_id)", "FOREIGN KEY (objective_id) REFERENCES objectives(objective_id)"];
    let indexes =
        ["idx_plans_objective_id (objective_id)", "idx_plans_status (status)", "idx_plans_created_at (created_at)"];
    assert_exactly(&client, "plans", &columns, &constraints, &indexes).await;
}

/// CONTENT-064, CONTENT-065, CONTENT-067, CONTENT-156
#[tokio::test]
async fn tasks_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "task_id uuid not null",
        "plan_id uuid not null",
        "task_type character varying(50) not null",
        "required_skill character varying(100) not null",
        "input_parameters jsonb not null",
        "success_criteria jsonb not null",
        "depends_on uuid[]",
        "status character varying(20) not null default 'pending'::character varying",
        "assigned_agent_id uuid",
        "priority integer not null default 5",
        "created_at timestamp with time zone not null default now()",
        "started_at timestamp with time zone",
        "completed_at timestamp with time zone",
        "output_data jsonb",
        "error_data jsonb",
    ];
    let constraints = [
        "PRIMARY KEY (task_id)",
        "FOREIGN KEY (plan_id) REFERENCES plans(plan_id)",
        "CHECK (((priority >= 1) AND (priority <= 10)))",
    ];
    let indexes = [
        "idx_tasks_plan_id (plan_id)",
        "idx_tasks_status (status)",
        "idx_tasks_assigned_agent_id (assigned_agent_id)",
        "idx_tasks_priority (priority)",
        "idx_tasks_depends_on USING gin (depends_on)",
    ];
    assert_exactly(&client, "tasks", &columns, &constraints, &indexes).await;
}

/// CONTENT-069, CONTENT-070, CONTENT-072, CONTENT-073, CONTENT-156
#[tokio::test]
async fn skill_invocations_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "invocation_id uuid not null",
        "task_id uuid",
        "skill_id character varying(100) not null",
        "agent_id uuid not null",
        "input_parameters jsonb not null",
        "output_data jsonb",
        "status character varying(20) not null",
        "error_data jsonb",
        "execution_duration_ms integer not null default 0",
        "resource_usage jsonb",
        "idempotency_key character varying(255)",
        "invoked_at timestamp with time zone not null default now()",
        "completed_at timestamp with time zone not null",
    ];
    let constraints = [
        "PRIMARY KEY (invocation_id)",
        "FOREIGN KEY (task_id) REFERENCES tasks(task_id)",
        "UNIQUE (idempotency_key)",
        "CHECK ((execution_duration_ms >= 0))",
    ];
    let indexes = [
        "idx_skill_invocations_task_id (task_id)",
        "idx_skill_invocations_skill_id (skill_id)",
        "idx_skill_invocations_agent_id (agent_id)",
        "idx_skill_invocations_status (status)",
        "idx_skill_invocations_invoked_at (invoked_at)",
        "idx_skill_invocations_idempotency_key (idempotency_key) WHERE (idempotency_key IS NOT NULL)",
    ];
    assert_exactly(&client, "skill_invocations", &columns, &constraints, &indexes).await;
}

/// CONTENT-076, CONTENT-078, CONTENT-156
#[tokio::test]
async fn trends_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "trend_id uuid not null",
        "title character varying(500) not null",
        "description text",
        "source character varying(50) not null",
        "source_agent_id uuid",
        "relevance_score numeric(3,2) not null",
        "observed_at timestamp with time zone not null",
        "metadata jsonb",
        "created_at timestamp with time zone not null default now()",
        "updated_at timestamp with time zone not null default now()",
    ];
    let constraints = ["PRIMARY KEY (trend_id)", "CHECK (((relevance_score >= 0.0) AND (relevance_score <= 1.0)))"];
    let indexes = [
        "idx_trends_source (source)",
        "idx_trends_source_agent_id (source_agent_id) WHERE (source_agent_id IS NOT NULL)",
        "idx_trends_relevance_score (relevance_score)",
        "idx_trends_observed_at (observed_at)",
        "idx_trends_created_at (created_at)",
    ];
    assert_exactly(&client, "trends", &columns, &constraints, &indexes).await;
}

/// CONTENT-080, CONTENT-081, CONTENT-083, CONTENT-156
#[tokio::test]
async fn approval_requests_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "approval_request_id uuid not null",
        "action_type character varying(50) not null",
        "action_data jsonb not null",
        "requester_agent_id uuid not null",
        "workflow_type character varying(50) not null",
        "status character varying(20) not null default 'pending'::character varying",
        "policy_references text[] not null",
        "created_at timestamp with time zone not null default now()",
        "reviewed_at timestamp with time zone",
        "reviewed_by character varying(255)",
        "review_decision character varying(20)",
        "review_notes text",
        "expires_at timestamp with time zone",
    ];
    let indexes = [
        "idx_approval_requests_status (status)",
        "idx_approval_requests_requester_agent_id (requester_agent_id)",
        "idx_approval_requests_created_at (created_at)",
        "idx_approval_requests_expires_at (expires_at) WHERE (expires_at IS NOT NULL)",
    ];
    assert_exactly(&client, "approval_requests", &columns, &["PRIMARY KEY (approval_request_id)"], &indexes).await;
}

/// CONTENT-085, CONTENT-088, CONTENT-156
#[tokio::test]
async fn audit_logs_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "audit_log_id uuid not null",
        "event_type character varying(50) not null",
        "agent_id uuid",
        "action_type character varying(50)",
        "action_data jsonb",
        "policy_references text[]",
        "decision_outcome character varying(20) not null",
        "decision_rationale text not null",
        "event_timestamp timestamp with time zone not null default now()",
        "metadata jsonb",
    ];
    let indexes = [
        "idx_audit_logs_event_type (event_type)",
        "idx_audit_logs_agent_id (agent_id) WHERE (agent_id IS NOT NULL)",
        "idx_audit_logs_action_type (action_type) WHERE (action_type IS NOT NULL)",
        "idx_audit_logs_decision_outcome (decision_outcome)",
        "idx_audit_logs_event_timestamp (event_timestamp)",
    ];
    assert_exactly(&client, "audit_logs", &columns, &["PRIMARY KEY (audit_log_id)"], &indexes).await;
}

/// CONTENT-090, CONTENT-094, CONTENT-156
#[tokio::test]
async fn agent_executions_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "execution_id uuid not null",
        "agent_id uuid not null",
        "agent_type character varying(20) not null",
        "execution_type character varying(50) not null",
        "input_data jsonb",
        "output_data jsonb",
        "status character varying(20) not null",
        "error_data jsonb",
        "execution_duration_ms integer not null default 0",
        "resource_usage jsonb",
        "started_at timestamp with time zone not null default now()",
        "completed_at timestamp with time zone",
    ];
    let constraints = ["PRIMARY KEY (execution_id)", "CHECK ((execution_duration_ms >= 0))"];
    let indexes = [
        "idx_agent_executions_agent_id (agent_id)",
        "idx_agent_executions_agent_type (agent_type)",
        "idx_agent_executions_execution_type (execution_type)",
        "idx_agent_executions_status (status)",
        "idx_agent_executions_started_at (started_at)",
    ];
    assert_exactly(&client, "agent_executions", &columns, &constraints, &indexes).await;
}

/// CONTENT-055
#[tokio::test]
async fn all_eight_tables_are_there() {
    let client = shared_postgres().await;
    let eight =
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema = 'public'
        AND table_name IN ('objectives', 'plans', 'tasks', 'skill_invocations', 'trends', 'approval_requests',
            'audit_logs', 'agent_executions')";
    assert_eq!(client.query_one(eight, &[]).await.unwrap().get::<_, i64>(0), 8);
}

/// CONTENT-079, CONTENT-084, CONTENT-089, CONTENT-095
#[tokio::test]
async fn standalone_tables_have_no_foreign_key_on_or_to_them() {
    let client = shared_postgres().await;
    for table in ["trends", "approval_requests", "audit_logs", "agent_executions"] {
        assert_eq!(referenced_by(&client, table).await, Vec::<String>::new(), "{table}");
        let own = super::shape::shape(&client, table).await.constraints;
        assert!(own.iter().all(|constraint| !constraint.starts_with("FOREIGN KEY")), "{table}: {own:?}");
    }
}

#[tokio::test]
async fn the_server_is_postgres_14_or_newer_in_utf8_and_utc() {
    let client = shared_postgres().await;
    let settings = "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
        current_setting('timezone')";
    let row = client.query_one(settings, &[]).await.unwrap();
    assert!(row.get::<_, i32>(0) >= 140_000);
    assert_eq!((row.get::<_, &str>(1), row.get::<_, &str>(2)), ("UTF8", "UTC"));
}
