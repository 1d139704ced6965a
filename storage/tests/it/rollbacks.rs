//! Rollbacks that take long are counted, also those that don't say when they began.

use crate::records::{fresh_database, postgres, sqlite};
use chimera_core::limits::ROLLBACK_LONG_SECONDS;
use chimera_core::time::Timestamp;
use chimera_engine::port::Records;
use chimera_storage::records::{self, MARK_FILE};
use chimera_testkit::build::NOON;
use serde_json::{Value, json};

/// Runs of which two have been rolled back for long.
fn rollbacks() -> [Value; 4] {
    let ago = |seconds: i64| NOON.plus_seconds(-seconds).micros();
    [
        json!({"ended": false, "began_at": ago(60)}),
        json!({"ended": false, "began_at": ago(ROLLBACK_LONG_SECONDS + 60)}),
        json!({"ended": false}),
        json!({"ended": true, "began_at": ago(ROLLBACK_LONG_SECONDS + 60)}),
    ]
}

fn inserted(id: impl Fn(usize) -> String, time: impl Fn(Timestamp) -> String) -> String {
    let row = |(at, rollback): (usize, &Value)| {
        let (id, now) = (id(at), time(NOON));
        format!("({id}, 'ada', '{{}}', 'completed', 't{at}', 'default', 'w', {now}, {now}, '{rollback}')")
    };
    let rows: Vec<String> = rollbacks().iter().enumerate().map(row).collect();
    format!(
        "INSERT INTO runs (id, actor, request_payload, status, trace_id, tenant_id, workflow_id, next_deadline, \
         completed_at, rollback) VALUES {}",
        rows.join(", ")
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn rollbacks_that_take_long_are_counted_in_both_stores() {
    let folder = tempfile::tempdir().unwrap();
    sqlite(folder.path()).unwrap().close().await;
    let file = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    let text = inserted(|at| format!("x'{:032x}'", at + 1), |at| at.micros().to_string());
    file.execute_batch(&text).unwrap();
    let facts = records::survey_sqlite(folder.path(), &folder.path().join(MARK_FILE), NOON).unwrap();
    assert_eq!((facts.runs.parked, facts.runs.long_rollbacks), (4, 2));

    let url = fresh_database();
    postgres(&url).await.close().await;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let text = inserted(|at| format!("'{:032x}'", at + 1), |at| format!("'{at}'"));
    client.batch_execute(&text).await.unwrap();
    let facts = records::survey_postgres(&url, &folder.path().join("none"), NOON).await.unwrap();
    assert_eq!((facts.runs.parked, facts.runs.long_rollbacks), (4, 2));
}
