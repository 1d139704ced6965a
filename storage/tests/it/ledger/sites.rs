//! Where the stores under test keep their data, and direct access to it.

use crate::records::{fresh_database, postgres, sqlite};
use async_trait::async_trait;
use chimera_engine::port::Records;
use chimera_testkit::memory::MemoryRecords;
use chimera_testkit::suite::ledger::Site;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

struct MemorySite(MemoryRecords);

#[async_trait]
impl Site for MemorySite {
    async fn start(&self) -> Arc<dyn Records> {
        Arc::new(self.0.second_node())
    }

    fn is_shared(&self) -> bool {
        true
    }
}

struct SqliteSite(TempDir);

#[async_trait]
impl Site for SqliteSite {
    async fn start(&self) -> Arc<dyn Records> {
        Arc::new(sqlite(self.0.path()).unwrap())
    }

    fn is_shared(&self) -> bool {
        false
    }
}

struct PostgresSite(String);

#[async_trait]
impl Site for PostgresSite {
    async fn start(&self) -> Arc<dyn Records> {
        Arc::new(postgres(&self.0).await)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// Each kind of store, empty.
pub(crate) fn every_site() -> impl Iterator<Item = Box<dyn Site>> {
    let sites: [(&str, Box<dyn Site>); 3] = [
        ("memory", Box::new(MemorySite(MemoryRecords::with_lanes(2)))),
        ("SQLite", Box::new(SqliteSite(tempfile::tempdir().unwrap()))),
        ("PostgreSQL", Box::new(PostgresSite(fresh_database()))),
    ];
    sites.into_iter().map(|(name, site)| {
        println!("on {name}");
        site
    })
}

/// A second connection to the data file in `folder`.
pub(crate) fn file(folder: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(folder.join("chimera.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection
}

/// A plain connection to a database.
pub(crate) async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
