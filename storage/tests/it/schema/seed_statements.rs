//! Statements that the source documents prescribe, run as written, and views over scopes.

use super::store::{Store, both, postgres};
use tokio_postgres::Client;
use uuid::Uuid;

async fn rows(client: &Client, sql: &str) -> Vec<tokio_postgres::Row> {
    client.query(sql, &[]).await.unwrap()
}

/// Runs of two actors, fresh and old, each with a step and calls: rows that the queries must find, and rows that they
/// must not.
async fn seeded(client: &Client) {
    let id = |n: u32| format!("'00000000-0000-7000-8000-{n:012}'");
    // The run's number, its actor, how it ended, and how old it is.
    let runs = [
        (1, "n8n_workflow_123", "failed", "1 hour"),
        (2, "user_1", "completed", "1 hour"),
        (3, "n8n_workflow_123", "completed", "25 hours"),
        (4, "user_1", "failed", "6 days"),
        (5, "user_1", "failed", "8 days"),
    ];
    for (n, actor, status, age) in runs {
        let (run, step) = (id(n), id(100 + n));
        let why = if status == "failed" { format!("'broken {n}'") } else { "NULL".to_owned() };
        let statements = format!(
            "INSERT INTO runs (id, actor, request_payload, status, trace_id, tenant_id, error_message, created_at)
            VALUES ({run}, '{actor}', '{{}}', '{status}', 'trace{n}', 't1', {why}, NOW() - INTERVAL '{age}');
            INSERT INTO steps (id, run_id, tenant_id, node_id, position, status)
            VALUES ({step}, {run}, 't1', 'a', 1, 'failed');
            INSERT INTO tool_calls (id, step_id, tool_name, tool_input, actor, tenant_id, run_id, created_at, dry_run)
            VALUES ({}, {step}, 'first of {n}', '{{}}', '{actor}', 't1', {run}, NOW() - INTERVAL '1 minute', TRUE),
                ({}, {step}, 'second of {n}', '{{}}', '{actor}', 't1', {run}, NOW(), FALSE);",
            id(200 + n),
            id(300 + n),
        );
        client.batch_execute(&statements).await.unwrap();
    }
}

/// CORE-124
#[tokio::test]
async fn the_audit_query_for_all_actions_of_an_actor_runs_as_written() {
    let Store::Postgres(client, _turn) = postgres().await else { unreachable!() };
    seeded(&client).await;
    let query = "
        SELECT r.id, r.actor, r.status, tc.tool_name, tc.created_at
        FROM runs r
        JOIN steps s ON s.run_id = r.id
        JOIN tool_calls tc ON tc.step_id = s.id
        WHERE r.actor = 'n8n_workflow_123'
          AND r.created_at > NOW() - INTERVAL '24 hours'
        ORDER BY tc.created_at DESC;";
    let tools: Vec<String> = rows(&client, query).await.iter().map(|row| row.get("tool_name")).collect();
    assert_eq!(tools, ["second of 1", "first of 1"]);
}

/// CORE-125
#[tokio::test]
async fn the_audit_query_for_failed_executions_runs_as_written() {
    let Store::Postgres(client, _turn) = postgres().await else { unreachable!() };
    seeded(&client).await;
    let query = "
        SELECT r.id, r.actor, r.error_message, r.trace_id
        FROM runs r
        WHERE r.status = 'failed'
          AND r.created_at > NOW() - INTERVAL '7 days'
        ORDER BY r.created_at DESC;";
    let found = rows(&client, query).await;
    let told: Vec<(&str, &str)> = found.iter().map(|row| (row.get("error_message"), row.get("trace_id"))).collect();
    assert_eq!(told, [("broken 1", "trace1"), ("broken 4", "trace4")]);
}

const LOOKUP: &str = "SELECT * FROM skill_invocations WHERE idempotency_key = $1 AND agent_id = $2 \
    AND invoked_at > NOW() - INTERVAL '24 hours' ORDER BY invoked_at DESC LIMIT 1";

/// CONTENT-101
#[tokio::test]
async fn the_lookup_of_an_idempotency_key_finds_a_fresh_row_by_an_index() {
    let Store::Postgres(client, _turn) = postgres().await else { unreachable!() };
    let fill = "INSERT INTO skill_invocations (invocation_id, skill_id, agent_id, input_parameters, status,
            idempotency_key, invoked_at, completed_at)
        SELECT gen_random_uuid(), 'skill', '00000000-0000-7000-8000-000000000009', '{}', 'success', 'key' || n,
            NOW() - CASE WHEN n = 2 THEN INTERVAL '25 hours' ELSE INTERVAL '1 hour' END, NOW()
        FROM generate_series(1, 5000) n;
        ANALYZE skill_invocations;";
    client.batch_execute(fill).await.unwrap();
    let agent = Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0009);
    let found = async |key: &str| {
        let query = LOOKUP.replace("$1", &format!("'{key}'")).replace("$2", &format!("'{agent}'"));
        rows(&client, &query).await.len()
    };
    assert_eq!((found("key1").await, found("key2").await, found("none").await), (1, 0, 0));
    let explain = LOOKUP.replace("$1", "'key1'").replace("$2", &format!("'{agent}'"));
    let plan = rows(&client, &format!("EXPLAIN {explain}")).await;
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    let plan = plan.join("\n");
    assert!(plan.contains("Index Scan") && plan.contains("idempotency_key") && !plan.contains("Seq Scan"), "{plan}");
}

/// CONTENT-126
#[tokio::test]
async fn the_prescribed_update_completes_an_execution_record() {
    let Store::Postgres(client, _turn) = postgres().await else { unreachable!() };
    let insert = "INSERT INTO agent_executions (execution_id, agent_id, agent_type, execution_type, status)
        VALUES ('00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000002', 'worker',
            'task_execution', 'timeout')";
    client.batch_execute(insert).await.unwrap();
    let update = "UPDATE agent_executions SET status = $1, output_data = $2, completed_at = NOW(), \
        execution_duration_ms = $3 WHERE execution_id = $4";
    let update = update.replace("$1", "'success'").replace("$2", "'{\"a\": 1}'").replace("$3", "12");
    let update = update.replace("$4", "'00000000-0000-7000-8000-000000000001'");
    assert_eq!(client.execute(&update, &[]).await.unwrap(), 1);
    let done = "SELECT 1 FROM agent_executions WHERE status = 'success' AND completed_at IS NOT NULL
        AND execution_duration_ms = 12 AND output_data = '{\"a\": 1}'";
    assert_eq!(rows(&client, done).await.len(), 1);
}

#[tokio::test]
async fn a_row_without_a_scope_is_nobodys_and_one_with_a_scope_shows_its_lineage() {
    for store in both().await {
        let given = [
            "INSERT INTO objectives (objective_id, objective_type, objective_data, spec_version)
                VALUES ({u1}, 'a', '{}', '1.0.0')",
            "INSERT INTO objectives (objective_id, objective_type, objective_data, spec_version)
                VALUES ({u2}, 'b', '{}', '1.0.0')",
            "INSERT INTO record_scopes (record_kind, record_id, tenant_id, campaign_id, task_id)
                VALUES ('objective', {u1}, 't1', 'c1', 'k1')",
            "INSERT INTO record_scopes (record_kind, record_id, tenant_id) VALUES ('plan', {u2}, 't2')",
        ];
        store.given(&given).await;
        let all = "SELECT COUNT(*) FROM scoped_objectives";
        let own = "SELECT COUNT(*) FROM scoped_objectives WHERE tenant_id = 't1' AND campaign_id = 'c1'
            AND swarm_task_id = 'k1' AND objective_id = {u1}";
        assert_eq!((store.number(all).await, store.number(own).await), (1, 1));
    }
}

#[tokio::test]
async fn an_approval_is_shown_with_its_details_only_to_the_tenant_of_both() {
    for store in both().await {
        let approval = |id: &str, details: &str| {
            [
                format!(
                    "INSERT INTO approval_requests (approval_request_id, action_type, action_data, requester_agent_id,
                     workflow_type, policy_references) VALUES ({id}, 'a', '{{}}', {{u9}}, 'w', {{none}})"
                ),
                format!(
                    "INSERT INTO approval_details (approval_request_id, tenant_id, action_digest, requester_actor)
                     VALUES ({id}, '{details}', {{b32}}, 'user_1')"
                ),
                format!(
                    "INSERT INTO record_scopes (record_kind, record_id, tenant_id) VALUES ('approval_request', {id}, 't1')"
                ),
            ]
        };
        for sql in approval("{u1}", "t1").iter().chain(&approval("{u2}", "t2")) {
            store.given(&[sql]).await;
        }
        let shown = "SELECT COUNT(*) FROM scoped_approvals WHERE tenant_id = 't1' AND approvals_needed = 1";
        assert_eq!((store.number(shown).await, store.number("SELECT COUNT(*) FROM scoped_approvals").await), (1, 1));
    }
}

#[tokio::test]
async fn an_audit_log_rolls_back_with_its_transaction() {
    for store in both().await {
        let audit = "INSERT INTO audit_logs (audit_log_id, event_type, decision_outcome, decision_rationale)
            VALUES ({u1}, 'policy_evaluation', 'approved', 'why')";
        store.given(&["SAVEPOINT action", audit]).await;
        assert_eq!(store.number("SELECT COUNT(*) FROM audit_logs").await, 1);
        store.given(&["ROLLBACK TO SAVEPOINT action"]).await;
        assert_eq!(store.number("SELECT COUNT(*) FROM audit_logs").await, 0);
    }
}
