//! Leases: what a worker shows to prove its claim, and the checks that all its requests share.

use crate::access::{Permit, WORK_CLAIM, missing_scope_error};
use crate::error::EngineError;
use crate::flow::Flow;
use crate::port::Random;
use crate::rows;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::tables::{WorkItemRow, work_items};
use chimera_core::flow::work::WorkState;
use chimera_core::json::Digest32;
use chimera_core::ledger::ActorType;
use chimera_core::record::{Scope, StoredRow, Value as Cell};
use chimera_core::time::Timestamp;
use uuid::Uuid;

/// The claim of a worker on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub item: Uuid,
    /// As returned by the claim.
    pub token: String,
}

/// A new lease token.
pub(super) fn new_token(random: &dyn Random) -> String {
    let mut secret = [0; 32];
    random.fill(&mut secret);
    URL_SAFE_NO_PAD.encode(secret)
}

/// The lease token of an item that a claim with an id gets. A repeated claim gets the same one.
pub(super) fn derived_token(claim_id: &str, item: Uuid) -> String {
    let secret = Digest32::of_bytes(format!("lease\0{claim_id}\0{item}").as_bytes());
    URL_SAFE_NO_PAD.encode(secret.0)
}

/// The digest that identifies a claim with an id in the store.
pub(super) fn claim_digest(actor: &str, queue: &str, claim_id: &str) -> Digest32 {
    Digest32::of_bytes(format!("claim\0{actor}\0{queue}\0{claim_id}").as_bytes())
}

/// The digest that identifies a token in the store.
pub(super) fn token_digest(token: &str) -> Digest32 {
    Digest32::of_bytes(token.as_bytes())
}

/// Refuses a caller who may not work for a queue.
pub(super) fn check_worker(permit: &Permit, queue: &str) -> Result<(), EngineError> {
    let scope = format!("{WORK_CLAIM}.{queue}");
    if !permit.may(&scope) {
        return Err(missing_scope_error(&scope).into());
    }
    // What a worker reports becomes the input of later steps, which the same person could approve.
    if permit.kind() == ActorType::Human {
        return Err(EngineError::refused(
            Code::RbacForbidden,
            "a person can't execute calls of a queue; register the worker as an actor of its own that is not a person",
        ));
    }
    Ok(())
}

/// The item of a lease, if its token is that of the last claim.
pub(super) async fn leased_item(flow: &Flow, permit: &Permit, lease: &Lease) -> Result<WorkItemRow, EngineError> {
    let select = WorkItemRow::select(Scope::Tenant(permit.tenant().to_owned())).with(work_items::id, lease.item);
    let item: Option<WorkItemRow> = rows::find(&*flow.inner.parts.records, select).await?;
    let item = item.ok_or_else(|| EngineError::unknown("work item", lease.item))?;
    check_worker(permit, &item.queue)?;
    let is_holder = item.claimed_by.as_deref() == Some(permit.actor());
    if !is_holder || item.lease_digest != Some(token_digest(&lease.token)) {
        return Err(lease_lost(&item, "the lease token is not that of the last claim; stop working on this call"));
    }
    Ok(item)
}

/// The refusal of a worker that no longer holds its call.
pub(super) fn lease_lost(item: &WorkItemRow, message: &str) -> EngineError {
    let body = ErrorBody::new(Code::LeaseLost, message).with("item_id", item.id.to_string());
    EngineError::Refused(Box::new(body.with("state", item.state.as_str())))
}

/// What a change of an item compares: nobody claimed it or reported an outcome since it was read.
pub(super) fn unchanged(item: &WorkItemRow) -> Vec<(&'static str, Cell)> {
    still(item.state, item.claims)
}

/// The same for an item that was not read completely.
pub(super) fn still(state: WorkState, claims: u32) -> Vec<(&'static str, Cell)> {
    vec![(work_items::state, state.into()), (work_items::claims, i64::from(claims).into())]
}

/// When a lease that begins now ends.
pub(super) fn lease_end(item: &WorkItemRow, now: Timestamp) -> Timestamp {
    now.plus_seconds(i64::from(item.lease_seconds)).min(item.deadline)
}
