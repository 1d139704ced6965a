//! Finds the request that a decision refers to.
//!
//! A decision is bound to a digest of exactly what would run. Without a digest or a step it is accepted only while the
//! run's first request is pending, so that a second click on the same button can't approve the next step. With a step
//! alone it is accepted only while the first request for that step is pending.

use super::{Decision, RequestState, StoredApproval};
use crate::json::Digest32;
use uuid::Uuid;

/// How a person refers to a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestReference {
    pub decision: Decision,
    pub approval: Option<Uuid>,
    pub step: Option<Uuid>,
    /// The digest of what the person reviewed.
    pub digest: Option<Digest32>,
}

/// Why a reference names no request that can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindRefusal {
    #[error("this run has no approval request with this id")]
    Unknown,
    #[error("no pending approval has this digest; fetch the run for the current digest")]
    StaleDigest,
    #[error("the step changed since its approval was first requested: fetch the run and send its current digest")]
    StaleStep,
    #[error("the approval does not belong to this step")]
    OtherStep,
    #[error("no approval is pending here")]
    NonePending,
    #[error("this is not the first approval of the run: send the step or the digest")]
    NotFirst,
    #[error("several approvals are pending: send the step or the digest")]
    Several,
}

impl RequestReference {
    /// The request among those of the run.
    pub fn find<'a>(&self, all: &'a [StoredApproval]) -> Result<&'a StoredApproval, FindRefusal> {
        let of_step = |approval: &StoredApproval| self.step.is_none_or(|step| approval.step == Some(step));
        if let Some(id) = self.approval {
            let found = all.iter().find(|approval| approval.id == id).ok_or(FindRefusal::Unknown)?;
            return match self.digest {
                _ if !of_step(found) => Err(FindRefusal::OtherStep),
                Some(digest) if digest != found.digest => Err(FindRefusal::StaleDigest),
                _ => Ok(found),
            };
        }
        let fitting = || all.iter().filter(|approval| of_step(approval));
        let mut pending = fitting().filter(|approval| approval.state == RequestState::Pending);
        if let Some(digest) = self.digest {
            let reviewed = |approval: &&StoredApproval| approval.digest == digest;
            return pending.find(reviewed).or_else(|| fitting().find(reviewed)).ok_or(FindRefusal::StaleDigest);
        }
        let (first, more) = (pending.next(), pending.next().is_some());
        match first {
            // A caller who names only the step has seen its first version.
            Some(_) if self.decision == Decision::Approve && self.step.is_some() && fitting().nth(1).is_some() => {
                Err(FindRefusal::StaleStep)
            }
            None => Err(FindRefusal::NonePending),
            Some(_) if more => Err(FindRefusal::Several),
            Some(only) if self.step.is_some() || all.len() == 1 => Ok(only),
            Some(_) => Err(FindRefusal::NotFirst),
        }
    }
}
