//! A store on which every real change fails while small ones work: a table or privilege is missing, or the disk is
//! full. It reports what is missing, is not ready while that is so, and recovers by itself.

use crate::records::{fresh_database, postgres, sqlite};
use chimera_core::job::tables::AGENTS;
use chimera_core::record::{Insert, Scope, Select, Tx, Value};
use chimera_engine::port::{CommitError, Outage, ReadError, Records, Unavailable};
use chimera_storage::records::{self, MARK_FILE, OpenError};
use chimera_testkit::build::NOON;
use chimera_testkit::postgres::PrivatePostgres;
use std::path::Path;

fn agent(n: u64) -> Tx {
    let cells = vec![
        ("id", uuid::Uuid::from_u64_pair(1, n).into()),
        ("name", "a".into()),
        ("agent_level", "L0".into()),
        ("llm_provider", "local".into()),
        ("llm_model", "m".into()),
        ("max_tokens", Value::Int(1)),
        ("allowed_skills", Vec::<String>::new().into()),
    ];
    Tx { inserts: vec![Insert::new(&AGENTS, cells).unwrap()], ..Tx::default() }
}

async fn refused(store: &dyn Records, tx: Tx) -> Unavailable {
    match store.commit(tx).await {
        Err(CommitError::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    }
}

async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
}

/// What the store lacks, as seen by `facts`.
async fn lacks(url: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let facts = records::survey_postgres(url, &folder.path().join(MARK_FILE), NOON).await.unwrap();
    facts.missing.map(|why| why.reason)
}

fn lacks_beside(folder: &Path) -> Option<String> {
    records::survey_sqlite(folder, &folder.join(MARK_FILE), NOON).unwrap().missing.map(|why| why.reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_a_table_is_not_ready_until_the_table_is_back() {
    let url = fresh_database();
    let store = postgres(&url).await;
    assert_eq!(lacks(&url).await, None, "everything that a server does is possible");
    execute(&url, "ALTER TABLE agents RENAME TO agents_x").await;
    let told =
        Unavailable::new(Outage::Unusable, "the database's schema is not whole: relation \"agents\" does not exist");
    assert_eq!(refused(&store, agent(1)).await, told);
    for _ in 0..3 {
        assert!(store.commit(Tx::default()).await.is_ok(), "small changes work");
        assert_eq!(store.ready().await, Err(told.clone()));
    }
    assert_eq!(lacks(&url).await, Some(told.reason));
    execute(&url, "ALTER TABLE agents_x RENAME TO agents").await;
    assert_eq!(store.ready().await, Ok(()));
    store.commit(agent(1)).await.unwrap();
    execute(&url, "ALTER TABLE agents RENAME COLUMN llm_model TO gone").await;
    assert!(refused(&store, agent(2)).await.reason.contains("\"llm_model\""));
    assert_eq!(store.ready().await.map_err(|why| why.outage), Err(Outage::Unusable));
    execute(&url, "ALTER TABLE agents RENAME COLUMN gone TO llm_model").await;
    store.commit(agent(2)).await.unwrap();
    assert_eq!(store.ready().await, Ok(()));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_a_right_is_not_ready_until_the_right_is_back() {
    let url = fresh_database();
    postgres(&url).await.close().await;
    let role = "CREATE ROLE limited LOGIN; GRANT ALL ON SCHEMA public TO limited; \
                GRANT ALL ON ALL TABLES IN SCHEMA public TO limited";
    execute(&url, role).await;
    let (scheme, rest) = url.split_once("://").unwrap();
    let limited = format!("{scheme}://limited@{}", rest.split_once('@').unwrap().1);
    let store = postgres(&limited).await;
    store.commit(agent(1)).await.unwrap();
    execute(&url, "REVOKE INSERT ON agents FROM limited").await;
    let why = refused(&store, agent(2)).await;
    assert_eq!(why.reason, "a right is missing in the database: permission denied for table agents");
    assert!(store.commit(Tx::default()).await.is_ok(), "small changes work");
    assert_eq!(store.ready().await, Err(why.clone()));
    execute(&url, "GRANT INSERT ON agents TO limited").await;
    assert_eq!(store.ready().await, Ok(()));
    for (right, table) in [("INSERT", "steps"), ("UPDATE", "effects"), ("DELETE", "nonces"), ("SELECT", "runs")] {
        execute(&url, &format!("REVOKE {right} ON {table} FROM limited")).await;
        let told = lacks(&limited).await.unwrap_or_else(|| panic!("{right} on {table}"));
        assert!(told.contains(&format!("permission denied for table {table}")), "{told}");
        execute(&url, &format!("GRANT {right} ON {table} TO limited")).await;
    }
    execute(&url, "REVOKE UPDATE, DELETE ON audit_log_entries FROM limited").await;
    assert_eq!(lacks(&limited).await, None, "nobody changes an entry of the ledger");
    store.close().await;
}

/// Neither the server nor the clock is to blame.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_somebody_else_is_told_as_that() {
    let url = fresh_database();
    postgres(&url).await.close().await;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE audit_log_entries IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let marks = folder.path().join(MARK_FILE);
    let (times, facts) = tokio::join!(records::postgres_times(&url), records::survey_postgres(&url, &marks, NOON));
    for error in [times.unwrap_err(), facts.unwrap_err()] {
        let OpenError::Unavailable(why) = error else { panic!("{error:?}") };
        assert_eq!(why, Unavailable::new(Outage::Transient, "somebody else holds a lock in the database"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_missing_costs_only_the_changes_that_need_it() {
    let url = fresh_database();
    let store = postgres(&url).await;
    execute(&url, "ALTER TABLE agents RENAME TO agents_x").await;
    let commits =
        (1..=8).map(|n| store.commit(if n % 2 == 0 { agent(n) } else { Tx { affinity: n, ..Tx::default() } }));
    let answers = futures::future::join_all(commits).await;
    let failed = answers.iter().filter(|answer| matches!(answer, Err(CommitError::Unavailable(_)))).count();
    assert_eq!((failed, answers.iter().filter(|answer| answer.is_ok()).count()), (4, 4), "{answers:?}");
    store.close().await;
}

#[tokio::test]
async fn a_data_file_without_a_table_is_not_ready_until_the_table_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(folder.path()).unwrap();
    assert_eq!(lacks_beside(folder.path()), None, "everything that a server does is possible");
    let file = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    file.execute_batch("PRAGMA legacy_alter_table = ON; ALTER TABLE agents RENAME TO agents_x").unwrap();
    let told = Unavailable::new(Outage::Unusable, "the data's schema is not whole: no such table: agents");
    let (lacking, small) = tokio::join!(store.commit(agent(1)), store.commit(Tx::default()));
    assert_eq!((lacking, small.is_ok()), (Err(told.clone().into()), true));
    let read = store.read(Select::from(&AGENTS, Scope::System)).await;
    assert_eq!(read.map(drop), Err(ReadError::Unavailable(told.clone())));
    assert_eq!(store.ready().await, Err(told.clone()));
    assert_eq!(lacks_beside(folder.path()), Some(told.reason));
    file.execute_batch("ALTER TABLE agents_x RENAME TO agents").unwrap();
    assert_eq!(store.ready().await, Ok(()));
    store.commit(agent(1)).await.unwrap();
    store.close().await;
}

/// A private server: a rule of the database makes every new table and every agent row fail with "disk full".
#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_room_is_not_ready_until_as_much_can_be_written() {
    let server = PrivatePostgres::start().unwrap();
    let store = postgres(&server.url()).await;
    let full = "CREATE FUNCTION full_row() RETURNS boolean LANGUAGE plpgsql AS \
                $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$; \
                CREATE FUNCTION full_table() RETURNS event_trigger LANGUAGE plpgsql AS \
                $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$; \
                ALTER TABLE agents ADD CONSTRAINT full_row CHECK (full_row()) NOT VALID; \
                CREATE EVENT TRIGGER full_table ON ddl_command_start WHEN TAG IN ('CREATE TABLE') \
                EXECUTE FUNCTION full_table()";
    execute(&server.url(), full).await;
    let told = Unavailable::new(Outage::Full, "the database's disk is full");
    assert_eq!(refused(&store, agent(1)).await, told);
    for _ in 0..3 {
        assert!(store.commit(Tx::default()).await.is_ok(), "small changes work");
        assert_eq!(store.ready().await, Err(told.clone()));
    }
    execute(&server.url(), "DROP EVENT TRIGGER full_table; ALTER TABLE agents DROP CONSTRAINT full_row").await;
    assert_eq!(store.ready().await, Ok(()));
    store.commit(agent(1)).await.unwrap();
    execute(&server.url(), "DO $$ BEGIN ASSERT to_regclass('pg_temp.chimera_room') IS NULL; END $$").await;
    store.close().await;
}
