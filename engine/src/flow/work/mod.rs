//! Work for outside: calls of tools that workers execute.
//!
//! A worker claims calls from a queue, renews its lease while it works, and reports the outcome. The item and the signal
//! to the run change in one transaction, so a run hears of an outcome exactly once. A lease token proves the claim; the
//! store has its digest. What becomes of a lease that expires is decided by `sweep`.

mod claim;
mod complete;
mod fail;
mod lease;
mod list;
mod queues;
mod recheck;
mod renew;
mod report;
mod sweep;
mod withdraw;

pub use claim::{ClaimRequest, ClaimedCall, claim};
pub use complete::complete;
pub use fail::{FailureReport, fail};
pub use lease::Lease;
pub use list::{WorkFilter, list};
pub use renew::{RenewedLease, renew};

pub(super) use queues::{WorkQueues, wake_workers};
pub(super) use sweep::expire_leases;
pub(super) use withdraw::withdraw;
