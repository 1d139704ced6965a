//! What can be wrong with a ledger, and where.

use super::StoredEntry;
use super::checkpoint::CheckpointFault;
use std::fmt;

/// What is wrong with a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A line or row is not what this format writes.
    #[error("malformed")]
    Malformed,
    /// The content is not what was digested.
    #[error("content does not match its digest")]
    Content,
    /// The hash does not continue the chain: changed, missing, repeated or out of order.
    #[error("does not continue its chain")]
    Link,
    /// The inclusion proof does not lead to the checkpoint.
    #[error("inclusion proof does not lead to the checkpoint")]
    Proof,
    /// A signature is wrong, or by a key that is not trusted.
    #[error("signature is wrong or by an unknown key")]
    Signature,
    /// Entries differ from what a checkpoint covers, or checkpoints don't follow each other.
    #[error("differs from the signed checkpoint")]
    Checkpoint,
    /// The end is missing, or does not match what came before.
    #[error("the end is missing or does not match what came before")]
    End,
    /// What the store keeps about a lane differs from its entries.
    #[error("the lane's head or tree differs from its entries")]
    Lane,
}

/// The first thing that is wrong, as far as it has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The line of an export, from 1.
    pub line: Option<u64>,
    /// The checkpoint's number.
    pub checkpoint: Option<i64>,
    /// The lane.
    pub lane: Option<i64>,
    /// The entry's number in the lane.
    pub seq: Option<i64>,
    /// The entry's id.
    pub id: Option<String>,
    /// What is wrong.
    pub why: Fault,
}

impl Broken {
    /// Something wrong that is not about one entry.
    #[must_use]
    pub const fn ledger(why: Fault) -> Self {
        Self { line: None, checkpoint: None, lane: None, seq: None, id: None, why }
    }

    /// Something wrong with checkpoint number `seq` itself.
    #[must_use]
    pub const fn checkpoint(seq: i64, why: Fault) -> Self {
        Self { line: None, checkpoint: Some(seq), lane: None, seq: None, id: None, why }
    }

    /// Something wrong with a lane at entry `seq`.
    #[must_use]
    pub const fn lane(lane: i64, seq: i64, why: Fault) -> Self {
        Self { line: None, checkpoint: None, lane: Some(lane), seq: Some(seq), id: None, why }
    }

    /// Something wrong with an entry.
    #[must_use]
    pub fn entry(entry: &StoredEntry, why: Fault) -> Self {
        Self { id: Some(entry.sealed.entry.id.clone()), ..Self::lane(entry.lane, entry.link.seq, why) }
    }
}

impl fmt::Display for Broken {
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
        write!(f, "{}", self.why)
    }
}

impl From<CheckpointFault> for Fault {
    fn from(fault: CheckpointFault) -> Self {
        match fault {
            CheckpointFault::Malformed => Self::Malformed,
            CheckpointFault::UnknownKey | CheckpointFault::Signature => Self::Signature,
        }
    }
}
