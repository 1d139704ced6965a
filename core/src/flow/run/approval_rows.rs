//! The rows of approval requests and messages.

use super::RunHead;
use super::close::names_or_null;
use super::turn_builder::TurnBuilder;
use crate::access::Level;
use crate::flow::approval::{
    ASKED_FOR, ApprovalRequest, ApprovalRequirement, RequestStatus, RequestedAction, SHOWING, stored_obligations,
};
use crate::flow::status::NotificationStatus;
use crate::flow::tables::{
    APPROVAL_DETAILS, APPROVAL_REQUESTS, INBOX_MESSAGES, NOTIFICATIONS, approval_details, approval_requests,
    inbox_messages, notifications,
};
use crate::json::Digest32;
use crate::ledger::tables::{RECORD_SCOPES, record_scopes};
use crate::record::{Insert, Json, Unstorable, Value};
use crate::time::Timestamp;
use crate::{id, limits};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

/// A new approval request. The notifications are committed with the turn.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequested {
    pub approval: Uuid,
    /// The step and its node, if the request is about one.
    pub step: Option<(Uuid, String)>,
    /// A tool, `hitl`, `workflow`, `plan` or `graph.patch`.
    pub action: String,
    /// The action, as stored in the request.
    pub data: serde_json::Value,
    /// The digest that a decision must name.
    pub digest: Digest32,
    pub expires_at: Timestamp,
    pub demand: ApprovalRequirement,
    /// The actor of the run, then the other requesters.
    pub requesters: Vec<String>,
}

/// A request that is being made.
pub(crate) struct NewRequest<'a> {
    pub(crate) asked: &'a ApprovalRequest,
    /// The step and its node, if the request is about one.
    pub(crate) step: Option<(Uuid, &'a str)>,
    pub(crate) action: &'a RequestedAction,
    /// The action, as people see it.
    pub(crate) data: serde_json::Value,
    pub(crate) demand: &'a ApprovalRequirement,
    /// The actor of the run, then the other requesters.
    pub(crate) requesters: Vec<String>,
    pub(crate) at: Timestamp,
}

/// Adds the rows of an approval request to the turn.
pub(crate) fn add_request(head: &RunHead, request: NewRequest<'_>, turn: &mut TurnBuilder) -> Result<(), Unstorable> {
    let NewRequest { asked, step, action, mut data, demand, requesters, at } = request;
    let action_type: String = action.as_str().chars().take(limits::APPROVAL_ACTION_CHARS_MAX).collect();
    data["demands"] = demand.to_value();
    data[ASKED_FOR] = stored_obligations(&demand.obligations);
    if asked.earlier_requests > 0 {
        data[SHOWING] = asked.earlier_requests.into();
    }
    turn.insert(Insert::new(
        &APPROVAL_REQUESTS,
        vec![
            (approval_requests::approval_request_id, asked.id.into()),
            (approval_requests::action_type, action_type.into()),
            (approval_requests::action_data, Json::encode(&data)?.into()),
            (approval_requests::requester_agent_id, id::agent(&head.tenant, &head.actor).into()),
            (approval_requests::workflow_type, "run".into()),
            (approval_requests::status, RequestStatus::Pending.as_str().into()),
            (approval_requests::policy_references, Vec::<String>::new().into()),
            (approval_requests::created_at, at.into()),
            (approval_requests::expires_at, asked.expires_at.into()),
        ],
    )?);
    turn.insert(Insert::new(
        &RECORD_SCOPES,
        vec![
            (record_scopes::record_kind, "approval_request".into()),
            (record_scopes::record_id, asked.id.into()),
            (record_scopes::tenant_id, head.tenant.as_str().into()),
            (record_scopes::trace_id, id::trace_id(head.id).into()),
        ],
    )?);
    let approvers = demand.approver_patterns();
    let approvers = if approvers.is_empty() { Value::Null } else { approvers.into() };
    turn.insert(Insert::new(
        &APPROVAL_DETAILS,
        vec![
            (approval_details::approval_request_id, asked.id.into()),
            (approval_details::tenant_id, head.tenant.as_str().into()),
            (approval_details::action_digest, Value::Bytes(asked.digest.to_vec())),
            (approval_details::run_id, head.id.into()),
            (approval_details::step_id, step.map(|(step, _)| step).into()),
            (approval_details::node_id, step.map(|(_, node)| node.to_owned()).into()),
            (approval_details::requester_actor, head.actor.as_str().into()),
            (approval_details::co_requesters, names_or_null(requesters.get(1..).unwrap_or_default())),
            (approval_details::approvals_needed, i64::from(demand.people()).into()),
            (approval_details::approvers, approvers),
            (approval_details::decisions, Json::encode(&json!([]))?.into()),
            (approval_details::state_version, 1.into()),
        ],
    )?);
    // At L3 there are no notifications.
    if head.level != Level::ExecuteSilent {
        turn.requested.push(ApprovalRequested {
            approval: asked.id,
            step: step.map(|(step, node)| (step, node.to_owned())),
            action: action.as_str().to_owned(),
            data,
            digest: asked.digest,
            expires_at: asked.expires_at,
            demand: demand.clone(),
            requesters,
        });
    }
    Ok(())
}

/// A message to send.
pub struct OutboxMessage<'a> {
    pub id: Uuid,
    /// The request that it is about, if it is about one.
    pub approval: Option<Uuid>,
    pub channel: &'a str,
    pub target: &'a str,
    pub at: Timestamp,
}

/// The outbox row of a message to send.
pub fn outbox_row(head: &RunHead, message: &OutboxMessage<'_>, payload: &impl Serialize) -> Result<Insert, Unstorable> {
    let OutboxMessage { id, approval, channel, target, at: now } = *message;
    Ok(Insert::new(
        &NOTIFICATIONS,
        vec![
            (notifications::id, id.into()),
            (notifications::tenant_id, head.tenant.as_str().into()),
            (notifications::run_id, head.id.into()),
            (notifications::channel, channel.into()),
            (notifications::target, target.into()),
            (notifications::payload, Json::encode(payload)?.into()),
            (notifications::status, NotificationStatus::Pending.into()),
            (notifications::next_attempt_at, now.into()),
            (notifications::created_at, now.into()),
            (notifications::state_version, 1.into()),
            (notifications::approval_id, approval.into()),
        ],
    )?)
}

/// The inbox row of a message. Without `data`, the run itself is the data.
pub fn inbox_row(
    id: Uuid,
    head: &RunHead,
    actor: &str,
    (event_type, data): (&str, Option<&serde_json::Value>),
    now: Timestamp,
) -> Result<Insert, Unstorable> {
    Ok(Insert::new(
        &INBOX_MESSAGES,
        vec![
            (inbox_messages::tenant_id, head.tenant.as_str().into()),
            (inbox_messages::actor, actor.into()),
            (inbox_messages::id, id.into()),
            (inbox_messages::run_id, head.id.into()),
            (inbox_messages::event_type, event_type.into()),
            (inbox_messages::data, data.map(Json::encode).transpose()?.into()),
            (inbox_messages::created_at, now.into()),
        ],
    )?)
}

/// The channel of messages that need no sending.
pub const INBOX: &str = "inbox";
