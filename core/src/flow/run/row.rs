//! What the row of a run says about the machine in memory: its version, its owner and its place in the ledger.
//!
//! `close` compares these with the state after a turn, and writes only what has changed.

use super::{LaneOwner, RunHead};
use crate::flow::tables::RunRow;
use crate::time::Timestamp;

/// The row in `runs`, as the last turn wrote it.
pub(crate) struct WrittenRow {
    /// Zero until it is first written.
    version: i64,
    /// The sequence number of the run's last ledger entry.
    run_seq: i64,
    owner: Option<LaneOwner>,
    /// The number of co-requesters in the row.
    co_requesters: usize,
    restored_at: Option<Timestamp>,
}

impl WrittenRow {
    /// The row of a run that is not stored yet.
    pub(crate) const fn none(head: &RunHead) -> Self {
        Self { version: 0, run_seq: 0, owner: None, co_requesters: head.co_requesters.len(), restored_at: None }
    }

    pub(crate) fn load(row: &RunRow, head: &RunHead) -> Self {
        let owner = row.owner_lane.zip(row.owner_epoch);
        Self {
            version: row.state_version,
            run_seq: row.run_seq,
            owner: owner.map(|(lane, epoch)| LaneOwner { lane, epoch }),
            restored_at: row.restored_at,
            ..Self::none(head)
        }
    }

    /// The next turn writes it for the first time.
    pub(crate) const fn is_new(&self) -> bool {
        self.version == 0
    }

    pub(crate) const fn version(&self) -> i64 {
        self.version
    }

    /// The sequence number of the run's last ledger entry.
    pub(crate) const fn run_seq(&self) -> i64 {
        self.run_seq
    }

    /// `None` while the run is parked.
    pub(crate) const fn owner(&self) -> Option<LaneOwner> {
        self.owner
    }

    /// The number of co-requesters in the row.
    pub(crate) const fn co_requesters(&self) -> usize {
        self.co_requesters
    }

    /// When its state was restored from a backup. What it did between backup and restore is not known.
    pub(crate) const fn restored_at(&self) -> Option<Timestamp> {
        self.restored_at
    }

    /// A turn has written the row.
    pub(crate) const fn written(&mut self, owner: Option<LaneOwner>, run_seq: i64, head: &RunHead) {
        self.version += 1;
        (self.owner, self.run_seq, self.co_requesters) = (owner, run_seq, head.co_requesters.len());
    }
}
