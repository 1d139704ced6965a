//! The upper bound on SQLite.

use super::workload::{BareLoad, BenchError, PreparedBatches, Workload};
use crate::records::sqlite::file::DataFile;
use crate::records::sqlite::{cells, file};
use chimera_core::record::{Insert, Value};
use rusqlite::{Connection, params};
use std::path::Path;

/// Commits steps that were prepared beforehand. `start` is called when the work begins.
pub fn bare_sqlite(
    folder: &Path,
    workload: &Workload,
    load: BareLoad,
    start: impl FnOnce(),
) -> Result<usize, BenchError> {
    let (_, conn) = DataFile::create(folder).map_err(crate::records::OpenError::from)?;
    let prepared = PreparedBatches::new(workload, file::LANE, load)?;
    prepared.runs.iter().try_for_each(|tx| insert(&conn, &tx.inserts[0]))?;
    let Some(sample) = prepared.batches.first().and_then(|(steps, _)| steps.first()) else { return Ok(0) };
    let inserts: Vec<String> = sample.inserts.iter().map(insert_text).collect();
    let entry = format!("INSERT INTO audit_log_entries VALUES ({})", placeholders(18));
    let update = "UPDATE runs SET status = ?1, state_version = ?2, run_seq = ?3 WHERE id = ?4 AND state_version = ?5";
    let advance = "UPDATE ledger_lanes SET head_seq = ?2, head_hash = ?3, last_batch_id = zeroblob(16) WHERE lane = ?1";
    start();
    for (steps, links) in &prepared.batches {
        conn.prepare_cached("BEGIN IMMEDIATE")?.raw_execute()?;
        for (tx, link) in steps.iter().zip(links) {
            let change = &tx.updates[0];
            let values =
                change.set.iter().map(|(_, v)| v).chain(&change.key).chain(change.expect.iter().map(|(_, v)| v));
            execute(&conn, update, values)?;
            for (text, insert) in inserts.iter().zip(&tx.inserts) {
                execute(&conn, text, insert.cells.iter().map(|(_, value)| value))?;
            }
            execute(&conn, &entry, tx.entries[0].row(file::LANE, link).cells.iter())?;
        }
        if let Some(last) = links.last() {
            conn.prepare_cached(advance)?.execute(params![file::LANE, last.seq, last.hash.0])?;
        }
        conn.prepare_cached("COMMIT")?.raw_execute()?;
    }
    Ok(load.batch * load.batches)
}

fn execute<'a>(conn: &Connection, text: &str, values: impl Iterator<Item = &'a Value>) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached(text)?;
    cells::bind(&mut statement, values)?;
    match statement.raw_execute()? {
        1 => Ok(()),
        n => Err(rusqlite::Error::StatementChangedRows(n)),
    }
}

fn insert(conn: &Connection, insert: &Insert) -> rusqlite::Result<()> {
    execute(conn, &insert_text(insert), insert.cells.iter().map(|(_, value)| value))
}

fn insert_text(insert: &Insert) -> String {
    let names: Vec<_> = insert.cells.iter().map(|(at, _)| insert.table.columns[*at].name).collect();
    format!("INSERT INTO {} ({}) VALUES ({})", insert.table.name, names.join(", "), placeholders(names.len()))
}

fn placeholders(n: usize) -> String {
    (1..=n).map(|n| format!("?{n}")).collect::<Vec<_>>().join(", ")
}
