//! Bounded reads of the ledger's tables.
//!
//! Entries are append-only, and a lane is read only up to a head that was read before, so pages are consistent without
//! a snapshot.

use crate::port::{CommitError, ReadError, Records};
use chimera_core::ledger::checkpoint::SignedCheckpoint;
use chimera_core::ledger::merkle::{FANOUT, MissingNode, NodeRange, TreeNodeId, leaf_hash};
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_CHECKPOINTS, LEDGER_LANES, LEDGER_NODES};
use chimera_core::ledger::{ChainHead, Digest32, LedgerFault, LocatedFault};
use chimera_core::limits::{LANES_MAX, PAGE_ROWS_MAX};
use chimera_core::record::{Comparison, Direction, InvalidTx, Row, Scope, Select, Table, Value};
use std::collections::VecDeque;

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Invalid(#[from] InvalidTx),
    /// The stored ledger is inconsistent.
    #[error("the ledger is broken: {0}")]
    Broken(LocatedFault),
    #[error("a ledger may have at most {LANES_MAX} lanes")]
    TooManyLanes,
    /// No checkpoint covers the requested entries yet.
    #[error("no checkpoint covers the entries yet")]
    NoCheckpoint,
    #[error("the export could not be written")]
    Output(#[source] std::io::Error),
}

impl From<LocatedFault> for LedgerError {
    fn from(broken: LocatedFault) -> Self {
        Self::Broken(broken)
    }
}

impl From<MissingNode> for LedgerError {
    fn from(_: MissingNode) -> Self {
        Self::Broken(LocatedFault::ledger(LedgerFault::Lane))
    }
}

fn system(table: &'static Table) -> Select {
    Select::from(table, Scope::System)
}

/// All lanes with their heads, in ascending order.
pub(crate) async fn lanes(records: &dyn Records) -> Result<Vec<(i64, ChainHead)>, LedgerError> {
    let (rows, is_part) = records.first(system(&LEDGER_LANES), LANES_MAX).await?;
    if is_part {
        return Err(LedgerError::TooManyLanes);
    }
    let head = |row: &Row| {
        let lane = row.int("lane");
        let hash = row.get("head_hash").as_bytes().and_then(Digest32::from_slice);
        let hash = hash.ok_or_else(|| LocatedFault::lane(lane, row.int("head_seq"), LedgerFault::Malformed))?;
        Ok((lane, ChainHead { seq: row.int("head_seq"), hash }))
    };
    rows.iter().map(head).collect()
}

/// The newest checkpoint.
pub async fn last_checkpoint(records: &dyn Records) -> Result<Option<SignedCheckpoint>, LedgerError> {
    let select = system(&LEDGER_CHECKPOINTS).by(&["seq"], Direction::Descending).take(1);
    records.read(select).await?.rows.first().map(checkpoint).transpose()
}

fn checkpoint(row: &Row) -> Result<SignedCheckpoint, LedgerError> {
    Ok(SignedCheckpoint::from_row(row).map_err(|fault| LocatedFault::checkpoint(row.int("seq"), fault.into()))?)
}

/// Checkpoints 1 to `upto`, page by page.
pub(crate) struct CheckpointReader {
    next: i64,
    upto: i64,
    page: VecDeque<Row>,
}

impl CheckpointReader {
    pub(crate) const fn upto(upto: i64) -> Self {
        Self { next: 1, upto, page: VecDeque::new() }
    }

    pub(crate) async fn next(&mut self, records: &dyn Records) -> Result<Option<SignedCheckpoint>, LedgerError> {
        if self.page.is_empty() && self.next <= self.upto {
            let select = system(&LEDGER_CHECKPOINTS)
                .filter("seq", Comparison::AtLeast, self.next)
                .filter("seq", Comparison::AtMost, self.upto)
                .take(PAGE_ROWS_MAX);
            self.page = records.read(select).await?.rows.into();
        }
        let Some(row) = self.page.pop_front() else { return Ok(None) };
        self.next = row.int("seq") + 1;
        checkpoint(&row).map(Some)
    }
}

/// The entries of one lane in order, page by page.
pub(crate) struct LaneReader {
    lane: i64,
    scope: Scope,
    next: i64,
    page: VecDeque<Row>,
    page_rows: usize,
}

impl LaneReader {
    /// Starts at entry `first`.
    pub(crate) const fn from(lane: i64, first: i64, scope: Scope) -> Self {
        Self { lane, scope, next: first, page: VecDeque::new(), page_rows: PAGE_ROWS_MAX }
    }

    /// Reads no more than `rows` at a time.
    pub(crate) const fn pages_of(mut self, rows: usize) -> Self {
        self.page_rows = rows;
        self
    }

    /// The next entry with a number up to `upto`. Pages extend beyond `upto`, because callers that walk from checkpoint
    /// to checkpoint request a few entries at a time.
    pub(crate) async fn next(&mut self, records: &dyn Records, upto: i64) -> Result<Option<Row>, LedgerError> {
        if self.page.is_empty() && self.next <= upto {
            let select = Select::from(&AUDIT_LOG_ENTRIES, self.scope.clone())
                .with("lane", self.lane)
                .filter("seq", Comparison::AtLeast, self.next)
                .take(self.page_rows);
            self.page = records.read(select).await?.rows.into();
        }
        let Some(row) = self.page.pop_front_if(|row| row.int("seq") <= upto) else { return Ok(None) };
        self.next = row.int("seq") + 1;
        Ok(Some(row))
    }
}

/// The lowest lane above `lane` that has entries, whether it has a row or not.
pub(crate) async fn next_lane(records: &dyn Records, lane: Option<i64>) -> Result<Option<i64>, LedgerError> {
    let all = system(&AUDIT_LOG_ENTRIES).take(1);
    let select = lane.into_iter().fold(all, |select, lane| select.filter("lane", Comparison::Above, lane));
    Ok(records.read(select).await?.rows.first().map(|row| row.int("lane")))
}

/// The number of a lane's last stored entry, regardless of its head.
pub(crate) async fn last_seq(records: &dyn Records, lane: i64) -> Result<i64, LedgerError> {
    let select = system(&AUDIT_LOG_ENTRIES).with("lane", lane).by(&[], Direction::Descending).take(1);
    Ok(records.read(select).await?.rows.first().map_or(0, |row| row.int("seq")))
}

/// The error for a malformed ledger row.
pub(crate) fn malformed_row(row: &Row) -> LocatedFault {
    let id = row.get("id").as_text().map(str::to_owned);
    LocatedFault { id, ..LocatedFault::lane(row.int("lane"), row.int("seq"), LedgerFault::Malformed) }
}

/// The stored tree hashes of `span`; missing ones are left out.
pub(crate) async fn nodes(
    records: &dyn Records,
    lane: i64,
    span: NodeRange,
) -> Result<Vec<(TreeNodeId, Digest32)>, LedgerError> {
    let mut found = Vec::new();
    let mut from = span.from;
    while from < span.to {
        let to = span.to.min(from + FANOUT);
        let part = NodeRange { from, to, ..span };
        found.extend(if span.level == 0 {
            leaves(records, lane, part).await?
        } else {
            inner(records, lane, part).await?
        });
        from = to;
    }
    Ok(found)
}

async fn leaves(records: &dyn Records, lane: i64, span: NodeRange) -> Result<Vec<(TreeNodeId, Digest32)>, LedgerError> {
    let select = system(&AUDIT_LOG_ENTRIES)
        .with("lane", lane)
        .filter("seq", Comparison::Above, int_cell(span.from))
        .filter("seq", Comparison::AtMost, int_cell(span.to))
        .without(&["data_json"]);
    let (rows, _) = records.first(select, PAGE_ROWS_MAX).await?;
    let leaf = |row: &Row| {
        let hash = row.get("hash").as_bytes().ok_or_else(|| malformed_row(row))?;
        let idx = u64::try_from(row.int("seq") - 1).map_err(|_| malformed_row(row))?;
        Ok((TreeNodeId { level: 0, idx }, leaf_hash(hash)))
    };
    rows.iter().map(leaf).collect()
}

async fn inner(records: &dyn Records, lane: i64, span: NodeRange) -> Result<Vec<(TreeNodeId, Digest32)>, LedgerError> {
    let select = system(&LEDGER_NODES)
        .with("lane", lane)
        .with("level", i64::from(span.level))
        .filter("idx", Comparison::AtLeast, int_cell(span.from))
        .filter("idx", Comparison::Below, int_cell(span.to));
    let (rows, _) = records.first(select, PAGE_ROWS_MAX).await?;
    let node = |row: &Row| {
        let hash = row.get("hash").as_bytes().and_then(Digest32::from_slice).ok_or(MissingNode)?;
        let idx = u64::try_from(row.int("idx")).map_err(|_| MissingNode)?;
        Ok((TreeNodeId { level: span.level, idx }, hash))
    };
    rows.iter().map(node).collect()
}

/// Columns are signed; no lane will ever have 2^63 entries.
pub(crate) fn int_cell(count: u64) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

/// The tree size of a lane whose last entry is `seq`.
pub(crate) fn tree_size(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}
