//! Tells people that a run waits for them.
//!
//! The messages ride in the transaction of the request for approval, so nobody is asked without
//! being told and nobody is told of what was never asked. A person's mail carries a link by which
//! they decide; the message alone has the link, and sealed, the store keeps its digest. A webhook gets none: a
//! system is not a person.

use super::node::Inner;
use super::review;
use crate::flow::port::{Recipient, Recipients};
use crate::rows;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chimera_core::access::tables::APPROVAL_LINKS;
use chimera_core::flow::review::Review;
use chimera_core::flow::run::{Head, INBOX, Requested, inbox_row, outbox_row};
use chimera_core::flow::tables::SCOPED_APPROVALS;
use chimera_core::json::Digest32;
use chimera_core::ledger::ActorType;
use chimera_core::limits;
use chimera_core::record::{Insert, Scope, Select, Tx, Unstorable, Value as Cell};
use chimera_core::redact::Redactor;
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The type of a message that asks for a decision.
pub(super) const REQUESTED: &str = "approval.requested";

/// How people are asked.
#[derive(Clone)]
pub struct Asking {
    /// Where this server is reached, without a slash at the end; links begin with it.
    pub base_url: String,
    /// Who is told.
    pub recipients: Arc<dyn Recipients>,
    /// Seals the links in messages that wait to be sent, 32 bytes; without it no message has a link.
    pub seal: Option<Secret>,
}

impl Default for Asking {
    fn default() -> Self {
        Self { base_url: String::new(), recipients: Arc::new(OfRun), seal: None }
    }
}

/// Tells those whom the run itself names.
pub struct OfRun;

#[async_trait]
impl Recipients for OfRun {
    async fn of(&self, head: &Head) -> Vec<Recipient> {
        let Some(notify) = &head.notify else { return Vec::new() };
        let target = |channel: &str| notify.get(channel).and_then(Value::as_str).map(str::to_owned);
        let webhook = target("webhook").map(|target| Recipient { channel: "webhook".to_owned(), target, person: None });
        // Whoever asks gives their own address, or one to which they trust their decisions.
        let person = (head.actor_kind == ActorType::Human).then(|| head.actor.clone());
        let email = target("email").map(|target| Recipient { channel: "email".to_owned(), target, person });
        webhook.into_iter().chain(email).collect()
    }
}

/// The digest under which a link is kept.
pub(super) fn token_digest(token: &str) -> Digest32 {
    Digest32::of_bytes(token.as_bytes())
}

/// Adds the messages about requests to the transaction that makes them.
pub(super) async fn tell(tx: &mut Tx, inner: &Inner, head: &Head, asked: &[Requested]) -> Result<(), Unstorable> {
    if asked.is_empty() {
        return Ok(());
    }
    let asking = &inner.parts.asking;
    let named = asking.recipients.of(head).await;
    let (now, steady) = (inner.parts.clock.now(), inner.parts.clock.steady());
    // What was asked before is only told of; without it people are asked all the same.
    let select = Select::from(&SCOPED_APPROVALS, Scope::Tenant(head.tenant.clone())).with("run_id", head.id);
    let before = rows::all(&*inner.parts.records, select, limits::RUN_ROWS_MAX).await.unwrap_or_default();
    for requested in asked {
        let review = told(review::of_request(head, requested, &before, now));
        for recipient in &reached(with_deciders(&named, inner, head, requested).await, head) {
            let (id, mut link) = (inner.id(), None);
            if let Some(person) = decider(&*asking.recipients, recipient, requested) {
                let token = token(inner);
                let url = format!("{}/approvals/{token}", asking.base_url);
                link = asking.sealed(id, &url, &*inner.parts.random);
                if link.is_some() {
                    tx.inserts.push(link_row(head, requested, person, &token, now)?);
                }
            }
            let mut payload = payload(head, requested, &review, &asking.base_url, link, now);
            name_deciders(&mut payload, &*asking.recipients, recipient, requested);
            tx.inserts.push(asking.message(id, head, Some(requested.approval), recipient, payload, steady)?);
        }
    }
    Ok(())
}

/// Those who are told anyway, and everybody who may decide if whoever asked can't do that alone.
async fn with_deciders(named: &[Recipient], inner: &Inner, head: &Head, requested: &Requested) -> Vec<Recipient> {
    let (demand, requesters) = (&requested.demand, &requested.requesters);
    let recipients = &inner.parts.asking.recipients;
    let same = |one: &str, other: &str| recipients.is_same_person(one, other);
    if demand.is_met(std::slice::from_ref(&head.actor), requesters, &same) {
        return named.to_vec();
    }
    let mut told = recipients.deciders(head).await;
    told.retain(|decider| decider.person.as_deref().is_some_and(|person| demand.allows(person, requesters, &same)));
    told.extend(named.iter().cloned());
    told
}

/// Everybody once; the actor's inbox if there is nobody: what must be told is told to somebody.
pub(super) fn reached(all: Vec<Recipient>, head: &Head) -> Vec<Recipient> {
    let mut recipients = distinct(all);
    if recipients.is_empty() {
        recipients.push(Recipient::inbox(&head.actor));
    }
    recipients
}

/// Everybody once, as many as are told at the most. People who share an address are told each: one may decide
/// where the other may not, and a link is one person's.
fn distinct(all: Vec<Recipient>) -> Vec<Recipient> {
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

/// The person who may decide by the link in a message, if there is one.
fn decider<'a>(all: &dyn Recipients, recipient: &'a Recipient, requested: &Requested) -> Option<&'a str> {
    let person = recipient.person.as_deref().filter(|_| recipient.channel == "email")?;
    let same = |one: &str, other: &str| all.is_same_person(one, other);
    requested.demand.allows(person, &requested.requesters, &same).then_some(person)
}

fn token(inner: &Inner) -> String {
    let mut bytes = [0; 32];
    inner.parts.random.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn link_row(
    head: &Head,
    requested: &Requested,
    person: &str,
    token: &str,
    now: Timestamp,
) -> Result<Insert, Unstorable> {
    Ok(Insert::into(
        &APPROVAL_LINKS,
        vec![
            ("token_digest", Cell::Bytes(token_digest(token).to_vec())),
            ("tenant_id", head.tenant.as_str().into()),
            ("run_id", head.id.into()),
            ("approval_id", requested.approval.into()),
            ("actor", person.into()),
            ("expires_at", requested.expires_at.into()),
            ("created_at", now.into()),
        ],
    )?)
}

impl Asking {
    /// The row of a message about what waits for people. Somebody outside whom nobody registered hears that, and nothing of what it is
    /// about: nobody has let it out.
    pub(super) fn message(
        &self,
        id: Uuid,
        head: &Head,
        approval: Option<Uuid>,
        recipient: &Recipient,
        mut payload: Value,
        now: Timestamp,
    ) -> Result<Insert, Unstorable> {
        if self.recipients.is_outsider(&head.tenant, &head.actor, recipient) {
            withhold(&mut payload);
        }
        match recipient.channel.as_str() {
            INBOX => {
                let told = (payload["type"].as_str().unwrap_or_default(), Some(&payload["data"]));
                inbox_row(id, head, &recipient.target, told, now)
            }
            channel => outbox_row(id, head, approval, (channel, &recipient.target), &payload, now),
        }
    }
}

/// Tells somebody who may not decide so, and who may.
fn name_deciders(payload: &mut Value, all: &dyn Recipients, recipient: &Recipient, requested: &Requested) {
    let same = |one: &str, other: &str| all.is_same_person(one, other);
    let excluded = |person: &str| requested.demand.excludes(person, &requested.requesters, &same);
    if let Some(reason) = recipient.person.as_deref().and_then(excluded) {
        payload["data"]["not_decider"] = reason.as_str().into();
        payload["data"]["decided_by"] = requested.demand.deciders(&requested.requesters).into();
    }
}

fn payload(
    head: &Head,
    requested: &Requested,
    (review, masked): &(Value, bool),
    base_url: &str,
    link: Option<Value>,
    now: Timestamp,
) -> Value {
    let data = &requested.data;
    let (action, action_bytes) = bounded(match requested.action.as_str() {
        "plan" => steps(&data["plan"]["steps"]),
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
            "review": review,
            "masked": masked,
            "reason": data["reason"],
            "approvals_needed": requested.demand.people(),
            "digest": requested.digest,
            "expires_at": requested.expires_at.to_string(),
            "approve_url": format!("{base_url}/runs/{}/approve", head.id),
            "link": link,
        },
    })
}

/// Leaves of a message that a run waits, and nothing of what it would do or did.
fn withhold(payload: &mut Value) {
    let kept = ["run_id", "trace_id", "workflow_id", "approval_id", "step_id", "since", "expires_at", "approve_url"];
    if let Some(data) = payload["data"].as_object_mut() {
        data.retain(|name, _| kept.contains(&name.as_str()));
        data.insert("withheld".to_owned(), true.into());
    }
}

/// What a decision is about, without what looks like a credential, and whether that took anything away; nothing if it
/// is too long for a message.
fn told(review: Review) -> (Value, bool) {
    let whole = serde_json::to_value(review).unwrap_or_default();
    if whole.to_string().len() > limits::MESSAGE_REVIEW_BYTES_MAX {
        return (Value::Null, false);
    }
    let mut review = whole.clone();
    Redactor::default().json(&mut review);
    let masked = review != whole;
    (review, masked)
}

/// What would run, without what looks like a credential; nothing if it is too long for a message.
fn bounded(mut action: Value) -> (Value, usize) {
    let bytes = action.to_string().len();
    if bytes > limits::MESSAGE_ACTION_BYTES_MAX {
        return (Value::Null, bytes);
    }
    Redactor::default().json(&mut action);
    (action, bytes)
}

/// The steps of a plan, without what trying them dry gave.
fn steps(lines: &Value) -> Value {
    let told = ["node", "item", "type", "tool", "status", "would_execute", "input", "deferred"];
    let line = |line: &Value| -> Value {
        let members = told.iter().filter_map(|name| Some(((*name).to_owned(), line.get(*name)?.clone())));
        Value::Object(members.filter(|(_, value)| !value.is_null()).collect())
    };
    lines.as_array().into_iter().flatten().map(line).collect()
}
