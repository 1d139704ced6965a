//! The first turn of a run: decides it, commits it, and hands the run to its driver.
//!
//! Nothing of the run is in the store before, so a refusal leaves nothing behind. The turn commits like every later one
//! (`commit_turn`), but once: if the store can't take it, the caller is told and may repeat the request.

use super::commit_turn::PreparedTurn;
use super::drive::{RunChannels, RunDriver};
use super::engine::{EngineState, is_heavy};
use super::key::{RunKey, is_key_taken};
use super::perform::execute_tool;
use super::turn_gate::TurnGate;
use super::{Flow, RunHandle, RunProgress, key, reservations, spans};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::port::CancelToken;
use crate::offload::CostFlag;
use crate::port::{Blocked, CommitError, Span};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::reservation::Facts;
use chimera_core::flow::run::{Call, Effect, Env, KnownWindows, NewRun, Run, Turn};
use chimera_core::limits;
use futures::FutureExt;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument;
use uuid::Uuid;

/// A run whose first turn is decided and not stored yet.
struct CreatedRun {
    run: Box<Run>,
    turn: Turn,
    /// The calls that were made at once.
    made: Vec<Span>,
}

/// Begins a run unless the same actor already used its idempotency key. Keys are unique in the store; one that
/// another actor holds is stored in derived form, so that nobody meets another's run by its key.
pub(super) async fn begin_once(
    flow: &Flow,
    permit: &Permit,
    key: Option<RunKey>,
    new: NewRun,
) -> Result<RunHandle, EngineError> {
    let Some(key) = key else { return begin(flow, permit, new).await };
    let mut form = key.first_form();
    loop {
        let mut keyed = new.clone();
        keyed.head.idempotency_key = Some(form.clone());
        let taken = match begin(flow, permit, keyed).await {
            Err(error) if is_key_taken(&error) => error,
            begun => return begun,
        };
        // By this run, an earlier run of the actor, or another actor's run.
        if let Some(run) = key::find_run_by_key(flow, permit, &key).await? {
            return Err(EngineError::KeyUsed(Box::new(run)));
        }
        let derived = key.derived();
        if form == derived {
            return Err(taken);
        }
        form = derived;
    }
}

async fn begin(flow: &Flow, permit: &Permit, new: NewRun) -> Result<RunHandle, EngineError> {
    let inner = &flow.inner;
    if let Some(hold) = inner.parts.records.hold() {
        return Err(CommitError::from(Blocked::from(hold)).into());
    }
    if let Some(damage) = inner.parts.records.damage() {
        return Err(CommitError::from(damage).into());
    }
    if !inner.is_running() {
        let body = ErrorBody::new(Code::Overloaded, "this node is shutting down").retry_after(1);
        return Err(EngineError::Refused(Box::new(body)));
    }
    inner.check_run_limits(&new.head.tenant)?;
    if inner.parts.policy.has_limits() {
        // Large, and most processes have no limits.
        return Box::pin(begin_limited(flow, permit, new)).await;
    }
    let slots = ReservedSlots { inner: Some(inner), run: new.head.id };
    let created = create(flow, new, &()).await?;
    launch(flow, permit, created, slots).await
}

/// Begins a run whose first calls may have limits: what these have counted is read before the run is written, so
/// that it needs no turn of its own. If others take places meanwhile, that is tried a few times; the run then begins
/// without these calls and makes them later.
async fn begin_limited(flow: &Flow, permit: &Permit, mut new: NewRun) -> Result<RunHandle, EngineError> {
    let (inner, mut facts) = (&flow.inner, Facts::default());
    for tries_left in (0..limits::START_CONSULTS_MAX).rev() {
        let slots = ReservedSlots { inner: Some(inner), run: new.head.id };
        // The last attempt knows nothing, so it takes no place.
        let windows: &(dyn KnownWindows + Sync) = if tries_left > 0 { &inner.joined } else { &() };
        new.facts = if tries_left > 0 { facts.clone() } else { Facts::default() };
        let created = create(flow, new.clone(), windows).await?;
        let asked = created.turn.effects.iter().filter_map(|effect| match effect {
            Effect::Consult { limits, .. } => Some(limits.as_slice()),
            _ => None,
        });
        let asked = asked.collect::<Vec<_>>().concat();
        if tries_left > 0 && !asked.is_empty() {
            facts.0.extend(reservations::read_windows(inner, &new.head.tenant, &asked).await?.0);
            // The next attempt takes the same slots.
            slots.keep();
            continue;
        }
        match launch(flow, permit, created, slots).await {
            Err(EngineError::Commit(CommitError::Conflict(conflict)))
                if tries_left > 0 && reservations::is_contended(&conflict) =>
            {
                facts = Facts::default();
            }
            launched => return launched,
        }
    }
    Err(EngineError::refused(Code::Internal, "a run could not be started"))
}

/// Decides the first turn of a run.
async fn create(flow: &Flow, new: NewRun, windows: &(dyn KnownWindows + Sync)) -> Result<CreatedRun, EngineError> {
    let inner = &flow.inner;
    let parts = &inner.parts;
    let (id, tenant) = (new.head.id, new.head.tenant.clone());
    let catalog = inner.workflows.running(&tenant);
    let owner = inner.claimed_owner(id).await?;
    let now = parts.clock.steady();
    let mut made = Vec::new();
    let work_slot = inner.offload.acquire(&new.head.claimant(), new.graph.may_take_long).await;
    let mut env = Env {
        now,
        ids: &mut || parts.random.row_id(now),
        gate: &mut TurnGate { inner, tenant: &tenant, has_waited: false },
        policy: &*parts.policy,
        catalog: &catalog,
        projection: &*parts.projection,
        jobs: &*parts.jobs,
        windows,
        owner,
    };
    let mut at_once = |run: &Run, call: &Call| {
        let tool = parts.registry.tool_of(&run.head().tenant, &call.tool.name)?;
        if !tool.answers_at_once(&call.input) {
            return None;
        }
        let (_, cancel) = CancelToken::pair();
        let began = parts.spans.enabled().then(|| parts.clock.steady());
        let answer = execute_tool(parts, run.head(), call, cancel).now_or_never()?;
        made.extend(began.map(|began| spans::call_span(run.head(), call, &answer, began, parts.clock.steady())));
        Some(answer)
    };
    let (run, turn) = work_slot.run(|| Run::create(new, &mut env, &mut at_once))?;
    Ok(CreatedRun { run: Box::new(run), turn, made })
}

/// Commits the first turn of a run and drives it. The run is registered before it is in the store, so that nobody in
/// this process takes it for an orphan; and it continues even if the caller has stopped waiting.
async fn launch(
    flow: &Flow,
    permit: &Permit,
    created: CreatedRun,
    slots: ReservedSlots<'_>,
) -> Result<RunHandle, EngineError> {
    let CreatedRun { run, mut turn, made } = created;
    let inner = &flow.inner;
    let head = Arc::clone(run.head());
    if turn.waits_for_slot {
        check_queue(flow, head.id)?;
    }
    let prepared = PreparedTurn::of(inner, &head, &mut turn, Some(permit)).await?;
    slots.keep();
    let (inbox, nudges) = mpsc::channel(limits::RUN_INBOX_MAX);
    let first = RunProgress::of(&run, turn.is_resting());
    let entered = inner.driven.register(head.id, &head.tenant, inbox, first.clone());
    // A new id is not registered yet.
    let sender = entered.unwrap_or_else(|| watch::Sender::new(first));
    let progress = sender.subscribe();
    inner.record_memory(&run);
    let (report, durable) = oneshot::channel();
    let channels = RunChannels { nudges, progress: sender };
    let span = spans::run_placeholder(&*inner.parts.spans, head.id);
    let task = commit_and_drive(Arc::clone(inner), CreatedRun { run, turn, made }, prepared, channels, report);
    // Spawning moves a task several times.
    tokio::spawn(Box::pin(task).instrument(span));
    durable.await.unwrap_or(Err(CommitError::Unknown))?;
    Ok(RunHandle { run_id: head.id, level: head.level, progress })
}

/// Commits a first turn, reports how that ended, and drives the run from there. The spans of calls that were already
/// made are reported once they are durable.
async fn commit_and_drive(
    inner: Arc<EngineState>,
    created: CreatedRun,
    prepared: PreparedTurn,
    channels: RunChannels,
    report: oneshot::Sender<Result<(), CommitError>>,
) {
    let CreatedRun { run, turn, made } = created;
    let committed = prepared.commit(&inner).await;
    let failed = committed.is_err();
    if failed {
        inner.release(run.head().id);
    }
    // The caller may have stopped waiting.
    let _ = report.send(committed);
    if failed {
        return;
    }
    made.into_iter().for_each(|span| inner.parts.spans.ended(span));
    let (offload, costly) = (Arc::clone(&inner.offload), CostFlag::new(is_heavy(&run)));
    let who = run.head().claimant();
    let driver = RunDriver::new(inner, run, channels, true, costly.clone());
    offload.run_when_costly(&who, &costly, Box::pin(driver.continue_from(turn))).await;
}

/// Refuses a run that would start by waiting in a full queue.
fn check_queue(flow: &Flow, run: Uuid) -> Result<(), EngineError> {
    let Some(crowded) = flow.inner.call_slots().full_queue(run) else { return Ok(()) };
    let waiting = crowded.waiting;
    let whose = crowded.tenant.map(|tenant| format!(" of tenant {tenant}")).unwrap_or_default();
    let body = |of: String| {
        let message = format!("the queue for {of} is full ({waiting} calls{whose} are waiting); try again later");
        ErrorBody::new(Code::Overloaded, message).retry_after(limits::OVERLOAD_RETRY_SECONDS)
    };
    let body = match crowded.host {
        Some(host) => body(format!("host {host}")).with("host", host),
        None => body(format!("tool {}", crowded.tool)),
    };
    Err(EngineError::Refused(Box::new(body.with("tool", crowded.tool))))
}

/// The slots and requests of a run that is being created. They are released unless the run is driven in the end: when
/// it is refused, fails, or the caller stops waiting.
struct ReservedSlots<'a> {
    inner: Option<&'a Arc<EngineState>>,
    run: Uuid,
}

impl ReservedSlots<'_> {
    /// The driver releases them.
    fn keep(mut self) {
        self.inner = None;
    }
}

impl Drop for ReservedSlots<'_> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner {
            inner.release(self.run);
        }
    }
}
