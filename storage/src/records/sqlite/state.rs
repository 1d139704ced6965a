//! Whether the data file matches the marks, and whether it is held.

use super::super::hold::{KnownProgress, StoreState, reason};
use super::failure::head;
use super::file::in_durable_transaction;
use chimera_core::ledger::{Digest32, Mark, MarkMismatch, StoredLane};
use chimera_core::time::Timestamp;
use chimera_engine::port::Hold;
use rusqlite::{Connection, OptionalExtension, params};

/// The store's row.
pub(in super::super) fn read(conn: &Connection) -> rusqlite::Result<StoreState> {
    let text = "SELECT generation, held_reason, held_at, held_epoch FROM store_state WHERE id = 1";
    let row =
        conn.query_row(text, [], |row| Ok(StoreState::of_row(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    Ok(row.optional()?.unwrap_or_default())
}

/// How the file is behind the marks.
pub(in super::super) fn behind(
    conn: &Connection,
    generation: i64,
    marks: &[Mark],
) -> rusqlite::Result<Option<MarkMismatch>> {
    for mark in marks {
        if let Some(behind) = mark.check(generation, lane_row(conn, mark)?) {
            return Ok(Some(behind));
        }
    }
    Ok(None)
}

fn lane_row(conn: &Connection, mark: &Mark) -> rusqlite::Result<Option<StoredLane>> {
    let text = "SELECT epoch, head_seq, head_hash, \
                (SELECT hash FROM audit_log_entries WHERE lane = ?1 AND seq = ?2) FROM ledger_lanes WHERE lane = ?1";
    let row = |row: &rusqlite::Row<'_>| {
        let at: Option<Vec<u8>> = row.get(3)?;
        let hash_at_mark = at.as_deref().and_then(Digest32::from_slice);
        Ok(StoredLane { epoch: row.get(0)?, head: head(mark.lane, row, (1, 2))?, hash_at_mark })
    };
    conn.query_row(text, params![mark.lane, mark.head.seq], row).optional()
}

/// Checks the file before its lane is claimed. One that is behind its marks is held from now on.
pub(in super::super) fn check(conn: &Connection, marks: &[Mark], now: Timestamp) -> rusqlite::Result<StoreState> {
    let state = read(conn)?;
    let known = KnownProgress::of(marks);
    let found = match &state.hold {
        Some(_) if state.generation >= known.generation => return Ok(state),
        Some(found) => found.clone(),
        None => match behind(conn, state.generation, marks)? {
            None => return Ok(state),
            Some(behind) => Hold { reason: reason(&behind), since: now },
        },
    };
    hold(conn, &found, known)?;
    // A trigger may drop the hold; the data is behind nevertheless.
    let state = read(conn)?;
    Ok(StoreState { hold: state.hold.or(Some(found)), ..state })
}

/// Holds the file, and records the greatest known progress, which a resume must exceed.
pub(in super::super) fn hold(conn: &Connection, hold: &Hold, known: KnownProgress) -> rusqlite::Result<()> {
    let text = "INSERT INTO store_state (id, held_reason, held_at, held_epoch, generation) VALUES (1, ?1, ?2, ?3, ?4) \
                ON CONFLICT (id) DO UPDATE SET held_reason = ?1, held_at = ?2, held_epoch = max(held_epoch, ?3), \
                generation = max(generation, ?4)";
    let cells = params![hold.reason, hold.since.micros(), known.epoch, known.generation];
    in_durable_transaction(conn, || conn.execute(text, cells).map(drop))
}

/// Raises the epoch, so that the next claim gets one that was never used.
pub(in super::super) fn raise_epoch(conn: &Connection, known: KnownProgress) -> rusqlite::Result<()> {
    let text = "UPDATE ledger_lanes SET epoch = max(epoch, ?1, (SELECT held_epoch FROM store_state WHERE id = 1))";
    in_durable_transaction(conn, || conn.execute(text, [known.epoch]).map(drop))
}

/// Whether the file is held, or would be at the next write. Changes nothing; a file without the table is older than
/// any mark.
pub(in super::super) fn current_hold(
    conn: &Connection,
    marks: &[Mark],
    now: Timestamp,
) -> rusqlite::Result<Option<Hold>> {
    let known = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'store_state')";
    let known: bool = conn.query_row(known, [], |row| row.get(0))?;
    let state = if known { read(conn)? } else { StoreState::default() };
    if state.hold.is_some() {
        return Ok(state.hold);
    }
    let behind = behind(conn, state.generation, marks)?;
    Ok(behind.map(|behind| Hold { reason: reason(&behind), since: now }))
}

/// Whether a lane of the file was ever claimed.
pub(in super::super) fn was_used(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("SELECT EXISTS (SELECT 1 FROM ledger_lanes WHERE epoch > 0)", [], |row| row.get(0))
}
