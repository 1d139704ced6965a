//! Tries a change that failed for real, and takes it back.
//!
//! Preparing a statement shows that tables and columns are there. What a trigger does shows only when rows are touched. So
//! the change itself is made again on the writer's connection, with its ledger entries and with the same counts of rows, in a
//! transaction that is rolled back instead of committed.

use super::super::usage;
use super::execute::{self, Failure, Pen};
use super::failure::{left_out, unavailable};
use super::file;
use super::texts::Texts;
use chimera_core::record::{Step, Table, Tx};
use chimera_engine::commit::{Batch, Loss, Outcome};
use chimera_engine::port::{Outage, Unavailable};
use rusqlite::Connection;
use uuid::Uuid;

/// Shows that this could be committed now, as far as it is not the change's own fault.
pub(super) fn passes(conn: &Connection, texts: &mut Texts, tx: &Tx) -> Result<(), Unavailable> {
    texts.trim();
    conn.execute_batch("BEGIN IMMEDIATE").map_err(|error| unavailable(&error))?;
    let tried = each(&mut Pen::new(conn, texts), tx);
    if !conn.is_autocommit() {
        // A failed rollback leaves a connection that refuses everything; the next claim reopens it.
        let _ = conn.execute_batch("ROLLBACK");
    }
    tried
}

fn each(pen: &mut Pen<'_>, tx: &Tx) -> Result<(), Unavailable> {
    for update in &tx.updates {
        let changed = execute::compare_and_set(pen, update);
        allowed(pen, changed, Some((update.table, usage::update_any(update.table))))?;
    }
    for insert in &tx.inserts {
        // A key that is taken by now needs no other row: then somebody's insert has worked.
        let added = execute::add(pen, insert);
        allowed(pen, added, None)?;
    }
    for (at, step) in tx.steps.iter().enumerate() {
        let done = execute::run(pen, at, step);
        allowed(pen, done, instead(step))?;
    }
    let lane = file::lane_now(pen.conn).map_err(|error| unavailable(&error))?;
    let Some(lane) = lane else { return Ok(()) };
    let batch = Batch { lane, id: Uuid::nil(), txs: vec![tx.clone()], locks: Vec::new() };
    let chained = execute::chain(pen, &batch, |_| true).map(drop);
    allowed(pen, chained, None)
}

/// The same with another row, if the one that was meant has changed since.
fn instead(step: &Step) -> Option<(&'static Table, String)> {
    match step {
        Step::Update { table, .. } => Some((table, usage::update_any(table))),
        Step::Delete { table, .. } => Some((table, usage::delete_any(table))),
        Step::Insert(_) | Step::Lock { .. } => None,
    }
}

fn allowed(
    pen: &Pen<'_>,
    done: Result<(), Failure>,
    instead: Option<(&'static Table, String)>,
) -> Result<(), Unavailable> {
    match (done, instead) {
        (Err(Failure::Loss(Loss::Conflict(_))), Some((table, instead))) => {
            allowed(pen, any_row(pen.conn, table, &instead), None)
        }
        (Ok(()) | Err(Failure::Loss(Loss::Conflict(_) | Loss::Rejected(_))), _) => Ok(()),
        (Err(Failure::Loss(Loss::Lacking(why))), _) => Err(why),
        (Err(Failure::Whole(Outcome::Unavailable(why) | Outcome::Lacking(why))), _) => Err(why),
        (Err(Failure::Whole(_)), _) => Err(Unavailable::new(Outage::Passing, "the data file is busy")),
    }
}

/// Changes any one row, if there is one.
fn any_row(conn: &Connection, table: &Table, text: &str) -> Result<(), Failure> {
    let is_any = || conn.prepare(&usage::any(table)).and_then(|mut statement| statement.exists([]));
    if conn.execute(text, [])? == 0 && is_any()? {
        return Err(Failure::Loss(Loss::Lacking(left_out(table.name))));
    }
    Ok(())
}
