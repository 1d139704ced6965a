//! Checks for damage: a quick check whose cost does not depend on the amount of data, and a full check.

use super::super::usage::TableOps;
use super::failure::unavailable;
use chimera_core::error::io_reason;
use chimera_core::limits;
use chimera_core::record::Table;
use chimera_engine::port::{Outage, Unavailable};
use rusqlite::{Connection, OptionalExtension};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Checks the header and the first page of every table and index.
pub(crate) fn quick_check(conn: &Connection) -> Result<(), Unavailable> {
    let mut damaged = Vec::new();
    for (name, is_table) in trees(conn).map_err(|error| unavailable(&error))? {
        match root_is_whole(conn, &name, is_table) {
            Ok(true) => {}
            Ok(false) => damaged.push(name),
            Err(error) if unavailable(&error).outage == Outage::Damaged => damaged.push(name),
            Err(error) => return Err(unavailable(&error)),
        }
    }
    if damaged.is_empty() { Ok(()) } else { Err(found(&damaged)) }
}

/// Tables and indexes, each with whether it is a table.
fn trees(conn: &Connection) -> rusqlite::Result<Vec<(String, bool)>> {
    let mut statement = conn.prepare("SELECT name, type = 'table' FROM sqlite_schema WHERE rootpage > 0")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.and_then(Iterator::collect)
}

fn root_is_whole(conn: &Connection, name: &str, is_table: bool) -> rusqlite::Result<bool> {
    // The first row of a tree is its root; nothing else is read for one row.
    let text = "SELECT pagetype FROM dbstat WHERE name = ?1 LIMIT 1";
    let kind: Option<String> = conn.prepare_cached(text)?.query_row([name], |row| row.get(0)).optional()?;
    if !matches!(kind.as_deref(), Some("internal" | "leaf")) {
        return Ok(false);
    }
    if is_table {
        // The root may be a page of another kind of tree.
        conn.prepare(&format!("SELECT 1 FROM {} LIMIT 1", quoted(name)))?.exists([])?;
    }
    Ok(true)
}

/// Proves that all of this could be done: tables and columns exist.
pub(in super::super) fn usable(conn: &Connection, uses: &TableOps) -> Result<(), Unavailable> {
    uses.statements().try_for_each(|text| conn.prepare(&text).map(drop)).map_err(|error| unavailable(&error))
}

/// Proves that there is space for so many bytes beside the data file, and leaves nothing behind. A rolled-back
/// transaction would prove nothing: its pages stay in memory.
pub(super) fn prove_space(data: &Path, bytes: u64) -> Result<(), Unavailable> {
    let path = data.with_extension("room");
    let filled = File::create(&path).and_then(|mut file| {
        std::io::copy(&mut std::io::repeat(0xa5).take(bytes), &mut file)?;
        file.sync_all()
    });
    // Without a file there is nothing to remove.
    let _ = std::fs::remove_file(&path);
    filled.map_err(|error| Unavailable::new(Outage::from_io(&error), words_of(&error)))
}

fn words_of(error: &std::io::Error) -> String {
    match Outage::from_io(error) {
        Outage::Full => "the disk is full".to_owned(),
        _ => format!("the data folder can't be written: {}", io_reason(error)),
    }
}

/// Checks everything: pages, indexes against their tables, constraints, references.
pub(crate) fn full_check(conn: &Connection) -> Result<(), Unavailable> {
    let mut faults =
        complaints(conn, "PRAGMA integrity_check", |row| row.get(0)).map_err(|error| unavailable(&error))?;
    let dangling = |row: &rusqlite::Row<'_>| {
        let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
        Ok(format!("a row of {table} refers to a row of {parent} that is missing"))
    };
    faults.extend(complaints(conn, "PRAGMA foreign_key_check", dangling).map_err(|error| unavailable(&error))?);
    if faults.is_empty() { Ok(()) } else { Err(found(&faults)) }
}

/// Checks one table completely; for a view, reads all its rows.
pub(crate) fn check_table(conn: &Connection, table: &Table) -> Result<bool, Unavailable> {
    let name = quoted(table.name);
    let text = "SELECT 1 FROM sqlite_schema WHERE name = ?1 AND type = 'table'";
    let looked = conn.prepare(text).and_then(|mut statement| statement.exists([table.name])).and_then(|is_table| {
        if is_table {
            return complaints(conn, &format!("PRAGMA integrity_check({name})"), |row| row.get(0))
                .map(|f| f.is_empty());
        }
        conn.query_row(&format!("SELECT count(*) FROM {name}"), [], |_| Ok(true))
    });
    looked.map_err(|error| unavailable(&error))
}

/// The findings of a check; empty if it passed.
fn complaints(
    conn: &Connection,
    check: &str,
    words: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<String>,
) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare(check)?;
    let rows: Vec<String> = statement.query_map([], words)?.collect::<rusqlite::Result<_>>()?;
    Ok(rows.into_iter().filter(|row| row != "ok").collect())
}

fn found(faults: &[String]) -> Unavailable {
    let shown = faults.iter().take(limits::STORE_FAULTS_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = faults.len().saturating_sub(limits::STORE_FAULTS_SHOWN_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Unavailable::new(Outage::Damaged, format!("the data file is damaged: {shown}{more}"))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
