//! Bounded reads of the ledger's tables.
//!
//! Entries are append-only, and a lane is read only up to a head that was read before, so pages are consistent without
//! a snapshot.

use crate::port::{CommitError, ReadError, Records};
use chimera_core::ledger::checkpoint::SignedCheckpoint;
use chimera_core::ledger::merkle::{FANOUT, MissingNode, NodeRange, TreeNodeId, leaf_hash};
use chimera_core::ledger::tables::{
    AUDIT_LOG_ENTRIES, CheckpointSeq, EntryPlace, LEDGER_CHECKPOINTS, LaneRow, LinkRow, MerkleNodeRow,
    audit_log_entries, ledger_checkpoints, ledger_nodes,
};
use chimera_core::ledger::{ChainHead, Digest32, LedgerFault, LocatedFault};
use chimera_core::limits::{LANES_MAX, PAGE_ROWS_MAX};
use chimera_core::record::{Comparison, Direction, InvalidTx, Row, Scope, Select, StoredRow, Unstorable, Value};
use std::collections::VecDeque;

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Invalid(#[from] Unstorable),
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

impl From<InvalidTx> for LedgerError {
    fn from(error: InvalidTx) -> Self {
        Self::Invalid(error.into())
    }
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

fn malformed() -> LedgerError {
    LocatedFault::ledger(LedgerFault::Malformed).into()
}

/// All lanes with their heads, in ascending order.
pub(crate) async fn lanes(records: &dyn Records) -> Result<Vec<(i64, ChainHead)>, LedgerError> {
    let (rows, is_part) = records.first(LaneRow::select(Scope::System), LANES_MAX).await?;
    if is_part {
        return Err(LedgerError::TooManyLanes);
    }
    let head = |row: Row| {
        let LaneRow { lane, head_seq, head_hash, .. } = LaneRow::decode(row).map_err(|_| malformed())?;
        Ok((lane, ChainHead { seq: head_seq, hash: head_hash }))
    };
    rows.into_iter().map(head).collect()
}

/// The newest checkpoint.
pub async fn last_checkpoint(records: &dyn Records) -> Result<Option<SignedCheckpoint>, LedgerError> {
    let select = Select::from(&LEDGER_CHECKPOINTS, Scope::System);
    let select = select.by(&[ledger_checkpoints::seq], Direction::Descending).take(1);
    records.read(select).await?.rows.first().map(checkpoint).transpose()
}

fn checkpoint(row: &Row) -> Result<SignedCheckpoint, LedgerError> {
    let seq = checkpoint_seq(row)?;
    Ok(SignedCheckpoint::from_row(row).map_err(|fault| LocatedFault::checkpoint(seq, fault.into()))?)
}

fn checkpoint_seq(row: &Row) -> Result<i64, LedgerError> {
    Ok(CheckpointSeq::peek(row).map_err(|_| malformed())?.seq)
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
            let select = Select::from(&LEDGER_CHECKPOINTS, Scope::System)
                .filter(ledger_checkpoints::seq, Comparison::AtLeast, self.next)
                .filter(ledger_checkpoints::seq, Comparison::AtMost, self.upto)
                .take(PAGE_ROWS_MAX);
            self.page = records.read(select).await?.rows.into();
        }
        let Some(row) = self.page.pop_front() else { return Ok(None) };
        self.next = checkpoint_seq(&row)? + 1;
        checkpoint(&row).map(Some)
    }
}

/// The entries of one lane in order, page by page.
pub(crate) struct LaneReader {
    lane: i64,
    scope: Scope,
    next: i64,
    /// Rows with their numbers.
    page: VecDeque<(i64, Row)>,
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
                .with(audit_log_entries::lane, self.lane)
                .filter(audit_log_entries::seq, Comparison::AtLeast, self.next)
                .take(self.page_rows);
            for row in records.read(select).await?.rows {
                self.page.push_back((entry_place(&row)?.seq, row));
            }
        }
        let Some((seq, row)) = self.page.pop_front_if(|(seq, _)| *seq <= upto) else { return Ok(None) };
        self.next = seq + 1;
        Ok(Some(row))
    }
}

/// The lowest lane above `lane` that has entries, whether it has a row or not.
pub(crate) async fn next_lane(records: &dyn Records, lane: Option<i64>) -> Result<Option<i64>, LedgerError> {
    let all = EntryPlace::select(Scope::System).take(1);
    let above = |select: Select, lane| select.filter(audit_log_entries::lane, Comparison::Above, lane);
    let row = records.read(lane.into_iter().fold(all, above)).await?.rows.into_iter().next();
    row.map(|row| Ok(entry_place(&row)?.lane)).transpose()
}

/// The number of a lane's last stored entry, regardless of its head.
pub(crate) async fn last_seq(records: &dyn Records, lane: i64) -> Result<i64, LedgerError> {
    let select = EntryPlace::select(Scope::System).with(audit_log_entries::lane, lane);
    let row = records.read(select.by(&[], Direction::Descending).take(1)).await?.rows.into_iter().next();
    row.map_or(Ok(0), |row| Ok(entry_place(&row)?.seq))
}

/// The error for a malformed ledger row.
pub(crate) fn malformed_row(row: &Row) -> LocatedFault {
    match EntryPlace::peek(row) {
        Ok(EntryPlace { lane, seq, id }) => {
            LocatedFault { id: Some(id), ..LocatedFault::lane(lane, seq, LedgerFault::Malformed) }
        }
        Err(_) => LocatedFault::ledger(LedgerFault::Malformed),
    }
}

fn entry_place(row: &Row) -> Result<EntryPlace, LedgerError> {
    EntryPlace::peek(row).map_err(|_| malformed())
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
    let select = LinkRow::select(Scope::System)
        .with(audit_log_entries::lane, lane)
        .filter(audit_log_entries::seq, Comparison::Above, int_cell(span.from))
        .filter(audit_log_entries::seq, Comparison::AtMost, int_cell(span.to));
    let (rows, _) = records.first(select, PAGE_ROWS_MAX).await?;
    let leaf = |row: &Row| {
        let link = LinkRow::peek(row).map_err(|_| malformed_row(row))?;
        let idx = u64::try_from(link.seq - 1).map_err(|_| malformed_row(row))?;
        Ok((TreeNodeId { level: 0, idx }, leaf_hash(&link.hash.0)))
    };
    rows.iter().map(leaf).collect()
}

async fn inner(records: &dyn Records, lane: i64, span: NodeRange) -> Result<Vec<(TreeNodeId, Digest32)>, LedgerError> {
    let select = MerkleNodeRow::select(Scope::System)
        .with(ledger_nodes::lane, lane)
        .with(ledger_nodes::level, i64::from(span.level))
        .filter(ledger_nodes::idx, Comparison::AtLeast, int_cell(span.from))
        .filter(ledger_nodes::idx, Comparison::Below, int_cell(span.to));
    let (rows, _) = records.first(select, PAGE_ROWS_MAX).await?;
    let node = |row: Row| {
        let row = MerkleNodeRow::decode(row).map_err(|_| MissingNode)?;
        Ok((TreeNodeId { level: span.level, idx: row.idx }, row.hash))
    };
    rows.into_iter().map(node).collect()
}

/// Columns are signed; no lane will ever have 2^63 entries.
pub(crate) fn int_cell(count: u64) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

/// The tree size of a lane whose last entry is `seq`.
pub(crate) fn tree_size(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}
