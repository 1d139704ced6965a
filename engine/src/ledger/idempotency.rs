//! Idempotent requests: commits a change together with its idempotency record.
//!
//! Either both are stored or neither. Of concurrent requests with one key one commits; the others conflict on the
//! record, read it and are answered from it.
//!
//! Not used by `/act`, whose key is a column of `runs`; see engine/src/act/idempotency/mod.rs.

use super::read::LedgerError;
use crate::port::{CommitError, Receipt, Records};
use chimera_core::ledger::idempotency::{IdempotencyRecord, KeyDecision, KeyedRequest, decide};
use chimera_core::ledger::tables::IDEMPOTENCY_RECORDS;
use chimera_core::ledger::{LedgerFault, LocatedFault};
use chimera_core::limits::IDEMPOTENCY_TRIES_MAX;
use chimera_core::record::{Conflict, Scope, Select, Tx, Value};
use chimera_core::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub enum BeginOutcome {
    /// The first request: its change is committed. The record is completed later.
    First(Receipt, IdempotencyRecord),
    /// The same request is in progress.
    InFlight(IdempotencyRecord),
    /// The same request has completed.
    Done(IdempotencyRecord),
    /// The key was used for a different request.
    Mismatch(IdempotencyRecord),
}

/// The idempotency record for the request's key.
pub async fn find(records: &dyn Records, request: &KeyedRequest) -> Result<Option<IdempotencyRecord>, LedgerError> {
    let mut select = Select::from(&IDEMPOTENCY_RECORDS, Scope::System).take(1);
    for (column, value) in IDEMPOTENCY_RECORDS.key.iter().copied().zip(request.row_key()) {
        select = select.with(column, value);
    }
    let page = records.read(select).await?;
    let record = page.rows.into_iter().next().map(IdempotencyRecord::from_row).transpose();
    record.map_err(|_| LocatedFault::ledger(LedgerFault::Malformed).into())
}

/// Commits `tx` with the request's idempotency record, unless the key is already used.
///
/// A conflict of `tx` on anything but the record is returned as `CommitError::Conflict`. Nothing was changed then, and
/// the key is still free.
pub async fn begin(
    records: &dyn Records,
    request: &KeyedRequest,
    tx: Tx,
    now: Timestamp,
) -> Result<BeginOutcome, LedgerError> {
    let mut tries = 1;
    loop {
        let mut guarded = tx.clone();
        let record = match decide(find(records, request).await?, request, now)? {
            KeyDecision::Fresh(insert, record) => {
                guarded.inserts.push(insert);
                record
            }
            KeyDecision::TakeOver(update, record) => {
                guarded.updates.push(update);
                record
            }
            KeyDecision::InFlight(record) => return Ok(BeginOutcome::InFlight(record)),
            KeyDecision::Done(record) => return Ok(BeginOutcome::Done(record)),
            KeyDecision::Mismatch(record) => return Ok(BeginOutcome::Mismatch(record)),
        };
        match records.commit(guarded).await {
            Ok(receipt) => return Ok(BeginOutcome::First(receipt, record)),
            Err(CommitError::Conflict(conflict)) if tries < IDEMPOTENCY_TRIES_MAX && is_race(&conflict, request) => {
                tries += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the conflict is on the request's own record.
fn is_race(conflict: &Conflict, request: &KeyedRequest) -> bool {
    match conflict {
        Conflict::Exists(key) | Conflict::Stale(key) | Conflict::Missing(key) => {
            let same = |values: &[Value]| values == request.row_key();
            key.table == IDEMPOTENCY_RECORDS.name && same(&key.values)
        }
        Conflict::Rows { .. } => false,
    }
}
