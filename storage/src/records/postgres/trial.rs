//! Repeats a change that failed, and rolls it back.
//!
//! Planning a statement proves that tables, columns and privileges exist. The effect of a foreign constraint or
//! function shows only when rows are touched. So the change itself is made again, with its ledger entries and the
//! same row counts, in a transaction that is rolled back. The entries go to a lane that nobody holds; every probe of
//! a lane proves that lanes can be advanced.

use super::super::usage;
use super::failure::{is_own_fault, left_out, unavailable};
use super::statements::{self, ExpectedAnswer, OnKeyConflict, Statement};
use chimera_core::json::Digest32;
use chimera_core::ledger::ChainHead;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::limits;
use chimera_core::record::{Step, Tx};
use chimera_engine::commit::{Batch, Lane};
use chimera_engine::port::Unavailable;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

/// Proves that this could be committed now, apart from conflicts of the change itself.
pub(super) async fn prove(client: &Client, tx: &Tx) -> Result<(), Unavailable> {
    let lane = Lane { id: 0, epoch: 0, head: ChainHead { seq: 0, hash: Digest32([0; 32]) } };
    let batch = Batch { lane, id: Uuid::nil(), txs: vec![tx.clone()], locks: Vec::new() };
    // A change that can't even be encoded was not rejected by the database.
    let entries = statements::entry_rows(&batch, &batch.chain(|_| true).0);
    let Ok(statements) = statements::statements(&batch, &entries, OnKeyConflict::Plain) else { return Ok(()) };
    // Waits only briefly for a row that another transaction is changing; the next probe tries again.
    let begin = format!("BEGIN; SET LOCAL lock_timeout = '{}s'", limits::POSTGRES_PROBE_LOCK_TIMEOUT.as_secs());
    client.batch_execute(&begin).await.map_err(|error| unavailable(&error))?;
    let tried = each(client, &statements).await;
    // A session that can't roll back is lost, and its transaction with it.
    let _ = client.batch_execute("ROLLBACK").await;
    tried
}

async fn each(client: &Client, statements: &[Statement<'_>]) -> Result<(), Unavailable> {
    for statement in statements {
        let params: Vec<_> = statement.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect();
        client.batch_execute("SAVEPOINT trial").await.map_err(|error| unavailable(&error))?;
        let touched = match statement.expects {
            ExpectedAnswer::Count { table, rows } => {
                let kept = client.execute(&*statement.text.spell(), &params).await;
                if kept.as_ref().is_ok_and(|kept| *kept != rows as u64) {
                    return Err(left_out(table));
                }
                kept.map(|_| rows)
            }
            _ => client.query(&*statement.text.spell(), &params).await.map(|rows| rows.len()),
        };
        let touched = allowed(client, touched).await?;
        if matches!(statement.expects, ExpectedAnswer::Entries(entries) if entries != touched) {
            return Err(left_out(AUDIT_LOG_ENTRIES.name));
        }
        if let Some(instead) = alternative_statement(statement, touched) {
            client.batch_execute("SAVEPOINT trial").await.map_err(|error| unavailable(&error))?;
            allowed(client, client.execute(&instead, &[]).await.map(|_| 1)).await?;
        }
    }
    let checked = client.batch_execute("SET CONSTRAINTS ALL IMMEDIATE").await.map(|()| 1);
    allowed(client, checked).await.map(drop)
}

/// The number of touched rows; zero if the statement failed because of its own content.
async fn allowed(client: &Client, touched: Result<usize, Error>) -> Result<usize, Unavailable> {
    match touched {
        Ok(touched) => Ok(touched),
        Err(error) if is_own_fault(&error) => {
            client.batch_execute("ROLLBACK TO trial").await.map_err(|error| unavailable(&error))?;
            Ok(0)
        }
        Err(error) => Err(unavailable(&error)),
    }
}

/// The same statement for any other row, if the intended one has changed since. A key that is taken by now needs
/// none: somebody's insert has succeeded.
fn alternative_statement(statement: &Statement<'_>, touched: usize) -> Option<String> {
    match &statement.expects {
        ExpectedAnswer::Updates(updates) if touched < updates.len() => {
            Some(usage::update_one(updates.first()?.1.table))
        }
        ExpectedAnswer::Step { step: Step::Update { table, .. } | Step::Lock { table, .. }, .. } if touched == 0 => {
            Some(usage::update_one(table))
        }
        ExpectedAnswer::Step { step: Step::Delete { table, .. }, .. } if touched == 0 => Some(usage::delete_one(table)),
        _ => None,
    }
}
