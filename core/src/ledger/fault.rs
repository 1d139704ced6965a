//! What can be wrong with a ledger, and where.

use super::StoredEntry;
use super::checkpoint::CheckpointFault;
use std::fmt;

/// What is wrong with a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerFault {
    /// A line or row that does not follow the format.
    #[error("malformed")]
    Malformed,
    /// The content does not match its digest.
    #[error("content does not match its digest")]
    Content,
    /// The hash does not continue the chain: an entry was changed, removed, repeated or reordered.
    #[error("does not continue its chain")]
    Link,
    #[error("inclusion proof does not lead to the checkpoint")]
    Proof,
    #[error("signature is wrong or by an unknown key")]
    Signature,
    /// Entries differ from what a checkpoint covers, or checkpoints do not form a chain.
    #[error("differs from the signed checkpoint")]
    Checkpoint,
    #[error("the end is missing or does not match what came before")]
    End,
    /// A lane's head or tree in the store differs from its entries.
    #[error("the lane's head or tree differs from its entries")]
    Lane,
}

/// The first fault, with its location as far as known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedFault {
    /// Line of an export, starting at 1.
    pub line: Option<u64>,
    pub checkpoint: Option<i64>,
    pub lane: Option<i64>,
    pub seq: Option<i64>,
    pub id: Option<String>,
    pub fault: LedgerFault,
}

impl LocatedFault {
    /// A fault that does not concern one entry.
    #[must_use]
    pub const fn ledger(fault: LedgerFault) -> Self {
        Self { line: None, checkpoint: None, lane: None, seq: None, id: None, fault }
    }

    /// A fault of checkpoint `seq` itself.
    #[must_use]
    pub const fn checkpoint(seq: i64, fault: LedgerFault) -> Self {
        Self { line: None, checkpoint: Some(seq), lane: None, seq: None, id: None, fault }
    }

    /// A fault of a lane at entry `seq`.
    #[must_use]
    pub const fn lane(lane: i64, seq: i64, fault: LedgerFault) -> Self {
        Self { line: None, checkpoint: None, lane: Some(lane), seq: Some(seq), id: None, fault }
    }

    #[must_use]
    pub fn entry(entry: &StoredEntry, why: LedgerFault) -> Self {
        Self { id: Some(entry.sealed.entry.id.clone()), ..Self::lane(entry.lane, entry.link.seq, why) }
    }
}

impl fmt::Display for LocatedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}, ")?;
        }
        if let Some(checkpoint) = self.checkpoint {
            write!(f, "checkpoint {checkpoint}, ")?;
        }
        if let Some(lane) = self.lane {
            write!(f, "lane {lane}, ")?;
        }
        if let Some(seq) = self.seq {
            write!(f, "entry {seq}, ")?;
        }
        if let Some(id) = &self.id {
            write!(f, "id {id}, ")?;
        }
        write!(f, "{}", self.fault)
    }
}

impl From<CheckpointFault> for LedgerFault {
    fn from(fault: CheckpointFault) -> Self {
        match fault {
            CheckpointFault::Malformed => Self::Malformed,
            CheckpointFault::UnknownKey | CheckpointFault::Signature => Self::Signature,
        }
    }
}
