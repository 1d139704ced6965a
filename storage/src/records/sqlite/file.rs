//! The data file: how it is opened, and how its lane is taken.

use super::failure::unavailable;
use chimera_core::ledger::{Digest32, Head};
use chimera_engine::commit::{Batch, Lane, Settled};
use chimera_engine::port::Unavailable;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The one lane of an embedded store.
pub(crate) const LANE: i64 = 1;
/// Prepared statements kept per connection.
const STATEMENTS_MAX: usize = 512;
/// How long a connection waits for another process's lock.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Where the data file is.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join("chimera.db")
}

/// Opens the file for writing, with every commit forced to the disk.
pub(crate) fn open_writer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY_WAIT)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    settle_rules(&conn)?;
    Ok(conn)
}

/// Opens the file for reading. Works beside a live writer and on a stopped one's data.
pub(crate) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)
        .or_else(|_| Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY))?;
    conn.busy_timeout(BUSY_WAIT)?;
    settle_rules(&conn)?;
    conn.pragma_update(None, "query_only", true)?;
    Ok(conn)
}

fn settle_rules(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "recursive_triggers", true)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "cache_size", -65_536)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(())
}

/// Takes the lane: the epoch grows, so that whoever held it before can't commit any more.
pub(crate) fn claim(conn: &Connection, lease_until: i64) -> Result<Lane, Unavailable> {
    let text = "INSERT INTO ledger_lanes (lane, epoch, head_seq, head_hash, lease_until) \
                VALUES (?1, 1, 0, zeroblob(32), ?2) \
                ON CONFLICT (lane) DO UPDATE SET epoch = epoch + 1, lease_until = excluded.lease_until \
                RETURNING epoch, head_seq, head_hash";
    conn.query_row(text, params![LANE, lease_until], lane).map_err(|error| unavailable(&error))
}

fn lane(row: &rusqlite::Row<'_>) -> rusqlite::Result<Lane> {
    let hash: Vec<u8> = row.get(2)?;
    let hash = Digest32::from_slice(&hash).ok_or(rusqlite::Error::InvalidQuery)?;
    Ok(Lane { id: LANE, epoch: row.get(0)?, head: Head { seq: row.get(1)?, hash } })
}

/// Looks for a batch whose commit gave no clear answer, after taking the lane anew.
pub(crate) fn settle(conn: &Connection, batch: &Batch) -> Result<Settled, Unavailable> {
    let text = "UPDATE ledger_lanes SET epoch = epoch + 1 WHERE lane = ?1 AND epoch = ?2 \
                RETURNING epoch, head_seq, head_hash, last_batch_id";
    let found = conn
        .query_row(text, params![batch.lane.id, batch.lane.epoch], |row| {
            Ok((lane(row)?, row.get::<_, Option<Vec<u8>>>(3)?))
        })
        .optional()
        .map_err(|error| unavailable(&error))?;
    Ok(match found {
        Some((lane, last)) if last.as_deref() == Some(batch.id.as_bytes()) => Settled::Ours(lane),
        Some((lane, _)) => Settled::Never(lane),
        None => Settled::Fenced { durable: durable(conn, batch)? },
    })
}

fn durable(conn: &Connection, batch: &Batch) -> Result<Option<bool>, Unavailable> {
    let (links, _) = batch.chain(|_| true);
    let Some(first) = links.first() else { return Ok(None) };
    let text = "SELECT 1 FROM audit_log_entries WHERE lane = ?1 AND seq = ?2 AND hash = ?3";
    let found = conn.prepare(text).and_then(|mut s| s.exists(params![batch.lane.id, first.seq, first.hash.0]));
    // Losers were left out of the sent batch, so a different hash proves nothing.
    found.map(|same| same.then_some(true)).map_err(|error| unavailable(&error))
}

/// Lets the lane's lease end now.
pub(crate) fn release(conn: &Connection, lane: Lane) {
    let text = "UPDATE ledger_lanes SET lease_until = 0 WHERE lane = ?1 AND epoch = ?2";
    // The process is leaving: a lease that could not be ended runs out by itself.
    let _ = conn.execute(text, params![lane.id, lane.epoch]);
}
