//! The crash matrix on the real stores.

use crate::records::{fresh_database, postgres};
use async_trait::async_trait;
use chimera_core::access::Level;
use chimera_engine::port::{Clock, Records};
use chimera_storage::records::{Access, SqliteRecords};
use chimera_testkit::build::NOON;
use chimera_testkit::crash::{Matrix, Store, Stores, matrix};
use chimera_testkit::seeded::FakeClock;
use std::sync::Arc;
use tempfile::TempDir;

/// Cases at a time: they mostly wait for the disk and for delays.
const AT_A_TIME: usize = 24;

/// With real threads a run may need a commit less than the first one did.
fn survived(matrix: Matrix) {
    println!("{matrix:?}");
    assert!(matrix.cases >= 90 && matrix.crashes + 5 >= matrix.cases, "{matrix:?}");
}

struct Files;

struct File {
    folder: TempDir,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Stores for Files {
    async fn fresh(&self) -> Box<dyn Store> {
        Box::new(File { folder: tempfile::tempdir().unwrap(), clock: Arc::new(FakeClock::at(NOON)) })
    }
}

#[async_trait]
impl Store for File {
    async fn open(&self) -> Arc<dyn Records> {
        Arc::new(SqliteRecords::open(self.folder.path(), Access::Write, Arc::clone(&self.clock)).unwrap())
    }
}

struct Databases;

struct Database(String);

#[async_trait]
impl Stores for Databases {
    async fn fresh(&self) -> Box<dyn Store> {
        Box::new(Database(fresh_database()))
    }
}

#[async_trait]
impl Store for Database {
    async fn open(&self) -> Arc<dyn Records> {
        Arc::new(postgres(&self.0).await)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_moment_changes_nothing_on_sqlite() {
    survived(matrix(&Files, Level::ExecuteNotify, AT_A_TIME).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_moment_changes_nothing_on_postgres() {
    survived(matrix(&Databases, Level::ExecuteNotify, AT_A_TIME).await);
}
