//! Approval requests that become void with another decision or signal.
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
use chimera_core::flow::run::Signal;
use chimera_core::flow::tables::APPROVAL_REQUESTS;
use chimera_core::record::{Row, Tx, Unstorable, Update};
use chimera_core::time::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// Replaced by another request.
pub(super) const SUPERSEDED: &str = "superseded";

/// What it was about will not happen.
pub(super) const CANCELLED: &str = "cancelled";

/// The action type of a patch request.
pub(super) const PATCH: &str = "graph.patch";

/// Pending requests that become void.
#[derive(Default)]
pub(super) struct VoidRequests {
    requests: Vec<Uuid>,
    status: &'static str,
}

impl VoidRequests {
    /// The pending requests among `rows` that are void.
    pub(super) fn pending_in(rows: &[Row], status: &'static str, is_void: impl Fn(&Row) -> bool) -> Self {
        let open = rows.iter().filter(|row| row.text("status") == "pending" && is_void(row));
        Self { requests: open.map(|row| row.uuid("approval_request_id")).collect(), status }
    }

    /// Closes them in a transaction, which fails if one of them was decided concurrently, and adds them to the signal.
    pub(super) fn close(
        &self,
        tx: &mut Tx,
        signal: &mut Signal,
        permit: &Permit,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        for request in &self.requests {
            let set = vec![
                ("status", self.status.into()),
                ("reviewed_at", now.into()),
                ("reviewed_by", permit.actor().into()),
            ];
            let expect = vec![("status", "pending".into())];
            let update = Update::new(&APPROVAL_REQUESTS, vec![(*request).into()], expect, set);
            tx.updates.push(update.map_err(Unstorable::from)?);
        }
        signal.withdrawn.extend(&self.requests);
        Ok(())
    }

    /// Adds them to the data of a ledger entry.
    pub(super) fn add_to_entry(&self, data: &mut Value) {
        if !self.requests.is_empty() {
            data[self.status] = self.requests.iter().map(Uuid::to_string).collect();
        }
    }
}
