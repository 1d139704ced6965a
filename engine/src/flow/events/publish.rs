//! Publishes an event.
//!
//! The channel is read before the waits and compared in the commit. A wait that began in between changes it, and the
//! event is published again with that wait among its recipients.

use super::KeptEvent;
use super::sweep::removal;
use crate::access::{EVENTS_PUBLISH, Permit};
use crate::error::EngineError;
use crate::flow::{Flow, signals};
use crate::port::{CommitError, Records};
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::event::rows::EventChannel;
use chimera_core::flow::event::{ReceivedEvent, check_event_id, check_event_key, check_event_name};
use chimera_core::flow::run::{Signal, SignalKind};
use chimera_core::flow::tables::{
    EVENT_CHANNELS, EXTERNAL_EVENTS, EventBrief, EventChannelRow, EventWaitRow, event_channels, event_waits,
    external_events,
};
use chimera_core::json::Digest32;
use chimera_core::limits;
use chimera_core::record::{Comparison, Conflict, Insert, Json, Scope, StoredRow, Tx};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

/// An event to publish.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishEvent {
    pub name: String,
    pub key: String,
    pub payload: Value,
    /// Counts once in the tenant while the event is kept. `None`: a new id.
    pub event_id: Option<String>,
    /// How long the event is kept for waits that begin later.
    pub ttl_seconds: Option<u32>,
}

/// An event that is in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedEvent {
    pub event: KeptEvent,
    /// It was published before, and nothing was done now.
    pub is_duplicate: bool,
}

/// Publishes an event to every run of the tenant that waits for it, and to those that begin to wait before it expires.
pub async fn publish_event(flow: &Flow, permit: &Permit, event: PublishEvent) -> Result<PublishedEvent, EngineError> {
    permit.require(EVENTS_PUBLISH)?;
    let event = CheckedEvent::new(event)?;
    for _ in 0..limits::PUBLISH_TRIES_MAX {
        if let Some(event) = published_before(flow, permit, &event).await? {
            return Ok(PublishedEvent { event, is_duplicate: true });
        }
        if let Some(event) = try_publish(flow, permit, &event).await? {
            return Ok(PublishedEvent { event, is_duplicate: false });
        }
    }
    Err(EngineError::refused(Code::OccConflict, "runs keep beginning to wait for this event; send it again"))
}

/// An event whose members are valid.
struct CheckedEvent {
    name: String,
    key: String,
    payload: Json,
    digest: Digest32,
    value: Value,
    event_id: Option<String>,
    ttl_seconds: u32,
}

impl CheckedEvent {
    fn new(event: PublishEvent) -> Result<Self, ErrorBody> {
        let PublishEvent { name, key, payload: value, event_id, ttl_seconds } = event;
        let invalid =
            |pointer: &str, reason: String| ErrorBody::new(Code::ValidationFailed, reason).with("pointer", pointer);
        check_event_name(&name).map_err(|reason| invalid("/name", reason))?;
        check_event_key(&key).map_err(|reason| invalid("/key", reason))?;
        event_id.as_deref().map_or(Ok(()), check_event_id).map_err(|reason| invalid("/event_id", reason))?;
        let ttl_seconds = ttl_seconds.unwrap_or(limits::EVENT_SECONDS_DEFAULT);
        if !(1..=limits::EVENT_SECONDS_MAX).contains(&ttl_seconds) {
            let reason = format!("ttl_seconds must be from 1 to {}", limits::EVENT_SECONDS_MAX);
            return Err(invalid("/ttl_seconds", reason));
        }
        let payload = Json::encode(&value).map_err(|error| invalid("/payload", error.to_string()))?;
        if payload.as_str().len() > limits::EVENT_PAYLOAD_BYTES_MAX {
            let reason = format!(
                "the payload has {} bytes, at most {}; store it as an artifact and send its name",
                payload.as_str().len(),
                limits::EVENT_PAYLOAD_BYTES_MAX
            );
            return Err(ErrorBody::new(Code::PayloadTooLarge, reason).with("pointer", "/payload"));
        }
        let digest = Digest32::of(&value);
        Ok(Self { name, key, payload, digest, value, event_id, ttl_seconds })
    }

    fn channel<'a>(&'a self, permit: &'a Permit) -> EventChannel<'a> {
        EventChannel { tenant: permit.tenant(), name: &self.name, key: &self.key }
    }
}

fn tenant_scope(permit: &Permit) -> Scope {
    Scope::Tenant(permit.tenant().to_owned())
}

/// The event with this id, if it is kept. Refuses an id that belongs to another event. An event that has expired and
/// was not swept yet is removed: its id is free.
async fn published_before(
    flow: &Flow,
    permit: &Permit,
    event: &CheckedEvent,
) -> Result<Option<KeptEvent>, EngineError> {
    let Some(id) = event.event_id.as_deref() else { return Ok(None) };
    let select = EventBrief::select(tenant_scope(permit)).with(external_events::event_id, id);
    let Some(row) = rows::find::<EventBrief>(&*flow.inner.parts.records, select).await? else { return Ok(None) };
    if row.expires_at <= flow.inner.parts.clock.steady() {
        flow.inner.parts.records.commit(Tx { steps: vec![removal(row.id)], ..Tx::default() }).await?;
        return Ok(None);
    }
    if (&row.event_name, &row.event_key, row.payload_digest) == (&event.name, &event.key, event.digest) {
        return Ok(Some(row.into()));
    }
    let message = format!("the event id {id} was used for another event; use a new id");
    Err(ErrorBody::new(Code::ConflictIdempotency, message).with("pointer", "/event_id").into())
}

/// Publishes the event; `None` if a wait began meanwhile or somebody else published this id.
async fn try_publish(flow: &Flow, permit: &Permit, event: &CheckedEvent) -> Result<Option<KeptEvent>, EngineError> {
    let records = &*flow.inner.parts.records;
    let channel = event.channel(permit);
    // First the channel, then the waits: see the header.
    let last = last_wait(records, channel).await?;
    let runs = waiting_runs(records, channel).await?;
    check_kept(records, channel, flow).await?;
    let (row, view) = event_row(flow, permit, event, runs.len())?;
    let mut tx = Tx { inserts: vec![row], steps: vec![channel.unchanged(last)], ..Tx::default() };
    let received = ReceivedEvent {
        event_id: view.event_id.clone(),
        name: event.name.clone(),
        key: event.key.clone(),
        payload: event.value.clone(),
        sent_by: permit.actor().to_owned(),
        sent_at: view.sent_at.to_string(),
    };
    for run in &runs {
        let kind = SignalKind::EventReceived { event: received.clone() };
        tx.inserts.push(Signal::new(flow.inner.id(), kind).row(permit.tenant(), *run, view.sent_at)?);
    }
    let data = json!({
        "name": event.name, "key": event.key, "event_id": view.event_id, "payload_digest": event.digest,
        "runs": runs.len(), "expires_at": view.expires_at,
    });
    signals::record(flow, &mut tx, permit, permit.event(view.event_id.as_str(), "event.published", data))?;
    match records.commit(tx).await {
        Ok(_) => {
            runs.into_iter().for_each(|run| flow.inner.wake(run));
            Ok(Some(view))
        }
        Err(error) if permit.is_alongside_conflict(&error) => Err(error.into()),
        Err(CommitError::Conflict(Conflict::Rows { table, .. })) if table == EVENT_CHANNELS.name => Ok(None),
        Err(CommitError::Conflict(Conflict::Exists(key))) if key.table == EXTERNAL_EVENTS.name => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The last wait that began on a channel.
async fn last_wait(records: &dyn Records, channel: EventChannel<'_>) -> Result<Option<Uuid>, EngineError> {
    let select = EventChannelRow::select(Scope::Tenant(channel.tenant.to_owned()))
        .with(event_channels::event_name, channel.name)
        .with(event_channels::event_key, channel.key);
    Ok(rows::find::<EventChannelRow>(records, select).await?.map(|row| row.last_wait))
}

/// The runs that wait on a channel.
async fn waiting_runs(records: &dyn Records, channel: EventChannel<'_>) -> Result<BTreeSet<Uuid>, EngineError> {
    let select = EventWaitRow::select(Scope::Tenant(channel.tenant.to_owned()))
        .with(event_waits::event_name, channel.name)
        .with(event_waits::event_key, channel.key);
    let mut runs = BTreeSet::new();
    rows::each(records, select, |row: EventWaitRow| {
        runs.insert(row.run_id);
        if runs.len() <= limits::EVENT_RUNS_MAX {
            return Ok(());
        }
        let most = limits::EVENT_RUNS_MAX;
        let message = format!("more than {most} runs wait for this event, which is the limit; use a key per run");
        Err(ErrorBody::new(Code::Overloaded, message).retry_after(limits::OVERLOAD_RETRY_SECONDS).into())
    })
    .await?;
    Ok(runs)
}

/// Refuses an event of a channel that keeps too many.
async fn check_kept(records: &dyn Records, channel: EventChannel<'_>, flow: &Flow) -> Result<(), EngineError> {
    let kept = EventBrief::select(Scope::Tenant(channel.tenant.to_owned()))
        .with(external_events::event_name, channel.name)
        .with(external_events::event_key, channel.key)
        .filter(external_events::expires_at, Comparison::Above, flow.inner.parts.clock.steady())
        .take(limits::EVENTS_PER_KEY_MAX);
    if records.read(kept).await?.rows.len() < limits::EVENTS_PER_KEY_MAX {
        return Ok(());
    }
    let most = limits::EVENTS_PER_KEY_MAX;
    let message =
        format!("{most} events with this name and key are kept, which is the limit; use other keys or a shorter ttl");
    Err(ErrorBody::new(Code::Overloaded, message).retry_after(limits::OVERLOAD_RETRY_SECONDS).into())
}

fn event_row(
    flow: &Flow,
    permit: &Permit,
    event: &CheckedEvent,
    runs: usize,
) -> Result<(Insert, KeptEvent), EngineError> {
    // A deadline does not jump with the wall clock.
    let (id, now, steady) = (flow.inner.id(), flow.inner.parts.clock.now(), flow.inner.parts.clock.steady());
    let view = KeptEvent {
        event_id: event.event_id.clone().unwrap_or_else(|| id.to_string()),
        name: event.name.clone(),
        key: event.key.clone(),
        payload_digest: event.digest.to_string(),
        sent_by: permit.actor().to_owned(),
        sent_at: now,
        expires_at: steady.plus_seconds(i64::from(event.ttl_seconds)),
        runs: u32::try_from(runs).unwrap_or(u32::MAX),
    };
    let cells = vec![
        (external_events::id, id.into()),
        (external_events::tenant_id, permit.tenant().into()),
        (external_events::event_name, view.name.as_str().into()),
        (external_events::event_key, view.key.as_str().into()),
        (external_events::event_id, view.event_id.as_str().into()),
        (external_events::payload, event.payload.clone().into()),
        (external_events::payload_digest, chimera_core::record::Value::Bytes(event.digest.to_vec())),
        (external_events::sent_by, view.sent_by.as_str().into()),
        (external_events::sent_by_kind, permit.kind().as_str().into()),
        (external_events::runs, view.runs.into()),
        (external_events::created_at, now.into()),
        (external_events::expires_at, view.expires_at.into()),
    ];
    Ok((Insert::new(&EXTERNAL_EVENTS, cells)?, view))
}
