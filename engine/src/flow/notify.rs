//! Delivers queued notifications, until they are delivered or given up.
//!
//! A message is a row that was committed with the end of the run or with the request it is about. A sender claims it by
//! moving its next attempt into the future, so that two processes don't send it at the same time; if the process dies,
//! the next attempt follows then. Every attempt is stored with the message.

use super::approval_messages::{REQUESTED, withhold};
use super::deliveries::Deliveries;
use super::doubt::OUTCOME_UNKNOWN;
use super::engine::Shutdown;
use super::{Flow, notify_check};
use crate::error::EngineError;
use crate::flow::port::{DeliveryReceipt, Message, Recipient, ToolError};
use crate::ledger::audit::{EventRecord, Writer};
use crate::port::CommitError;
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::status::{NotificationStatus, RequestStatus};
use chimera_core::flow::tables::{
    NOTIFICATIONS, NotificationRow, RequestBrief, RunBrief, StepBrief, notifications, runs, scoped_approvals, steps,
};
use chimera_core::limits;
use chimera_core::record::{Comparison, Json, Scope, StoredRow, Tx, Unstorable, Update, Value};
use chimera_core::time::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Delivers messages until the engine stops.
pub async fn run_delivery(flow: &Flow) {
    let mut stopping = flow.inner.stopping();
    let mut outbox = Deliveries::default();
    'open: loop {
        if let Err(error) = start_due(flow, &mut outbox, &mut BTreeSet::new()).await {
            tracing::warn!(error = %error, "queued messages could not be read");
        }
        let look = tokio::time::sleep(limits::OUTBOX_POLL_INTERVAL);
        tokio::pin!(look);
        loop {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop != Shutdown::Running) => break 'open,
                Some(ended) = outbox.next_ended() => match ended {
                    Ok(()) => break,
                    // Retried at the next poll, not at once.
                    Err(error) => tracing::warn!(error = %error, "a message could not be attempted"),
                },
                () = flow.inner.messages.notified() => break,
                () = &mut look => break,
            }
        }
    }
    finish(flow, outbox).await;
}

/// The public keys for verifying message signatures, the current one first.
pub async fn webhook_keys(flow: &Flow) -> Vec<String> {
    flow.inner.parts.notifier.public_keys().await
}

/// Attempts every due message once.
pub async fn deliver_due(flow: &Flow) -> Result<(), EngineError> {
    let (mut outbox, mut tried) = (Deliveries::default(), BTreeSet::new());
    loop {
        start_due(flow, &mut outbox, &mut tried).await?;
        match outbox.next_ended().await {
            None => return Ok(()),
            Some(Ok(())) => {}
            Some(Err(error)) => {
                // The other deliveries in flight are still recorded.
                finish(flow, outbox).await;
                return Err(error);
            }
        }
    }
}

/// Starts to send what is due, was not attempted yet, and fits the limits.
async fn start_due<'a>(
    flow: &'a Flow,
    outbox: &mut Deliveries<'a>,
    tried: &mut BTreeSet<Uuid>,
) -> Result<(), EngineError> {
    if flow.inner.parts.records.hold().is_some() {
        return Ok(());
    }
    let now = flow.inner.parts.clock.steady();
    while !outbox.is_full() {
        let select = NotificationRow::select(Scope::System)
            .with(notifications::status, NotificationStatus::Pending)
            .filter(notifications::next_attempt_at, Comparison::AtMost, now)
            .take(limits::PAGE_ROWS_DEFAULT);
        let page = flow.inner.parts.records.read(outbox.exclude_busy(select)).await?;
        let mut is_last = page.next.is_none();
        let mut rows: Vec<NotificationRow> = rows::decodable(page.rows).collect();
        rows.retain(|row| !tried.contains(&row.id));
        is_last |= rows.is_empty();
        while let Some(row) = outbox.take_next(&mut rows) {
            tried.insert(row.id);
            let (target, tenant) = (row.target.clone(), row.tenant_id.clone());
            outbox.begin(target, tenant, Box::pin(async move { attempt_delivery(flow, &row).await }));
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

/// Waits for deliveries in flight and records them, unless the engine stops first.
async fn finish(flow: &Flow, mut outbox: Deliveries<'_>) {
    let mut stopping = flow.inner.stopping();
    loop {
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop == Shutdown::Now) => return,
            ended = outbox.next_ended() => match ended {
                None => return,
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::warn!(error = %error, "a message could not be attempted"),
            },
        }
    }
}

async fn attempt_delivery(flow: &Flow, row: &NotificationRow) -> Result<(), EngineError> {
    let version = row.state_version;
    if !still_matters(flow, row).await? {
        return drop_message(flow, row, version).await;
    }
    let clock = &flow.inner.parts.clock;
    let began = clock.steady();
    let mut tries = DeliveryAttempts::of(row, clock.now())?;
    let attempt = tries.attempt;
    let until = began.plus_seconds(limits::MESSAGE_LEASE_SECONDS);
    let taken = vec![
        (notifications::attempt, attempt.into()),
        (notifications::next_attempt_at, until.into()),
        (notifications::deliveries, tries.cell()?),
    ];
    match update_message(flow, row, version, taken, None).await {
        Ok(()) => {}
        // Claimed by another process.
        Err(EngineError::Commit(CommitError::Conflict(_))) => return Ok(()),
        Err(error) => return Err(error),
    }
    let mut message = Message {
        id: row.id,
        tenant: row.tenant_id.clone(),
        channel: row.channel.clone(),
        target: row.target.clone(),
        payload: serde_json::Value::Null,
    };
    let sent = match permitted(flow, row).await? {
        Ok(payload) => {
            message.payload = payload;
            flow.inner.parts.notifier.send(&message).await
        }
        Err(error) => Err(error),
    };
    let ended = clock.steady();
    tries.ended(&sent, ended.millis() - began.millis());
    let mut set = vec![(notifications::deliveries, tries.cell()?)];
    let event = match sent {
        Ok(_) => {
            set.extend([
                (notifications::status, NotificationStatus::Sent.into()),
                (notifications::sent_at, clock.now().into()),
                (notifications::error, Value::Null),
            ]);
            set.extend(final_columns(row.payload.value()?)?);
            Some(("notification.sent", json!({"channel": message.channel, "attempt": attempt})))
        }
        Err(error) => {
            let body = Json::encode(&*error.body).map_err(Unstorable::from)?;
            let again = error.body.retryable && attempt < limits::MESSAGE_TRIES_MAX;
            let (channel, code, reason) = (&message.channel, &error.body.code, &error.body.message);
            tracing::warn!(run_id = ?row.run_id, channel, code, reason, attempt, again, "a message about a run was not delivered");
            let data = json!({"channel": channel, "attempt": attempt, "code": code, "reason": reason});
            set.push((notifications::error, body.into()));
            if again {
                set.push((
                    notifications::next_attempt_at,
                    Value::Time(ended.plus_seconds(backoff_seconds(attempt, &error.body))),
                ));
            } else {
                set.push((notifications::status, NotificationStatus::Failed.into()));
                set.extend(final_columns(row.payload.value()?)?);
            }
            (!again).then_some(("notification.failed", data))
        }
    };
    update_message(flow, row, version + 1, set, event).await
}

/// The payload to send, or why it may not be sent. The registry may have changed since the message was queued: it
/// goes to an unregistered address only if the actor of the run may still send it, tells an outsider no more than
/// that a run waits, and carries a link only to a person's registered address.
async fn permitted(flow: &Flow, row: &NotificationRow) -> Result<Result<serde_json::Value, ToolError>, EngineError> {
    let asking = &flow.inner.parts.asking;
    let (tenant, channel, target) = (row.tenant_id.as_str(), row.channel.as_str(), row.target.as_str());
    let mut payload = row.payload.value()?;
    if !asking.recipients.is_mail_of_person(tenant, target)
        && let Some(link) = payload.pointer_mut("/data/link")
    {
        *link = serde_json::Value::Null;
    }
    let select = RunBrief::select(Scope::Tenant(tenant.to_owned())).with(runs::id, row.run_id);
    if let Some(run) = rows::find::<RunBrief>(&*flow.inner.parts.records, select).await? {
        if let Err(body) = notify_check::may_still_tell(flow, &run, channel, target) {
            return Ok(Err(ToolError { body: Box::new(body), ..ToolError::not_sent(Code::RbacForbidden, "") }));
        }
        let recipient = Recipient { channel: channel.to_owned(), target: target.to_owned(), person: None };
        let asks = payload["type"] == REQUESTED || payload["type"] == OUTCOME_UNKNOWN;
        if asks && asking.recipients.is_outsider(tenant, &run.actor, &recipient) {
            withhold(&mut payload);
        }
    }
    Ok(asking.seal.open(row.id, payload))
}

/// Whether what a message asks for is still pending; a message that asks for nothing always matters.
async fn still_matters(flow: &Flow, row: &NotificationRow) -> Result<bool, EngineError> {
    let Some(approval) = row.approval_id else { return is_in_doubt(flow, row).await };
    let select = RequestBrief::select(Scope::Tenant(row.tenant_id.clone()));
    let select = select.with(scoped_approvals::approval_request_id, approval);
    let asked: Option<RequestBrief> = rows::find(&*flow.inner.parts.records, select).await?;
    let now = flow.inner.parts.clock.steady();
    let waits =
        |asked: RequestBrief| asked.status == RequestStatus::Pending && asked.expires_at.is_none_or(|end| end > now);
    Ok(asked.is_some_and(waits))
}

/// Whether the call that a message is about is still in doubt.
async fn is_in_doubt(flow: &Flow, message: &NotificationRow) -> Result<bool, EngineError> {
    let payload = message.payload.value()?;
    if payload["type"] != OUTCOME_UNKNOWN {
        return Ok(true);
    }
    let step = payload["data"]["step_id"].as_str().and_then(|step| Uuid::parse_str(step).ok());
    let select = StepBrief::select(Scope::Tenant(message.tenant_id.clone())).with(steps::id, step);
    let select = select.filter(steps::in_doubt_since, Comparison::IsNot, Value::Null);
    Ok(rows::find::<StepBrief>(&*flow.inner.parts.records, select).await?.is_some())
}

/// Drops a message that is no longer relevant.
async fn drop_message(flow: &Flow, row: &NotificationRow, version: i64) -> Result<(), EngineError> {
    let mut set = vec![(notifications::status, NotificationStatus::Dropped.into())];
    set.extend(final_columns(row.payload.value()?)?);
    let data = json!({"channel": row.channel, "attempt": row.attempt});
    match update_message(flow, row, version, set, Some(("notification.dropped", data))).await {
        Err(EngineError::Commit(CommitError::Conflict(_))) => Ok(()),
        done => done,
    }
}

/// Updates a message, and records its outcome in the ledger.
async fn update_message(
    flow: &Flow,
    row: &NotificationRow,
    version: i64,
    set: Vec<(&'static str, Value)>,
    event: Option<(&str, serde_json::Value)>,
) -> Result<(), EngineError> {
    let update = Update::versioned(&NOTIFICATIONS, vec![row.id.into()], version, set);
    let mut tx = Tx { updates: vec![update.map_err(Unstorable::from)?], ..Tx::default() };
    if let Some((event_type, data)) = event {
        let event = EventRecord::by_system(&row.tenant_id, row.id, event_type, data);
        let event = match row.run_id {
            Some(run) => event.of_run(run),
            None => event,
        };
        let writer = Writer { random: &*flow.inner.parts.random, clock: &*flow.inner.parts.clock };
        writer.event(&mut tx, event)?;
    }
    flow.inner.parts.records.commit(tx).await?;
    Ok(())
}

/// The attempts of one message, the last one in progress. Only the latest are kept.
struct DeliveryAttempts {
    attempt: i64,
    all: Vec<serde_json::Value>,
}

impl DeliveryAttempts {
    /// Adds an attempt with an unknown outcome; a crash leaves it so.
    fn of(row: &NotificationRow, now: Timestamp) -> Result<Self, EngineError> {
        let attempt = i64::from(row.attempt) + 1;
        let mut all: Vec<serde_json::Value> = row.deliveries.decode()?;
        all.push(json!({"attempt": attempt, "at": now.to_string(), "outcome": "unknown"}));
        let kept = usize::try_from(limits::MESSAGE_TRIES_MAX).unwrap_or(1);
        let all = all.split_off(all.len().saturating_sub(kept));
        Ok(Self { attempt, all })
    }

    fn ended(&mut self, sent: &Result<DeliveryReceipt, ToolError>, duration_ms: i64) {
        let Some(last) = self.all.last_mut() else { return };
        last["duration_ms"] = duration_ms.into();
        match sent {
            Ok(delivered) => {
                last["outcome"] = "delivered".into();
                last["status"] = json!(delivered.status);
            }
            Err(error) => {
                last["outcome"] = "failed".into();
                last["status"] = error.body.details.get("status").cloned().unwrap_or_default();
                last["error"] = error.body.code.as_str().into();
            }
        }
    }

    fn cell(&self) -> Result<Value, EngineError> {
        Ok(Json::encode(&self.all).map_err(Unstorable::from)?.into())
    }
}

/// Exponential backoff in seconds, or the receiver's `Retry-After` if longer.
fn backoff_seconds(attempt: i64, error: &ErrorBody) -> i64 {
    let asked = error.retry_after_seconds.and_then(|seconds| i64::try_from(seconds).ok()).unwrap_or(0);
    (1_i64 << attempt.clamp(0, 12)).max(asked)
}

/// For a message that is not sent again: clears its link.
fn final_columns(mut payload: serde_json::Value) -> Result<Vec<(&'static str, Value)>, EngineError> {
    let mut set = vec![(notifications::next_attempt_at, Value::Null)];
    if let Some(link) = payload.pointer_mut("/data/link").filter(|link| !link.is_null()) {
        *link = serde_json::Value::Null;
        set.push((notifications::payload, Json::encode(&payload).map_err(Unstorable::from)?.into()));
    }
    Ok(set)
}
