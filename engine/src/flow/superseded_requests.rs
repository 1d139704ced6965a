//! Approval requests that another decision or signal closes: superseded or, with their run, cancelled.
//!
//! Whoever changes what a pending request is about closes that request in the same transaction. So of two conflicting
//! acts one fails in the store and its caller is told, and no request is approved that the run can't follow.
//!
//! | act                                            | requests that are closed           |
//! |------------------------------------------------|------------------------------------|
//! | editing a step or a plan                       | the one about it                   |
//! | approving a patch, or removing one             | those about other patches          |
//! | a rejection that stops the run, or cancelling  | all others                         |
//!
//! Signals without a request (the outcome of a call, a rollback, removing a patch) refer to one version of a row
//! and are accepted once: see `send_signal_once`.

use crate::access::Permit;
use crate::error::EngineError;
use chimera_core::flow::approval::{DecisionOutcome, RequestState, RequestStatus, RequestedAction, StoredApproval};
use chimera_core::flow::run::Signal;
use chimera_core::flow::tables::{APPROVAL_REQUESTS, ApprovalRow, approval_requests};
use chimera_core::record::{DamagedRows, Tx, Unstorable, Update};
use chimera_core::time::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// Pending requests, and the status with which each of them is closed.
#[derive(Default)]
pub(super) struct SupersededRequests {
    requests: Vec<(Uuid, RequestStatus)>,
}

impl SupersededRequests {
    /// The pending requests of a run that is cancelled.
    pub(super) fn of_cancelled(rows: &[ApprovalRow]) -> Result<Self, DamagedRows> {
        Self::pending(rows, RequestStatus::Cancelled, |_| true)
    }

    /// The pending requests about other patches, when one is reverted.
    pub(super) fn of_reverted_patch(rows: &[ApprovalRow]) -> Result<Self, DamagedRows> {
        Self::pending(rows, RequestStatus::Superseded, |approval| approval.action == RequestedAction::Patch)
    }

    fn pending(
        rows: &[ApprovalRow],
        status: RequestStatus,
        is_superseded: impl Fn(&StoredApproval) -> bool,
    ) -> Result<Self, DamagedRows> {
        let all = StoredApproval::of_rows(rows)?;
        let superseded =
            all.iter().filter(|approval| approval.state == RequestState::Pending && is_superseded(approval));
        Ok(Self { requests: superseded.map(|approval| (approval.id, status)).collect() })
    }

    /// The requests that a decision closes.
    pub(super) fn of_decision(all: &[StoredApproval], decided: &StoredApproval, outcome: &DecisionOutcome) -> Self {
        let superseded = all.iter().filter_map(|other| Some((other.id, other.superseded_by(decided, outcome)?)));
        Self { requests: superseded.collect() }
    }

    /// Closes them in a transaction, which fails if one of them was decided concurrently, and adds them to the signal.
    pub(super) fn close(
        &self,
        tx: &mut Tx,
        signal: &mut Signal,
        permit: &Permit,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        for (request, status) in &self.requests {
            let set = vec![
                (approval_requests::status, (*status).into()),
                (approval_requests::reviewed_at, now.into()),
                (approval_requests::reviewed_by, permit.actor().into()),
            ];
            let expect = vec![(approval_requests::status, RequestStatus::Pending.into())];
            let update = Update::new(&APPROVAL_REQUESTS, vec![(*request).into()], expect, set);
            tx.updates.push(update.map_err(Unstorable::from)?);
        }
        signal.withdrawn.extend(self.requests.iter().map(|(request, _)| request));
        Ok(())
    }

    /// Adds them to the data of a ledger entry.
    pub(super) fn add_to_entry(&self, data: &mut Value) {
        for status in [RequestStatus::Superseded, RequestStatus::Cancelled] {
            let closed = self.requests.iter().filter(|(_, becomes)| *becomes == status);
            let closed: Vec<String> = closed.map(|(request, _)| request.to_string()).collect();
            if !closed.is_empty() {
                data[status.as_str()] = closed.into();
            }
        }
    }
}
