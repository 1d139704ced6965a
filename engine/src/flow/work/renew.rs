//! Renewing a lease. The answer says whether the run still wants the outcome.

use super::lease::{Lease, lease_end, lease_lost, leased_item, unchanged};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::Flow;
use crate::port::CommitError;
use chimera_core::error::Code;
use chimera_core::flow::run::affinity;
use chimera_core::flow::tables::{WORK_ITEMS, work_items};
use chimera_core::flow::work::WorkState;
use chimera_core::limits;
use chimera_core::record::{Tx, Update};
use chimera_core::time::Timestamp;

/// A lease that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewedLease {
    pub lease_until: Timestamp,
    /// The run was stopped: the worker should stop as well and report how far it came.
    pub cancelled: bool,
}

/// Renews a lease. One that has expired is renewed, too, if nobody has claimed the call since.
pub async fn renew(flow: &Flow, permit: &Permit, lease: &Lease) -> Result<RenewedLease, EngineError> {
    for _ in 0..limits::DECIDE_TRIES_MAX {
        let item = leased_item(flow, permit, lease).await?;
        let now = flow.inner.parts.clock.steady();
        if !item.state.is_open() || item.deadline <= now {
            return Err(lease_lost(&item, "the run no longer waits for this call; stop working on it"));
        }
        let lease_until = lease_end(&item, now);
        let set = vec![(work_items::state, WorkState::Claimed.into()), (work_items::lease_until, lease_until.into())];
        let update = Update::new(&WORK_ITEMS, vec![item.id.into()], unchanged(&item), set)?;
        let mut tx = Tx { updates: vec![update], affinity: affinity(item.run_id), ..Tx::default() };
        permit.add_alongside(&mut tx);
        match flow.inner.parts.records.commit(tx).await {
            Ok(_) => return Ok(RenewedLease { lease_until, cancelled: item.cancel_requested }),
            Err(error @ CommitError::Conflict(_)) if !permit.is_alongside_conflict(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(EngineError::refused(Code::OccConflict, "the call was changed concurrently; renew the lease again"))
}
