//! Spans with predetermined ids: those that the engine reports, and those of requests that start runs.
//!
//! The SDK asks a generator for the ids of every span. This one returns the ids that were set on the current
//! thread just before, and random ones otherwise. A span is always started on the thread that set its ids, so no
//! other span can get them.

use chimera_core::flow::trace::SpanId as OwnSpanId;
use chimera_core::time::Timestamp;
use chimera_engine::port::{Span as EndedSpan, SpanKind as EndedSpanKind, Spans};
use opentelemetry::trace::{
    Link, Span, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, SamplingDecision, SamplingResult, SdkTracer, ShouldSample,
};
use std::cell::Cell;
use std::time::{Duration, SystemTime};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use uuid::Uuid;

/// Marks a placeholder for a span that is reported later.
const STAND_IN: &str = "otel.stand_in";

thread_local! {
    static NEXT: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// Starts a span with these ids; the trace id is used only if it has no parent.
pub(super) fn with_span_ids<T>(trace: Uuid, span: OwnSpanId, start: impl FnOnce() -> T) -> T {
    NEXT.set(Some((trace_id(trace), span_id(span))));
    let started = start();
    NEXT.set(None);
    started
}

fn trace_id(run: Uuid) -> TraceId {
    TraceId::from_bytes(*run.as_bytes())
}

fn span_id(span: OwnSpanId) -> SpanId {
    SpanId::from_bytes(span.bytes())
}

fn context(run: Uuid, span: OwnSpanId) -> SpanContext {
    SpanContext::new(trace_id(run), span_id(span), TraceFlags::SAMPLED, true, TraceState::default())
}

/// Returns the ids set by `under`, else random ones.
#[derive(Debug, Default)]
pub(super) struct PresetIdGenerator(RandomIdGenerator);

impl IdGenerator for PresetIdGenerator {
    fn new_trace_id(&self) -> TraceId {
        NEXT.get().map_or_else(|| self.0.new_trace_id(), |(trace, _)| trace)
    }

    fn new_span_id(&self) -> SpanId {
        NEXT.get().map_or_else(|| self.0.new_span_id(), |(_, span)| span)
    }
}

/// Samples every span except placeholders.
#[derive(Clone, Debug)]
pub(super) struct PlaceholderFilter;

impl ShouldSample for PlaceholderFilter {
    fn should_sample(
        &self,
        _: Option<&Context>,
        _: TraceId,
        _: &str,
        _: &SpanKind,
        attributes: &[KeyValue],
        _: &[Link],
    ) -> SamplingResult {
        let stands_in = attributes.iter().any(|attribute| attribute.key.as_str() == STAND_IN);
        let decision = if stands_in { SamplingDecision::Drop } else { SamplingDecision::RecordAndSample };
        SamplingResult { decision, attributes: Vec::new(), trace_state: TraceState::default() }
    }
}

/// Exports the spans that the engine reports.
pub(super) struct SpanReporter(pub(super) SdkTracer);

impl Spans for SpanReporter {
    fn enabled(&self) -> bool {
        true
    }

    fn ended(&self, ended: EndedSpan) {
        let parent = ended.parent.map(|parent| context(ended.trace, parent));
        let parent = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        let kind = match ended.kind {
            EndedSpanKind::Server => SpanKind::Server,
            EndedSpanKind::Internal => SpanKind::Internal,
        };
        let links = ended.links.into_iter().map(|(run, span)| Link::with_context(context(run, span)));
        let builder = self
            .0
            .span_builder(ended.name)
            .with_kind(kind)
            .with_start_time(system_time(ended.start))
            .with_attributes(
                ended.attributes.into_iter().map(|(name, value)| KeyValue::new(name, attribute_value(value))),
            )
            .with_links(links.collect());
        let mut span = with_span_ids(ended.trace, ended.id, || self.0.build_with_context(builder, &parent));
        span.set_status(ended.error.map_or(Status::Ok, Status::error));
        span.end_with_timestamp(system_time(ended.end));
    }

    fn placeholder(&self, trace: Uuid, span: OwnSpanId) -> tracing::Span {
        let stands = tracing::info_span!(parent: None, "run", otel.stand_in = true, trace_id = %trace.simple());
        // Asking for its context starts it.
        drop(with_span_ids(trace, span, || stands.context()));
        stands
    }
}

fn attribute_value(value: serde_json::Value) -> Value {
    match value {
        serde_json::Value::Bool(value) => value.into(),
        serde_json::Value::String(text) => text.into(),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        other => other.to_string().into(),
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(time.micros()).unwrap_or(0))
}
