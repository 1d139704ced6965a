//! Starts and replays runs.

use super::definitions::PinnedSpecs;
use super::engine::EngineState;
use super::error::check_text;
use super::key::{RunKey, is_key_taken};
use super::perform::execute_tool;
use super::turn_gate::TurnGate;
use super::{
    ChildWorkflows, Flow, FoundWorkflow, ResolvedWorkflow, RunProgress, approval_messages, key, ledger_notes, load,
    lookup, notify_check, reservations, share, spans, suggest,
};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::error::invalid_document;
use crate::flow::port::CancelToken;
use crate::offload::{CostFlag, WorkSlot};
use crate::port::{Blocked, CommitError, Span};
use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air::Graph;
use chimera_core::flow::pins::Pins;
use chimera_core::flow::reservation::Facts;
use chimera_core::flow::run::{
    Call, Effect, Env, KnownWindows, NewRun, Replay, ReplayMode, Run, RunHead, RunRecording, Source, Turn, WorkflowRef,
};
use chimera_core::flow::trace::SpanId;
use chimera_core::limits;
use chimera_core::record::Json;
use futures::FutureExt;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// The trace of a run, and where in it the run begins.
#[derive(Clone, Copy, Debug)]
pub struct RunTrace {
    /// A time-ordered id, also used as trace id.
    pub run_id: Uuid,
    /// The span of the request, in that trace.
    pub parent_span: Option<SpanId>,
}

#[derive(Clone, Debug)]
pub struct StartRun {
    pub workflow_id: String,
    /// `None`: the newest.
    pub version: Option<i64>,
    /// The workflow, if it was already looked up.
    pub looked_up: Option<ResolvedWorkflow>,
    pub inputs: Value,
    pub level: Level,
    /// 1 is the most urgent, 10 the least.
    pub priority: i32,
    /// Only simulate.
    pub dry_run: bool,
    pub source: Source,
    /// The original request, for the record.
    pub request: Option<Arc<Value>>,
    /// The risk assessment at admission.
    pub risk: Option<Arc<Value>>,
    pub idempotency_key: Option<RunKey>,
    /// The caller's own id.
    pub correlation_id: Option<String>,
    /// Whom to notify when it ends.
    pub notify: Option<Value>,
    /// Generated if absent.
    pub trace: Option<RunTrace>,
    /// Who wrote what is requested, besides the caller; they count as requesters.
    pub writers: Vec<String>,
}

impl StartRun {
    /// A run at L2 without notifications.
    #[must_use]
    pub fn of(workflow_id: impl Into<String>, inputs: Value) -> Self {
        Self {
            workflow_id: workflow_id.into(),
            version: None,
            looked_up: None,
            inputs,
            level: Level::ExecuteNotify,
            priority: limits::PRIORITY_DEFAULT,
            dry_run: false,
            source: Source::Workflow,
            request: None,
            risk: None,
            idempotency_key: None,
            correlation_id: None,
            notify: None,
            trace: None,
            writers: Vec::new(),
        }
    }
}

/// What a run begins with besides its head.
#[derive(Clone)]
struct FirstTurn {
    graph: Arc<Graph>,
    /// What a replay repeats.
    recorded: Option<RunRecording>,
}

/// A run that is not stored yet.
struct CreatedRun {
    run: Run,
    turn: Turn,
    /// The calls that were made at once.
    made: Vec<Span>,
}

/// How a replay runs; by default at the original level.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The highest level allowed.
    pub level: Option<Level>,
    /// The current risk assessment.
    pub risk: Option<Arc<Value>>,
    /// The run and its child workflows, if they were already looked up.
    pub(crate) looked_up: Option<(OriginalRun, ChildWorkflows)>,
    pub idempotency_key: Option<RunKey>,
}

/// A run that is about to be repeated.
#[derive(Clone, Debug)]
pub(crate) struct OriginalRun {
    pub(crate) head: RunHead,
    has_ended: bool,
    /// With every patch applied.
    pub(crate) workflow: FoundWorkflow,
    /// The pinned versions of child workflows, including those of its patches.
    pub(crate) pins: Pins,
}

pub struct RunHandle {
    pub run_id: Uuid,
    pub level: Level,
    pub progress: watch::Receiver<RunProgress>,
}

/// Starts a run. It is durable when this returns.
pub async fn start(flow: &Flow, permit: &Permit, mut ask: StartRun) -> Result<RunHandle, EngineError> {
    // The versions of child workflows are pinned now; later versions are for later runs.
    let ResolvedWorkflow { workflow, inside } = match ask.looked_up.take() {
        Some(looked_up) => looked_up,
        None => look_up(flow, permit, &ask).await?,
    };
    let work_slot = flow.acquire_work_slot(&permit.claimant(), workflow.graph.may_take_long).await?;
    check_start(work_slot, &workflow.graph, &ask)?;
    notify_check::check_notify(flow, permit, ask.level, ask.notify.as_ref())?;
    // Whether the workflow itself may be started was checked when it was looked up.
    share::check_shared(&flow.inner.workflows, permit.tenant(), None, &inside).await?;
    share::copy_shared(&flow.inner.workflows, permit.tenant(), Some(&workflow), &inside).await?;
    let mut writers = std::mem::take(&mut ask.writers);
    writers.extend(workflow.author().into_iter().chain(inside.authors()).map(str::to_owned));
    let FoundWorkflow { version, graph, .. } = workflow;
    let graphs = inside.children.values().chain([&graph]).map(Arc::as_ref);
    let pins = flow.inner.workflows.pin_tools(inside.pins.clone(), graphs)?;
    let now = flow.inner.parts.clock.steady();
    let plain = || {
        json!({
            "workflow_id": ask.workflow_id, "version": version, "autonomy_level": ask.level,
            "dry_run": ask.dry_run, "priority": ask.priority,
        })
    };
    let mut request = ask.request.clone().unwrap_or_else(|| Arc::new(plain()));
    if let Some(span) = ask.trace.and_then(|trace| trace.parent_span) {
        Arc::make_mut(&mut request)[spans::PARENT_SPAN] = span.to_string().into();
    }
    let head = RunHead {
        id: ask.trace.map_or_else(|| flow.inner.id(), |trace| trace.run_id),
        tenant: permit.tenant().to_owned(),
        actor: permit.actor().to_owned(),
        actor_kind: permit.kind(),
        co_requesters: RunHead::co_requesters_from(permit.actor(), &writers),
        level: ask.level,
        priority: ask.priority,
        dry_run: ask.dry_run,
        source: ask.source,
        workflow: WorkflowRef { id: ask.workflow_id, version: Some(version) },
        pins: Arc::new(pins),
        parent: None,
        depth: 0,
        replay: None,
        inputs: Arc::new(ask.inputs),
        request,
        risk: ask.risk,
        idempotency_key: None,
        correlation_id: ask.correlation_id,
        notify: ask.notify,
        created_at: now,
        timeout_at: Some(RunHead::timeout_for(&graph, now)),
    };
    let first = FirstTurn { graph, recorded: None };
    begin_once(flow, permit, ask.idempotency_key, head, first).await
}

async fn look_up(flow: &Flow, permit: &Permit, ask: &StartRun) -> Result<ResolvedWorkflow, EngineError> {
    let found = lookup::find_workflow(&flow.inner.workflows, permit.tenant(), &ask.workflow_id, ask.version).await?;
    let Some(workflow) = found else {
        return Err(suggest::unknown_workflow(&flow.inner.workflows, permit, &ask.workflow_id, ask.version).await);
    };
    let nodes = &workflow.graph.document.nodes;
    let inside = lookup::stored_children_of(&flow.inner.workflows, permit.tenant(), nodes, &Pins::default()).await?;
    Ok(ResolvedWorkflow { workflow, inside })
}

/// Starts a run unless the same actor already used its idempotency key. Keys are unique in the store; one that
/// another actor holds is stored in derived form, so that nobody meets another's run by its key.
async fn begin_once(
    flow: &Flow,
    permit: &Permit,
    key: Option<RunKey>,
    head: RunHead,
    first: FirstTurn,
) -> Result<RunHandle, EngineError> {
    let Some(key) = key else { return begin(flow, permit, head, first).await };
    let mut form = key.first_form();
    loop {
        let head = RunHead { idempotency_key: Some(form.clone()), ..head.clone() };
        let taken = match begin(flow, permit, head, first.clone()).await {
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

/// A run and what it executes, for a caller who may manage it.
pub(crate) async fn original_run(flow: &Flow, permit: &Permit, run: Uuid) -> Result<OriginalRun, EngineError> {
    let records = &*flow.inner.parts.records;
    let row = load::manageable_run(records, permit, run).await?;
    let (head, has_ended) = (RunHead::of_row(&row)?, row.status.is_final());
    let repeated = Replay { of: run, mode: ReplayMode::Retry, from: None };
    let repeated = RunHead { replay: Some(repeated), ..head.clone() };
    // A repeated run is a new one: it uses the current definitions of its tools.
    let workflow = load::base_graph(records, &flow.inner.workflows, &repeated, &PinnedSpecs::none()).await?;
    flow.inner.workflows.check_tools(permit.tenant(), &workflow.graph)?;
    let pins = load::pins(records, &head, run).await?;
    Ok(OriginalRun { head, has_ended, workflow, pins })
}

/// Refuses a run that can't be replayed like this, or not now.
async fn check_replay(flow: &Flow, run: &OriginalRun, replay: &Replay) -> Result<(), EngineError> {
    let refused = |why: &str| Err(EngineError::refused(Code::InvalidTransition, why));
    if run.head.dry_run {
        return refused("a dry run did nothing that could be replayed");
    }
    if !run.has_ended {
        return refused("the run has not ended");
    }
    if replay.mode == ReplayMode::Retry {
        if run.head.replay.as_ref().is_some_and(|replay| replay.mode != ReplayMode::Retry) {
            return refused("a replay did nothing that could be retried; retry the original run");
        }
        // A rollback may have begun since the run was looked up.
        let records = &*flow.inner.parts.records;
        let row = load::find_run(records, replay.of).await?.ok_or_else(|| EngineError::unknown("run", replay.of))?;
        if load::is_undoing(records, &row).await? {
            return refused("a rollback is in progress");
        }
    }
    if let Some(from) = &replay.from
        && run.workflow.graph.position(from).is_none()
    {
        return Err(EngineError::refused(Code::MalformedArgs, format!("the workflow has no node {from}")));
    }
    Ok(())
}

/// Replays a run: frozen, as a shadow, or for real from a node on.
pub async fn replay(
    flow: &Flow,
    permit: &Permit,
    replay: Replay,
    again: ReplayOptions,
) -> Result<RunHandle, EngineError> {
    let records = &*flow.inner.parts.records;
    let (run, inside) = match again.looked_up {
        Some((run, inside)) => (run, Some(inside)),
        None => (original_run(flow, permit, replay.of).await?, None),
    };
    check_replay(flow, &run, &replay).await?;
    let OriginalRun { head: original, workflow, pins, .. } = run;
    let graph = Arc::clone(&workflow.graph);
    let costly = CostFlag::default();
    let recorded = Box::pin(load::recorded(records, &replay, &graph, &costly));
    let recorded = flow.inner.offload.run_when_costly(&permit.claimant(), &costly, recorded).await?;
    let inside = match inside {
        Some(inside) => inside,
        None => {
            let nodes = &graph.document.nodes;
            lookup::stored_children_of(&flow.inner.workflows, permit.tenant(), nodes, &pins).await?
        }
    };
    if replay.mode == ReplayMode::Retry {
        share::check_shared(&flow.inner.workflows, permit.tenant(), Some(&workflow), &inside).await?;
    }
    let graphs = inside.children.values().chain([&graph]).map(Arc::as_ref);
    let pins = flow.inner.workflows.pin_tools(inside.pins.clone(), graphs)?;
    let mut writers = load::patch_authors(records, replay.of).await?;
    writers.extend(workflow.author().into_iter().chain(inside.authors()).map(str::to_owned));
    let now = flow.inner.parts.clock.steady();
    let level = again.level.map_or(original.level, |level| level.min(original.level));
    let request = Arc::new(replay.request());
    let head = RunHead {
        id: flow.inner.id(),
        actor: permit.actor().to_owned(),
        actor_kind: permit.kind(),
        co_requesters: original.co_requesters_of_replay(permit.actor(), &writers),
        source: Source::Replay,
        pins: Arc::new(pins),
        parent: None,
        depth: 0,
        // Simulated replays notify nobody.
        notify: original
            .notify
            .as_ref()
            .filter(|_| replay.mode == ReplayMode::Retry)
            .and_then(|notify| notify_check::retained_notify(flow, permit, level, &original.actor, notify)),
        replay: Some(replay),
        request,
        level,
        risk: again.risk,
        idempotency_key: None,
        created_at: now,
        timeout_at: Some(RunHead::timeout_for(&graph, now)),
        ..original
    };
    let first = FirstTurn { graph, recorded: Some(recorded) };
    begin_once(flow, permit, again.idempotency_key, head, first).await
}

async fn begin(flow: &Flow, permit: &Permit, head: RunHead, first: FirstTurn) -> Result<RunHandle, EngineError> {
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
    inner.check_run_limits(&head.tenant)?;
    if inner.parts.policy.has_limits() {
        return begin_limited(flow, permit, head, first).await;
    }
    let slots = ReservedSlots { inner: Some(inner), run: head.id };
    let FirstTurn { graph, recorded } = first;
    let created = create(flow, NewRun { head, graph, recorded, facts: Facts::default() }, &()).await?;
    launch(flow, permit, created, slots).await
}

/// Begins a run whose first calls may have limits: what these have counted is read before the run is written, so
/// that it needs no turn of its own. If others take places meanwhile, that is tried a few times; the run then begins
/// without these calls and makes them later.
async fn begin_limited(
    flow: &Flow,
    permit: &Permit,
    head: RunHead,
    first: FirstTurn,
) -> Result<RunHandle, EngineError> {
    let (inner, mut facts, mut head) = (&flow.inner, Facts::default(), head);
    for tries_left in (0..limits::START_CONSULTS_MAX).rev() {
        let slots = ReservedSlots { inner: Some(inner), run: head.id };
        let (graph, recorded) = (Arc::clone(&first.graph), first.recorded.clone());
        // The last attempt knows nothing, so it takes no place.
        let windows: &(dyn KnownWindows + Sync) = if tries_left > 0 { &inner.joined } else { &() };
        let read = if tries_left > 0 { facts.clone() } else { Facts::default() };
        let created = create(flow, NewRun { head, graph, recorded, facts: read }, windows).await?;
        let same = Arc::clone(created.run.head());
        let asked = created.turn.effects.iter().filter_map(|effect| match effect {
            Effect::Consult { limits, .. } => Some(limits.as_slice()),
            _ => None,
        });
        let asked = asked.collect::<Vec<_>>().concat();
        if tries_left > 0 && !asked.is_empty() {
            facts.0.extend(reservations::read_windows(inner, &same.tenant, &asked).await?.0);
            // The next attempt takes the same slots.
            slots.keep();
        } else {
            match launch(flow, permit, created, slots).await {
                Err(EngineError::Commit(CommitError::Conflict(conflict)))
                    if tries_left > 0 && reservations::is_contended(&conflict) =>
                {
                    facts = Facts::default();
                }
                launched => return launched,
            }
        }
        head = RunHead::clone(&same);
    }
    Err(EngineError::refused(Code::Internal, "a run could not be started"))
}

/// Makes the first turn of a run.
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
    Ok(CreatedRun { run, turn, made })
}

/// Commits the first turn of a run and drives it.
async fn launch(
    flow: &Flow,
    permit: &Permit,
    created: CreatedRun,
    slots: ReservedSlots<'_>,
) -> Result<RunHandle, EngineError> {
    let CreatedRun { run, mut turn, made } = created;
    let inner = &flow.inner;
    let (id, level) = (run.head().id, run.head().level);
    if turn.waits_for_slot {
        check_queue(flow, id)?;
    }
    let mut tx = turn.tx.take().unwrap_or_default();
    ledger_notes::add_entries_of(&mut tx, inner, run.head(), &mut turn.notes, permit.operator_of())?;
    approval_messages::add_approval_messages(&mut tx, inner, run.head(), &turn.asked).await?;
    permit.add_alongside(&mut tx);
    slots.keep();
    let launched = inner.launch(run, turn, tx, made);
    launched.durable.await.unwrap_or(Err(CommitError::Unknown))?;
    Ok(RunHandle { run_id: id, level, progress: launched.progress })
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

fn check_start(work_slot: WorkSlot, graph: &Graph, ask: &StartRun) -> Result<(), EngineError> {
    if let Some(problem) = graph.unsupported_problem() {
        return Err(invalid_document("the workflow", &[problem]));
    }
    let priorities = limits::PRIORITY_MIN..=limits::PRIORITY_MAX;
    if !priorities.contains(&ask.priority) {
        let message = format!("priority must be a number from {} to {}", priorities.start(), priorities.end());
        return Err(EngineError::refused(Code::ValidationFailed, message));
    }
    check_text("correlation id", ask.correlation_id.as_deref())?;
    check_inputs(work_slot, graph, &ask.inputs)
}

/// Refuses inputs that a workflow does not take. Schemas and inputs are the callers' choice and may take long, so the
/// check needs a work slot, for as long as the graph may take.
pub(crate) fn check_inputs(work_slot: WorkSlot, graph: &Graph, inputs: &Value) -> Result<(), EngineError> {
    work_slot.run(|| check_schema(graph, inputs))
}

fn check_schema(graph: &Graph, inputs: &Value) -> Result<(), EngineError> {
    if !inputs.is_object() {
        let body = ErrorBody::new(Code::ValidationFailed, "the inputs of a run must be a JSON object");
        return Err(EngineError::Refused(Box::new(body.with("pointer", "/inputs"))));
    }
    let text = Json::encode(inputs).map_err(|error| EngineError::refused(Code::ValidationFailed, error.to_string()))?;
    if text.as_str().len() > limits::RUN_INPUT_BYTES_MAX {
        let (bytes, max) = (text.as_str().len(), limits::RUN_INPUT_BYTES_MAX);
        let message = format!("the inputs of a run take {bytes} bytes as JSON; at most {max} are allowed");
        let body = ErrorBody::new(Code::PayloadTooLarge, message).with("bytes", bytes).with("bytes_max", max);
        return Err(EngineError::Refused(Box::new(body)));
    }
    let Some(schema) = &graph.input_schema else { return Ok(()) };
    schema.check(inputs).map_err(|faults| {
        let body = ErrorBody::new(Code::ValidationFailed, "the inputs do not match the workflow's schema");
        EngineError::Refused(Box::new(body.with("faults", serde_json::to_value(faults).unwrap_or_default())))
    })
}
