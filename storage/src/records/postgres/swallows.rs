//! Tells a change that somebody's rule swallowed from one that came too late.
//!
//! Only losers are looked at, right after their transaction was rolled back. A row that still is as a change expected it
//! was changed by nobody: a trigger, a rule or row security left the change out.

use super::super::sql::{self, Dialect, Text};
use super::cells::Cell;
use chimera_core::record::{Insert, Step, Table, Update};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};

const D: Dialect = Dialect::Postgres;

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

async fn finds(client: &Client, text: &Text<'_>) -> Result<bool, Error> {
    let cells: Vec<Cell<'_>> = text.params.iter().map(|(_, value)| Cell(value)).collect();
    let params: Vec<&(dyn ToSql + Sync)> = cells.iter().map(|cell| cell as _).collect();
    Ok(!client.query(&text.sql, &params).await?.is_empty())
}
