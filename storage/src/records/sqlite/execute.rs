//! Executes one batch on the writer's connection.
//!
//! Losers are rare and a savepoint costs a copy of every page it touches, so a batch is first tried without them. If
//! one of its transactions loses, the batch is retried with a savepoint for each, and only the loser fails. The lane
//! row is compared first and written last, in the same database transaction as everything else.
//!
//! Every written row is counted, after the tables were checked for foreign triggers.

use super::super::is_probe;
use super::super::sql::{self, SqlDialect};
use super::objects::ObjectWatch;
use super::statement_cache::StatementCache;
use super::{cells, failure, log_pairing};
use crate::migrate;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_LANES};
use chimera_core::ledger::{ChainHead, ChainLink, SealedEntry};
use chimera_core::record::{Conflict, Insert, RowCount, RowKey, Step, Table, Tx, Update};
use chimera_engine::commit::{Batch, BatchOutcome, TxRejection};
use rusqlite::{CachedStatement, Connection, params};

const D: SqlDialect = SqlDialect::Sqlite;

/// Writes a batch: each statement is looked up once.
pub(super) struct BatchWriter<'c> {
    pub(super) conn: &'c Connection,
    texts: &'c mut StatementCache,
    statements: Vec<Option<CachedStatement<'c>>>,
}

impl<'c> BatchWriter<'c> {
    pub(super) const fn new(conn: &'c Connection, texts: &'c mut StatementCache) -> Self {
        Self { conn, texts, statements: Vec::new() }
    }

    /// The statement with this text number.
    fn statement(&mut self, number: usize) -> rusqlite::Result<&mut CachedStatement<'c>> {
        if self.statements.len() <= number {
            self.statements.resize_with(number + 1, || None);
        }
        let place = &mut self.statements[number];
        match place {
            Some(statement) => Ok(statement),
            None => Ok(place.insert(self.conn.prepare_cached(self.texts.text(number))?)),
        }
    }
}

/// Why a transaction of the batch failed.
pub(super) enum TxFailure {
    Loss(TxRejection),
    Whole(BatchOutcome),
}

impl From<rusqlite::Error> for TxFailure {
    fn from(error: rusqlite::Error) -> Self {
        failure::of_statement(&error).map_or_else(Self::Whole, Self::Loss)
    }
}

/// Executes the batch. No transaction stays open, whatever happens.
pub(super) fn execute(
    conn: &Connection,
    texts: &mut StatementCache,
    objects: &mut ObjectWatch,
    batch: &Batch,
) -> BatchOutcome {
    texts.trim();
    for careful in [false, true] {
        let outcome = attempt(conn, texts, objects, batch, careful).unwrap_or_else(|outcome| outcome);
        if !conn.is_autocommit() {
            // After a failed rollback the connection rejects everything; the next claim reopens it.
            let _ = conn.execute_batch("ROLLBACK");
        }
        if careful || !matches!(outcome, BatchOutcome::Lost(_)) {
            return outcome;
        }
    }
    BatchOutcome::Contended
}

fn attempt(
    conn: &Connection,
    texts: &mut StatementCache,
    objects: &mut ObjectWatch,
    batch: &Batch,
    careful: bool,
) -> Result<BatchOutcome, BatchOutcome> {
    let whole = |error: rusqlite::Error| of_batch(error.into());
    conn.prepare_cached("BEGIN IMMEDIATE").and_then(|mut s| s.raw_execute()).map_err(whole)?;
    if !holds_lane(conn, batch).map_err(whole)? {
        return Ok(BatchOutcome::Fenced);
    }
    objects.check_if_changed(conn).map_err(BatchOutcome::Unavailable)?;
    let mut writer = BatchWriter::new(conn, texts);
    let mut lost = Vec::new();
    for (at, tx) in batch.txs.iter().enumerate() {
        let loss = if careful { savepoint(&mut writer, tx)? } else { plain(&mut writer, tx)? };
        match loss {
            Some(loss) if careful => lost.push((at, loss)),
            Some(loss) => return Ok(BatchOutcome::Lost(vec![(at, loss)])),
            None => {}
        }
    }
    let keep = |at: usize| lost.iter().all(|(position, _)| *position != at);
    if batch.txs.iter().any(is_probe) {
        probe(conn, batch).map_err(of_batch)?;
    }
    let head = chain(&mut writer, batch, keep).map_err(of_batch)?;
    match conn.prepare_cached("COMMIT").and_then(|mut s| s.raw_execute()) {
        Ok(_) => Ok(BatchOutcome::Committed { head, lost }),
        // The commit record is written last: without space or permission it is not there. After any other disk
        // failure, such as a failed sync, it may turn up later.
        Err(error) => match failure::of_statement(&error) {
            Err(BatchOutcome::Unavailable(reason)) if failure::wrote_nothing(&error) => {
                Ok(BatchOutcome::Unavailable(reason))
            }
            Err(BatchOutcome::Unavailable(_)) => Ok(BatchOutcome::Unknown { lost }),
            Err(outcome) => Ok(outcome),
            Ok(loss) => Ok(of_all(&loss)),
        },
    }
}

/// The outcome of a batch when a shared part fails.
fn of_batch(failure: TxFailure) -> BatchOutcome {
    match failure {
        TxFailure::Loss(loss) => of_all(&loss),
        TxFailure::Whole(outcome) => outcome,
    }
}

/// Chains the entries of the remaining transactions, and advances the lane.
pub(super) fn chain(
    writer: &mut BatchWriter<'_>,
    batch: &Batch,
    keep: impl Fn(usize) -> bool,
) -> Result<ChainHead, TxFailure> {
    let (links, head) = batch.chain(&keep);
    let kept = batch.txs.iter().enumerate().filter(|(at, _)| keep(*at));
    for (sealed, link) in kept.flat_map(|(_, tx)| &tx.entries).zip(&links) {
        append(writer, batch.lane.id, sealed, link)?;
    }
    advance(writer.conn, batch, head)?;
    log_pairing::stamp(writer.conn)?;
    Ok(head)
}

/// Rejects a change that silently did not touch exactly one row.
fn one_row(table: &Table, touched: usize) -> Result<(), TxFailure> {
    if touched == 1 { Ok(()) } else { Err(TxFailure::Loss(TxRejection::Lacking(failure::left_out(table.name)))) }
}

/// Whether the lane is ours under our schema version: with another version, nobody holds it.
fn holds_lane(conn: &Connection, batch: &Batch) -> rusqlite::Result<bool> {
    let text = "SELECT 1 FROM ledger_lanes WHERE lane = ?1 AND epoch = ?2 AND head_seq = ?3 AND head_hash = ?4 \
                AND (SELECT max(version) FROM schema_migrations) = ?5";
    let lane = batch.lane;
    let known = migrate::newest();
    conn.prepare_cached(text)?.exists(params![lane.id, lane.epoch, lane.head.seq, lane.head.hash.0, known])
}

fn advance(conn: &Connection, batch: &Batch, head: ChainHead) -> Result<(), TxFailure> {
    let text = "UPDATE ledger_lanes SET head_seq = ?3, head_hash = ?4, last_batch_id = ?5 \
                WHERE lane = ?1 AND epoch = ?2";
    let lane = batch.lane;
    let cells = params![lane.id, lane.epoch, head.seq, head.hash.0, batch.id.as_bytes().as_slice()];
    one_row(&LEDGER_LANES, conn.prepare_cached(text)?.execute(cells)?)
}

fn probe(conn: &Connection, batch: &Batch) -> Result<(), TxFailure> {
    conn.execute_batch("SAVEPOINT probe")?;
    let text = "INSERT INTO audit_log_entries (lane, seq, id, tenant_id, subject_type, subject_id, event_type, \
                actor_type, timestamp, data_json, salt, content_digest, prev_hash, hash) \
                VALUES (?1, 9223372036854775807, '', '', 'other', '', 'probe', 'system', 0, '{}', \
                zeroblob(16), zeroblob(32), zeroblob(32), zeroblob(32))";
    one_row(&AUDIT_LOG_ENTRIES, conn.prepare_cached(text)?.execute([batch.lane.id])?)?;
    Ok(conn.execute_batch("ROLLBACK TO probe; RELEASE probe")?)
}

fn plain(writer: &mut BatchWriter<'_>, tx: &Tx) -> Result<Option<TxRejection>, BatchOutcome> {
    match apply(writer, tx) {
        Ok(()) => Ok(None),
        Err(TxFailure::Loss(loss)) => Ok(Some(loss)),
        Err(TxFailure::Whole(outcome)) => Err(outcome),
    }
}

fn savepoint(writer: &mut BatchWriter<'_>, tx: &Tx) -> Result<Option<TxRejection>, BatchOutcome> {
    let whole = |error: rusqlite::Error| BatchOutcome::Unavailable(failure::unavailable(&error));
    let conn = writer.conn;
    conn.prepare_cached("SAVEPOINT tx").and_then(|mut s| s.raw_execute()).map_err(whole)?;
    let loss = plain(writer, tx)?;
    if loss.is_some() {
        conn.prepare_cached("ROLLBACK TO tx").and_then(|mut s| s.raw_execute()).map_err(whole)?;
    }
    conn.prepare_cached("RELEASE tx").and_then(|mut s| s.raw_execute()).map_err(whole)?;
    Ok(loss)
}

/// The outcome of a batch when one of its transactions fails all of them.
fn of_all(loss: &TxRejection) -> BatchOutcome {
    match loss {
        TxRejection::Lacking(reason) => BatchOutcome::Lacking(reason.clone()),
        TxRejection::Rejected(constraint) => BatchOutcome::Refused(constraint.clone()),
        TxRejection::Conflict(_) => BatchOutcome::Contended,
    }
}

fn apply(writer: &mut BatchWriter<'_>, tx: &Tx) -> Result<(), TxFailure> {
    tx.updates.iter().try_for_each(|update| compare_and_set(writer, update))?;
    tx.inserts.iter().try_for_each(|insert| add(writer, insert))?;
    tx.steps.iter().enumerate().try_for_each(|(at, step)| run(writer, at, step))
}

pub(super) fn add(writer: &mut BatchWriter<'_>, insert: &Insert) -> Result<(), TxFailure> {
    let number = writer.texts.insert(insert);
    let statement = writer.statement(number)?;
    cells::bind(statement, insert.cells.iter().map(|(_, value)| value))?;
    let refusal = match statement.raw_execute() {
        Ok(1) => return Ok(()),
        // Unless one of its keys is taken.
        Ok(_) => TxRejection::Lacking(failure::left_out(insert.table.name)),
        Err(error) => match failure::of_statement(&error).map_err(TxFailure::Whole)? {
            // The refusing trigger may have left the row there, and the lookup would find it.
            lacking @ TxRejection::Lacking(_) => return Err(TxFailure::Loss(lacking)),
            refusal => refusal,
        },
    };
    Err(TxFailure::Loss(
        taken(writer.conn, insert)?.map_or(refusal, |key| TxRejection::Conflict(Conflict::Exists(key))),
    ))
}

/// The first key of the row that another row already has.
fn taken(conn: &Connection, insert: &Insert) -> rusqlite::Result<Option<RowKey>> {
    for key in insert.keys().filter_map(|columns| insert.key(columns)) {
        if exists(conn, insert.table, &key)? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

fn exists(conn: &Connection, table: &Table, key: &RowKey) -> rusqlite::Result<bool> {
    let mut statement = conn.prepare_cached(&sql::exists(D, table, key.columns))?;
    cells::bind(&mut statement, key.values.iter())?;
    Ok(statement.raw_query().next()?.is_some())
}

pub(super) fn compare_and_set(writer: &mut BatchWriter<'_>, update: &Update) -> Result<(), TxFailure> {
    let table = update.table;
    let number = writer.texts.update(update);
    let statement = writer.statement(number)?;
    let values = update.set.iter().map(|(_, v)| v).chain(&update.key).chain(update.expect.iter().map(|(_, v)| v));
    cells::bind(statement, values)?;
    if statement.raw_execute()? == 1 {
        return Ok(());
    }
    let key = update.row_key();
    let conflict = if exists(writer.conn, table, &key)? { Conflict::Stale(key) } else { Conflict::Missing(key) };
    Err(TxFailure::Loss(TxRejection::Conflict(conflict)))
}

pub(super) fn run(writer: &mut BatchWriter<'_>, at: usize, step: &Step) -> Result<(), TxFailure> {
    let unreadable = |error: chimera_engine::port::ReadError| TxFailure::Loss(TxRejection::Rejected(error.to_string()));
    let (table, text, rows, counts) = match step {
        Step::Insert(insert) => return add(writer, insert),
        Step::Lock { table, conditions, rows } => (table, sql::lock(D, table, conditions), rows, true),
        Step::Update { table, conditions, set, rows } => (table, sql::update(D, table, set, conditions), rows, false),
        Step::Delete { table, conditions, rows } => (table, sql::delete(D, table, conditions), rows, false),
    };
    let text = text.map_err(unreadable)?;
    let mut statement = writer.conn.prepare_cached(&text.sql)?;
    cells::bind(&mut statement, text.params.iter().map(|(_, value)| *value))?;
    let touched = if counts { count(&mut statement)? } else { statement.raw_execute()? as u64 };
    check_rows(at, table, *rows, touched)
}

fn count(statement: &mut rusqlite::Statement<'_>) -> rusqlite::Result<u64> {
    let mut rows = statement.raw_query();
    let mut count = 0;
    while rows.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn check_rows(step: usize, table: &'static Table, rows: RowCount, touched: u64) -> Result<(), TxFailure> {
    if rows.allows(touched) {
        return Ok(());
    }
    Err(TxFailure::Loss(TxRejection::Conflict(Conflict::Rows { step, table: table.name, touched })))
}

fn append(writer: &mut BatchWriter<'_>, lane: i64, sealed: &SealedEntry, link: &ChainLink) -> Result<(), TxFailure> {
    let number = writer.texts.append(&AUDIT_LOG_ENTRIES);
    let statement = writer.statement(number)?;
    cells::bind_borrowed(statement, &sealed.cells(lane, link))?;
    one_row(&AUDIT_LOG_ENTRIES, statement.raw_execute()?)
}
