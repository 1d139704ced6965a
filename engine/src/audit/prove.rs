//! Inclusion proofs from stored tree hashes.
//!
//! Proofs of neighbouring entries need nearly the same hashes. So blocks of hashes are kept from one proof to the next
//! and dropped when a proof didn't use them: memory stays bounded and a lane is read about once.

use crate::ledger::read::{self, LedgerError, malformed_row, tree_size};
use crate::port::Records;
use chimera_core::audit::{proof, verify_entry};
use chimera_core::ledger::checkpoint::{PublicKey, SignedCheckpoint};
use chimera_core::ledger::merkle::{FANOUT, NodeRange, TreeNodeId};
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, audit_log_entries};
use chimera_core::ledger::{Digest32, LedgerFault, StoredEntry};
use chimera_core::record::{Scope, Select};
use std::collections::BTreeMap;

/// Proof that an entry is in the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct InclusionProof {
    pub entry: StoredEntry,
    /// Its root of the entry's lane is where the path ends.
    pub checkpoint: SignedCheckpoint,
    /// The sibling hashes from the entry to the root.
    pub path: Vec<Digest32>,
}

impl InclusionProof {
    /// Verifies the proof offline, trusting these keys.
    pub fn verify(&self, keys: &[PublicKey]) -> Result<(), LedgerFault> {
        self.checkpoint.verify(keys)?;
        verify_entry(&self.entry, &self.path, &self.checkpoint.checkpoint)
    }
}

/// The proof of entry `seq` of `lane` under the newest checkpoint; `None` if `scope` has no such entry.
pub async fn prove(
    records: &dyn Records,
    scope: Scope,
    lane: i64,
    seq: i64,
) -> Result<Option<InclusionProof>, LedgerError> {
    let select = Select::from(&AUDIT_LOG_ENTRIES, scope);
    let select = select.with(audit_log_entries::lane, lane).with(audit_log_entries::seq, seq).take(1);
    let page = records.read(select).await?;
    let Some(row) = page.rows.first() else { return Ok(None) };
    let entry = StoredEntry::from_row(row).map_err(|_| malformed_row(row))?;
    let checkpoint = read::last_checkpoint(records).await?.ok_or(LedgerError::NoCheckpoint)?;
    let covered = checkpoint.checkpoint.lane(lane).map_or(0, |state| state.head.seq);
    if seq > covered {
        return Err(LedgerError::NoCheckpoint);
    }
    let path = TreeReader::of(lane, tree_size(covered)).inclusion(records, tree_size(seq - 1)).await?;
    Ok(Some(InclusionProof { entry, checkpoint, path }))
}

/// Builds proofs for one lane at one tree size.
pub(crate) struct TreeReader {
    lane: i64,
    size: u64,
    blocks: BTreeMap<TreeNodeId, BTreeMap<TreeNodeId, Digest32>>,
}

impl TreeReader {
    pub(crate) const fn of(lane: i64, size: u64) -> Self {
        Self { lane, size, blocks: BTreeMap::new() }
    }

    /// The inclusion proof of leaf `index`.
    pub(crate) async fn inclusion(&mut self, records: &dyn Records, index: u64) -> Result<Vec<Digest32>, LedgerError> {
        let mut used = BTreeMap::new();
        for NodeRange { level, from, to } in proof::inclusion_spans(index, self.size) {
            for idx in from / FANOUT..=(to - 1) / FANOUT {
                let block = TreeNodeId { level, idx };
                if used.contains_key(&block) {
                    continue;
                }
                let hashes = match self.blocks.remove(&block) {
                    Some(hashes) => hashes,
                    None => {
                        let last = self.size >> level;
                        let span = NodeRange { level, from: idx * FANOUT, to: last.min((idx + 1) * FANOUT) };
                        read::nodes(records, self.lane, span).await?.into_iter().collect()
                    }
                };
                used.insert(block, hashes);
            }
        }
        self.blocks = used;
        let node = |id: TreeNodeId| self.blocks.get(&TreeNodeId { idx: id.idx / FANOUT, ..id })?.get(&id).copied();
        Ok(proof::inclusion(index, self.size, &node)?)
    }
}
