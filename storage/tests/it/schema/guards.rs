//! Tables that the database itself protects from changes, on both stores.

use super::store::{Store, both, guard, postgres};
use rusqlite::Connection;

const ENTRY: &str = "INSERT INTO audit_log_entries (lane, seq, id, tenant_id, subject_type, subject_id, event_type,
    actor_type, timestamp, data_json, salt, content_digest, prev_hash, hash)
    VALUES (1, 1, 'e1', 't1', 'task', 's1', 'task.created', 'system', {now}, '{}', {b32}, {b32}, {b32}, {b32})";
const AUDIT: &str = "INSERT INTO audit_logs (audit_log_id, event_type, decision_outcome, decision_rationale)
    VALUES ({u1}, 'policy_evaluation', 'approved', 'why')";
const CHECKPOINT: &str = "INSERT INTO ledger_checkpoints (seq, body, signature, key_id, digest)
    VALUES (1, '{}', {b64}, 'k1', {b32})";
const SCOPE: &str = "INSERT INTO record_scopes (record_kind, record_id, tenant_id) VALUES ('audit_log', {u1}, 't1')";
const WORKFLOW: &str = "INSERT INTO workflows (tenant_id, workflow_id, version, digest, document, created_by)
    VALUES ('t1', 'w1', 1, {b32}, '{}', 'a1')";
const TENANT: &str = "INSERT INTO tenants (id, slug, name) VALUES ('t1', 'acme', 'Acme')";

/// Table, the insert of one row, an update of it, an insert of the same key with other content.
const KEPT: &[(&str, &str, &str, &str)] = &[
    ("append_only: audit_log_entries", ENTRY, "UPDATE audit_log_entries SET event_type = 'x'", "audit_log_entries"),
    ("append_only: audit_logs", AUDIT, "UPDATE audit_logs SET decision_outcome = 'rejected'", "audit_logs"),
    (
        "append_only: ledger_checkpoints",
        CHECKPOINT,
        "UPDATE ledger_checkpoints SET key_id = 'k2'",
        "ledger_checkpoints",
    ),
    ("append_only: record_scopes", SCOPE, "UPDATE record_scopes SET tenant_id = 't2'", "record_scopes"),
    ("immutable: workflows", WORKFLOW, "UPDATE workflows SET created_by = 'x'", "workflows"),
];

async fn assert_kept(store: &Store, message: &str, insert: &str, update: &str, table: &str) {
    store.given(&[insert]).await;
    assert_eq!(store.refusal(update).await, guard(message));
    assert_eq!(store.refusal(&format!("DELETE FROM {table}")).await, guard(message));
    match store {
        Store::Postgres(..) => {
            assert_eq!(store.refusal(&format!("TRUNCATE {table} CASCADE")).await, guard(message));
        }
        Store::Sqlite(_) => {
            let replace = insert.replace("INSERT INTO", "INSERT OR REPLACE INTO");
            assert_eq!(store.refusal(&replace).await, guard(&format!("{message} (key exists)")));
        }
    }
    assert_eq!(store.number(&format!("SELECT COUNT(*) FROM {table}")).await, 1);
}

/// CONTENT-120, CONTENT-159, SWARM-101
#[tokio::test]
async fn append_only_tables_refuse_update_delete_truncate_and_replacing_inserts() {
    for store in both().await {
        store.given(&[TENANT]).await;
        for (message, insert, update, table) in KEPT {
            assert_kept(&store, message, insert, update, table).await;
        }
    }
}

/// CONTENT-120
#[tokio::test]
async fn postgres_refuses_an_upsert_over_an_audit_log_and_a_replica_session_cannot_switch_that_off() {
    let store = postgres().await;
    store.given(&[AUDIT]).await;
    let upsert = format!("{AUDIT} ON CONFLICT (audit_log_id) DO UPDATE SET decision_outcome = 'rejected'");
    assert_eq!(store.refusal(&upsert).await, guard("append_only: audit_logs"));
    store.given(&["SET session_replication_role = replica"]).await;
    assert_eq!(store.refusal("DELETE FROM audit_logs").await, guard("append_only: audit_logs"));
    assert_eq!(store.run(&format!("{AUDIT} ON CONFLICT DO NOTHING")).await, Ok(0));
}

/// CONTENT-120
#[tokio::test]
async fn sqlite_refuses_a_replacing_insert_with_and_without_recursive_triggers() {
    for recursive in ["ON", "OFF"] {
        let conn: Connection = crate::migrate::migrated_sqlite();
        conn.execute_batch(&format!("PRAGMA recursive_triggers = {recursive}; PRAGMA foreign_keys = OFF")).unwrap();
        let store = Store::Sqlite(conn);
        store.given(&[AUDIT]).await;
        let replace = AUDIT.replace("INSERT INTO", "REPLACE INTO");
        assert_eq!(store.refusal(&replace).await, guard("append_only: audit_logs (key exists)"));
    }
}

#[tokio::test]
async fn no_guarded_table_of_sqlite_has_a_rowid_to_replace_by() {
    let conn = crate::migrate::migrated_sqlite();
    let query =
        "SELECT t.name FROM pragma_table_list t JOIN sqlite_schema s ON s.type = 'trigger' AND s.tbl_name = t.name
        WHERE NOT t.wr";
    let mut statement = conn.prepare(query).unwrap();
    let with_rowid: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(with_rowid, Vec::<String>::new());
}

const EXECUTION: &str = "INSERT INTO agent_executions (execution_id, agent_id, agent_type, execution_type, status)
    VALUES ({u1}, {u2}, 'worker', 'task_execution', 'timeout')";

/// CONTENT-159
#[tokio::test]
async fn an_execution_is_completed_once_and_then_frozen() {
    for store in both().await {
        store.given(&[EXECUTION]).await;
        let usage = "UPDATE agent_executions SET error_data = '{}', resource_usage = '{}' WHERE execution_id = {u1}";
        let complete = "UPDATE agent_executions SET status = 'failed', output_data = NULL, completed_at = {now},
            execution_duration_ms = 12 WHERE execution_id = {u1}";
        store.given(&[usage, complete]).await;
        for refused in [complete, usage, "DELETE FROM agent_executions"] {
            assert_eq!(store.refusal(refused).await, guard("frozen: agent_executions"), "{refused}");
        }
        if let Store::Sqlite(_) = store {
            let replace = EXECUTION.replace("INSERT INTO", "REPLACE INTO");
            assert_eq!(store.refusal(&replace).await, guard("frozen: agent_executions (key exists)"));
        } else {
            assert_eq!(store.refusal("TRUNCATE agent_executions").await, guard("frozen: agent_executions"));
        }
    }
}

#[tokio::test]
async fn a_running_execution_can_be_neither_deleted_nor_renamed_over_a_finished_one() {
    for store in both().await {
        let finished = EXECUTION.replace("{u1}", "{u3}").replace("'timeout'", "'success'");
        let finish = "UPDATE agent_executions SET completed_at = {now} WHERE execution_id = {u3}";
        store.given(&[EXECUTION, &finished, finish]).await;
        let delete = "DELETE FROM agent_executions WHERE execution_id = {u1}";
        assert_eq!(store.refusal(delete).await, guard("frozen: agent_executions"));
        let rename = "UPDATE agent_executions SET execution_id = {u3} WHERE execution_id = {u1}";
        assert_eq!(store.refusal(rename).await, guard("frozen: agent_executions"));
    }
}
