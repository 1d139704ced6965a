//! Making checkpoints: read new entries, extend the Merkle trees, sign, store.
//!
//! Any node may try: a checkpoint and its tree hashes commit in one transaction under the checkpoint's number, so of
//! two concurrent attempts one commits and the other is dropped. A checkpoint is signed only if it continues the
//! previous one, and never on top of one signed with an unknown key: whoever verifies with the known keys would find
//! the ledger broken.

use super::read::{self, LaneReader, LedgerError, int_cell, malformed_row, tree_size};
use crate::heartbeat::Heartbeat;
use crate::port::{Clock, CommitError, Records};
use chimera_core::ledger::checkpoint::{Checkpoint, CheckpointFault, LaneState, PublicKey, SignedCheckpoint, Signer};
use chimera_core::ledger::merkle::{FANOUT, Frontier, TreeNode, TreeNodeId, leaf_hash};
use chimera_core::ledger::tables::{LEDGER_NODES, ledger_nodes};
use chimera_core::ledger::{ChainHead, Digest32, LedgerFault, LocatedFault, StoredLink};
use chimera_core::limits::{CHECKPOINT_ENTRIES_MAX, CHECKPOINT_LAST_TRIES_MAX, TX_ROWS_MAX};
use chimera_core::record::{Conflict, Insert, InvalidTx, Scope, Tx, Value};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

#[derive(Clone, Debug, PartialEq)]
pub enum CheckpointOutcome {
    /// There are no new entries.
    NothingNew,
    Created(Box<SignedCheckpoint>),
    /// Another node made one at the same time.
    Conflict,
    /// The last checkpoint is signed with this key id, which is neither the signer's nor trusted.
    UnknownKey(String),
}

/// Makes a checkpoint of the entries since the last one.
pub async fn make(
    records: &dyn Records,
    signer: &Signer,
    trusted: &[PublicKey],
    clock: &dyn Clock,
    origin: &str,
) -> Result<CheckpointOutcome, LedgerError> {
    let last = read::last_checkpoint(records).await?;
    if let Some(last) = &last {
        match last.verify(&known_keys(signer, trusted)) {
            Ok(()) => {}
            Err(CheckpointFault::UnknownKey) => return Ok(CheckpointOutcome::UnknownKey(last.key_id.clone())),
            Err(fault) => return Err(LocatedFault::checkpoint(last.checkpoint.seq, fault.into()).into()),
        }
    }
    let heads = read::lanes(records).await?;
    let Some((lanes, nodes)) = extend_lanes(records, last.as_ref(), &heads).await? else {
        return Ok(CheckpointOutcome::NothingNew);
    };
    let checkpoint = Checkpoint {
        origin: origin.to_owned(),
        seq: last.as_ref().map_or(0, |last| last.checkpoint.seq) + 1,
        created_at: clock.now(),
        previous: last.as_ref().map(SignedCheckpoint::digest),
        lanes,
    };
    let made = checkpoint.sign(signer);
    let mut inserts = nodes.iter().map(|(lane, node)| node_row(*lane, node)).collect::<Result<Vec<_>, _>>()?;
    inserts.push(made.insert()?);
    match records.commit(Tx { inserts, ..Tx::default() }).await {
        Ok(_) => Ok(CheckpointOutcome::Created(Box::new(made))),
        Err(CommitError::Conflict(conflict)) => conflict_outcome(&conflict),
        Err(error) => Err(error.into()),
    }
}

/// The signer's key and the trusted ones, deduplicated.
#[must_use]
pub fn known_keys(signer: &Signer, trusted: &[PublicKey]) -> Vec<PublicKey> {
    let own = signer.public_key();
    let others = trusted.iter().filter(|key| **key != own).cloned();
    std::iter::once(own.clone()).chain(others).collect()
}

/// Concurrent attempts conflict on the checkpoint's number, which every store reports before the tree. A stored tree
/// hash without a checkpoint is not a race: it would block every future checkpoint.
fn conflict_outcome(conflict: &Conflict) -> Result<CheckpointOutcome, LedgerError> {
    match conflict {
        Conflict::Exists(key) if key.table == LEDGER_NODES.name => {
            let number = |at: usize| key.values.get(at).and_then(Value::as_int).unwrap_or_default();
            let first = number(2).checked_shl(u32::try_from(number(1)).unwrap_or(u32::MAX)).unwrap_or_default() + 1;
            Err(LocatedFault::lane(number(0), first, LedgerFault::Lane).into())
        }
        _ => Ok(CheckpointOutcome::Conflict),
    }
}

type LaneGrowth = (Vec<LaneState>, Vec<(i64, TreeNode)>);

/// Every lane's new state and the tree hashes to store; `None` when nothing is new.
async fn extend_lanes(
    records: &dyn Records,
    last: Option<&SignedCheckpoint>,
    heads: &[(i64, ChainHead)],
) -> Result<Option<LaneGrowth>, LedgerError> {
    let signed_lanes = last.map_or(&[][..], |last| &last.checkpoint.lanes);
    if let Some(gone) = signed_lanes.iter().find(|state| heads.iter().all(|(lane, _)| *lane != state.lane)) {
        return Err(LocatedFault::lane(gone.lane, 1, LedgerFault::Lane).into());
    }
    let (mut states, mut nodes, mut budget) = (Vec::new(), Vec::new(), CHECKPOINT_ENTRIES_MAX);
    for (lane, head) in heads {
        let before = signed_lanes.iter().find(|state| state.lane == *lane).copied();
        let from = before.map_or(0, |state| state.head.seq);
        if head.seq < from {
            return Err(LocatedFault::lane(*lane, head.seq + 1, LedgerFault::Checkpoint).into());
        }
        let fresh = (head.seq - from).min(budget);
        let room = tree_size(fresh) / FANOUT + u64::from(u64::BITS / 8) < (TX_ROWS_MAX - 1 - nodes.len()) as u64;
        if fresh == 0 || !room {
            states.extend(before);
            continue;
        }
        budget -= fresh;
        states.push(extend(records, *lane, before, from + fresh, &mut nodes).await?);
    }
    Ok((budget < CHECKPOINT_ENTRIES_MAX).then_some((states, nodes)))
}

async fn extend(
    records: &dyn Records,
    lane: i64,
    before: Option<LaneState>,
    upto: i64,
    nodes: &mut Vec<(i64, TreeNode)>,
) -> Result<LaneState, LedgerError> {
    let mut head = before.map_or(ChainHead::EMPTY, |state| state.head);
    let mut known: BTreeMap<TreeNodeId, Digest32> = BTreeMap::new();
    for span in Frontier::required_nodes(tree_size(head.seq)) {
        known.extend(read::nodes(records, lane, span).await?);
    }
    let first = head.seq + 1;
    let mut frontier = Frontier::load(tree_size(head.seq), &|id| known.get(&id).copied())
        .map_err(|_| LocatedFault::lane(lane, first, LedgerFault::Lane))?;
    if before.is_some_and(|state| frontier.root() != state.root) {
        return Err(LocatedFault::lane(lane, first, LedgerFault::Lane).into());
    }
    let mut reader = LaneReader::from(lane, first, Scope::System);
    let mut stored = Vec::new();
    while let Some(row) = reader.next(records, upto).await? {
        let entry = StoredLink::from_row(&row).map_err(|_| malformed_row(&row))?;
        if !entry.continues(head) {
            return Err(LocatedFault { fault: LedgerFault::Link, ..malformed_row(&row) }.into());
        }
        head = entry.link.head();
        frontier.append(leaf_hash(&head.hash.0), &mut stored);
    }
    if head.seq != upto {
        return Err(LocatedFault::lane(lane, head.seq + 1, LedgerFault::Link).into());
    }
    nodes.extend(stored.into_iter().map(|node| (lane, node)));
    Ok(LaneState { lane, head, root: frontier.root() })
}

fn node_row(lane: i64, node: &TreeNode) -> Result<Insert, InvalidTx> {
    Insert::new(
        &LEDGER_NODES,
        vec![
            (ledger_nodes::lane, lane.into()),
            (ledger_nodes::level, Value::Int(i64::from(node.id.level))),
            (ledger_nodes::idx, int_cell(node.id.idx)),
            (ledger_nodes::hash, node.hash.0.to_vec().into()),
        ],
    )
}

/// When checkpoints are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The longest interval, if there are new entries.
    pub seconds: i64,
    /// This many new entries trigger one at once.
    pub entries: i64,
}

impl Schedule {
    /// Whether one is due, if the last was made at `last` and `fresh` entries are new.
    #[must_use]
    pub fn is_due(self, last: Timestamp, now: Timestamp, fresh: i64) -> bool {
        fresh > 0 && (fresh >= self.entries || now >= last.plus_seconds(self.seconds))
    }
}

/// The loop that makes checkpoints.
pub struct Checkpointer {
    pub records: Arc<dyn Records>,
    pub signer: Arc<Signer>,
    /// Other keys that may have signed earlier checkpoints.
    pub trusted: Vec<PublicKey>,
    pub clock: Arc<dyn Clock>,
    /// Identifies the ledger.
    pub origin: String,
    pub pace: Schedule,
    /// The polling interval.
    pub tick: Duration,
    pub pulse: Heartbeat,
}

impl Checkpointer {
    /// Runs until `stop` is true, then makes a last checkpoint, so that a clean stop leaves no entry uncovered.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let (mut last, mut foreign) = (self.clock.steady(), None);
        while !*stop.borrow_and_update() {
            let now = self.clock.steady();
            let fresh = self.uncovered_entries().await;
            if fresh.is_ok() {
                self.pulse.beat(now);
            }
            match fresh {
                // A held store may not be in its latest state.
                _ if self.records.hold().is_some() => {}
                Ok(fresh) if self.pace.is_due(last, now, fresh) => {
                    self.attempt(&mut foreign).await;
                    last = now;
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "checkpoints are delayed: the ledger can't be read"),
            }
            tokio::select! {
                biased;
                changed = stop.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(self.tick) => {}
            }
        }
        // Another node may be making a checkpoint without our last entries.
        for _ in 0..CHECKPOINT_LAST_TRIES_MAX {
            if self.records.hold().is_some() {
                break;
            }
            if !self.attempt(&mut foreign).await {
                break;
            }
        }
    }

    /// The number of entries without a checkpoint.
    async fn uncovered_entries(&self) -> Result<i64, LedgerError> {
        let last = read::last_checkpoint(&*self.records).await?;
        let covered = last.map_or(0, |last| last.checkpoint.lanes.iter().map(|state| state.head.seq).sum());
        let written: i64 = read::lanes(&*self.records).await?.iter().map(|(_, head)| head.seq).sum();
        Ok(written - covered)
    }

    /// Makes a checkpoint if there are new entries; true if another node was faster. `foreign` is the unknown key that
    /// was logged last: each is logged once.
    async fn attempt(&self, foreign: &mut Option<String>) -> bool {
        match make(&*self.records, &self.signer, &self.trusted, &*self.clock, &self.origin).await {
            Ok(CheckpointOutcome::Created(made)) => {
                *foreign = None;
                tracing::debug!(seq = made.checkpoint.seq, "checkpoint made");
            }
            Ok(CheckpointOutcome::Conflict) => return true,
            Ok(CheckpointOutcome::NothingNew) => {}
            Ok(CheckpointOutcome::UnknownKey(key_id)) if foreign.as_ref() == Some(&key_id) => {}
            Ok(CheckpointOutcome::UnknownKey(key_id)) => {
                tracing::error!(
                    critical = true,
                    key_id,
                    "the ledger is signed by an unknown key; no checkpoint is made"
                );
                *foreign = Some(key_id);
            }
            Err(LedgerError::Broken(broken)) => {
                tracing::error!(critical = true, %broken, "the ledger is broken; no checkpoint is made");
            }
            Err(error) => tracing::warn!(%error, "checkpoint not made"),
        }
        false
    }
}
