//! The approval requests of a run: how many there were, and when the newest was made.
//!
//! Each request is dated later than the previous one, even if the clock was set back: the date tells which of them is
//! current. Its digest includes the number of earlier requests. The state of a pending request is part of what waits
//! for it: a step, the plan or a patch.

use super::env::Env;
use crate::flow::approval::{ApprovalRequest, ApprovalRequirement, AskedFor, StoredApproval, Validity, request_digest};
use crate::json::Digest32;
use crate::limits;
use crate::time::Timestamp;

/// The approval requests of a run so far.
pub(crate) struct Approvals {
    requested: u32,
    /// The time of the newest request.
    last_at: Timestamp,
}

impl Approvals {
    pub(crate) const fn none() -> Self {
        Self { requested: 0, last_at: Timestamp::from_micros(0) }
    }

    pub(crate) fn load(stored: &[StoredApproval]) -> Self {
        let last_at = stored.iter().map(|approval| approval.created_at).max();
        Self {
            requested: u32::try_from(stored.len()).unwrap_or(u32::MAX),
            last_at: last_at.unwrap_or(Timestamp::from_micros(0)),
        }
    }

    /// Whether the run may not request any more.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.requested >= limits::RUN_APPROVALS_MAX
    }

    /// The time of the newest request.
    pub(crate) const fn last_at(&self) -> Timestamp {
        self.last_at
    }

    /// The digest of the next request for this content.
    pub(crate) fn next_digest(&self, content: Digest32) -> Digest32 {
        request_digest(content, self.requested)
    }

    /// The next request, for this digest.
    pub(crate) fn next(
        &mut self,
        digest: Digest32,
        demand: &ApprovalRequirement,
        env: &mut Env<'_>,
    ) -> ApprovalRequest {
        let earlier_requests = self.requested;
        self.requested += 1;
        self.last_at = env.now.max(Timestamp::from_micros(self.last_at.micros().saturating_add(1)));
        let seconds =
            demand.expires_seconds.unwrap_or(limits::APPROVAL_SECONDS_DEFAULT).min(limits::APPROVAL_SECONDS_MAX);
        let expires_at = env.now.plus_seconds(i64::from(seconds));
        let asked_for = AskedFor::Recorded(demand.obligations.clone());
        ApprovalRequest {
            id: (env.ids)(),
            digest,
            earlier_requests,
            expires_at,
            validity: Validity::Pending,
            asked_for,
        }
    }
}
