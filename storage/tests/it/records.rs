//! Every record store passes the same suite.

use chimera_core::job::tables::AGENTS;
use chimera_core::record::{Insert, Scope, Select, Tx, Value};
use chimera_engine::port::{CommitError, Records};
use chimera_storage::records::{
    self, AccessMode, MARK_FILE, OpenError, PostgresOptions, PostgresRecords, SqliteRecords,
};
use chimera_testkit::build::{NOON, run, step};
use chimera_testkit::memory::MemoryRecords;
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::seeded::{FakeClock, Seeded};
use chimera_testkit::suite;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn sqlite(folder: &Path) -> Result<SqliteRecords, OpenError> {
    SqliteRecords::open(folder, AccessMode::Write, Arc::new(FakeClock::at(NOON)))
}

pub(crate) async fn postgres(url: &str) -> PostgresRecords {
    PostgresRecords::open(PostgresOptions::new(url)).await.expect("the server is there")
}

pub(crate) async fn one_lane(url: &str) -> PostgresRecords {
    PostgresRecords::open(PostgresOptions { lanes: 1, ..PostgresOptions::new(url) }).await.expect("the server is there")
}

pub(crate) fn fresh_database() -> String {
    PrivatePostgres::shared().expect("a private server").fresh_database().expect("a database")
}

#[tokio::test]
async fn memory_keeps_every_promise_the_catalogue_can_express() {
    suite::records::all(&MemoryRecords::new(), 1).await;
}

/// SWARM-110
#[tokio::test]
async fn sqlite_keeps_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(folder.path()).unwrap();
    suite::records::all(&store, 1).await;
    store.close().await;
}

/// SWARM-110
#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_every_promise() {
    let store = postgres(&fresh_database()).await;
    suite::records::all(&store, 1).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_store_takes_a_row_whose_parent_it_does_not_have() {
    let (folder, seeded) = (tempfile::tempdir().unwrap(), Seeded::new(1));
    let stores: [Arc<dyn Records>; 2] =
        [Arc::new(sqlite(folder.path()).unwrap()), Arc::new(postgres(&fresh_database()).await)];
    for store in stores {
        let row = run(&seeded);
        let orphan = Tx { inserts: vec![step(&seeded, row.id).unwrap()], ..Tx::default() };
        let refused = store.commit(orphan.clone()).await;
        assert!(matches!(refused, Err(CommitError::Rejected { .. })), "{refused:?}");
        store.commit(row.tx().unwrap()).await.unwrap();
        store.commit(orphan).await.expect("its parent is there now");
        store.close().await;
    }
}

#[tokio::test]
async fn sqlite_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 1..=3 {
        let store = sqlite(folder.path()).unwrap();
        suite::records::all(&store, seed).await;
        store.close().await;
    }
}

#[tokio::test]
async fn the_facts_of_an_embedded_store_say_that_commits_wait_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let facts = || records::survey_sqlite(folder.path(), &folder.path().join(MARK_FILE), NOON);
    assert!(facts().unwrap().durable, "before there is a file");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "looking makes nothing");
    let store = sqlite(folder.path()).unwrap();
    assert!(facts().unwrap().durable, "beside a writer");
    store.close().await;
    assert!(facts().unwrap().durable);
}

/// CONTENT-053
#[tokio::test]
async fn a_database_in_another_encoding_is_refused_before_anything_is_written() {
    let url = fresh_database();
    let name = url.rsplit('/').next().unwrap();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let options = "ENCODING 'LATIN1' LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    client.batch_execute(&format!("CREATE DATABASE latin_{name} {options}")).await.unwrap();
    let refused = PostgresRecords::open(PostgresOptions::new(url.replace(name, &format!("latin_{name}")))).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("UTF-8")));
}

/// CONTENT-054
#[tokio::test]
async fn times_are_utc_whatever_the_servers_zone_is() {
    let url = fresh_database();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let name = url.rsplit('/').next().unwrap();
    client.batch_execute(&format!("ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'")).await.unwrap();
    let store = postgres(&url).await;
    let id = uuid::Uuid::from_u64_pair(1, 1);
    let cells = vec![
        ("id", id.into()),
        ("name", "a".into()),
        ("agent_level", "L0".into()),
        ("llm_provider", "local".into()),
        ("llm_model", "m".into()),
        ("max_tokens", Value::Int(1)),
        ("allowed_skills", Vec::<String>::new().into()),
    ];
    let tx = Tx { inserts: vec![Insert::new(&AGENTS, cells).unwrap()], ..Tx::default() };
    store.commit(tx).await.unwrap();
    let page = store.read(Select::from(&AGENTS, Scope::System)).await.unwrap();
    let stored = page.rows[0].get("created_at").as_time().unwrap();
    let text = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let now: i64 = client.query_one(text, &[]).await.unwrap().get(0);
    assert!((now - stored.micros()).abs() < 60_000_000, "the default of a column without a zone is {stored}");
}
