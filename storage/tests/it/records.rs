//! Every record store passes the same suite.

use chimera_engine::port::Records;
use chimera_storage::records::{Access, OpenError, PostgresOptions, PostgresRecords, SqliteRecords};
use chimera_testkit::build::NOON;
use chimera_testkit::memory::MemoryRecords;
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::seeded::FakeClock;
use chimera_testkit::suite;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn sqlite(folder: &Path) -> Result<SqliteRecords, OpenError> {
    SqliteRecords::open(folder, Access::Write, Arc::new(FakeClock::at(NOON)))
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

#[tokio::test]
async fn sqlite_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 1..=3 {
        let store = sqlite(folder.path()).unwrap();
        suite::records::all(&store, seed).await;
        store.close().await;
    }
}
