//! Migrations on SQLite.
//!
//! `BEGIN IMMEDIATE` takes the write lock before the record is read, so two processes can't both find a migration
//! pending. The second one waits, whatever the connection's own busy timeout is.

use super::{
    MIGRATIONS, MigrateError, MigrateOutcome, Migration, MigrationDialect, MigrationRow, MigrationStatus, pending,
    status,
};
use crate::records::sqlite::log_pairing::stamp;
use chimera_core::limits;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::time::Duration;

const RECORD: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT";

/// Applies pending migrations and returns them.
pub fn sqlite(conn: &mut Connection) -> Result<MigrateOutcome, MigrateError> {
    apply_with_timeout(conn, MIGRATIONS)
}

/// Applies pending migrations up to a version.
pub(crate) fn sqlite_to(conn: &mut Connection, version: i64) -> Result<MigrateOutcome, MigrateError> {
    let count = usize::try_from(version).unwrap_or_default().min(MIGRATIONS.len());
    apply_with_timeout(conn, &MIGRATIONS[..count])
}

/// The same with a given set of migrations.
pub(super) fn apply_with_timeout(
    conn: &mut Connection,
    held: &'static [Migration],
) -> Result<MigrateOutcome, MigrateError> {
    let patience: u32 = conn.pragma_query_value(None, "busy_timeout", |row| row.get(0)).map_err(database)?;
    conn.busy_timeout(limits::SQLITE_MIGRATE_TIMEOUT).map_err(database)?;
    let outcome = apply_all(conn, held);
    conn.busy_timeout(Duration::from_millis(patience.into())).map_err(database)?;
    outcome
}

/// The migration state. Changes nothing.
pub fn sqlite_status(conn: &Connection) -> Result<MigrationStatus, MigrateError> {
    let exists = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations')";
    let exists: bool = conn.query_row(exists, [], |row| row.get(0)).map_err(database)?;
    let recorded = if exists { recorded(conn)? } else { Vec::new() };
    status(&recorded, MigrationDialect::Sqlite)
}

/// The newest applied migration; zero without a schema.
pub(crate) fn sqlite_version(conn: &Connection) -> rusqlite::Result<i64> {
    let text = "SELECT coalesce(max(version), 0) FROM schema_migrations";
    match conn.query_row(text, [], |row| row.get(0)) {
        Err(rusqlite::Error::SqliteFailure(_, Some(text))) if text.contains("no such table") => Ok(0),
        version => version,
    }
}

/// Applies everything in one transaction: a new database waits for the disk once.
fn apply_all(conn: &mut Connection, held: &'static [Migration]) -> Result<MigrateOutcome, MigrateError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(database)?;
    tx.execute_batch(RECORD).map_err(database)?;
    let mut names = Vec::new();
    while let Some(name) = apply_next(&tx, held, &recorded(&tx)?)? {
        names.push(name);
    }
    if !names.is_empty() {
        stamp(&tx).map_err(database)?;
    }
    let version = recorded(&tx)?.last().map_or(0, |row| row.version);
    let last = names.last().copied().unwrap_or("schema_migrations");
    tx.commit().map_err(|error| MigrateError::Failed { name: last, source: Box::new(error) })?;
    Ok(MigrateOutcome { names, version, restored: Vec::new() })
}

fn apply_next(
    tx: &Transaction<'_>,
    held: &'static [Migration],
    recorded: &[MigrationRow],
) -> Result<Option<&'static str>, MigrateError> {
    let Some(next) = pending(held, recorded, MigrationDialect::Sqlite)?.first() else {
        return Ok(None);
    };
    let failed = |error: rusqlite::Error| MigrateError::Failed { name: next.name, source: Box::new(error) };
    tx.execute_batch(next.sql(MigrationDialect::Sqlite)).map_err(failed)?;
    let record = "INSERT INTO schema_migrations (version, name, checksum) VALUES (?1, ?2, ?3)";
    tx.execute(record, (next.version, next.name, next.checksum(MigrationDialect::Sqlite))).map_err(failed)?;
    Ok(Some(next.name))
}

fn recorded(conn: &Connection) -> Result<Vec<MigrationRow>, MigrateError> {
    let query = "SELECT version, name, checksum FROM schema_migrations ORDER BY version";
    let mut statement = conn.prepare(query).map_err(database)?;
    let rows = statement
        .query_map([], |row| Ok(MigrationRow { version: row.get(0)?, name: row.get(1)?, checksum: row.get(2)? }));
    rows.and_then(Iterator::collect).map_err(database)
}

fn database(error: rusqlite::Error) -> MigrateError {
    MigrateError::Database(Box::new(error))
}

/// Whether the file, not the migration, caused the failure.
pub(super) fn is_transient(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked | DiskFull | SystemIoFailure))
}
