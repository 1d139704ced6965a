//! Tries a change that failed for real, and takes it back.
//!
//! Planning a statement shows that tables, columns and rights are there. What a trigger, a row policy or a function
//! behind a constraint does shows only when rows are touched. So the change itself is made again, with its ledger entries
//! and with the same counts of rows, in a transaction that is rolled back instead of committed. The entries go to a lane
//! that nobody has; that lanes can be moved on is what every probe of a lane shows.

use super::super::usage;
use super::failure::{is_own_fault, left_out, unavailable};
use super::statements::{self, Expect, Inserts, Statement};
use super::swallows;
use chimera_core::json::Digest32;
use chimera_core::ledger::Head;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::limits;
use chimera_core::record::{Step, Table, Tx};
use chimera_engine::commit::{Batch, Lane};
use chimera_engine::port::Unavailable;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

/// Shows that this could be committed now, as far as it is not the change's own fault.
pub(super) async fn passes(client: &Client, tx: &Tx) -> Result<(), Unavailable> {
    let lane = Lane { id: 0, epoch: 0, head: Head { seq: 0, hash: Digest32([0; 32]) } };
    let batch = Batch { lane, id: Uuid::nil(), txs: vec![tx.clone()], locks: Vec::new() };
    // What can't even be written down was refused for another reason than the database.
    let entries = statements::entry_rows(&batch, &batch.chain(|_| true).0);
    let Ok(statements) = statements::statements(&batch, &entries, Inserts::Plain) else { return Ok(()) };
    // A row that somebody else is changing is waited for only so long; the next probe tries again.
    let begin = format!("BEGIN; SET LOCAL lock_timeout = '{}s'", limits::POSTGRES_PROBE_LOCK_TIMEOUT.as_secs());
    client.batch_execute(&begin).await.map_err(|error| unavailable(&error))?;
    let tried = each(client, &statements).await;
    // A session that can't even roll back is lost, and its transaction with it.
    let _ = client.batch_execute("ROLLBACK").await;
    tried
}

async fn each(client: &Client, statements: &[Statement<'_>]) -> Result<(), Unavailable> {
    for statement in statements {
        let params: Vec<_> = statement.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect();
        client.batch_execute("SAVEPOINT trial").await.map_err(|error| unavailable(&error))?;
        let touched = match statement.expects {
            Expect::Count { table, rows } => {
                let kept = client.execute(&*statement.text.spell(), &params).await;
                if kept.as_ref().is_ok_and(|kept| *kept != rows as u64) {
                    return Err(left_out(table));
                }
                kept.map(|_| rows)
            }
            _ => {
                let rows = client.query(&*statement.text.spell(), &params).await;
                if let Ok(rows) = &rows {
                    kept(client, statement, rows).await?;
                }
                rows.map(|rows| rows.len())
            }
        };
        let touched = allowed(client, touched).await?;
        if let Some((table, instead)) = missed(statement, touched) {
            client.batch_execute("SAVEPOINT trial").await.map_err(|error| unavailable(&error))?;
            let changed = client.execute(&instead, &[]).await;
            let none = changed.as_ref().is_ok_and(|changed| *changed == 0);
            allowed(client, changed.map(|_| 1)).await?;
            let any = usage::any(table);
            if none && !client.query(&any, &[]).await.map_err(|error| unavailable(&error))?.is_empty() {
                return Err(left_out(table.name));
            }
        }
    }
    let checked = client.batch_execute("SET CONSTRAINTS ALL IMMEDIATE").await.map(|()| 1);
    allowed(client, checked).await.map(drop)
}

/// How many rows were touched; none, if the statement failed by what it asked for.
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

/// Refuses a statement that went through and left out what it was to change.
async fn kept(client: &Client, statement: &Statement<'_>, rows: &[Row]) -> Result<(), Unavailable> {
    match &statement.expects {
        Expect::Entries(entries) if rows.len() != *entries => Err(left_out(AUDIT_LOG_ENTRIES.name)),
        Expect::Updates(updates) => {
            for (_, update) in statements::not_made(updates, rows) {
                if swallows::update(client, update).await.map_err(|error| unavailable(&error))? {
                    return Err(left_out(update.table.name));
                }
            }
            Ok(())
        }
        Expect::Step { step, .. } if rows.is_empty() => {
            let swallowed = swallows::step(client, step).await.map_err(|error| unavailable(&error))?;
            if swallowed { Err(left_out(swallows::table_of(step).name)) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// The same with another row, if the one that was meant has changed since. A key that is taken by now needs none: then
/// somebody's insert has worked.
fn missed(statement: &Statement<'_>, touched: usize) -> Option<(&'static Table, String)> {
    match &statement.expects {
        Expect::Updates(updates) if touched < updates.len() => {
            let table = updates.first()?.1.table;
            Some((table, usage::update_one(table)))
        }
        Expect::Step { step: Step::Update { table, .. } | Step::Lock { table, .. }, .. } if touched == 0 => {
            Some((table, usage::update_one(table)))
        }
        Expect::Step { step: Step::Delete { table, .. }, .. } if touched == 0 => {
            Some((table, usage::delete_one(table)))
        }
        _ => None,
    }
}
