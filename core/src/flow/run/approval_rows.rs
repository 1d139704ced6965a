//! The rows of approval requests and messages.

use super::close::names_or_null;
use super::env::Env;
use super::event::Effect;
use super::turn_builder::TurnBuilder;
use super::{RunHead, RunStatus};
use crate::access::Level;
use crate::error::ErrorBody;
use crate::flow::approval::{ApprovalRequest, ApprovalRequirement, RequestStatus, RequestedAction, SHOWING};
use crate::flow::tables::{APPROVAL_DETAILS, APPROVAL_REQUESTS, INBOX_MESSAGES, NOTIFICATIONS};
use crate::json::Digest32;
use crate::ledger::tables::RECORD_SCOPES;
use crate::record::{Insert, Json, Unstorable, Update, Value};
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

impl TurnBuilder {
    /// Adds an approval request and its details.
    #[expect(clippy::too_many_arguments, reason = "the columns of two rows")]
    pub(crate) fn add_approval_request(
        &mut self,
        head: &RunHead,
        asked: &ApprovalRequest,
        step: Option<(Uuid, &str)>,
        action: &RequestedAction,
        data: serde_json::Value,
        demand: &ApprovalRequirement,
        requesters: Vec<String>,
        now: Timestamp,
    ) -> Result<(), Unstorable> {
        let action_type: String = action.as_str().chars().take(limits::APPROVAL_ACTION_CHARS_MAX).collect();
        let mut data = data;
        data["demands"] = demand.to_value();
        if asked.earlier_requests > 0 {
            data[SHOWING] = asked.earlier_requests.into();
        }
        self.insert(Insert::new(
            &APPROVAL_REQUESTS,
            vec![
                ("approval_request_id", asked.id.into()),
                ("action_type", action_type.into()),
                ("action_data", Json::encode(&data)?.into()),
                ("requester_agent_id", id::agent(&head.tenant, &head.actor).into()),
                ("workflow_type", "run".into()),
                ("status", RequestStatus::Pending.as_str().into()),
                ("policy_references", Vec::<String>::new().into()),
                ("created_at", now.into()),
                ("expires_at", asked.expires_at.into()),
            ],
        )?);
        self.insert(Insert::new(
            &RECORD_SCOPES,
            vec![
                ("record_kind", "approval_request".into()),
                ("record_id", asked.id.into()),
                ("tenant_id", head.tenant.as_str().into()),
                ("trace_id", id::trace_id(head.id).into()),
            ],
        )?);
        let approvers = demand.approver_patterns();
        let approvers = if approvers.is_empty() { Value::Null } else { approvers.into() };
        self.insert(Insert::new(
            &APPROVAL_DETAILS,
            vec![
                ("approval_request_id", asked.id.into()),
                ("tenant_id", head.tenant.as_str().into()),
                ("action_digest", Value::Bytes(asked.digest.to_vec())),
                ("run_id", head.id.into()),
                ("step_id", step.map(|(step, _)| step).into()),
                ("node_id", step.map(|(_, node)| node.to_owned()).into()),
                ("requester_actor", head.actor.as_str().into()),
                ("co_requesters", names_or_null(requesters.get(1..).unwrap_or_default())),
                ("approvals_needed", i64::from(demand.people()).into()),
                ("approvers", approvers),
                ("decisions", Json::encode(&json!([]))?.into()),
                ("state_version", 1.into()),
            ],
        )?);
        // At L3 there are no notifications.
        if head.level != Level::ExecuteSilent {
            self.requested.push(ApprovalRequested {
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

    /// Closes a pending request without a decision.
    pub(crate) fn close_approval_request(
        &mut self,
        asked: &ApprovalRequest,
        status: RequestStatus,
        now: Timestamp,
    ) -> Result<(), Unstorable> {
        if !asked.is_pending() {
            return Ok(());
        }
        let set = vec![("status", status.as_str().into()), ("reviewed_at", now.into())];
        let expect = vec![("status", RequestStatus::Pending.as_str().into())];
        self.update(Update::new(&APPROVAL_REQUESTS, vec![asked.id.into()], expect, set)?);
        Ok(())
    }

    /// Adds the notifications that the run has ended. Without a recipient, it goes to the actor's inbox.
    pub(crate) fn notify(
        &mut self,
        head: &RunHead,
        status: RunStatus,
        result: Option<&serde_json::Value>,
        failure: Option<&ErrorBody>,
        env: &mut Env<'_>,
    ) -> Result<(), Unstorable> {
        let named = |channel: &'static str| {
            let target = head.notify.as_ref()?.get(channel)?.as_str()?;
            Some((channel, target))
        };
        let told: Vec<(&str, &str)> = ["webhook", "email"].into_iter().filter_map(named).collect();
        let event_type = format!("run.{}", status.as_str());
        if told.is_empty() {
            self.insert(inbox_row((env.ids)(), head, &head.actor, (&event_type, None), env.now)?);
            return Ok(());
        }
        let payload = RunEndedMessage {
            data: RunEndedData {
                actor: &head.actor,
                error: failure,
                result,
                run_id: head.id,
                status: status.as_str(),
                trace_id: id::trace_id(head.id),
                workflow_id: &head.workflow.id,
            },
            timestamp: env.now.to_string(),
            event_type,
        };
        for (channel, target) in told {
            let row = outbox_row((env.ids)(), head, None, (channel, target), &payload, env.now)?;
            self.insert(row);
            self.effects.push(Effect::Notify);
        }
        Ok(())
    }
}

/// The message that a run has ended.
#[derive(Serialize)]
struct RunEndedMessage<'a> {
    data: RunEndedData<'a>,
    timestamp: String,
    #[serde(rename = "type")]
    event_type: String,
}

#[derive(Serialize)]
struct RunEndedData<'a> {
    actor: &'a str,
    error: Option<&'a ErrorBody>,
    result: Option<&'a serde_json::Value>,
    run_id: Uuid,
    status: &'static str,
    trace_id: String,
    workflow_id: &'a str,
}

/// The outbox row of a message to send.
pub fn outbox_row(
    id: Uuid,
    head: &RunHead,
    approval: Option<Uuid>,
    (channel, target): (&str, &str),
    payload: &impl Serialize,
    now: Timestamp,
) -> Result<Insert, Unstorable> {
    Ok(Insert::new(
        &NOTIFICATIONS,
        vec![
            ("id", id.into()),
            ("tenant_id", head.tenant.as_str().into()),
            ("run_id", head.id.into()),
            ("channel", channel.into()),
            ("target", target.into()),
            ("payload", Json::encode(payload)?.into()),
            ("status", "pending".into()),
            ("next_attempt_at", now.into()),
            ("created_at", now.into()),
            ("state_version", 1.into()),
            ("approval_id", approval.into()),
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
            ("tenant_id", head.tenant.as_str().into()),
            ("actor", actor.into()),
            ("id", id.into()),
            ("run_id", head.id.into()),
            ("event_type", event_type.into()),
            ("data", data.map(Json::encode).transpose()?.into()),
            ("created_at", now.into()),
        ],
    )?)
}

/// The channel of messages that need no sending.
pub const INBOX: &str = "inbox";
