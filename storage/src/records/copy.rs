//! Copies the records to files and restores them, while other processes write.
//!
//! The embedded store is copied as one data file; a database as one file per table, in the server's own text format,
//! all from one snapshot. A restored store is held. The copy of a data file is marked as held from the beginning,
//! however it gets back into place.

use super::hold::{KnownProgress, StoreState, head};
use super::mark::MarkFile;
use super::postgres::connect::{Server, check};
use super::postgres::state as pg_state;
use super::sqlite::file::DataFile;
use super::sqlite::{failure, file, read_errors, state};
use super::{OpenError, unavailable_sqlite};
use crate::migrate;
use chimera_core::catalog;
use chimera_core::ledger::ChainHead;
use chimera_core::limits;
use chimera_core::time::Timestamp;
use chimera_engine::port::{Hold, Outage, Unavailable};
use futures::{SinkExt, StreamExt};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use tokio_postgres::{Client, Error};

/// The copy of the embedded store within a backup.
pub const DATA_FILE: &str = "records.db";

/// The contents of a copy.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyManifest {
    pub schema_version: i64,
    /// Incremented by every resume of the store.
    pub generation: i64,
    /// Lane, epoch and chain head.
    pub lanes: Vec<(i64, i64, ChainHead)>,
    /// The tables, in the order in which they can be filled; empty if the copy is a data file.
    pub tables: Vec<CopiedTable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedTable {
    /// The file has this name with the extension `.copy`.
    pub name: String,
    /// In the order of the file.
    pub columns: Vec<String>,
    pub rows: u64,
}

/// A copy of a database: the folder with the files of its tables, and what they contain.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseCopy<'a> {
    pub folder: &'a Path,
    pub manifest: &'a CopyManifest,
}

/// Copies the data in `folder` to `to/records.db` while others write. The copy is held.
pub fn copy_sqlite(folder: &Path, to: &Path, hold: &Hold) -> Result<CopyManifest, OpenError> {
    read_errors::explain(folder, try_copy_sqlite(folder, to, hold))
}

fn try_copy_sqlite(folder: &Path, to: &Path, hold: &Hold) -> Result<CopyManifest, OpenError> {
    let data = DataFile::find(folder)?.ok_or(OpenError::Absent)?;
    let copy = to.join(DATA_FILE);
    let failed = |error: rusqlite::Error| OpenError::from(unavailable_sqlite(&error));
    let conn = data.open_reader()?;
    // This writes the copy, not the data file, which is opened read-only.
    conn.pragma_update(None, "query_only", false).map_err(failed)?;
    let name = copy.to_str().ok_or_else(|| OpenError::Folder(std::io::ErrorKind::InvalidFilename.into()))?;
    file::create_private(&copy).map_err(OpenError::Folder)?;
    conn.execute("VACUUM INTO ?1", [name]).map_err(failed)?;
    drop(conn);
    let mut conn = DataFile::at(&copy)?.ok_or(OpenError::Absent)?.open_writer()?;
    migrate::sqlite(&mut conn)?;
    check_copy(&conn)?;
    let copied = describe(&conn).map_err(failed)?;
    let epoch = copied.lanes.iter().map(|(_, epoch, _)| *epoch).max().unwrap_or(0);
    state::hold(&conn, hold, KnownProgress { generation: copied.generation, epoch }).map_err(failed)?;
    close(conn).map_err(failed)?;
    File::open(&copy).and_then(|file| file.sync_all()).map_err(OpenError::Folder)?;
    Ok(copied)
}

/// Checks the data file of a copy for damage and describes it.
pub fn inspect_sqlite_copy(folder: &Path) -> Result<CopyManifest, OpenError> {
    let failed = |error: rusqlite::Error| OpenError::from(unavailable_sqlite(&error));
    let conn = file::open_unchanging(&folder.join(DATA_FILE)).map_err(failed)?;
    check_copy(&conn)?;
    describe(&conn).map_err(failed)
}

/// Holds the data file in `folder`, and records the greatest epoch in `marks`.
pub fn hold_sqlite(folder: &Path, marks: &Path, hold: &Hold) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| OpenError::from(unavailable_sqlite(&error));
    let mut conn = DataFile::find(folder)?.ok_or(OpenError::Absent)?.open_writer()?;
    migrate::sqlite(&mut conn)?;
    let known = KnownProgress::of(&MarkFile::read(marks)?);
    state::hold(&conn, hold, known).map_err(failed)?;
    close(conn).map_err(failed)
}

/// Rejects a damaged copy, so that damage is noticed at backup time, not at restore time.
fn check_copy(conn: &rusqlite::Connection) -> Result<(), OpenError> {
    let found = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    if found.map_err(|error| unavailable_sqlite(&error))? == "ok" {
        return Ok(());
    }
    Err(Unavailable::new(Outage::Damaged, "the copy of the data file is damaged").into())
}

/// Merges the log, so that one file holds everything.
fn close(conn: rusqlite::Connection) -> rusqlite::Result<()> {
    file::merge_log(&conn)?;
    conn.close().map_err(|(_, error)| error)
}

fn describe(conn: &rusqlite::Connection) -> rusqlite::Result<CopyManifest> {
    let version = "SELECT coalesce(max(version), 0) FROM schema_migrations";
    let schema_version = conn.query_row(version, [], |row| row.get(0))?;
    let mut lanes = conn.prepare("SELECT lane, epoch, head_seq, head_hash FROM ledger_lanes ORDER BY lane")?;
    let lanes = lanes.query_map([], |row| {
        let lane = row.get(0)?;
        Ok((lane, row.get(1)?, failure::head(lane, row, (2, 3))?))
    })?;
    let lanes = lanes.collect::<rusqlite::Result<_>>()?;
    let generation = state::read(conn)?.generation;
    Ok(CopyManifest { schema_version, generation, lanes, tables: Vec::new() })
}

/// Why a table could not be written to its file, or read from it.
enum CopyError {
    Database(Error),
    File(std::io::Error),
}

impl From<Error> for CopyError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<std::io::Error> for CopyError {
    fn from(error: std::io::Error) -> Self {
        Self::File(error)
    }
}

impl From<CopyError> for OpenError {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Database(error) => super::postgres::failure::unavailable(&error).into(),
            CopyError::File(error) => Self::Folder(error),
        }
    }
}

const TABLES: &str = "SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum) FROM pg_class c \
     JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' \
     WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace GROUP BY c.relname";

/// Copies every table of the database to a file in `to`, from one snapshot, while others write. `table` is called
/// with each name before it is copied.
pub async fn copy_postgres(url: &str, to: &Path, mut table: impl FnMut(&str)) -> Result<CopyManifest, OpenError> {
    let client = Server::parse(url)?.connect().await?;
    check(&client).await?;
    let schema = migrate::postgres_status(&client).await?;
    if schema.version == 0 {
        return Err(OpenError::Absent);
    }
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; \
                 SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = 0";
    client.batch_execute(begin).await.map_err(CopyError::from)?;
    let found = client.query(TABLES, &[]).await.map_err(CopyError::from)?;
    let mut tables: Vec<(String, Vec<String>)> = found.iter().map(|row| (row.get(0), row.get(1))).collect();
    tables.sort_by_key(|(name, _)| rank(name));
    let mut copied = Vec::new();
    for (name, columns) in tables {
        if name == "schema_migrations" {
            continue;
        }
        table(&name);
        let rows = copy_out(&client, &name, &columns, to).await?;
        copied.push(CopiedTable { name, columns, rows });
    }
    let lanes = client.query("SELECT lane, epoch, head_seq, head_hash FROM ledger_lanes ORDER BY lane", &[]).await;
    let lanes = lanes.map_err(CopyError::from)?;
    let lane = |row: &tokio_postgres::Row| {
        let lane = row.get(0);
        Ok((lane, row.get(1), head(lane, row.get(2), row.get(3))?))
    };
    let lanes = lanes.iter().map(lane).collect::<Result<_, Unavailable>>()?;
    let known: bool =
        client.query_one("SELECT to_regclass('store_state') IS NOT NULL", &[]).await.map_err(CopyError::from)?.get(0);
    let state = if known { pg_state::read(&client).await? } else { StoreState::default() };
    client.batch_execute("COMMIT").await.map_err(CopyError::from)?;
    Ok(CopyManifest { schema_version: schema.version, generation: state.generation, lanes, tables: copied })
}

/// Fills an empty database with the tables of a copy, and holds it. A database that is not empty is rejected,
/// unless it may be put aside: then its schema is renamed, and the new name is returned. All of it is one
/// transaction: an interrupted restore leaves the database as it was.
pub async fn fill_postgres(
    url: &str,
    copy: DatabaseCopy<'_>,
    marks: &Path,
    hold: &Hold,
    aside: Option<Timestamp>,
) -> Result<Option<String>, OpenError> {
    let mut client = Server::parse(url)?.connect().await?;
    check(&client).await?;
    let known = KnownProgress::of(&MarkFile::read(marks)?);
    let mut tx = client.transaction().await.map_err(CopyError::from)?;
    let patient = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";
    tx.batch_execute(patient).await.map_err(CopyError::from)?;
    let found = tx.query(TABLES, &[]).await.map_err(CopyError::from)?;
    let mut kept = None;
    if !found.is_empty() {
        let Some(now) = aside else { return Err(OpenError::NotEmpty) };
        kept = Some(rename_schema(tx.client(), now).await.map_err(CopyError::from)?);
    }
    migrate::postgres_to(&mut tx, copy.manifest.schema_version).await?;
    for part in &copy.manifest.tables {
        copy_in(tx.client(), part, copy.folder).await?;
    }
    migrate::postgres(&mut tx).await?;
    // These rows are never visible in a database that is not held.
    pg_state::hold_within(tx.client(), &hold.reason, known).await.map_err(CopyError::from)?;
    tx.commit().await.map_err(CopyError::from)?;
    Ok(kept)
}

/// Tables are filled in catalogue order; unknown ones come last.
fn rank(name: &str) -> (u32, String) {
    let known = catalog().into_iter().find(|table| table.name == name);
    (known.map_or(u32::MAX, |table| u32::from(table.rank)), name.to_owned())
}

/// Renames the schema and creates an empty one. Waits for running batches; later ones find the new schema, because a
/// batch begins with its lane.
async fn rename_schema(client: &Client, now: Timestamp) -> Result<String, Error> {
    let lanes = client.query_one("SELECT to_regclass('ledger_lanes') IS NOT NULL", &[]).await?;
    if lanes.get(0) {
        client.batch_execute("LOCK TABLE ledger_lanes IN SHARE ROW EXCLUSIVE MODE").await?;
    }
    let schema: String = client.query_one("SELECT current_schema()::text", &[]).await?.get(0);
    let kept = format!("before_restore_{}", now.micros());
    let text = format!("ALTER SCHEMA {} RENAME TO {kept}; CREATE SCHEMA {}", quoted(&schema), quoted(&schema));
    client.batch_execute(&text).await?;
    Ok(kept)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn listed(columns: &[String]) -> String {
    columns.iter().map(|column| quoted(column)).collect::<Vec<_>>().join(", ")
}

async fn copy_out(client: &Client, table: &str, columns: &[String], to: &Path) -> Result<u64, CopyError> {
    let text = format!("COPY {} ({}) TO STDOUT", quoted(table), listed(columns));
    let mut rows = 0;
    let mut file = BufWriter::new(file::create_private(&to.join(format!("{table}.copy")))?);
    let mut stream = std::pin::pin!(client.copy_out(text.as_str()).await?);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        // A line break inside a value is escaped as two characters.
        rows += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        file.write_all(&piece)?;
    }
    file.flush()?;
    file.get_ref().sync_all()?;
    Ok(rows)
}

async fn copy_in(client: &Client, part: &CopiedTable, from: &Path) -> Result<(), CopyError> {
    let table = quoted(&part.name);
    // The copy contains the rows that migrations insert.
    let there: bool = client.query_one(&format!("SELECT EXISTS (SELECT 1 FROM {table})"), &[]).await?.get(0);
    if there {
        client.batch_execute(&format!("DELETE FROM {table}")).await?;
    }
    let text = format!("COPY {table} ({}) FROM STDIN", listed(&part.columns));
    let mut file = File::open(from.join(format!("{}.copy", part.name)))?;
    let sink = client.copy_in::<_, bytes::Bytes>(text.as_str()).await?;
    let mut sink = std::pin::pin!(sink);
    let mut chunk = vec![0; limits::COPY_CHUNK_BYTES];
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        sink.send(bytes::Bytes::copy_from_slice(&chunk[..read])).await?;
    }
    sink.finish().await?;
    Ok(())
}
