//! A running node while a newer binary migrates its database.

use super::{MIGRATIONS, Migration, newest, postgres, sqlite};
use crate::records::{AccessMode, PostgresOptions, PostgresRecords, SqliteRecords};
use chimera_core::flow::tables::RUNS;
use chimera_core::record::{Scope, Select, Tx};
use chimera_engine::port::{CommitError, Records, SchemaMismatch};
use chimera_testkit::build::{NOON, run};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::seeded::{FakeClock, Seeded};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

/// The migrations of the version after this one.
fn newer() -> &'static [Migration] {
    let later = "ALTER TABLE runs ADD COLUMN later TEXT";
    let next = Migration { version: newest() + 1, name: "9999_later", postgres: later, sqlite: later };
    Vec::leak(MIGRATIONS.iter().copied().chain([next]).collect())
}

fn too_new() -> SchemaMismatch {
    SchemaMismatch { found: newest() + 1, known: newest() }
}

fn a_run(seeded: &Seeded) -> Tx {
    run(seeded).tx().unwrap()
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// How a node reacts to a newer schema.
async fn assert_stepped_aside(store: &dyn Records, seeded: &Seeded) {
    for _ in 0..3 {
        assert_eq!(store.commit(a_run(seeded)).await, Err(CommitError::Blocked(too_new().into())));
    }
    let reason = store.ready().await.unwrap_err().reason;
    assert_eq!(reason, too_new().to_string());
    let page = store.read(Select::from(&RUNS, Scope::System).take(1)).await.unwrap();
    assert_eq!(page.rows.len(), 1, "what can still be read is shown");
}

/// Polls until the store is ready, or not ready: a lane is claimed again after a pause.
async fn until(store: &dyn Records, ready: bool) {
    let asking = async { while store.ready().await.is_ok() != ready {} };
    tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap();
}

#[tokio::test]
async fn a_sqlite_node_steps_aside_for_a_newer_schema_and_goes_on_when_it_is_gone() {
    let (folder, seeded) = (tempfile::tempdir().unwrap(), Seeded::new(1));
    let store = SqliteRecords::open(folder.path(), AccessMode::Write, Arc::new(FakeClock::at(NOON))).unwrap();
    store.commit(a_run(&seeded)).await.unwrap();
    let mut other = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    assert_eq!(sqlite::apply_with_timeout(&mut other, newer()).unwrap().names, ["9999_later"]);
    assert_stepped_aside(&store, &seeded).await;
    let back = "DELETE FROM schema_migrations WHERE name = '9999_later'; ALTER TABLE runs DROP COLUMN later";
    other.execute_batch(back).unwrap();
    until(&store, true).await;
    store.commit(a_run(&seeded)).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_postgres_node_steps_aside_for_a_newer_schema_and_goes_on_when_it_is_gone() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let (store, seeded) = (PostgresRecords::open(PostgresOptions::new(&url)).await.unwrap(), Seeded::new(1));
    store.commit(a_run(&seeded)).await.unwrap();
    let mut other = connect(&url).await;
    assert_eq!(postgres::apply(&mut other, newer(), i64::MAX).await.unwrap().names, ["9999_later"]);
    assert_stepped_aside(&store, &seeded).await;
    let back = "DELETE FROM schema_migrations WHERE name = '9999_later'; ALTER TABLE runs DROP COLUMN later";
    other.batch_execute(back).await.unwrap();
    until(&store, true).await;
    store.commit(a_run(&seeded)).await.unwrap();
    store.close().await;
}

/// Also when nobody fenced the lanes: a dump of a newer version was loaded, or the row was inserted by hand.
#[tokio::test]
async fn a_postgres_node_notices_a_version_that_came_without_a_migration() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let store = PostgresRecords::open(PostgresOptions { lanes: 1, ..PostgresOptions::new(&url) }).await.unwrap();
    let seeded = Seeded::new(1);
    store.commit(a_run(&seeded)).await.unwrap();
    let hand = "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, '9999_later', 'x')";
    connect(&url).await.execute(hand, &[&too_new().found]).await.unwrap();
    until(&store, false).await;
    assert_eq!(store.commit(a_run(&seeded)).await, Err(CommitError::Blocked(too_new().into())));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_committed_once_a_migration_has_begun_to_count() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let store = Arc::new(PostgresRecords::open(PostgresOptions::new(&url)).await.unwrap());
    let (begun, mut seen) = tokio::sync::mpsc::channel(16);
    let writers: Vec<_> = (0..16)
        .map(|seed| {
            let (store, begun, seeded) = (Arc::clone(&store), begun.clone(), Seeded::new(seed));
            tokio::spawn(async move {
                loop {
                    let tx = Tx { affinity: seed, ..a_run(&seeded) };
                    match store.commit(tx).await {
                        Ok(_) => drop(begun.try_send(())),
                        Err(error) => return error,
                    }
                }
            })
        })
        .collect();
    seen.recv().await.unwrap();
    let mut other = connect(&url).await;
    postgres::apply(&mut other, newer(), i64::MAX).await.unwrap();
    let count = async || other.query_one("SELECT count(*) FROM runs", &[]).await.unwrap().get::<_, i64>(0);
    let before = count().await;
    for writer in writers {
        assert_eq!(writer.await.unwrap(), CommitError::Blocked(too_new().into()));
    }
    assert_eq!(count().await, before);
    store.close().await;
}

#[tokio::test]
async fn who_only_reads_is_refused_another_schema_in_words() {
    let (folder, url) = (tempfile::tempdir().unwrap(), PrivatePostgres::shared().unwrap().fresh_database().unwrap());
    rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    let words = async || {
        let sqlite = SqliteRecords::open(folder.path(), AccessMode::Read, Arc::new(FakeClock::at(NOON))).err();
        let postgres = PostgresRecords::open_read_only(&url).await.err();
        [sqlite.map(|error| error.to_string()), postgres.map(|error| error.to_string())]
    };
    let empty = SchemaMismatch { found: 0, known: newest() }.to_string();
    assert_eq!(words().await, [Some(empty.clone()), Some(empty)]);
    let older: &'static [Migration] = &MIGRATIONS[..MIGRATIONS.len() - 1];
    let mut file = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    sqlite::apply_with_timeout(&mut file, older).unwrap();
    postgres::apply(&mut connect(&url).await, older, i64::MAX).await.unwrap();
    let old = SchemaMismatch { found: newest() - 1, known: newest() }.to_string();
    assert!(old.contains("chimera migrate brings it up to date"));
    assert_eq!(words().await, [Some(old.clone()), Some(old)]);
    sqlite::apply_with_timeout(&mut file, MIGRATIONS).unwrap();
    postgres::apply(&mut connect(&url).await, MIGRATIONS, i64::MAX).await.unwrap();
    assert_eq!(words().await, [None, None]);
}
