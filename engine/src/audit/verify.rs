//! Verifies a store in place: every entry, checkpoint, stored tree hash and head.
//!
//! The newest checkpoint and then the heads are read first and bound the walk, so a ledger that grows meanwhile
//! verifies like one that doesn't. At the end it looks for entries beyond the heads, because no database constraint
//! prevents added rows.

use crate::ledger::read::{self, CheckpointReader, LaneReader, LedgerError, malformed_row, tree_size};
use crate::port::Records;
use chimera_core::audit::{LedgerWalk, VerificationReport};
use chimera_core::ledger::checkpoint::PublicKey;
use chimera_core::ledger::merkle::{NodeRange, TreeNode};
use chimera_core::ledger::{ChainHead, LedgerFault, LocatedFault, StoredEntry};
use chimera_core::record::Scope;
use std::collections::BTreeMap;

/// Verifies the whole ledger. The report says what is wrong; an error means that the store could not be read.
pub async fn verify(records: &dyn Records, keys: &[PublicKey]) -> Result<VerificationReport, LedgerError> {
    let mut verifier =
        Verifier { records, keys, walk: LedgerWalk::default(), readers: BTreeMap::new(), covered: BTreeMap::new() };
    let first_broken = match verifier.run().await {
        Ok(()) => None,
        Err(LedgerError::Broken(broken)) => Some(broken),
        Err(error) => return Err(error),
    };
    let walk = verifier.walk;
    Ok(VerificationReport {
        tenant: None,
        entries: walk.entries,
        lanes: walk.lanes(),
        checkpoints: walk.checkpoints,
        covered: walk.covered,
        trusted: true,
        signed_end: false,
        first_fault: first_broken,
    })
}

struct Verifier<'a> {
    records: &'a dyn Records,
    keys: &'a [PublicKey],
    walk: LedgerWalk,
    readers: BTreeMap<i64, LaneReader>,
    /// Each lane's size under the newest checkpoint: hashes beyond it are not stored yet.
    covered: BTreeMap<i64, u64>,
}

impl Verifier<'_> {
    async fn run(&mut self) -> Result<(), LedgerError> {
        let newest = read::last_checkpoint(self.records).await?;
        let heads = read::lanes(self.records).await?;
        if let Some(newest) = &newest {
            self.covered =
                newest.checkpoint.lanes.iter().map(|state| (state.lane, tree_size(state.head.seq))).collect();
        }
        let mut checkpoints = CheckpointReader::upto(newest.map_or(0, |newest| newest.checkpoint.seq));
        while let Some(signed) = checkpoints.next(self.records).await? {
            for state in &signed.checkpoint.lanes {
                self.lane(state.lane, state.head.seq).await?;
            }
            self.walk.checkpoint(&signed, self.keys)?;
        }
        for (lane, head) in &heads {
            self.head(*lane, *head).await?;
        }
        self.check_strays(heads).await
    }

    async fn lane(&mut self, lane: i64, upto: i64) -> Result<(), LedgerError> {
        while self.walk.head(lane).seq < upto {
            let reader = self.readers.entry(lane).or_insert_with(|| LaneReader::from(lane, 1, Scope::System));
            let Some(row) = reader.next(self.records, upto).await? else { break };
            let entry = StoredEntry::from_row(&row).map_err(|_| malformed_row(&row))?;
            let covered = self.covered.get(&lane).copied().unwrap_or(0);
            for node in self.walk.entry(&entry)? {
                if (node.id.idx + 1) << node.id.level <= covered {
                    self.compare(lane, node).await?;
                }
            }
        }
        Ok(())
    }

    async fn head(&mut self, lane: i64, head: ChainHead) -> Result<(), LedgerError> {
        self.lane(lane, head.seq).await?;
        let found = self.walk.head(lane);
        if found == head {
            return Ok(());
        }
        let at = if found.seq == head.seq { head.seq } else { found.seq.min(head.seq) + 1 };
        Err(LocatedFault::lane(lane, at, LedgerFault::Lane).into())
    }

    /// Looks for entries beyond the head of their lane, or in a lane without a row. An entry and its head become
    /// visible together, so a head that is read after an entry covers it.
    async fn check_strays(&self, mut heads: Vec<(i64, ChainHead)>) -> Result<(), LedgerError> {
        let end = |heads: &[(i64, ChainHead)], lane| {
            heads.iter().find(|(known, _)| *known == lane).map_or(0, |(_, head)| head.seq)
        };
        let mut at = None;
        while let Some(lane) = read::next_lane(self.records, at).await? {
            let last = read::last_seq(self.records, lane).await?;
            if last > end(&heads, lane) {
                heads = read::lanes(self.records).await?;
            }
            let seq = end(&heads, lane);
            if last > seq {
                let first = LaneReader::from(lane, seq + 1, Scope::System).next(self.records, last).await?;
                let broken = first
                    .map_or_else(|| LocatedFault::lane(lane, seq + 1, LedgerFault::Lane), |row| malformed_row(&row));
                return Err(LocatedFault { fault: LedgerFault::Lane, ..broken }.into());
            }
            at = Some(lane);
        }
        Ok(())
    }

    /// Compares a computed tree hash with the stored one.
    async fn compare(&self, lane: i64, node: TreeNode) -> Result<(), LedgerError> {
        let span = NodeRange { level: node.id.level, from: node.id.idx, to: node.id.idx + 1 };
        if read::nodes(self.records, lane, span).await? == [(node.id, node.hash)] {
            return Ok(());
        }
        let first = i64::try_from(node.id.idx << node.id.level).unwrap_or(i64::MAX - 1) + 1;
        Err(LocatedFault::lane(lane, first, LedgerFault::Lane).into())
    }
}
