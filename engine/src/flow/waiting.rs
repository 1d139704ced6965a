//! Finds the approval request that waits at a node, for a decision that names the node.
//!
//! A node of a map has one request per item. A decision that fits several needs the digest of what the person reviewed.

use super::decide::{check_decider, not_decider, not_found};
use super::{Flow, load, review};
use crate::access::Permit;
use crate::error::EngineError;
use chimera_core::access::DeciderRefusal;
use chimera_core::error::Code;
use chimera_core::flow::approval::{Decision, RequestReference, RequestStatus, StoredApproval};
use chimera_core::flow::tables::ApprovalRow;
use chimera_core::json::Digest32;
use chimera_core::ledger::ActorType;
use std::collections::BTreeSet;
use uuid::Uuid;

/// How a decision refers to what waits.
#[derive(Clone, Copy, Debug)]
pub struct NodeReference<'a> {
    pub run: Uuid,
    /// `None`: the run's first request, while it is the only one.
    pub node: Option<&'a str>,
    pub decision: Decision,
    /// The digest of what the person reviewed.
    pub digest: Option<Digest32>,
}

/// A request that the caller may decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingRequest {
    pub approval: Uuid,
    pub step: Option<Uuid>,
    pub node: Option<String>,
}

/// The request that a decision refers to, if the caller may decide it.
pub async fn find_waiting(
    flow: &Flow,
    permit: &Permit,
    reference: &NodeReference<'_>,
) -> Result<WaitingRequest, EngineError> {
    if permit.kind() != ActorType::Human {
        return Err(not_decider(&DeciderRefusal::NotAPerson));
    }
    load::decidable_run(&*flow.inner.parts.records, permit, reference.run).await?;
    let rows = review::requests_of(flow, permit.tenant(), reference.run).await?;
    let all = StoredApproval::of_rows(&rows)?;
    let step = reference.node.map(|node| step_of(node, &rows, reference.digest)).transpose()?;
    let NodeReference { decision, digest, .. } = *reference;
    let found = RequestReference { decision, approval: None, step, digest }.find(&all).map_err(not_found)?;
    check_decider(flow, permit, found)?;
    let node = rows.iter().find(|row| row.approval_request_id == found.id).and_then(|row| row.node_id.clone());
    Ok(WaitingRequest { approval: found.id, step: found.step, node })
}

/// The step of a node that waits.
fn step_of(node: &str, rows: &[ApprovalRow], digest: Option<Digest32>) -> Result<Uuid, EngineError> {
    let of_node = || rows.iter().filter(|row| row.node_id.as_deref() == Some(node));
    if of_node().next().is_none() {
        let message = format!("nothing was asked about a node {node} of this run");
        return Err(EngineError::refused(Code::MalformedArgs, message));
    }
    let reviewed = |row: &&ApprovalRow| digest.is_none_or(|digest| row.action_digest == digest);
    let pending = of_node().filter(|row| row.status == RequestStatus::Pending).filter(reviewed);
    let steps: BTreeSet<Uuid> = pending.filter_map(|row| row.step_id).collect();
    match (steps.first(), steps.len()) {
        (Some(step), 1) => Ok(*step),
        (None, _) if digest.is_some() => {
            Err(EngineError::refused(Code::StaleApproval, format!("no pending approval of {node} has this digest")))
        }
        (None, _) => Err(EngineError::refused(Code::InvalidTransition, format!("no approval is pending at {node}"))),
        (Some(_), several) => {
            let message = format!("{several} items of {node} wait for a decision: send the digest of the one you mean");
            Err(EngineError::refused(Code::InvalidTransition, message))
        }
    }
}
