//! What other rooms may use to show more about a run: the check that the caller may read it, and the store.

use super::{Flow, load};
use crate::access::Permit;
use crate::error::EngineError;
use crate::port::Records;
use uuid::Uuid;

/// Refuses a run that the caller may not read. One of another tenant does not exist.
pub(crate) async fn check(flow: &Flow, permit: &Permit, run: Uuid) -> Result<(), EngineError> {
    load::readable_run(records(flow), permit, run).await.map(drop)
}

pub(crate) fn records(flow: &Flow) -> &dyn Records {
    &*flow.inner.parts.records
}
