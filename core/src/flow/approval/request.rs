//! A request and an approval, as the run that asked for them remembers them.

use super::{AskedFor, GivenApproval};
use crate::json::Digest32;
use crate::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

/// The digest of an approval request. It includes the number of earlier requests: content that was changed and
/// changed back is a new request, and a decision about the older one does not cover it.
pub(crate) fn request_digest(content: Digest32, earlier_requests: u32) -> Digest32 {
    match earlier_requests {
        0 => content,
        _ => Digest32::of(&json!({"content": content, "showing": earlier_requests})),
    }
}

/// Whether the run still waits for a decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    Pending,
    /// Withdrawn before a decision. The signal that withdrew it follows, and a new request replaces it.
    Withdrawn,
    /// The decision is on its way as a signal.
    Decided,
}

/// The current approval request of a step, a plan or a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApprovalRequest {
    pub(crate) id: Uuid,
    pub(crate) digest: Digest32,
    /// The number of approval requests of the run before this one.
    pub(crate) earlier_requests: u32,
    pub(crate) expires_at: Timestamp,
    pub(crate) validity: Validity,
    pub(crate) asked_for: AskedFor,
}

impl ApprovalRequest {
    /// Whether it covers this content.
    pub(crate) fn is_about(&self, content: Digest32) -> bool {
        self.digest == request_digest(content, self.earlier_requests)
    }

    pub(crate) const fn is_pending(&self) -> bool {
        matches!(self.validity, Validity::Pending)
    }

    /// When it expires, while it is pending.
    pub(crate) const fn deadline(&self) -> Option<Timestamp> {
        match self.validity {
            Validity::Pending => Some(self.expires_at),
            Validity::Withdrawn | Validity::Decided => None,
        }
    }

    pub(crate) const fn withdraw(&mut self) {
        self.validity = Validity::Withdrawn;
    }
}

/// The approval of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepApproval {
    pub(crate) digest: Digest32,
    /// The number of approval requests of the run before the approved one.
    pub(crate) earlier_requests: u32,
    pub(crate) by: Vec<String>,
    pub(crate) notes: Option<String>,
    pub(crate) asked_for: AskedFor,
}

impl StepApproval {
    pub(crate) fn given(&self) -> GivenApproval<'_> {
        GivenApproval { by: &self.by, asked_for: &self.asked_for }
    }

    /// Whether it covers this content.
    pub(crate) fn is_about(&self, content: Digest32) -> bool {
        self.digest == request_digest(content, self.earlier_requests)
    }
}
