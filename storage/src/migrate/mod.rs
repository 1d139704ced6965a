//! Migrations: numbered, forward-only, paired for both stores, embedded in the binary.
//!
//! Each runs in its own transaction together with the row that records it, so a crash leaves only whole migrations.
//! There are no down migrations: a mistake is fixed by a later migration. Several processes may migrate at once; each
//! migration is applied by one of them. A recorded migration whose text has changed since is rejected, because the
//! actual schema is then unknown.
//!
//! Nodes of an older version may be using the database. On PostgreSQL a migration takes over their lanes in its own
//! transaction, before it changes anything; on SQLite every batch compares the version. So no node writes to a schema
//! that it does not know.

#[cfg(test)]
mod newer_tests;
mod postgres;
mod sqlite;

pub(crate) use postgres::postgres_version;
pub use postgres::{postgres, postgres_status, postgres_to};
pub use sqlite::{sqlite, sqlite_status};
pub(crate) use sqlite::{sqlite_to, sqlite_version};

use crate::records;
use chimera_engine::port::Unavailable;
use sha2::{Digest, Sha256};

/// One migration, with a text for each store.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Starts at 1, without gaps.
    pub version: i64,
    /// The same for both stores.
    pub name: &'static str,
    postgres: &'static str,
    sqlite: &'static str,
}

macro_rules! migrations {
    ($($version:literal = $file:literal),* $(,)?) => {
        /// Every migration, in order.
        pub static MIGRATIONS: &[Migration] = &[$(Migration {
            version: $version,
            name: $file,
            postgres: include_str!(concat!("../../migrations/postgres/", $file, ".sql")),
            sqlite: include_str!(concat!("../../migrations/sqlite/", $file, ".sql")),
        }),*];
    };
}

migrations! {
    1 = "0001_access",
    2 = "0002_intent",
    3 = "0003_flow",
    4 = "0004_job",
    5 = "0005_swarm",
    6 = "0006_ledger",
    7 = "0007_guards",
    8 = "0008_views",
    9 = "0009_runs",
    10 = "0010_checks",
    11 = "0011_approvals",
    12 = "0012_messages",
    13 = "0013_appends",
    14 = "0014_keys",
    15 = "0015_deliveries",
    16 = "0016_attended",
    17 = "0017_restores",
    18 = "0018_doubts",
    19 = "0019_trace_index",
    20 = "0020_inbox",
    21 = "0021_who",
    22 = "0022_inbox_messages",
    23 = "0023_artifact_owners",
    24 = "0024_entry_checks",
    25 = "0025_workflow_shares",
    26 = "0026_removed_names",
    27 = "0027_schedules",
    28 = "0028_judgements",
    29 = "0029_work_items",
    30 = "0030_schedule_owners",
    31 = "0031_events",
    32 = "0032_tool_definitions",
    33 = "0033_reservations",
    34 = "0034_signing_keys",
    35 = "0035_intent_log",
}

/// The schema version that this binary works with.
#[must_use]
pub fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

/// The body of the one function that Chimera's triggers on PostgreSQL call.
pub(crate) fn postgres_guard() -> &'static str {
    let made = MIGRATIONS.iter().find_map(|migration| migration.postgres.split_once("FUNCTION refuse_change()"));
    made.and_then(|(_, rest)| rest.split("$$").nth(1)).unwrap_or_default()
}

/// The text after `CREATE` that creates one of Chimera's triggers on PostgreSQL.
pub(crate) fn postgres_trigger(name: &str) -> Option<&'static str> {
    let made = format!("CREATE TRIGGER {name} ");
    let newest = MIGRATIONS.iter().rev().find_map(|migration| {
        let at = migration.postgres.rfind(&made)?;
        migration.postgres.get(at + "CREATE ".len()..)
    });
    newest?.split(';').next()
}

/// The result of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrateOutcome {
    /// The migrations that this call applied, in order.
    pub names: Vec<&'static str>,
    /// The schema version now.
    pub version: i64,
    /// Schema objects that somebody had removed and this call restored, described in words.
    pub restored: Vec<String>,
}

/// The migration state of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationStatus {
    /// The schema version; zero when the database is empty.
    pub version: i64,
    /// The migrations that would be applied.
    pub pending: Vec<&'static str>,
}

/// Why a database can't be migrated to this binary's schema.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The database was migrated by a newer binary.
    #[error("the database has schema version {found}, this binary knows {known}")]
    Newer { found: i64, known: i64 },
    /// A recorded migration differs from the one in this binary.
    #[error("migration {version} of the database is not the one in this binary")]
    Changed { version: i64 },
    /// A migration failed and was rolled back.
    #[error("migration {name} failed")]
    Failed { name: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    /// Another process holds the migration lock, as a restore does until it ends.
    #[error("another process is migrating or restoring the database")]
    Busy,
    /// The database could not be reached or read.
    #[error("the database can't be reached or read")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl MigrateError {
    /// The outage behind the error, if the store could not be reached or accepts no changes.
    #[must_use]
    pub fn outage(&self) -> Option<Unavailable> {
        let Self::Database(source) = self else { return None };
        let unavailable = source.downcast_ref().map(records::unavailable_postgres);
        unavailable.or_else(|| source.downcast_ref().map(records::unavailable_sqlite))
    }

    /// Whether a retry may succeed without intervention: a lock, a full disk, a lost connection.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Newer { .. } | Self::Changed { .. } => false,
            Self::Busy => true,
            Self::Database(_) => self.outage().is_none_or(|why| why.outage.retry_after_seconds().is_some()),
            Self::Failed { source, .. } => {
                source.downcast_ref().is_some_and(postgres::is_transient)
                    || source.downcast_ref().is_some_and(sqlite::is_transient)
            }
        }
    }
}

/// A row of `schema_migrations`.
struct MigrationRow {
    version: i64,
    name: String,
    checksum: String,
}

/// Which SQL text of a migration applies.
#[derive(Clone, Copy)]
enum MigrationDialect {
    Postgres,
    Sqlite,
}

impl Migration {
    const fn sql(&self, dialect: MigrationDialect) -> &'static str {
        match dialect {
            MigrationDialect::Postgres => self.postgres,
            MigrationDialect::Sqlite => self.sqlite,
        }
    }

    fn checksum(&self, dialect: MigrationDialect) -> String {
        hex::encode(Sha256::digest(self.sql(dialect)))
    }
}

/// The migrations of `held` that `recorded` lacks. A recorded migration that is not in `held` is an error.
fn pending(
    held: &'static [Migration],
    recorded: &[MigrationRow],
    dialect: MigrationDialect,
) -> Result<&'static [Migration], MigrateError> {
    let known = held.last().map_or(0, |migration| migration.version);
    let found = recorded.iter().map(|row| row.version).max().unwrap_or(0);
    if found > known {
        return Err(MigrateError::Newer { found, known });
    }
    for (row, migration) in recorded.iter().zip(held) {
        let same = row.version == migration.version
            && row.name == migration.name
            && row.checksum == migration.checksum(dialect);
        if !same {
            return Err(MigrateError::Changed { version: migration.version });
        }
    }
    Ok(held.get(recorded.len()..).unwrap_or_default())
}

fn status(recorded: &[MigrationRow], dialect: MigrationDialect) -> Result<MigrationStatus, MigrateError> {
    let pending = pending(MIGRATIONS, recorded, dialect)?;
    let version = recorded.last().map_or(0, |row| row.version);
    Ok(MigrationStatus { version, pending: pending.iter().map(|migration| migration.name).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(count: usize) -> Vec<MigrationRow> {
        let row = |migration: &Migration| MigrationRow {
            version: migration.version,
            name: migration.name.to_owned(),
            checksum: migration.checksum(MigrationDialect::Sqlite),
        };
        MIGRATIONS.iter().take(count).map(row).collect()
    }

    #[test]
    fn versions_count_from_one_without_a_gap_and_stand_in_the_file_names() {
        for (position, migration) in (1_i64..).zip(MIGRATIONS) {
            assert_eq!(migration.version, position);
            assert!(migration.name.starts_with(&format!("{position:04}_")), "{}", migration.name);
        }
    }

    #[test]
    fn what_is_recorded_is_not_pending() {
        assert_eq!(pending(MIGRATIONS, &recorded(0), MigrationDialect::Sqlite).unwrap().len(), MIGRATIONS.len());
        assert_eq!(pending(MIGRATIONS, &recorded(3), MigrationDialect::Sqlite).unwrap()[0].version, 4);
        assert!(pending(MIGRATIONS, &recorded(MIGRATIONS.len()), MigrationDialect::Sqlite).unwrap().is_empty());
    }

    #[test]
    fn a_gap_in_the_record_is_refused() {
        let mut rows = recorded(3);
        rows.remove(1);
        assert!(matches!(
            pending(MIGRATIONS, &rows, MigrationDialect::Sqlite),
            Err(MigrateError::Changed { version: 2 })
        ));
    }

    #[test]
    fn the_other_stores_record_is_refused() {
        assert!(matches!(
            pending(MIGRATIONS, &recorded(1), MigrationDialect::Postgres),
            Err(MigrateError::Changed { version: 1 })
        ));
    }
}
