//! What an operator needs to know about a store before anything runs on it.

use super::hold::reason;
use super::mark::MarkFile;
use super::postgres::connect::{Server, check};
use super::postgres::{damage_check as pg_look, guards as pg_guards, objects as pg_objects, state as pg_state};
use super::sqlite::file::DataFile;
use super::sqlite::{damage_check, file, guards, objects, read_errors, state};
use super::usage::TableOps;
use super::{OpenError, unavailable_postgres, unavailable_sqlite};
use crate::migrate::{self, MigrateError, MigrateOutcome, MigrationStatus};
use chimera_core::limits;
use chimera_core::time::Timestamp;
use chimera_engine::port::{Hold, Outage, Unavailable};
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSurvey {
    /// The migration state of its schema.
    pub schema: MigrationStatus,
    /// Whether a commit waits for the disk.
    pub durable: bool,
    /// Whether this user may change it.
    pub writable: bool,
    /// Its clock, if it has one of its own.
    pub clock: Option<Timestamp>,
    pub runs: RunOwnership,
    /// Why it may not be changed, if it is held.
    pub hold: Option<Hold>,
    /// A missing table, column or privilege, a foreign object on its tables, or a missing guard.
    pub missing: Option<Unavailable>,
    /// What is wrong with its mark file, if the store was used before and has no marks.
    pub mark_problem: Option<String>,
}

/// Ownership of runs that have work left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOwnership {
    /// Runs driven by the holder of a lane.
    pub driven: i64,
    /// Runs that wait for a signal or a time.
    pub parked: i64,
    /// Parked runs whose wake-up time passed more than a minute ago.
    pub overdue: i64,
    /// Signals sent more than a minute ago that their run has not consumed.
    pub overdue_signals: i64,
    /// Rollbacks that began more than an hour ago and have not ended.
    pub long_rollbacks: i64,
    /// Runs that nobody drives and nobody would ever look at. There must be none.
    pub unattended: i64,
    /// Calls whose outcome is unknown until a person resolves them; only counted in the current schema.
    pub in_doubt: i64,
}

/// The schema version since which runs record their owner.
const ATTENDED_SINCE: i64 = 9;

/// How many runs are driven, parked, overdue and unattended, how many signals are overdue, and how many rollbacks take long.
/// `{overdue}` stands for the time before which a deadline should have been met, `{open}` for a rollback that has not
/// ended, `{long}` for one that began before `$1` or does not say when.
const ATTENDED: &str = "SELECT (SELECT count(*) FROM runs WHERE owner_lane IS NOT NULL), \
    (SELECT count(*) FROM runs WHERE next_deadline IS NOT NULL), \
    (SELECT count(*) FROM runs WHERE next_deadline < {overdue} AND owner_lane IS NULL), \
    (SELECT count(*) FROM runs WHERE workflow_id IS NOT NULL AND owner_lane IS NULL AND next_deadline IS NULL \
        AND (completed_at IS NULL OR {open})), \
    (SELECT count(*) FROM run_signals WHERE created_at < {overdue}), \
    (SELECT count(*) FROM runs WHERE (owner_lane IS NOT NULL OR next_deadline IS NOT NULL) AND {open} AND {long})";

const DOUBTED: &str = "SELECT count(*) FROM steps WHERE in_doubt_since IS NOT NULL";

/// A newer schema is reported as a fact; using it is rejected later.
fn accept_newer(status: Result<MigrationStatus, MigrateError>) -> Result<MigrationStatus, MigrateError> {
    match status {
        Err(MigrateError::Newer { found, .. }) => Ok(MigrationStatus { version: found, pending: Vec::new() }),
        status => status,
    }
}

/// A missing object is a fact; whatever else keeps a store from answering is an error.
fn missing_as_fact(found: Result<(), Unavailable>) -> Result<Option<Unavailable>, Unavailable> {
    match found {
        Err(why) if why.outage == Outage::Unusable => Ok(Some(why)),
        found => found.map(|()| None),
    }
}

/// Inspects the data in `folder` without changing it; a missing file means an empty schema. The data is held if
/// it says so, or if it is older than `marks`.
pub fn survey_sqlite(folder: &Path, marks: &Path, now: Timestamp) -> Result<StoreSurvey, OpenError> {
    read_errors::explain(folder, try_survey_sqlite(folder, marks, now))
}

fn try_survey_sqlite(folder: &Path, marks: &Path, now: Timestamp) -> Result<StoreSurvey, OpenError> {
    let path = file::path_in(folder);
    let (marks, missed) = (MarkFile::read(marks)?, MarkFile::missing_note_at(marks, false)?);
    let gone = marks.iter().find_map(|mark| mark.check(mark.generation, None));
    let mut hold = gone.map(|behind| Hold { reason: reason(&behind), since: now });
    let none =
        MigrationStatus { version: 0, pending: migrate::MIGRATIONS.iter().map(|migration| migration.name).collect() };
    let unusable = |error| unavailable_sqlite(&error);
    let mut used = false;
    let data = DataFile::find(folder)?;
    let (conn, schema, writable) = match path.metadata().map(|_| data) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            (rusqlite::Connection::open_in_memory().map_err(unusable)?, none, true)
        }
        Err(error) => return Err(OpenError::Folder(error)),
        Ok(None) => return Err(OpenError::Absent),
        Ok(Some(data)) => {
            let conn = data.open_reader()?;
            damage_check::quick_check(&conn)?;
            let read_only = conn.is_readonly(rusqlite::MAIN_DB).map_err(unusable)?;
            let schema = accept_newer(migrate::sqlite_status(&conn))?;
            if schema.version > 0 {
                hold = state::current_hold(&conn, &marks, now).map_err(unusable)?;
                used = state::was_used(&conn).map_err(unusable)?;
            }
            (conn, schema, !read_only)
        }
    };
    // `synchronous` is a setting of the connection, not of the file: set it as the writer does.
    file::force_commits(&conn).map_err(unusable)?;
    let durable = file::forces_commits(&conn).map_err(unusable)?;
    let lacks = match schema.version == migrate::newest() {
        true => {
            missing_as_fact(objects::check_objects(&conn).and_then(|()| damage_check::usable(&conn, &TableOps::all())))?
        }
        false => None,
    };
    let mut runs = RunOwnership::default();
    if schema.version >= ATTENDED_SINCE && lacks.is_none() {
        runs = attended_sqlite(&conn, now).map_err(unusable)?;
    }
    if schema.version == migrate::newest() && lacks.is_none() {
        runs.in_doubt = conn.query_row(DOUBTED, [], |row| row.get(0)).map_err(unusable)?;
    }
    let mark_missed = missed.filter(|_| used);
    let lacks = if lacks.is_some() { lacks } else { missing_as_fact(guards::check_guards(&conn))? };
    Ok(StoreSurvey { schema, durable, writable, clock: None, runs, hold, missing: lacks, mark_problem: mark_missed })
}

/// Migrates the schema in `folder`, and restores schema objects that somebody removed.
pub fn migrate_sqlite(folder: &Path) -> Result<MigrateOutcome, OpenError> {
    crate::folder::create(folder).map_err(OpenError::Folder)?;
    let (_, mut conn) = DataFile::create(folder)?;
    objects::check_objects(&conn)?;
    let mut applied = migrate::sqlite(&mut conn)?;
    applied.restored = guards::restore(&mut conn)?;
    // What can't be merged now stays in the log.
    let _ = file::merge_log(&conn);
    Ok(applied)
}

/// When a rollback must have begun to take long.
const fn long_before(now: Timestamp) -> i64 {
    now.plus_seconds(-limits::ROLLBACK_LONG_SECONDS).micros()
}

fn attended_sqlite(conn: &rusqlite::Connection, now: Timestamp) -> rusqlite::Result<RunOwnership> {
    let text = ATTENDED.replace("{overdue}", "(unixepoch() - 60) * 1000000");
    let text = text.replace("{open}", "rollback ->> '$.ended' = 0");
    let text = text.replace("{long}", "coalesce(rollback ->> '$.began_at', 0) < $1");
    conn.query_row(&text, [long_before(now)], |row| {
        Ok(RunOwnership {
            driven: row.get(0)?,
            parked: row.get(1)?,
            overdue: row.get(2)?,
            unattended: row.get(3)?,
            overdue_signals: row.get(4)?,
            long_rollbacks: row.get(5)?,
            in_doubt: 0,
        })
    })
}

/// Whether everything that a server does is possible, and no foreign object interferes.
async fn usable_postgres(client: &tokio_postgres::Client) -> Result<(), Unavailable> {
    pg_objects::check_objects(client).await?;
    pg_look::prove_usable(client, &TableOps::all()).await
}

/// Whether the guards of Chimera's schema work. Everything else can be reported without them.
async fn guarded_postgres(client: &tokio_postgres::Client) -> Result<(), Unavailable> {
    pg_guards::check_guards(client).await?;
    pg_guards::check_home_schema(client).await
}

/// Inspects the database without changing it. It is held if it says so, or if it is older than `marks`.
pub async fn survey_postgres(url: &str, marks: &Path, now: Timestamp) -> Result<StoreSurvey, OpenError> {
    let client = Server::parse(url)?.connect().await?;
    check(&client).await?;
    let schema = accept_newer(migrate::postgres_status(&client).await)?;
    let text = "SELECT current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on' \
                AND current_setting('synchronous_commit') <> 'off', \
                (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, \
                current_setting('transaction_read_only') = 'off'";
    let row = client.query_one(text, &[]).await;
    let row = row.map_err(|error| unavailable_postgres(&error))?;
    let lacks = match schema.version == migrate::newest() {
        true => missing_as_fact(usable_postgres(&client).await)?,
        false => None,
    };
    let mut runs = RunOwnership::default();
    if schema.version >= ATTENDED_SINCE && lacks.is_none() {
        let text = ATTENDED.replace("{overdue}", "now() - interval '1 minute'");
        let text = text.replace("{open}", "rollback ->> 'ended' = 'false'");
        let text = text.replace("{long}", "coalesce((rollback ->> 'began_at')::bigint, 0) < $1");
        let found = client.query_one(&text, &[&long_before(now)]).await;
        let found = found.map_err(|error| unavailable_postgres(&error))?;
        runs = RunOwnership {
            driven: found.get(0),
            parked: found.get(1),
            overdue: found.get(2),
            unattended: found.get(3),
            overdue_signals: found.get(4),
            long_rollbacks: found.get(5),
            in_doubt: 0,
        };
    }
    if schema.version == migrate::newest() && lacks.is_none() {
        let found = client.query_one(DOUBTED, &[]).await.map_err(|error| unavailable_postgres(&error))?;
        runs.in_doubt = found.get(0);
    }
    let (marks, missed) = (MarkFile::read(marks)?, MarkFile::missing_note_at(marks, true)?);
    let gone = marks.iter().find_map(|mark| mark.check(mark.generation, None));
    let used = schema.version > 0 && lacks.is_none() && pg_state::was_used(&client).await?;
    let hold = match schema.version {
        0 => gone.map(|behind| Hold { reason: reason(&behind), since: now }),
        // The missing object is reported; the hold may be stored in it.
        _ if lacks.is_some() => pg_state::current_hold(&client, &marks, now).await.unwrap_or_default(),
        _ => pg_state::current_hold(&client, &marks, now).await?,
    };
    let lacks = if lacks.is_some() { lacks } else { missing_as_fact(guarded_postgres(&client).await)? };
    let clock = Some(Timestamp::from_micros(row.get(1)));
    let mark_missed = missed.filter(|_| used);
    Ok(StoreSurvey {
        schema,
        durable: row.get(0),
        writable: row.get(2),
        clock,
        runs,
        hold,
        missing: lacks,
        mark_problem: mark_missed,
    })
}

/// Migrates the database's schema, and restores schema objects that somebody removed.
pub async fn migrate_postgres(url: &str) -> Result<MigrateOutcome, OpenError> {
    let mut client = Server::parse(url)?.connect().await?;
    check(&client).await?;
    pg_objects::check_objects(&client).await?;
    pg_guards::check_home_schema(&client).await?;
    let mut applied = migrate::postgres(&mut client).await?;
    applied.restored = pg_guards::restore(&client).await?;
    Ok(applied)
}
