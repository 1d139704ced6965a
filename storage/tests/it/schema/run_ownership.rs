//! A run with work left has an owner or a wake-up time: the databases reject anything else, and rows that an older
//! schema accepted are due at once.

use super::store::{Refusal, both};
use crate::migrate::empty_postgres;
use rusqlite::Connection;

const RUN: &str = "INSERT INTO runs (id, actor, request_payload, status, trace_id, tenant_id, workflow_id, owner_lane,
    owner_epoch, next_deadline, completed_at, rollback) VALUES";

#[tokio::test]
async fn a_run_with_work_left_that_nobody_would_look_at_is_refused() {
    for store in both().await {
        let row = |cells: &str| format!("{RUN} ({{u1}}, 'ada', '{{}}', 'running', 'a', 'acme', {cells})");
        for unattended in [
            "'w', NULL, NULL, NULL, NULL, NULL",
            "'w', NULL, NULL, NULL, {now}, '{\"ended\": false}'",
            "'w', NULL, NULL, NULL, NULL, '{\"ended\": true}'",
        ] {
            assert_eq!(store.refusal(&row(unattended)).await, Refusal::Check, "{unattended}");
        }
        for attended in [
            "'w', 1, 1, NULL, NULL, NULL",
            "'w', NULL, NULL, {now}, NULL, NULL",
            "'w', NULL, NULL, NULL, {now}, NULL",
            "'w', NULL, NULL, NULL, {now}, '{\"ended\": true}'",
            "'w', NULL, NULL, {now}, {now}, '{\"ended\": false}'",
            "NULL, NULL, NULL, NULL, NULL, NULL",
        ] {
            store.given(&[&row(attended), "DELETE FROM runs"]).await;
        }
        store.given(&[&row("'w', 1, 1, NULL, NULL, NULL")]).await;
        let parked = "UPDATE runs SET owner_lane = NULL, owner_epoch = NULL";
        assert_eq!(store.refusal(parked).await, Refusal::Check);
        store.given(&[&format!("{parked}, next_deadline = {{now}}")]).await;
    }
}

/// What schema 15 let through: a finished run, a lost one, and one whose rollback was lost.
const LEFT_BEHIND: [(&str, &str); 3] = [
    ("finished", "completed_at = created_at"),
    ("lost", "completed_at = NULL"),
    ("lost rollback", "completed_at = created_at, rollback = '{\"ended\": false}'"),
];

/// The text of every migration up to a version, and of the one behind it.
fn migrations(store: &str, version: usize) -> (Vec<String>, String) {
    let folder = format!("{}/migrations/{store}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut texts: Vec<String> =
        files.iter().take(version + 1).map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let next = texts.pop().unwrap();
    (texts, next)
}

#[tokio::test]
async fn runs_that_were_left_without_an_owner_and_a_deadline_are_due_after_the_migration() {
    let (before, migration) = migrations("sqlite", 15);
    let conn = Connection::open_in_memory().unwrap();
    before.iter().for_each(|text| conn.execute_batch(text).unwrap());
    for (at, (name, state)) in LEFT_BEHIND.iter().enumerate() {
        let insert = format!(
            "INSERT INTO runs (id, actor, request_payload, status, trace_id, tenant_id, workflow_id, created_at)
             VALUES (x'0000000000000000000000000000000{at}', '{name}', '{{}}', 's', '{at}', 'acme', 'w', 7)"
        );
        conn.execute_batch(&insert).unwrap();
        conn.execute_batch(&format!("UPDATE runs SET {state} WHERE actor = '{name}'")).unwrap();
    }
    conn.execute_batch(&migration).unwrap();
    let due =
        "SELECT group_concat(actor) FROM (SELECT actor FROM runs WHERE next_deadline = created_at ORDER BY actor)";
    assert_eq!(conn.query_row(due, [], |row| row.get::<_, String>(0)).unwrap(), "lost,lost rollback");
    assert!(conn.execute_batch("UPDATE runs SET next_deadline = NULL").is_err(), "the rule holds from now on");

    let (before, migration) = migrations("postgres", 15);
    let client = empty_postgres().await;
    for text in &before {
        client.batch_execute(text).await.unwrap();
    }
    for (at, (name, state)) in LEFT_BEHIND.iter().enumerate() {
        let insert = format!(
            "INSERT INTO runs (id, actor, request_payload, status, trace_id, tenant_id, workflow_id)
             VALUES (gen_random_uuid(), '{name}', '{{}}', 's', '{at}', 'acme', 'w')"
        );
        client.batch_execute(&insert).await.unwrap();
        client.batch_execute(&format!("UPDATE runs SET {state} WHERE actor = '{name}'")).await.unwrap();
    }
    client.batch_execute(&migration).await.unwrap();
    let due = "SELECT string_agg(actor, ',' ORDER BY actor) FROM runs WHERE next_deadline = created_at";
    assert_eq!(client.query_one(due, &[]).await.unwrap().get::<_, String>(0), "lost,lost rollback");
    assert!(client.batch_execute("UPDATE runs SET next_deadline = NULL").await.is_err());
}
