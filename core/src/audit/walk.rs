//! Follows the ledger from its first entry: chains, trees and checkpoints, in bounded memory.
//!
//! The entries of a lane are fed in order, and a checkpoint is fed when exactly the entries it covers have been fed.
//! The export verifier and the verifier of a live store both work like this.

use crate::ledger::checkpoint::{LaneState, PublicKey, SignedCheckpoint};
use crate::ledger::merkle::{Frontier, TreeNode, leaf_hash};
use crate::ledger::{ChainHead, Digest32, LedgerFault, LocatedFault, StoredEntry};
use crate::limits::LANES_MAX;
use std::collections::BTreeMap;

/// The state of a verification.
#[derive(Debug, Default)]
pub struct LedgerWalk {
    lanes: BTreeMap<i64, Lane>,
    last: Option<(i64, Digest32)>,
    pub entries: u64,
    pub checkpoints: u64,
    /// Entries covered by the last checkpoint.
    pub covered: u64,
}

#[derive(Debug)]
struct Lane {
    head: ChainHead,
    frontier: Frontier,
    /// The state at the last checkpoint, so that an idle lane is not hashed again.
    checked: Option<LaneState>,
}

impl LedgerWalk {
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// The current head of a lane.
    #[must_use]
    pub fn head(&self, lane: i64) -> ChainHead {
        self.lanes.get(&lane).map_or(ChainHead::EMPTY, |lane| lane.head)
    }

    /// Verifies the next entry of its lane. Returns the tree hashes that a store must hold as a result.
    pub fn entry(&mut self, entry: &StoredEntry) -> Result<Vec<TreeNode>, LocatedFault> {
        let before = self.head(entry.lane);
        if entry.link.seq != before.seq + 1 || entry.link.prev_hash != before.hash {
            return Err(LocatedFault::entry(entry, LedgerFault::Link));
        }
        if !entry.sealed.is_intact() {
            return Err(LocatedFault::entry(entry, LedgerFault::Content));
        }
        if !entry.is_linked() {
            return Err(LocatedFault::entry(entry, LedgerFault::Link));
        }
        if self.lanes.len() >= LANES_MAX && !self.lanes.contains_key(&entry.lane) {
            return Err(LocatedFault::entry(entry, LedgerFault::Malformed));
        }
        let lane = self.lanes.entry(entry.lane).or_insert_with(|| Lane {
            head: ChainHead::EMPTY,
            frontier: Frontier::default(),
            checked: None,
        });
        let mut stored = Vec::new();
        lane.frontier.append(leaf_hash(&entry.link.hash.0), &mut stored);
        lane.head = entry.link.head();
        self.entries += 1;
        Ok(stored)
    }

    /// Verifies the next checkpoint. Exactly the entries that it covers must have been fed before.
    pub fn checkpoint(&mut self, signed: &SignedCheckpoint, keys: &[PublicKey]) -> Result<(), LocatedFault> {
        let checkpoint = &signed.checkpoint;
        signed.verify(keys).map_err(|fault| LocatedFault::checkpoint(checkpoint.seq, fault.into()))?;
        let (seq, previous) = self.last.map_or((0, None), |(seq, digest)| (seq, Some(digest)));
        if checkpoint.seq != seq + 1 || checkpoint.previous != previous {
            return Err(LocatedFault::checkpoint(checkpoint.seq, LedgerFault::Checkpoint));
        }
        if let Some(unnamed) = self.lanes.keys().find(|lane| checkpoint.lane(**lane).is_none()) {
            return Err(LocatedFault::lane(*unnamed, 1, LedgerFault::Checkpoint));
        }
        for state in &checkpoint.lanes {
            self.check_lane(*state)?;
        }
        self.last = Some((checkpoint.seq, signed.digest()));
        self.checkpoints += 1;
        self.covered = self.entries;
        Ok(())
    }

    fn check_lane(&mut self, state: LaneState) -> Result<(), LocatedFault> {
        let Some(lane) = self.lanes.get_mut(&state.lane) else {
            return Err(LocatedFault::lane(state.lane, 1, LedgerFault::Checkpoint));
        };
        if lane.checked == Some(state) && lane.head == state.head {
            return Ok(());
        }
        if lane.head.seq != state.head.seq {
            let first_missing = lane.head.seq.min(state.head.seq) + 1;
            return Err(LocatedFault::lane(state.lane, first_missing, LedgerFault::Checkpoint));
        }
        if lane.head != state.head || lane.frontier.root() != state.root {
            let first_new = lane.checked.map_or(0, |checked| checked.head.seq) + 1;
            return Err(LocatedFault::lane(state.lane, first_new, LedgerFault::Checkpoint));
        }
        lane.checked = Some(state);
        Ok(())
    }
}
