//! Migrations on PostgreSQL.
//!
//! A transaction-level advisory lock serializes processes. It belongs to the transaction, not to the session, so a
//! caller that gives up half-way leaves no lock behind.

use super::{
    MIGRATIONS, MigrateError, MigrateOutcome, Migration, MigrationDialect, MigrationRow, MigrationStatus, pending,
    status,
};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, GenericClient, Transaction};

/// An arbitrary number that nobody else locks.
const LOCK: i64 = 0x6368_696d_6572_6131;

const RECORD: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version BIGINT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
)";

/// Applies pending migrations and returns them. Inside a transaction, nothing is visible before that commits.
pub async fn postgres(client: &mut impl GenericClient) -> Result<MigrateOutcome, MigrateError> {
    apply(client, MIGRATIONS, i64::MAX).await
}

/// Applies pending migrations up to a version, for data that was written under it.
pub async fn postgres_to(client: &mut impl GenericClient, version: i64) -> Result<MigrateOutcome, MigrateError> {
    apply(client, MIGRATIONS, version).await
}

/// The same with a given set of migrations.
pub(super) async fn apply(
    client: &mut impl GenericClient,
    held: &'static [Migration],
    version: i64,
) -> Result<MigrateOutcome, MigrateError> {
    let mut applied = MigrateOutcome::default();
    loop {
        let tx = client.transaction().await.map_err(database)?;
        tx.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(not_locked)?;
        tx.batch_execute("SET LOCAL client_min_messages = warning").await.map_err(database)?;
        tx.batch_execute(RECORD).await.map_err(database)?;
        let recorded = recorded(&tx).await?;
        applied.version = recorded.last().map_or(0, |row| row.version);
        let next = if applied.version < version { apply_next(&tx, held, &recorded).await? } else { None };
        let Some(name) = next else {
            tx.commit().await.map_err(database)?;
            return Ok(applied);
        };
        tx.commit().await.map_err(|error| MigrateError::Failed { name, source: Box::new(error) })?;
        applied.names.push(name);
    }
}

/// The migration state. Changes nothing.
pub async fn postgres_status(client: &Client) -> Result<MigrationStatus, MigrateError> {
    let exists = "SELECT to_regclass('schema_migrations') IS NOT NULL";
    let exists: bool = client.query_one(exists, &[]).await.map_err(database)?.get(0);
    let recorded = if exists { recorded(client).await? } else { Vec::new() };
    status(&recorded, MigrationDialect::Postgres)
}

async fn apply_next(
    tx: &Transaction<'_>,
    held: &'static [Migration],
    recorded: &[MigrationRow],
) -> Result<Option<&'static str>, MigrateError> {
    let Some(next) = pending(held, recorded, MigrationDialect::Postgres)?.first() else {
        return Ok(None);
    };
    let failed = |error: tokio_postgres::Error| MigrateError::Failed { name: next.name, source: Box::new(error) };
    take_lanes(tx).await.map_err(failed)?;
    tx.batch_execute(next.sql(MigrationDialect::Postgres)).await.map_err(failed)?;
    let record = "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)";
    tx.execute(record, &[&next.version, &next.name, &next.checksum(MigrationDialect::Postgres)])
        .await
        .map_err(failed)?;
    Ok(Some(next.name))
}

/// Takes over every lane, so that a node of another version that claims one again sees the new version. Locks the
/// whole table first, because every batch begins with its lane: with the same lock order there is no deadlock.
async fn take_lanes(tx: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    let exists: bool = tx.query_one("SELECT to_regclass('ledger_lanes') IS NOT NULL", &[]).await?.get(0);
    if exists {
        tx.batch_execute("LOCK TABLE ledger_lanes IN SHARE ROW EXCLUSIVE MODE").await?;
        tx.execute("UPDATE ledger_lanes SET epoch = epoch + 1", &[]).await?;
    }
    Ok(())
}

/// The newest applied migration; zero without a schema.
pub(crate) async fn postgres_version(client: &Client) -> Result<i64, tokio_postgres::Error> {
    match client.query_one("SELECT coalesce(max(version), 0) FROM schema_migrations", &[]).await {
        Ok(row) => Ok(row.get(0)),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(0),
        Err(error) => Err(error),
    }
}

async fn recorded(client: &impl GenericClient) -> Result<Vec<MigrationRow>, MigrateError> {
    let query = "SELECT version, name, checksum FROM schema_migrations ORDER BY version";
    let rows = client.query(query, &[]).await.map_err(database)?;
    Ok(rows.iter().map(|row| MigrationRow { version: row.get(0), name: row.get(1), checksum: row.get(2) }).collect())
}

fn not_locked(error: tokio_postgres::Error) -> MigrateError {
    if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) { MigrateError::Busy } else { database(error) }
}

fn database(error: tokio_postgres::Error) -> MigrateError {
    MigrateError::Database(Box::new(error))
}

/// Whether the server, not the migration, caused the failure. Classes: 08 connection, 40 rollback, 53 resources, 55
/// locks, 57 operator intervention.
pub(super) fn is_transient(error: &tokio_postgres::Error) -> bool {
    error.code().is_none_or(|code| ["08", "40", "53", "55", "57"].iter().any(|class| code.code().starts_with(class)))
}
