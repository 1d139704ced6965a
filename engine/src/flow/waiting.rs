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
    let requests: Vec<NodeRequest<'_>> = rows.iter().map(NodeRequest::of_row).collect();
    let step = reference.node.map(|node| step_of(node, &requests, reference.digest)).transpose()?;
    let NodeReference { decision, digest, .. } = *reference;
    let found = RequestReference { decision, approval: None, step, digest }.find(&all).map_err(not_found)?;
    check_decider(flow, permit, found)?;
    let node = rows.iter().find(|row| row.approval_request_id == found.id).and_then(|row| row.node_id.clone());
    Ok(WaitingRequest { approval: found.id, step: found.step, node })
}

/// What a stored request says of the node it is about.
struct NodeRequest<'a> {
    node: Option<&'a str>,
    step: Option<Uuid>,
    digest: Digest32,
    is_pending: bool,
}

impl<'a> NodeRequest<'a> {
    fn of_row(row: &'a ApprovalRow) -> Self {
        Self {
            node: row.node_id.as_deref(),
            step: row.step_id,
            digest: row.action_digest,
            is_pending: row.status == RequestStatus::Pending,
        }
    }
}

/// The step of a node that waits.
fn step_of(node: &str, requests: &[NodeRequest<'_>], digest: Option<Digest32>) -> Result<Uuid, EngineError> {
    let of_node = || requests.iter().filter(|request| request.node == Some(node));
    if of_node().next().is_none() {
        let message = format!("nothing was asked about a node {node} of this run");
        return Err(EngineError::refused(Code::MalformedArgs, message));
    }
    let is_reviewed = |request: &&NodeRequest<'_>| digest.is_none_or(|digest| request.digest == digest);
    let pending = of_node().filter(|request| request.is_pending).filter(is_reviewed);
    let steps: BTreeSet<Uuid> = pending.filter_map(|request| request.step).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(node: &'static str, step: u128, is_pending: bool) -> NodeRequest<'static> {
        let digest = Digest32::of_bytes(&[u8::try_from(step).unwrap()]);
        NodeRequest { node: Some(node), step: Some(Uuid::from_u128(step)), digest, is_pending }
    }

    /// INTENT-027
    #[test]
    fn a_node_that_fits_several_items_needs_the_digest() {
        let plan = NodeRequest { node: None, step: None, digest: Digest32::ZERO, is_pending: true };
        let all = [
            plan,
            request("each", 1, true),
            request("each", 2, true),
            request("each", 3, false),
            request("done", 4, false),
        ];
        let digest = |step: u8| Some(Digest32::of_bytes(&[step]));
        let code = |node: &str, digest| step_of(node, &all, digest).map_err(|error| error.body().code);
        let refused = |code: Code| Err(code.as_str().to_owned());
        assert_eq!(code("each", None), refused(Code::InvalidTransition));
        assert_eq!(code("each", digest(2)), Ok(Uuid::from_u128(2)));
        assert_eq!(code("each", digest(3)), refused(Code::StaleApproval), "it was decided");
        assert_eq!(code("done", None), refused(Code::InvalidTransition));
        assert_eq!(code("other", None), refused(Code::MalformedArgs));
        assert_eq!(step_of("each", &all[1..2], None).unwrap(), Uuid::from_u128(1));
    }
}
