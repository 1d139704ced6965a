//! The crash matrix on the real stores. The autonomy levels that wait for people differ in the engine, not in the
//! store: the memory store covers them.

use crate::records::{fresh_database, postgres};
use async_trait::async_trait;
use chimera_core::access::Level;
use chimera_engine::port::{Clock, Records};
use chimera_storage::records::{AccessMode, SqliteRecords};
use chimera_testkit::build::NOON;
use chimera_testkit::crash::{CrashTotals, Store, Stores, run_crash_matrix};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::seeded::FakeClock;
use std::sync::Arc;
use tempfile::TempDir;

/// Cases at a time: they mostly wait for the disk and for delays.
const FILES_AT_A_TIME: usize = 24;

/// A server has a bounded number of connections, and other tests use it too.
const DATABASES_AT_A_TIME: usize = 12;

/// With real threads the last crash points of some cases are never reached; there must be few.
fn survived(matrix: CrashTotals) {
    println!("{matrix:?}");
    assert!(matrix.cases >= 90 && matrix.crashes * 10 >= matrix.cases * 9, "{matrix:?}");
}

struct SqliteStores;

struct SqliteStore {
    folder: TempDir,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Stores for SqliteStores {
    async fn fresh(&self) -> Box<dyn Store> {
        Box::new(SqliteStore { folder: tempfile::tempdir().unwrap(), clock: Arc::new(FakeClock::at(NOON)) })
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn open(&self) -> Arc<dyn Records> {
        Arc::new(SqliteRecords::open(self.folder.path(), AccessMode::Write, Arc::clone(&self.clock)).unwrap())
    }
}

/// Copies of an unused database.
struct PostgresStores(String);

struct PostgresStore(String);

impl PostgresStores {
    async fn new() -> Self {
        let url = fresh_database();
        postgres(&url).await.close().await;
        Self(url)
    }
}

#[async_trait]
impl Stores for PostgresStores {
    async fn fresh(&self) -> Box<dyn Store> {
        let copied = self.0.clone();
        let copied = move || PrivatePostgres::shared().unwrap().copy_of(&copied).unwrap();
        Box::new(PostgresStore(tokio::task::spawn_blocking(copied).await.unwrap()))
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn open(&self) -> Arc<dyn Records> {
        Arc::new(postgres(&self.0).await)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_moment_changes_nothing_on_sqlite() {
    survived(run_crash_matrix(&SqliteStores, Level::ExecuteNotify, FILES_AT_A_TIME).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_moment_changes_nothing_on_postgres() {
    survived(run_crash_matrix(&PostgresStores::new().await, Level::ExecuteNotify, DATABASES_AT_A_TIME).await);
}
