//! Turns a batch into a few statements: one per table for all its transactions.
//!
//! Updates go first, then inserts with parents before children, each in key order. A statement knows which
//! transaction each of its rows belongs to, so that one pass finds every loser.

use super::super::sql::{self, SqlDialect};
use super::cells::{PgCell, PgColumn, array_type, element};
use chimera_core::ledger::ChainLink;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::record::{ColumnType, Insert, Row, Step, Table, Update, Value};
use chimera_engine::commit::Batch;
use chimera_engine::port::ReadError;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use tokio_postgres::types::ToSql;

/// One statement of a batch and how to interpret its answer.
pub(super) struct Statement<'a> {
    pub(super) text: StatementText,
    pub(super) params: Vec<Box<dyn ToSql + Sync + Send + 'a>>,
    pub(super) expects: ExpectedAnswer<'a>,
}

impl Statement<'_> {
    /// The table that it changes or locks.
    pub(super) fn table(&self) -> &'static str {
        match &self.expects {
            ExpectedAnswer::Updates(updates) => updates.first().map_or("", |(_, update)| update.table.name),
            ExpectedAnswer::Inserts(inserts) => inserts.first().map_or("", |(_, insert)| insert.table.name),
            ExpectedAnswer::Step { step: Step::Insert(insert), .. } => insert.table.name,
            ExpectedAnswer::Step {
                step: Step::Lock { table, .. } | Step::Update { table, .. } | Step::Delete { table, .. },
                ..
            } => table.name,
            ExpectedAnswer::Entries(_) => AUDIT_LOG_ENTRIES.name,
            ExpectedAnswer::Count { table, .. } => table,
        }
    }
}

/// The SQL of a statement. A bulk statement is identified by its shape, so that its text is built only once.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum StatementText {
    /// Inserts rows with the columns at these positions.
    Insert { table: TableByName, columns: Vec<usize>, mode: OnKeyConflict },
    /// Appends rows with all columns.
    Append(TableByName),
    /// Sets columns of rows whose other columns are as expected.
    Update { table: TableByName, set: Vec<usize>, expect: Vec<usize> },
    /// Literal SQL.
    Words(Cow<'static, str>),
}

impl StatementText {
    pub(super) fn spell(&self) -> Cow<'_, str> {
        match self {
            Self::Insert { table: TableByName(table), columns, mode: OnKeyConflict::Plain } => {
                bulk_insert(table, columns.iter().copied(), "").into()
            }
            Self::Insert { table: TableByName(table), columns, mode: OnKeyConflict::Skip } => {
                let tail = format!("ON CONFLICT DO NOTHING RETURNING {}", table.key.join(", "));
                bulk_insert(table, columns.iter().copied(), &tail).into()
            }
            Self::Append(TableByName(table)) => bulk_insert(table, 0..table.columns.len(), "RETURNING 1").into(),
            Self::Update { table: TableByName(table), set, expect } => bulk_update(table, set, expect).into(),
            Self::Words(words) => (&**words).into(),
        }
    }
}

/// A table compared by name.
#[derive(Clone, Copy)]
pub(super) struct TableByName(&'static Table);

impl PartialEq for TableByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for TableByName {}

impl Hash for TableByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

/// What an insert does when its key is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OnKeyConflict {
    /// Fails, and the whole statement with it.
    Plain,
    /// Skips the row and omits it from the answer.
    Skip,
}

pub(super) enum ExpectedAnswer<'a> {
    /// The position of each of these updates.
    Updates(Vec<(usize, &'a Update)>),
    /// The key of each of these inserts.
    Inserts(Vec<(usize, &'a Insert)>),
    /// A number of rows for one step of one transaction.
    Step { tx: usize, at: usize, step: &'a Step },
    /// As many rows as there are entries.
    Entries(usize),
    /// A count of this many rows: it succeeds or fails as a whole.
    Count { table: &'static str, rows: usize },
}

/// Compares the lane with the state the batch builds on, and advances it.
pub(super) const ADVANCE: &str = "UPDATE ledger_lanes SET head_seq = $4, head_hash = $5, last_batch_id = $6, \
     lease_until = now() + make_interval(secs => $7) \
     WHERE lane = $1 AND epoch = $2 AND head_seq = $3 RETURNING 1";

/// Locks row keys in the order given, which is the same for every lane.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key";

pub(super) fn statements<'a>(
    batch: &'a Batch,
    entries: &'a [Row],
    mode: OnKeyConflict,
) -> Result<Vec<Statement<'a>>, (usize, ReadError)> {
    let mut all = updates(batch);
    all.extend(inserts(batch, mode));
    for (tx, steps) in batch.txs.iter().map(|tx| &tx.steps).enumerate() {
        for (at, step) in steps.iter().enumerate() {
            all.push(ordered(tx, at, step).map_err(|error| (tx, error))?);
        }
    }
    if !entries.is_empty() {
        let columns = 0..AUDIT_LOG_ENTRIES.columns.len();
        let cells = columns.map(|at| entries.iter().map(|row| &row.cells[at]).collect());
        let (text, expects) =
            (StatementText::Append(TableByName(&AUDIT_LOG_ENTRIES)), ExpectedAnswer::Entries(entries.len()));
        all.push(Statement { text, params: arrays(cells), expects });
    }
    Ok(all)
}

pub(super) fn entry_rows(batch: &Batch, links: &[ChainLink]) -> Vec<Row> {
    let sealed = batch.txs.iter().flat_map(|tx| &tx.entries);
    sealed.zip(links).map(|(sealed, link)| sealed.row(batch.lane.id, link)).collect()
}

fn arrays<'a>(columns: impl Iterator<Item = Vec<&'a Value>>) -> Vec<Box<dyn ToSql + Sync + Send + 'a>> {
    columns.map(|cells| Box::new(PgColumn(cells)) as Box<dyn ToSql + Sync + Send>).collect()
}

/// Updates that set and expect the same columns of one table share a statement.
fn updates<'a>(batch: &'a Batch) -> Vec<Statement<'a>> {
    type Shape = (u16, &'static str, Vec<usize>, Vec<usize>);
    let mut groups: BTreeMap<Shape, Vec<(usize, &'a Update)>> = BTreeMap::new();
    for (tx, update) in batch.txs.iter().enumerate().flat_map(|(n, tx)| tx.updates.iter().map(move |u| (n, u))) {
        let positions = |cells: &[(usize, Value)]| cells.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        let shape = (update.table.rank, update.table.name, positions(&update.set), positions(&update.expect));
        groups.entry(shape).or_default().push((tx, update));
    }
    let statement = |((_, _, set, expect), rows): (Shape, Vec<(usize, &'a Update)>)| {
        let table = rows[0].1.table;
        let mut columns: Vec<Vec<&Value>> =
            (0..table.key.len()).map(|n| rows.iter().map(|(_, u)| &u.key[n]).collect()).collect();
        columns.extend((0..expect.len()).map(|n| rows.iter().map(|(_, u)| &u.expect[n].1).collect()));
        columns.extend((0..set.len()).map(|n| rows.iter().map(|(_, u)| &u.set[n].1).collect()));
        let text = StatementText::Update { table: TableByName(table), set, expect };
        Statement { text, params: arrays(columns.into_iter()), expects: ExpectedAnswer::Updates(rows) }
    };
    groups.into_iter().map(statement).collect()
}

/// Updates rows by their keys, the expected columns, and the new values, in this order.
fn bulk_update(table: &Table, set: &[usize], expect: &[usize]) -> String {
    let kind = |at: &usize| table.columns[*at].kind;
    let key: Vec<usize> = table.key.iter().filter_map(|column| table.position(column)).collect();
    let kinds: Vec<ColumnType> = key.iter().chain(expect).chain(set).map(kind).collect();
    let unnest: Vec<_> =
        kinds.iter().enumerate().map(|(n, kind)| format!("${}::{}", n + 1, array_type(*kind))).collect();
    let names: Vec<_> = (0..kinds.len()).map(|n| format!("v{n}")).collect();
    let value = |n: usize| element(kinds[n], &format!("v.v{n}"));
    let keyed = key.iter().enumerate().map(|(n, at)| format!("t.{} = {}", table.columns[*at].name, value(n)));
    let expected = expect
        .iter()
        .enumerate()
        .map(|(n, at)| format!("t.{} IS NOT DISTINCT FROM {}", table.columns[*at].name, value(key.len() + n)));
    let offset = key.len() + expect.len();
    let sets = set.iter().enumerate().map(|(n, at)| format!("{} = {}", table.columns[*at].name, value(offset + n)));
    format!(
        "UPDATE {} AS t SET {} FROM unnest({}) WITH ORDINALITY AS v({}, ord) WHERE {} \
         RETURNING v.ord",
        table.name,
        sets.collect::<Vec<_>>().join(", "),
        unnest.join(", "),
        names.join(", "),
        keyed.chain(expected).collect::<Vec<_>>().join(" AND "),
    )
}

/// The updates of a statement whose positions were not returned.
pub(super) fn missing_updates<'r, 'a>(
    updates: &'r [(usize, &'a Update)],
    rows: &[tokio_postgres::Row],
) -> impl Iterator<Item = &'r (usize, &'a Update)> + use<'r, 'a> {
    let made: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    updates.iter().zip(1..).filter(move |(_, ord)| !made.contains(ord)).map(|(update, _)| update)
}

/// Inserts into the same columns of one table share a statement.
fn inserts<'a>(batch: &'a Batch, mode: OnKeyConflict) -> Vec<Statement<'a>> {
    type Shape = (u16, &'static str, Vec<usize>);
    let mut groups: BTreeMap<Shape, Vec<(usize, &'a Insert)>> = BTreeMap::new();
    for (tx, insert) in batch.txs.iter().enumerate().flat_map(|(n, tx)| tx.inserts.iter().map(move |i| (n, i))) {
        let positions = insert.cells.iter().map(|(at, _)| *at).collect();
        groups.entry((insert.table.rank, insert.table.name, positions)).or_default().push((tx, insert));
    }
    let statement = |((_, _, positions), mut rows): (Shape, Vec<(usize, &'a Insert)>)| {
        let table = rows[0].1.table;
        rows.sort_by_cached_key(|(_, insert)| order_key(insert));
        let cells = (0..positions.len()).map(|n| rows.iter().map(|(_, insert)| &insert.cells[n].1).collect());
        let params = arrays(cells);
        let expects = match mode {
            OnKeyConflict::Plain => ExpectedAnswer::Count { table: table.name, rows: rows.len() },
            OnKeyConflict::Skip => ExpectedAnswer::Inserts(rows),
        };
        Statement {
            text: StatementText::Insert { table: TableByName(table), columns: positions, mode },
            params,
            expects,
        }
    };
    groups.into_iter().map(statement).collect()
}

/// Rows with UUID keys are inserted in key order; other keys are locked beforehand.
fn order_key(insert: &Insert) -> Option<uuid::Uuid> {
    insert.table.key.first().and_then(|column| insert.value(column).as_uuid())
}

fn bulk_insert(table: &Table, positions: impl Iterator<Item = usize>, tail: &str) -> String {
    let columns: Vec<_> = positions.map(|at| &table.columns[at]).collect();
    let names: Vec<_> = columns.iter().map(|column| column.name).collect();
    let elements: Vec<_> = columns.iter().enumerate().map(|(n, c)| element(c.kind, &format!("v{n}"))).collect();
    // One `unnest` of all arrays in FROM would store every column of every row once more before it is inserted.
    let unnested: Vec<_> = columns
        .iter()
        .enumerate()
        .map(|(n, c)| format!("unnest(${}::{}) AS v{n}", n + 1, array_type(c.kind)))
        .collect();
    format!(
        "INSERT INTO {} ({}) SELECT {} FROM (SELECT {}) AS v {tail}",
        table.name,
        names.join(", "),
        elements.join(", "),
        unnested.join(", "),
    )
}

fn ordered<'a>(tx: usize, at: usize, step: &'a Step) -> Result<Statement<'a>, ReadError> {
    let d = SqlDialect::Postgres;
    let said = match step {
        Step::Insert(insert) => {
            let values = insert.cells.iter().map(|(at, value)| (insert.table.columns[*at].kind, value));
            let sql = sql::insert(d, insert.table, insert.cells.iter().map(|(at, _)| *at));
            sql::SqlText { sql, params: values.collect() }
        }
        Step::Lock { table, conditions, .. } => sql::lock(d, table, conditions)?,
        Step::Update { table, conditions, set, .. } => sql::update(d, table, set, conditions)?,
        Step::Delete { table, conditions, .. } => sql::delete(d, table, conditions)?,
    };
    let counted = if matches!(step, Step::Lock { .. }) { said.sql } else { format!("{} RETURNING 1", said.sql) };
    let params = said.params.into_iter().map(|(_, value)| Box::new(PgCell(value)) as Box<dyn ToSql + Sync + Send>);
    let text = StatementText::Words(counted.into());
    Ok(Statement { text, params: params.collect(), expects: ExpectedAnswer::Step { tx, at, step } })
}
