//! Tells a change that somebody's rule swallowed from one that came too late.
//!
//! Only losers are looked at, right after their transaction was rolled back. A row that still is as a change expected it
//! was changed by nobody: a trigger, a rule or row security left the change out.

use super::super::sql::{self, Dialect, Text};
use super::cells::Cell;
use chimera_core::record::{Insert, Step, Table, Update};
use chimera_engine::commit::{Batch, Lane};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};

const D: Dialect = Dialect::Postgres;

/// Whether the lane is as its holder knows it.
pub(super) async fn advance(client: &Client, lane: Lane) -> Result<bool, Error> {
    let text = "SELECT 1 FROM ledger_lanes WHERE lane = $1 AND epoch = $2 AND head_seq = $3";
    Ok(!client.query(text, &[&lane.id, &lane.epoch, &lane.head.seq]).await?.is_empty())
}

/// Whether the row is there as this update expects it.
pub(super) async fn update(client: &Client, update: &Update) -> Result<bool, Error> {
    finds(client, &sql::as_expected(D, update)).await
}

/// Whether none of the row's keys is taken.
pub(super) async fn insert(client: &Client, insert: &Insert) -> Result<bool, Error> {
    for key in insert.keys().filter_map(|columns| insert.key(columns)) {
        let kinds = key.columns.iter().filter_map(|column| insert.table.position(column));
        let kinds = kinds.map(|at| insert.table.columns[at].kind);
        let sql = sql::exists(D, insert.table, key.columns);
        if finds(client, &Text { sql, params: kinds.zip(&key.values).collect() }).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The table that a step concerns.
pub(super) const fn table_of(step: &Step) -> &'static Table {
    match step {
        Step::Insert(insert) => insert.table,
        Step::Lock { table, .. } | Step::Update { table, .. } | Step::Delete { table, .. } => table,
    }
}

/// Whether a step of a batch was swallowed. Nobody can tell while more of the batch concerns its table.
pub(super) async fn one_step(client: &Client, batch: &Batch, (tx, at): (usize, usize)) -> Result<bool, Error> {
    match batch.txs.get(tx).and_then(|tx| tx.steps.get(at)) {
        Some(only) if changes_of(batch, table_of(only).name) == 1 => step(client, only).await,
        _ => Ok(false),
    }
}

/// Whether rows are there that this step would have touched, or nothing is in the way of the one that it adds.
pub(super) async fn step(client: &Client, step: &Step) -> Result<bool, Error> {
    let (table, conditions) = match step {
        Step::Insert(row) => return insert(client, row).await,
        Step::Lock { table, conditions, .. }
        | Step::Update { table, conditions, .. }
        | Step::Delete { table, conditions, .. } => (table, conditions),
    };
    match sql::any(D, table, conditions) {
        Ok(text) => finds(client, &text).await,
        Err(_) => Ok(false),
    }
}

/// Whether another row of the batch has a key of this one.
pub(super) fn is_twice(batch: &Batch, insert: &Insert) -> bool {
    let steps = batch.txs.iter().flat_map(|tx| &tx.steps).filter_map(|step| match step {
        Step::Insert(insert) => Some(insert),
        Step::Lock { .. } | Step::Update { .. } | Step::Delete { .. } => None,
    });
    let others = batch.txs.iter().flat_map(|tx| &tx.inserts).chain(steps);
    let mut others = others.filter(|other| other.table.name == insert.table.name && !std::ptr::eq(*other, insert));
    let shares =
        |other: &Insert| insert.keys().any(|key| insert.key(key).is_some_and(|own| other.key(key) == Some(own)));
    others.any(shares)
}

/// How much of a batch concerns a table.
fn changes_of(batch: &Batch, table: &str) -> usize {
    let inserts = batch.txs.iter().flat_map(|tx| &tx.inserts).map(|insert| insert.table);
    let updates = batch.txs.iter().flat_map(|tx| &tx.updates).map(|update| update.table);
    let steps = batch.txs.iter().flat_map(|tx| &tx.steps).map(table_of);
    inserts.chain(updates).chain(steps).filter(|changed| changed.name == table).count()
}

async fn finds(client: &Client, text: &Text<'_>) -> Result<bool, Error> {
    let cells: Vec<Cell<'_>> = text.params.iter().map(|(_, value)| Cell(value)).collect();
    let params: Vec<&(dyn ToSql + Sync)> = cells.iter().map(|cell| cell as _).collect();
    Ok(!client.query(&text.sql, &params).await?.is_empty())
}
