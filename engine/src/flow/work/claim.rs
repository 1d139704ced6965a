//! Claiming calls from a queue.
//!
//! The most urgent calls come first, then the oldest. A claim may wait for calls: it is woken by a hint on the bus and
//! looks into the store at intervals, because hints may be lost.

use super::lease::{check_worker, claim_digest, derived_token, lease_end, new_token, token_digest, unchanged};
use super::queues::{TOPIC, hint};
use super::recheck::allowed_items;
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::error::check_text;
use crate::flow::{Flow, signals};
use crate::port::{BusEvent, CommitError, Subscription};
use crate::rows;
use chimera_core::error::Code;
use chimera_core::flow::tables::{WORK_ITEMS, WorkItemBrief, WorkItemRow, work_items};
use chimera_core::flow::trace::{self, SpanId};
use chimera_core::flow::work::WorkState;
use chimera_core::limits;
use chimera_core::record::{Comparison, Direction, Json, Scope, StoredRow, Tx, Update, Value as Cell};
use chimera_core::time::Timestamp;
use futures::StreamExt;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Which calls to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    pub queue: String,
    /// At most so many.
    pub limit: usize,
    /// What the worker calls itself, for people.
    pub worker: Option<String>,
    /// How long to wait if there are none.
    pub wait_seconds: u32,
    /// It waits no longer than this, whatever it asks for.
    pub wait_max: Duration,
    /// A random id. A claim that is repeated under it, because its answer was lost, gets the same calls.
    pub claim_id: Option<String>,
}

/// A call that the caller holds now.
#[derive(Clone, Debug)]
pub struct ClaimedCall {
    pub id: Uuid,
    pub queue: String,
    /// Proves the claim. It is not stored.
    pub lease_token: String,
    pub lease_until: Timestamp,
    pub tool: String,
    pub input: Json,
    /// The same for every attempt of the call.
    pub idempotency_key: String,
    /// The attempt of the step.
    pub attempt: u32,
    /// How often the call was claimed, with this claim.
    pub claims: u32,
    pub run_id: Uuid,
    pub step_id: Uuid,
    /// Who requested the run.
    pub actor: String,
    pub deadline: Timestamp,
    /// W3C trace context to propagate.
    pub traceparent: String,
}

impl ClaimedCall {
    /// `None` if the item has no lease.
    fn of(lease_token: String, item: WorkItemRow) -> Option<Self> {
        Some(Self {
            id: item.id,
            queue: item.queue,
            lease_token,
            lease_until: item.lease_until?,
            tool: item.tool,
            input: item.input?,
            idempotency_key: item.idempotency_key,
            attempt: item.attempt,
            claims: item.claims,
            run_id: item.run_id,
            step_id: item.step_id,
            actor: item.actor,
            deadline: item.deadline,
            traceparent: trace::traceparent(item.run_id, SpanId::call(item.id)),
        })
    }
}

/// Claims calls of a queue. Waits if there are none.
pub async fn claim(flow: &Flow, permit: &Permit, request: &ClaimRequest) -> Result<Vec<ClaimedCall>, EngineError> {
    check_request(permit, request)?;
    let until = Instant::now() + Duration::from_secs(u64::from(request.wait_seconds)).min(request.wait_max);
    // Subscribed before the first look, so that no item is missed in between.
    let mut hints = match request.wait_seconds {
        0 => None,
        _ => flow.inner.parts.bus.subscribe(TOPIC).await.ok(),
    };
    loop {
        let claimed = claim_now(flow, permit, request).await?;
        let left = until.saturating_duration_since(Instant::now());
        if !claimed.is_empty() || left.is_zero() || !flow.inner.is_running() {
            return Ok(claimed);
        }
        let Some(_waits) = flow.inner.work.wait() else { return Ok(claimed) };
        wait_for_hint(flow, permit, &request.queue, &mut hints, left.min(limits::WORK_POLL_INTERVAL)).await;
    }
}

fn check_request(permit: &Permit, request: &ClaimRequest) -> Result<(), EngineError> {
    check_worker(permit, &request.queue)?;
    let wrong = |message: String| Err(EngineError::refused(Code::ValidationFailed, message));
    if request.queue.chars().count() > limits::WORK_QUEUE_CHARS_MAX {
        return wrong(format!("the name of a queue has at most {} characters", limits::WORK_QUEUE_CHARS_MAX));
    }
    if !(1..=limits::WORK_CLAIM_ITEMS_MAX).contains(&request.limit) {
        return wrong(format!("limit is {}; give 1 to {}", request.limit, limits::WORK_CLAIM_ITEMS_MAX));
    }
    if request.wait_seconds > limits::WORK_WAIT_SECONDS_MAX {
        let (given, most) = (request.wait_seconds, limits::WORK_WAIT_SECONDS_MAX);
        return wrong(format!("wait_seconds is {given}; give at most {most}"));
    }
    let id_chars = limits::CLAIM_ID_CHARS_MIN..=limits::CLAIM_ID_CHARS_MAX;
    if request.claim_id.as_ref().is_some_and(|id| !id_chars.contains(&id.chars().count()) || id.contains('\0')) {
        return wrong(format!("claim_id has {} to {} characters", id_chars.start(), id_chars.end()));
    }
    check_text("worker", request.worker.as_deref())?;
    if request.worker.as_ref().is_some_and(|name| name.chars().count() > limits::WORKER_NAME_CHARS_MAX) {
        return wrong(format!("the name of a worker has at most {} characters", limits::WORKER_NAME_CHARS_MAX));
    }
    Ok(())
}

/// Waits until the queue may have a call, or for a while.
async fn wait_for_hint(flow: &Flow, permit: &Permit, queue: &str, hints: &mut Option<Subscription>, most: Duration) {
    let expected = hint(permit.tenant(), queue);
    let mut stopping = flow.inner.stopping();
    let heard = async {
        loop {
            match hints {
                Some(stream) => match stream.next().await {
                    Some(BusEvent::Message(message)) if message != expected => {}
                    Some(_) => return,
                    None => *hints = None,
                },
                None => std::future::pending().await,
            }
        }
    };
    tokio::select! {
        biased;
        () = heard => {}
        _ = stopping.wait_for(|_| !flow.inner.is_running()) => {}
        () = tokio::time::sleep(most) => {}
    }
}

/// Claims what is there. A claim that loses against another process looks again.
async fn claim_now(flow: &Flow, permit: &Permit, request: &ClaimRequest) -> Result<Vec<ClaimedCall>, EngineError> {
    let _turn = flow.inner.work.turn(permit.tenant(), &request.queue).await;
    let repeated = repeated_claim(flow, permit, request).await?;
    if !repeated.is_empty() {
        return Ok(repeated);
    }
    for _ in 0..limits::DECIDE_TRIES_MAX {
        let found = queued_items(flow, permit, request).await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let allowed = allowed_items(flow, permit, found).await?;
        if allowed.is_empty() {
            continue;
        }
        let (tx, claimed) = claim_items(flow, permit, request, allowed)?;
        match flow.inner.parts.records.commit(tx).await {
            Ok(_) => return Ok(claimed),
            Err(error @ CommitError::Conflict(_)) if !permit.is_alongside_conflict(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Vec::new())
}

/// What an earlier claim under the same id got and still holds.
async fn repeated_claim(flow: &Flow, permit: &Permit, request: &ClaimRequest) -> Result<Vec<ClaimedCall>, EngineError> {
    let Some(claim_id) = &request.claim_id else { return Ok(Vec::new()) };
    let digest = claim_digest(permit.actor(), &request.queue, claim_id);
    let select = WorkItemRow::select(Scope::Tenant(permit.tenant().to_owned()))
        .with(work_items::claim_digest, Cell::Bytes(digest.to_vec()))
        .with(work_items::state, WorkState::Claimed);
    let held: Vec<WorkItemRow> = rows::list(&*flow.inner.parts.records, select, limits::WORK_CLAIM_ITEMS_MAX).await?;
    Ok(held.into_iter().filter_map(|item| ClaimedCall::of(derived_token(claim_id, item.id), item)).collect())
}

/// The next calls of a queue, as many as a response may hold.
async fn queued_items(flow: &Flow, permit: &Permit, request: &ClaimRequest) -> Result<Vec<WorkItemRow>, EngineError> {
    let records = &*flow.inner.parts.records;
    let scope = || Scope::Tenant(permit.tenant().to_owned());
    let mut queued = WorkItemBrief::select(scope())
        .with(work_items::queue, request.queue.as_str())
        .with(work_items::state, WorkState::Queued)
        .filter(work_items::deadline, Comparison::Above, flow.inner.parts.clock.steady())
        .by(&[work_items::priority], Direction::Ascending)
        .take(request.limit);
    // A call of a tool that was disabled since waits for its deadline, or until the tool is enabled again.
    for tool in flow.registry().snapshot().disabled() {
        queued = queued.filter(work_items::tool, Comparison::IsNot, tool);
    }
    let (mut found, mut bytes) = (Vec::new(), 0_usize);
    for brief in rows::decodable::<WorkItemBrief>(records.read(queued).await?.rows).take(request.limit) {
        let whole = WorkItemRow::select(scope()).with(work_items::id, brief.id);
        let Some(item): Option<WorkItemRow> = rows::find(records, whole).await? else { continue };
        bytes = bytes.saturating_add(item.input.as_ref().map_or(0, |input| input.as_str().len()));
        if !found.is_empty() && bytes > limits::WORK_CLAIM_BYTES_MAX {
            break;
        }
        if item.state == WorkState::Queued && item.input.is_some() {
            found.push(item);
        }
    }
    Ok(found)
}

/// The transaction that claims these items, and what the worker is told about them.
fn claim_items(
    flow: &Flow,
    permit: &Permit,
    request: &ClaimRequest,
    found: Vec<WorkItemRow>,
) -> Result<(Tx, Vec<ClaimedCall>), EngineError> {
    let (mut tx, mut claimed) = (Tx::default(), Vec::with_capacity(found.len()));
    let now = flow.inner.parts.clock.steady();
    for item in found {
        let token = match &request.claim_id {
            Some(claim_id) => derived_token(claim_id, item.id),
            None => new_token(&*flow.inner.parts.random),
        };
        let claim = request.claim_id.as_ref().map(|id| claim_digest(permit.actor(), &request.queue, id));
        let (lease_until, claims) = (lease_end(&item, now), item.claims + 1);
        let set = vec![
            (work_items::state, WorkState::Claimed.into()),
            (work_items::claims, i64::from(claims).into()),
            (work_items::claimed_by, permit.actor().into()),
            (work_items::worker, request.worker.clone().into()),
            (work_items::claimed_at, now.into()),
            (work_items::lease_until, lease_until.into()),
            (work_items::lease_digest, Cell::Bytes(token_digest(&token).to_vec())),
            (work_items::claim_digest, claim.map_or(Cell::Null, |digest| Cell::Bytes(digest.to_vec()))),
        ];
        tx.updates.push(Update::new(&WORK_ITEMS, vec![item.id.into()], unchanged(&item), set)?);
        let data = json!({
            "queue": item.queue, "tool": item.tool, "step_id": item.step_id, "attempt": item.attempt, "claims": claims,
            "worker": request.worker, "lease_until": lease_until.to_string(),
        });
        signals::record(flow, &mut tx, permit, permit.event(item.id, "work.claimed", data).of_run(item.run_id))?;
        let item = WorkItemRow { lease_until: Some(lease_until), claims, ..item };
        claimed.extend(ClaimedCall::of(token, item));
    }
    Ok((tx, claimed))
}
