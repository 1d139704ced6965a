//! Whether the database matches the marks, and whether it is held.

use super::super::hold::{KnownProgress, StoreState, head, reason};
use super::failure::{left_out, unavailable};
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_LANES, STORE_STATE};
use chimera_core::ledger::{Digest32, Mark, MarkMismatch, StoredLane};
use chimera_core::record::Table;
use chimera_core::time::Timestamp;
use chimera_engine::port::{Hold, Outage, Unavailable};
use std::collections::BTreeMap;
use tokio_postgres::{Client, Error, Row};

const STATE: &str = "SELECT generation, held_reason, (extract(epoch FROM held_at) * 1000000)::bigint, held_epoch \
     FROM store_state WHERE id = 1";

const LANES: &str = "SELECT lane, epoch, head_seq, head_hash FROM ledger_lanes";

const HEADS: &str = "SELECT l.lane, coalesce(s.generation, 0), l.epoch, l.head_seq, l.head_hash \
     FROM ledger_lanes l LEFT JOIN store_state s ON s.id = 1";

const ENTRIES: &str = "SELECT e.lane, e.hash FROM unnest($1::bigint[], $2::bigint[]) AS m(lane, seq) \
     JOIN audit_log_entries e ON e.lane = m.lane AND e.seq = m.seq";

/// Waits for running batches; their epochs end with this transaction.
const HOLD: &str = "INSERT INTO store_state (id, held_reason, held_at, held_epoch, generation) \
     VALUES (1, $1, now(), $2, $3) ON CONFLICT (id) DO UPDATE SET held_reason = coalesce(store_state.held_reason, excluded.held_reason), \
     held_at = coalesce(store_state.held_at, excluded.held_at), \
     held_epoch = greatest(store_state.held_epoch, excluded.held_epoch), \
     generation = greatest(store_state.generation, excluded.generation)";

const FENCE: &str = "UPDATE ledger_lanes SET epoch = epoch + 1, lease_until = '-infinity'";

const LEAP: &str = "UPDATE ledger_lanes SET lease_until = '-infinity', \
     epoch = greatest(epoch, $1, (SELECT held_epoch FROM store_state WHERE id = 1)) + 1";

/// The store's row. It may say that the store is held, so a hidden row must not count as missing.
pub(in super::super) async fn read(client: &Client) -> Result<StoreState, Unavailable> {
    match client.query_opt(STATE, &[]).await.map_err(|error| unavailable(&error))? {
        Some(row) => Ok(StoreState::of_row(row.get(0), row.get(1), row.get(2), row.get(3))),
        None => is_gone(client, &STORE_STATE).await.map(|()| StoreState::default()),
    }
}

/// Proves that a row which is not visible does not exist. A row policy may hide it, which says nothing about the age
/// of the data.
async fn is_gone(client: &Client, table: &Table) -> Result<(), Unavailable> {
    let hides = client.query_one("SELECT row_security_active($1::text)", &[&table.name]).await;
    if !hides.map_err(|error| unavailable(&error))?.get::<_, bool>(0) {
        return Ok(());
    }
    let reason = format!(
        "rows of {} that were there before can't be seen, and row security is on for it; let the user of database_url \
         see all of them",
        table.name
    );
    Err(Unavailable::new(Outage::Unusable, reason))
}

/// Whether a lane of the database was ever claimed.
pub(in super::super) async fn was_used(client: &Client) -> Result<bool, Unavailable> {
    let text = "SELECT EXISTS (SELECT 1 FROM ledger_lanes WHERE epoch > 0)";
    client.query_one(text, &[]).await.map(|row| row.get(0)).map_err(|error| unavailable(&error))
}

/// How the database is behind the marks. An error while rows may be hidden.
pub(in super::super) async fn behind(
    client: &Client,
    generation: i64,
    marks: &[Mark],
) -> Result<Option<MarkMismatch>, Unavailable> {
    if marks.is_empty() {
        return Ok(None);
    }
    let (lanes, seqs): (Vec<i64>, Vec<i64>) = marks.iter().map(|mark| (mark.lane, mark.head.seq)).unzip();
    let failed = |error: Error| unavailable(&error);
    let entries = client.query(ENTRIES, &[&lanes, &seqs]).await.map_err(failed)?;
    let hash = |row: &Row| (row.get(0), Digest32::from_slice(row.get(1)));
    let entries: BTreeMap<i64, Option<Digest32>> = entries.iter().map(hash).collect();
    let mut rows = BTreeMap::new();
    for row in client.query(LANES, &[]).await.map_err(failed)? {
        let lane: i64 = row.get(0);
        let head = head(lane, row.get(2), row.get(3))?;
        let hash_at_mark = entries.get(&lane).copied().flatten();
        rows.insert(lane, StoredLane { epoch: row.get(1), head, hash_at_mark });
    }
    let behind = marks.iter().find_map(|mark| mark.check(generation, rows.get(&mark.lane).copied()));
    match &behind {
        Some(MarkMismatch::LaneMissing(_)) => is_gone(client, &LEDGER_LANES).await?,
        Some(MarkMismatch::EntryMismatch(mark)) if !entries.contains_key(&mark.lane) => {
            is_gone(client, &AUDIT_LOG_ENTRIES).await?
        }
        _ => {}
    }
    Ok(behind)
}

/// Checks the database before a lane is claimed. One that is behind the marks is held from now on, for every node.
pub(in super::super) async fn check(client: &Client, marks: &[Mark]) -> Result<StoreState, Unavailable> {
    let state = read(client).await?;
    let known = KnownProgress::of(marks);
    let why = match &state.hold {
        Some(_) if state.generation >= known.generation => return Ok(state),
        Some(found) => found.reason.clone(),
        None => match behind(client, state.generation, marks).await? {
            None => return Ok(state),
            Some(behind) => reason(&behind),
        },
    };
    hold(client, &why, known).await.map_err(|error| unavailable(&error))?;
    let state = read(client).await?;
    // A trigger may drop the hold; the data is behind nevertheless.
    if state.hold.is_some() { Ok(state) } else { Err(left_out(STORE_STATE.name)) }
}

/// The progress of every lane, whoever holds it, from one snapshot.
pub(in super::super) async fn heads(client: &Client) -> Result<Vec<Mark>, Unavailable> {
    let mark = |row: &Row| {
        let lane = row.get(0);
        Ok(Mark { lane, generation: row.get(1), epoch: row.get(2), head: head(lane, row.get(3), row.get(4))? })
    };
    let rows = client.query(HEADS, &[]).await.map_err(|error| unavailable(&error))?;
    rows.iter().map(mark).collect()
}

/// Holds the database, and records the greatest known progress, which a resume must exceed. Takes over every lane in
/// the same transaction, so nodes that don't know of the hold can't commit either.
pub(in super::super) async fn hold(client: &Client, reason: &str, known: KnownProgress) -> Result<(), Error> {
    let held = async {
        client.batch_execute("BEGIN; LOCK TABLE ledger_lanes IN SHARE ROW EXCLUSIVE MODE").await?;
        hold_within(client, reason, known).await?;
        client.batch_execute("COMMIT").await
    };
    let held = held.await;
    if held.is_err() {
        // A session that can't roll back is lost, and its transaction with it.
        let _ = client.batch_execute("ROLLBACK").await;
    }
    held
}

/// The same within an open transaction.
pub(in super::super) async fn hold_within(client: &Client, reason: &str, known: KnownProgress) -> Result<(), Error> {
    client.execute(HOLD, &[&reason, &known.epoch, &known.generation]).await?;
    client.execute(FENCE, &[]).await.map(drop)
}

/// Raises the epochs, so that the next claim gets one that was never used.
pub(in super::super) async fn raise_epochs(client: &Client, known: KnownProgress) -> Result<(), Error> {
    client.execute(LEAP, &[&known.epoch]).await.map(drop)
}

/// Whether the database is held, or would be at the next write. Changes nothing; a database without the table is
/// older than any mark.
pub(in super::super) async fn current_hold(
    client: &Client,
    marks: &[Mark],
    now: Timestamp,
) -> Result<Option<Hold>, Unavailable> {
    let failed = |error: Error| unavailable(&error);
    let known = client.query_one("SELECT to_regclass('store_state') IS NOT NULL", &[]).await.map_err(failed)?;
    let state = if known.get(0) { read(client).await? } else { StoreState::default() };
    if state.hold.is_some() {
        return Ok(state.hold);
    }
    let behind = behind(client, state.generation, marks).await?;
    Ok(behind.map(|behind| Hold { reason: reason(&behind), since: now }))
}
