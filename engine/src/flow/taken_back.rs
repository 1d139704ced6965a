//! Requests that what somebody decides makes void.
//!
//! One rule settles everything that people say at the same moment: whoever changes what an open request is about takes
//! that request back in the transaction of their own words. So of two that don't go together one loses in the
//! store and is told, and no approval is answered that the run can't follow.
//!
//! | what is said                                   | requests that are taken back       |
//! |------------------------------------------------|------------------------------------|
//! | an edit of a step or of a plan                 | the one about it                   |
//! | an approval of a patch, or taking one out      | those about other patches          |
//! | a no that stops the run, or cancelling it      | all others                         |
//!
//! What has no request of its own (the outcome of a call, a rollback, taking a patch out) is said about one
//! version of a row, once: see `tell_once`.

use crate::access::Permit;
use crate::error::EngineError;
use chimera_core::flow::run::Signal;
use chimera_core::flow::tables::APPROVAL_REQUESTS;
use chimera_core::record::{Row, Tx, Unstorable, Update};
use chimera_core::time::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// The status of a request in whose place another one is made.
pub(super) const SUPERSEDED: &str = "superseded";

/// The status of a request about what will not happen.
pub(super) const CANCELLED: &str = "cancelled";

/// The action of a request about a patch.
pub(super) const PATCH: &str = "graph.patch";

/// Requests that are taken back.
#[derive(Default)]
pub(super) struct TakenBack {
    requests: Vec<Uuid>,
    status: &'static str,
}

impl TakenBack {
    /// Those of these requests that are open and void.
    pub(super) fn all(rows: &[Row], status: &'static str, is_void: impl Fn(&Row) -> bool) -> Self {
        let open = rows.iter().filter(|row| row.text("status") == "pending" && is_void(row));
        Self { requests: open.map(|row| row.uuid("approval_request_id")).collect(), status }
    }

    /// Takes them back with a transaction, unless somebody has decided about one of them, and tells the run.
    pub(super) fn put(
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
            let update = Update::of(&APPROVAL_REQUESTS, vec![(*request).into()], expect, set);
            tx.updates.push(update.map_err(Unstorable::from)?);
        }
        signal.taken_back.extend(&self.requests);
        Ok(())
    }

    /// Says in an entry of the ledger which they are.
    pub(super) fn note(&self, data: &mut Value) {
        if !self.requests.is_empty() {
            data[self.status] = self.requests.iter().map(Uuid::to_string).collect();
        }
    }
}
