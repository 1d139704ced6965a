//! Starts runs of workflows: validates the request and says what the run is made of.

use super::error::check_text;
use super::first_turn::begin_once;
use super::{Flow, FoundWorkflow, ResolvedWorkflow, RunKey, RunProgress, lookup, notify_check, share, spans, suggest};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::error::invalid_document;
use crate::offload::WorkSlot;
use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air::Graph;
use chimera_core::flow::pins::Pins;
use chimera_core::flow::reservation::Facts;
use chimera_core::flow::run::{NewRun, RunHead, Source, WorkflowRef};
use chimera_core::flow::trace::SpanId;
use chimera_core::limits;
use chimera_core::record::Json;
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
    let new = NewRun { head, graph, recorded: None, facts: Facts::default() };
    begin_once(flow, permit, ask.idempotency_key, new).await
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
