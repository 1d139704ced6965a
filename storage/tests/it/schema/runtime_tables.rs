//! The three tables of the runtime document, written from the document.

use super::shape::assert_exactly;
use crate::migrate::shared_postgres;

/// RUNTIME-023, RUNTIME-024, RUNTIME-025, RUNTIME-026
#[tokio::test]
async fn agents_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "id uuid not null",
        "name text not null",
        "agent_level text not null",
        "llm_provider text not null",
        "llm_model text not null",
        "max_tokens integer not null",
        "temperature numeric not null default 0.2",
        "allowed_skills text[] not null",
        "created_at timestamp without time zone not null default now()",
    ];
    let constraints = ["PRIMARY KEY (id)", "CHECK ((agent_level = ANY (ARRAY['L0'::text, 'L1'::text, 'L2'::text])))"];
    let indexes = ["idx_agents_level (agent_level)", "idx_agents_provider (llm_provider)"];
    assert_exactly(&client, "agents", &columns, &constraints, &indexes).await;
}

/// RUNTIME-032, RUNTIME-033, RUNTIME-035, RUNTIME-036, RUNTIME-037
#[tokio::test]
async fn agent_jobs_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "id uuid not null",
        "command_id uuid not null",
        "plan_step_id uuid not null",
        "agent_id uuid not null",
        "identity_id uuid not null",
        "context_id uuid not null",
        "status text not null default 'created'::text",
        "token_limit integer not null",
        "tokens_used integer default 0",
        "started_at timestamp without time zone",
        "finished_at timestamp without time zone",
        "created_at timestamp without time zone not null default now()",
    ];
    let constraints = [
        "PRIMARY KEY (id)",
        "FOREIGN KEY (agent_id) REFERENCES agents(id)",
        "CHECK ((status = ANY (ARRAY['created'::text, 'running'::text, 'completed'::text, 'failed'::text, \
         'cancelled'::text])))",
    ];
    let indexes = ["idx_jobs_command (command_id)", "idx_jobs_status (status)", "idx_jobs_agent (agent_id)"];
    assert_exactly(&client, "agent_jobs", &columns, &constraints, &indexes).await;
}

/// RUNTIME-038, RUNTIME-039, RUNTIME-041, RUNTIME-042
#[tokio::test]
async fn agent_outputs_is_exactly_as_written() {
    let client = shared_postgres().await;
    let columns = [
        "id uuid not null",
        "job_id uuid not null",
        "output_type text not null",
        "reference jsonb not null",
        "created_at timestamp without time zone not null default now()",
    ];
    let constraints = [
        "PRIMARY KEY (id)",
        "FOREIGN KEY (job_id) REFERENCES agent_jobs(id) ON DELETE CASCADE",
        "CHECK ((output_type = ANY (ARRAY['file'::text, 'version'::text, 'thread'::text, 'dataset'::text, \
         'log'::text])))",
    ];
    let indexes = ["idx_outputs_job (job_id)", "idx_outputs_type (output_type)"];
    assert_exactly(&client, "agent_outputs", &columns, &constraints, &indexes).await;
}
