//! Approval notifications.
//!
//! Messages are part of the transaction that creates the approval request, so no request is announced that was not
//! stored. At L3 nobody is notified of a request. Who is notified is looked up before the commit. A person's mail
//! contains a link for deciding. Only the message contains the link, sealed; the store keeps its digest. A webhook gets
//! no link: a system is not a person.

use super::engine::EngineState;
use super::link_seal::LinkSeal;
use super::link_token::{new_link_token, token_digest};
use super::review;
use crate::flow::port::{Recipient, Recipients};
use crate::rows;
use async_trait::async_trait;
use chimera_core::access::DeciderRefusal;
use chimera_core::access::tables::{APPROVAL_LINKS, approval_links};
use chimera_core::flow::review::Review;
use chimera_core::flow::run::{ApprovalRequested, INBOX, OutboxMessage, RunHead, inbox_row, outbox_row};
use chimera_core::flow::tables::{ApprovalRow, scoped_approvals};
use chimera_core::limits;
use chimera_core::record::{Insert, Scope, StoredRow, Tx, Unstorable, Value as Cell};
use chimera_core::redact::Redactor;
use chimera_core::time::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The message type of an approval request.
pub(super) const REQUESTED: &str = "approval.requested";

/// How approvals are requested.
#[derive(Clone)]
pub struct Asking {
    /// This server's URL without a trailing slash; links start with it.
    pub base_url: String,
    pub recipients: Arc<dyn Recipients>,
    /// Seals the links in queued messages.
    pub seal: LinkSeal,
}

impl Default for Asking {
    fn default() -> Self {
        Self { base_url: String::new(), recipients: Arc::new(RunRecipients), seal: LinkSeal::default() }
    }
}

/// The recipients that the run itself names.
pub struct RunRecipients;

#[async_trait]
impl Recipients for RunRecipients {
    async fn of(&self, head: &RunHead) -> Vec<Recipient> {
        let Some(notify) = &head.notify else { return Vec::new() };
        let target = |channel: &str| notify.get(channel).and_then(Value::as_str).map(str::to_owned);
        let webhook = target("webhook").map(|target| Recipient { channel: "webhook".to_owned(), target, person: None });
        // Whose address it is only the registry knows.
        let email = target("email").map(|target| Recipient { channel: "email".to_owned(), target, person: None });
        webhook.into_iter().chain(email).collect()
    }
}

/// Adds the notifications to the transaction that creates the requests.
pub(super) async fn add_approval_messages(
    tx: &mut Tx,
    inner: &EngineState,
    head: &RunHead,
    asked: &[ApprovalRequested],
) -> Result<(), Unstorable> {
    if asked.is_empty() {
        return Ok(());
    }
    let asking = &inner.parts.asking;
    let named = asking.recipients.of(head).await;
    let (now, steady) = (inner.parts.clock.now(), inner.parts.clock.steady());
    // Earlier requests are context only: without them the notification is still sent.
    let select = ApprovalRow::select(Scope::Tenant(head.tenant.clone())).with(scoped_approvals::run_id, head.id);
    let before = rows::list(&*inner.parts.records, select, limits::RUN_ROWS_MAX).await;
    let before: Vec<ApprovalRow> = before.inspect_err(rows::log_skipped).unwrap_or_default();
    for requested in asked {
        let review = MaskedReview::of(review::of_request(head, requested, &before, now));
        let announced = AnnouncedRequest { head, requested, review, base_url: &asking.base_url };
        for recipient in &effective_recipients(with_deciders(&named, inner, head, requested).await, head) {
            let (id, mut link) = (inner.id(), None);
            if let Some(person) = decider(&*asking.recipients, head, recipient, requested) {
                let token = new_link_token(&*inner.parts.random, &recipient.target);
                let url = format!("{}/approvals/{token}", asking.base_url);
                link = asking.seal.seal(id, &url, &*inner.parts.random);
                if link.is_some() {
                    tx.inserts.push(link_row(head, requested, person, &token, now)?);
                }
            }
            let mut payload = announced.payload(link, now);
            if let Some(reason) = excluded(&*asking.recipients, head, recipient, requested) {
                payload["data"]["not_decider"] = reason.as_str().into();
                payload["data"]["decided_by"] = requested.demand.describe_deciders(&requested.requesters).into();
            }
            let message = RunMessage { head, approval: Some(requested.approval), payload, at: steady };
            tx.inserts.push(asking.message(id, recipient, message)?);
        }
    }
    Ok(())
}

/// The named recipients, plus everybody who may decide if the requester can't decide alone.
async fn with_deciders(
    named: &[Recipient],
    inner: &EngineState,
    head: &RunHead,
    requested: &ApprovalRequested,
) -> Vec<Recipient> {
    let (demand, requesters) = (&requested.demand, &requested.requesters);
    let recipients = &inner.parts.asking.recipients;
    let same = |one: &str, other: &str| recipients.is_same_person(one, other);
    if demand.is_met(std::slice::from_ref(&head.actor), requesters, &same) {
        return named.to_vec();
    }
    let mut notified = recipients.deciders(head).await;
    notified.retain(|decider| decider.person.as_deref().is_some_and(|person| demand.allows(person, requesters, &same)));
    notified.extend(named.iter().cloned());
    notified
}

/// Deduplicates. Without recipients the actor's inbox is used, so that somebody is notified.
pub(super) fn effective_recipients(all: Vec<Recipient>, head: &RunHead) -> Vec<Recipient> {
    let mut recipients = deduplicate(all);
    if recipients.is_empty() {
        recipients.push(Recipient::inbox(&head.actor));
    }
    recipients
}

/// Deduplicates and applies the limit. People who share an address are kept apart: one may be allowed to decide where
/// the other is not, and a link belongs to one person.
fn deduplicate(all: Vec<Recipient>) -> Vec<Recipient> {
    let mut recipients: Vec<Recipient> = Vec::new();
    for recipient in all {
        let known = |known: &Recipient| {
            let same = known.channel == recipient.channel && known.target == recipient.target;
            same && (recipient.person.is_none() || known.person == recipient.person)
        };
        if !recipients.iter().any(known) {
            recipients.push(recipient);
        }
    }
    recipients.truncate(limits::MESSAGE_RECIPIENTS_MAX);
    recipients
}

/// The person who may decide with the link in a message, if there is one.
fn decider<'a>(
    all: &dyn Recipients,
    head: &RunHead,
    recipient: &'a Recipient,
    requested: &ApprovalRequested,
) -> Option<&'a str> {
    let person = recipient.person.as_deref().filter(|_| recipient.channel == "email")?;
    excluded(all, head, recipient, requested).is_none().then_some(person)
}

/// Why the recipient may not decide, if it is a person.
fn excluded(
    all: &dyn Recipients,
    head: &RunHead,
    recipient: &Recipient,
    requested: &ApprovalRequested,
) -> Option<DeciderRefusal> {
    let person = recipient.person.as_deref()?;
    let same = |one: &str, other: &str| all.is_same_person(one, other);
    let by_demand = requested.demand.exclusion_reason(person, &requested.requesters, &same);
    by_demand.or_else(|| all.not_decider(&head.tenant, person, &head.actor))
}

fn link_row(
    head: &RunHead,
    requested: &ApprovalRequested,
    person: &str,
    token: &str,
    now: Timestamp,
) -> Result<Insert, Unstorable> {
    Ok(Insert::new(
        &APPROVAL_LINKS,
        vec![
            (approval_links::token_digest, Cell::Bytes(token_digest(token).to_vec())),
            (approval_links::tenant_id, head.tenant.as_str().into()),
            (approval_links::run_id, head.id.into()),
            (approval_links::approval_id, requested.approval.into()),
            (approval_links::actor, person.into()),
            (approval_links::expires_at, requested.expires_at.into()),
            (approval_links::created_at, now.into()),
        ],
    )?)
}

/// A message about a run.
pub(super) struct RunMessage<'a> {
    pub(super) head: &'a RunHead,
    pub(super) approval: Option<Uuid>,
    pub(super) payload: Value,
    pub(super) at: Timestamp,
}

impl Asking {
    /// The row of a notification. An unregistered outsider learns that something waits, but not what.
    pub(super) fn message(
        &self,
        id: Uuid,
        recipient: &Recipient,
        message: RunMessage<'_>,
    ) -> Result<Insert, Unstorable> {
        let RunMessage { head, approval, mut payload, at } = message;
        if self.recipients.is_outsider(&head.tenant, &head.actor, recipient) {
            withhold(&mut payload);
        }
        match recipient.channel.as_str() {
            INBOX => {
                let event = (payload["type"].as_str().unwrap_or_default(), Some(&payload["data"]));
                inbox_row(id, head, &recipient.target, event, at)
            }
            channel => {
                let message = OutboxMessage { id, approval, channel, target: &recipient.target, at };
                outbox_row(head, &message, &payload)
            }
        }
    }
}

/// An approval request, and what its messages say about it.
struct AnnouncedRequest<'a> {
    head: &'a RunHead,
    requested: &'a ApprovalRequested,
    review: MaskedReview,
    base_url: &'a str,
}

impl AnnouncedRequest<'_> {
    fn payload(&self, link: Option<Value>, now: Timestamp) -> Value {
        let Self { head, requested, review, base_url } = self;
        let data = &requested.data;
        let (action, action_bytes) = masked_action(match requested.action.as_str() {
            "plan" => plan_lines(&data["plan"]["steps"]),
            "graph.patch" => data["patch"].clone(),
            "map" => data["calls"].clone(),
            _ => data["input"].clone(),
        });
        json!({
            "type": REQUESTED,
            "timestamp": now.to_string(),
            "data": {
                "run_id": head.id,
                "trace_id": chimera_core::id::trace_id(head.id),
                "workflow_id": head.workflow.id,
                "actor": head.actor,
                "autonomy_level": head.level.as_str(),
                "approval_id": requested.approval,
                "step_id": requested.step.as_ref().map(|(step, _)| step),
                "node_id": requested.step.as_ref().map(|(_, node)| node),
                "tool": requested.action,
                "input": action,
                "input_bytes": action_bytes,
                "review": review.document,
                "masked": review.is_masked,
                "reason": data["reason"],
                "approvals_needed": requested.demand.people(),
                "digest": requested.digest,
                "expires_at": requested.expires_at.to_string(),
                "approve_url": format!("{base_url}/runs/{}/approve", head.id),
                "link": link,
            },
        })
    }
}

/// Reduces a message to the fact that a run waits.
pub(super) fn withhold(payload: &mut Value) {
    let kept = ["run_id", "trace_id", "workflow_id", "approval_id", "step_id", "since", "expires_at", "approve_url"];
    if let Some(data) = payload["data"].as_object_mut() {
        data.retain(|name, _| kept.contains(&name.as_str()));
        data.insert("withheld".to_owned(), true.into());
    }
}

/// A review with credentials masked; null if it is too long for a message.
struct MaskedReview {
    document: Value,
    /// Whether anything was masked.
    is_masked: bool,
}

impl MaskedReview {
    fn of(review: Review) -> Self {
        let whole = serde_json::to_value(review).unwrap_or_default();
        if whole.to_string().len() > limits::MESSAGE_REVIEW_BYTES_MAX {
            return Self { document: Value::Null, is_masked: false };
        }
        let mut document = whole.clone();
        Redactor::default().json(&mut document);
        let is_masked = document != whole;
        Self { document, is_masked }
    }
}

/// The action with credentials masked; null if it is too long for a message.
fn masked_action(mut action: Value) -> (Value, usize) {
    let bytes = action.to_string().len();
    if bytes > limits::MESSAGE_ACTION_BYTES_MAX {
        return (Value::Null, bytes);
    }
    Redactor::default().json(&mut action);
    (action, bytes)
}

/// The steps of a plan without their dry-run results.
fn plan_lines(lines: &Value) -> Value {
    let shown = ["node", "item", "type", "tool", "status", "would_execute", "input", "deferred"];
    let line = |line: &Value| -> Value {
        let members = shown.iter().filter_map(|name| Some(((*name).to_owned(), line.get(*name)?.clone())));
        Value::Object(members.filter(|(_, value)| !value.is_null()).collect())
    };
    lines.as_array().into_iter().flatten().map(line).collect()
}
