//! Times known to a store, for checking this machine's clock.

use super::postgres::connect::Server;
use super::postgres::failure::unavailable;
use super::sqlite::damage_check::quick_check;
use super::sqlite::file::DataFile;
use super::sqlite::read_errors;
use super::{OpenError, unavailable_sqlite};
use chimera_core::time::Timestamp;
use chimera_engine::port::Unavailable;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;

/// Times that don't come from this machine's current clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTimes {
    /// When the newest ledger entry was written, by the clock of its writer.
    pub newest_entry: Option<Timestamp>,
    /// The store's own clock, if it has one.
    pub clock: Option<Timestamp>,
}

/// Steps that wait for a time, such as a timer or a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimedWaits {
    pub steps: u64,
    /// The latest of these times.
    pub until: Option<Timestamp>,
}

impl TimedWaits {
    fn of_row(steps: i64, until: Option<i64>) -> Self {
        Self { steps: steps.unsigned_abs(), until: until.map(Timestamp::from_micros) }
    }
}

const WAITS: &str = "SELECT count(*), max({time}) FROM steps WHERE status IN ('pending', 'retry_wait') AND {time} > ";

/// The last entry of each lane: earlier entries are not newer, unless a clock was wrong in between.
/// A join would read the whole ledger.
const NEWEST: &str = "SELECT max((SELECT {time} FROM audit_log_entries e WHERE e.lane = l.lane AND e.seq = l.head_seq)) \
     FROM ledger_lanes l";

/// The times of the data in `folder`; empty if there is none yet. Changes nothing.
pub fn sqlite_times(folder: &Path) -> Result<StoreTimes, OpenError> {
    read_errors::explain(folder, read_times(folder))
}

fn read_times(folder: &Path) -> Result<StoreTimes, OpenError> {
    let Some(data) = DataFile::find(folder)? else { return Ok(StoreTimes::default()) };
    let conn = data.open_reader()?;
    let read = || {
        let ledger = "SELECT 1 FROM sqlite_schema WHERE name = 'audit_log_entries'";
        if conn.query_row(ledger, [], |_| Ok(())).optional()?.is_none() {
            return Ok(None);
        }
        conn.query_row(&NEWEST.replace("{time}", "e.timestamp"), [], |row| row.get::<_, Option<i64>>(0))
    };
    let newest = read().map_err(|error| located(&conn, unavailable_sqlite(&error)))?;
    Ok(StoreTimes { newest_entry: newest.map(Timestamp::from_micros), clock: None })
}

/// The steps that wait for a time after `now`. Changes nothing.
pub fn sqlite_waits(folder: &Path, now: Timestamp) -> Result<TimedWaits, OpenError> {
    let Some(data) = DataFile::find(folder)? else { return Ok(TimedWaits::default()) };
    let conn = data.open_reader()?;
    let text = WAITS.replace("{time}", "retry_at") + "?1";
    let found = conn.query_row(&text, [now.micros()], |row| Ok(TimedWaits::of_row(row.get(0)?, row.get(1)?)));
    Ok(found.map_err(|error| unavailable_sqlite(&error))?)
}

/// Damage, with the tables whose first page is damaged, if there are any.
fn located(conn: &Connection, met: Unavailable) -> Unavailable {
    let named = met.outage.is_damage().then(|| quick_check(conn).err()).flatten();
    named.unwrap_or(met)
}

/// The times of the database. Changes nothing.
pub async fn postgres_times(url: &str) -> Result<StoreTimes, OpenError> {
    let client = Server::parse(url)?.connect().await?;
    let failed = |error: tokio_postgres::Error| unavailable(&error);
    let ledger = "SELECT to_regclass('audit_log_entries') IS NOT NULL";
    let mut newest = None;
    if client.query_one(ledger, &[]).await.map_err(failed)?.get(0) {
        let text = NEWEST.replace("{time}", "(extract(epoch FROM e.\"timestamp\") * 1000000)::bigint");
        newest = client.query_one(&text, &[]).await.map_err(failed)?.get::<_, Option<i64>>(0);
    }
    // Last, so that it is recent when it is compared.
    let clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let clock = client.query_one(clock, &[]).await.map_err(failed)?.get(0);
    Ok(StoreTimes { newest_entry: newest.map(Timestamp::from_micros), clock: Some(Timestamp::from_micros(clock)) })
}

/// The steps that wait for a time after `now`. Changes nothing.
pub async fn postgres_waits(url: &str, now: Timestamp) -> Result<TimedWaits, OpenError> {
    let client = Server::parse(url)?.connect().await?;
    let text = WAITS.replace("{time}", "(extract(epoch FROM retry_at) * 1000000)::bigint") + "$1";
    let row = client.query_one(&text, &[&now.micros()]).await.map_err(|error| unavailable(&error))?;
    Ok(TimedWaits::of_row(row.get(0), row.get(1)))
}
