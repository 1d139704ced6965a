//! The record store on SQLite and on PostgreSQL.
//!
//! Both run the same committer and answer the same suite. They differ in how a batch becomes
//! statements: row by row under savepoints here, one statement per table there.

mod copy;
mod deep;
mod facts;
mod health;
mod held;
mod hold;
mod inbox;
mod mark;
mod observe;
pub(crate) mod postgres;
mod schema;
mod slots;
mod sql;
pub(crate) mod sqlite;
mod task;
mod times;
mod trouble;
mod usage;

pub use copy::{Copied, CopiedTable, DATA_FILE};
pub use facts::{Attended, Facts};
pub use mark::{MARK_FILE, marked_entries};
pub use postgres::{PostgresOptions, PostgresRecords};
pub use sqlite::{Access, SqliteRecords};
pub use times::{Times, Waits};

use chimera_core::record::Tx;
use chimera_engine::port::{SchemaMismatch, Unavailable};

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no data.
    #[error("there is no data in this folder")]
    Absent,
    /// There is data where there may be none.
    #[error("the database is not empty")]
    NotEmpty,
    /// The folder can't be used.
    #[error("the data folder can't be used")]
    Folder(#[source] std::io::Error),
    /// The file of marks can't be used, so nobody can tell whether the store is the newest.
    #[error("the ledger's mark can't be used")]
    Marks {
        /// Where it is.
        path: std::path::PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The address of the database can't be read, or asks for what is not supported.
    #[error("the database URL can't be used: {reason}")]
    Url {
        /// What is wrong with it; no part of it that may be secret.
        reason: String,
    },
    /// The store can't be used.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The schema is not the one that this binary works with, and nothing is migrated here.
    #[error(transparent)]
    Schema(#[from] SchemaMismatch),
    /// The schema can't be brought up to date.
    #[error("the schema can't be brought up to date")]
    Migrate(#[from] crate::migrate::MigrateError),
}

pub(crate) fn unavailable_postgres(error: &tokio_postgres::Error) -> Unavailable {
    postgres::failure::unavailable(error)
}

pub(crate) fn unavailable_sqlite(error: &rusqlite::Error) -> Unavailable {
    sqlite::failure::unavailable(error)
}

/// What is said of an object that Chimera's schema does not have.
fn foreign_object(kind: &str, name: &str, table: &str, place: &str) -> String {
    format!("{kind} {} on {table} in {place} is not Chimera's; drop it", plain(name))
}

/// A name that is somebody's: nothing of it is shown but letters.
fn plain(name: &str) -> String {
    name.chars().map(|it| if it.is_alphanumeric() || "_.$-".contains(it) { it } else { '?' }).collect()
}

/// An empty transaction asks whether the store is ready: it must be able to append.
const fn is_probe(tx: &Tx) -> bool {
    tx.inserts.is_empty() && tx.updates.is_empty() && tx.steps.is_empty() && tx.entries.is_empty()
}
