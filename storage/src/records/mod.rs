//! The record store on SQLite and on PostgreSQL.
//!
//! Both run the same committer and pass the same contract suite. They differ in how a batch becomes statements: row
//! by row on SQLite, one statement per table on PostgreSQL. A batch runs without savepoints first; only if a transaction
//! in it fails is it repeated with them.

mod copy;
mod facts;
mod failed_commits;
mod full_check;
mod health;
mod hold;
mod inbox;
mod lane_cell;
mod mark;
mod observe;
pub(crate) mod postgres;
mod schema;
mod slots;
mod sql;
pub(crate) mod sqlite;
mod task;
mod times;
mod usage;

pub use copy::{
    CopiedTable, CopyManifest, DATA_FILE, DatabaseCopy, copy_postgres, copy_sqlite, fill_postgres, hold_sqlite,
    inspect_sqlite_copy,
};
pub use facts::{RunOwnership, StoreSurvey, migrate_postgres, migrate_sqlite, survey_postgres, survey_sqlite};
pub use full_check::{check_postgres, check_sqlite};
pub use mark::{MARK_FILE, marked_entries};
pub use postgres::{PostgresOptions, PostgresRecords, until_postgres_silent};
pub use sqlite::{AccessMode, SqliteRecords};
pub use times::{StoreTimes, TimedWaits, postgres_times, postgres_waits, sqlite_times, sqlite_waits};

use chimera_core::record::Tx;
use chimera_engine::port::{SchemaMismatch, Unavailable};

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no data in this folder")]
    Absent,
    /// The target database must be empty, and is not.
    #[error("the database is not empty")]
    NotEmpty,
    #[error("the data folder can't be used")]
    Folder(#[source] std::io::Error),
    /// The mark file can't be used, so it is unknown whether the store is the newest copy.
    #[error("the ledger's mark can't be used")]
    Marks { path: std::path::PathBuf, source: std::io::Error },
    /// The database URL can't be parsed, or asks for an unsupported feature.
    #[error("the database URL can't be used: {reason}")]
    Url {
        /// Contains no part of the URL that may be secret.
        reason: String,
    },
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The schema is not the one that this binary works with, and this open mode does not migrate.
    #[error(transparent)]
    Schema(#[from] SchemaMismatch),
    #[error("the schema can't be brought up to date")]
    Migrate(#[from] crate::migrate::MigrateError),
}

pub(crate) fn unavailable_postgres(error: &tokio_postgres::Error) -> Unavailable {
    postgres::failure::unavailable(error)
}

pub(crate) fn unavailable_sqlite(error: &rusqlite::Error) -> Unavailable {
    sqlite::failure::unavailable(error)
}

/// The message for an object that is not part of Chimera's schema.
fn foreign_object(kind: &str, name: &str, table: &str, place: &str) -> String {
    format!("{kind} {} on {table} in {place} is not Chimera's; drop it", plain(name))
}

/// A foreign name: only letters of it are shown.
fn plain(name: &str) -> String {
    name.chars().map(|it| if it.is_alphanumeric() || "_.$-".contains(it) { it } else { '?' }).collect()
}

/// An empty transaction probes readiness: the store must be able to append.
const fn is_probe(tx: &Tx) -> bool {
    tx.inserts.is_empty() && tx.updates.is_empty() && tx.steps.is_empty() && tx.entries.is_empty()
}
