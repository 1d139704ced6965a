//! Spans of runs, steps and calls.
//!
//! They are derived from the run and the turn that was just committed, so the same spans are reported whichever node
//! drives the run and however often it moved. Nothing is computed unless spans are collected.

use super::engine::{EngineState, FlowPorts};
use crate::port::{Span, SpanKind, Spans};
use chimera_core::error::Code;
use chimera_core::flow::call::{CallOutcome, ToolError};
use chimera_core::flow::run::{Call, CallMode, Run, RunHead, StepStatus, StepTrace, Turn};
use chimera_core::flow::trace::{SpanId, created_at};
use chimera_core::time::Timestamp;
use chimera_core::tool::is_dry_run;
use serde_json::Value;
use uuid::Uuid;

/// The member of a run's request with the span of its requester.
pub(super) const PARENT_SPAN: &str = "parent_span";

/// Reports the spans that ended with a committed turn.
pub(super) fn report_turn(inner: &EngineState, run: &Run, turn: &Turn) {
    let spans = &*inner.parts.spans;
    if !spans.enabled() || turn.notes.is_empty() {
        return;
    }
    let is_end = |event: &str| matches!(event, "run.completed" | "run.failed" | "run.cancelled");
    let ended = run.completed_at().filter(|_| turn.notes.iter().any(|note| is_end(note.event_type)));
    let now = ended.unwrap_or_else(|| inner.parts.clock.steady());
    for note in &turn.notes {
        if matches!(note.event_type, "step.completed" | "step.failed" | "step.skipped")
            && let Some(step) = note.step.and_then(|step| run.step_trace(step))
        {
            spans.ended(step_span(run.head(), &step, now));
        }
    }
    if let Some(end) = ended {
        run.stopped_steps().for_each(|step| spans.ended(step_span(run.head(), &step, end)));
        spans.ended(create_execution_span(run, end));
    }
}

/// The span of a run as a whole.
fn create_execution_span(run: &Run, end: Timestamp) -> Span {
    let head = run.head();
    let level = head.level.as_str();
    let mut attributes: Vec<(&'static str, Value)> = vec![
        ("run_id", head.id.to_string().into()),
        ("actor", head.actor.as_str().into()),
        ("autonomy_level", level.split('_').next().unwrap_or(level).into()),
        ("tenant_id", head.tenant.as_str().into()),
        ("workflow_id", head.workflow.id.as_str().into()),
        ("source", head.source.as_str().into()),
        ("dry_run", head.dry_run.into()),
        ("status", run.status().as_str().into()),
    ];
    attributes.extend(head.idempotency_key.as_deref().map(|key| ("idempotency_key", key.into())));
    attributes.extend(head.correlation_id.as_deref().map(|id| ("correlation_id", id.into())));
    let parent = head.parent.map(|(run, step)| (run, SpanId::step(step)));
    let repeated = head.replay.as_ref().map(|replay| (replay.of, SpanId::run(replay.of)));
    Span {
        name: "agent_execution".to_owned(),
        kind: SpanKind::Server,
        trace: head.id,
        id: SpanId::run(head.id),
        parent: head.request.get(PARENT_SPAN).and_then(Value::as_str).and_then(SpanId::parse),
        start: head.created_at,
        end: end.max(head.created_at),
        error: run.failure().map(|error| error.message.clone()),
        attributes,
        links: parent.into_iter().chain(repeated).collect(),
    }
}

/// A step's span, including the time it waited for a person.
fn step_span(head: &RunHead, step: &StepTrace<'_>, end: Timestamp) -> Span {
    let mut attributes: Vec<(&'static str, Value)> = vec![
        ("run_id", head.id.to_string().into()),
        ("step_id", step.id.to_string().into()),
        ("node_id", step.node.into()),
        ("node_type", step.kind.into()),
        ("status", step.status.as_str().into()),
        ("attempts", step.attempt.into()),
    ];
    attributes.extend(step.tool.map(|tool| ("tool_name", tool.into())));
    attributes.extend(step.item.map(|item| ("map_index", item.into())));
    attributes.extend(step.error.map(|error| ("error_code", error.code.as_str().into())));
    attributes.extend(step.child.map(|child| ("child_run_id", child.to_string().into())));
    let start = created_at(step.id).unwrap_or(end).max(head.created_at).min(end);
    let failed = step.status == StepStatus::Failed;
    Span {
        name: format!("step {}", step.node),
        kind: SpanKind::Internal,
        trace: head.id,
        id: SpanId::step(step.id),
        parent: Some(step.parent.map_or_else(|| SpanId::run(head.id), SpanId::step)),
        start,
        end: end.max(start),
        error: step.error.filter(|_| failed).map(|error| error.message.clone()),
        attributes,
        links: step.child.map(|child| (child, SpanId::run(child))).into_iter().collect(),
    }
}

/// The span of a tool call. Dry calls happen before there are steps, so they belong to the run.
pub(super) fn call_span(head: &RunHead, call: &Call, answer: &CallOutcome, start: Timestamp, end: Timestamp) -> Span {
    let (mode, parent) = match call.mode {
        CallMode::Execute => ("execute", SpanId::step(call.step)),
        CallMode::DryRun => ("dry", SpanId::run(head.id)),
        CallMode::Check => ("check", SpanId::step(call.step)),
        CallMode::Undo { .. } => ("undo", SpanId::step(call.step)),
    };
    let failed = match answer {
        CallOutcome::Failed(error) => Some(&error.body),
        CallOutcome::Output(_) | CallOutcome::Checked(_) => None,
    };
    let mut attributes: Vec<(&'static str, Value)> = vec![
        ("run_id", head.id.to_string().into()),
        ("step_id", call.step.to_string().into()),
        ("tool_call_id", call.id.to_string().into()),
        ("tool_name", call.tool.name.as_str().into()),
        ("mode", mode.into()),
        ("attempt", call.attempt.into()),
        ("dry_run", is_dry_run(&call.input).into()),
    ];
    attributes.extend(failed.map(|error| ("error_code", error.code.as_str().into())));
    Span {
        name: format!("call {}", call.tool.name),
        kind: SpanKind::Internal,
        trace: head.id,
        id: SpanId::call(call.id),
        parent: Some(parent),
        start,
        end: end.max(start),
        error: failed.map(|error| error.message.clone()),
        attributes,
        links: Vec::new(),
    }
}

/// The placeholder span of a run while it is driven.
pub(super) fn run_placeholder(spans: &dyn Spans, run: Uuid) -> tracing::Span {
    if spans.enabled() { spans.placeholder(run, SpanId::run(run)) } else { tracing::Span::none() }
}

/// A call in flight. Its span is reported when it ends or is dropped, so that its children always have a parent.
pub(super) struct CallSpan<'a> {
    parts: &'a FlowPorts,
    head: &'a RunHead,
    call: &'a Call,
    start: Timestamp,
    ended: bool,
}

impl<'a> CallSpan<'a> {
    pub(super) fn begin(parts: &'a FlowPorts, head: &'a RunHead, call: &'a Call) -> Self {
        Self { parts, head, call, start: parts.clock.steady(), ended: false }
    }

    /// The placeholder span of the call.
    pub(super) fn placeholder(&self) -> tracing::Span {
        let spans = &*self.parts.spans;
        let stands = || spans.placeholder(self.head.id, SpanId::call(self.call.id));
        if spans.enabled() { stands() } else { tracing::Span::none() }
    }

    /// Reports the span; returns the duration in milliseconds.
    pub(super) fn end(mut self, answer: &CallOutcome) -> i64 {
        self.ended = true;
        let end = self.parts.clock.steady();
        if self.parts.spans.enabled() {
            self.parts.spans.ended(call_span(self.head, self.call, answer, self.start, end));
        }
        end.millis() - self.start.millis()
    }
}

impl Drop for CallSpan<'_> {
    fn drop(&mut self) {
        if self.ended || !self.parts.spans.enabled() {
            return;
        }
        let cut =
            CallOutcome::Failed(ToolError::maybe_sent(Code::RequestTimeout, "the call was dropped before it returned"));
        self.parts.spans.ended(call_span(self.head, self.call, &cut, self.start, self.parts.clock.steady()));
    }
}
