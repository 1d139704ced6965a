//! Trace spans, reported when they end.

use chimera_core::flow::trace::SpanId;
use chimera_core::time::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// Receives the engine's spans, for tracing backends.
///
/// **Late.** A span is reported once, when it ends. Its children may have been reported before it, by another process,
/// days earlier. The engine assigns the ids.
/// **Lossy.** A span that can't be forwarded is dropped. The ledger is the record, not this.
/// **Cheap.** No call blocks. No span is built unless `enabled` returns true.
pub trait Spans: Send + Sync {
    /// Whether spans are collected.
    fn enabled(&self) -> bool;

    /// Reports a span that ended.
    fn ended(&self, span: Span);

    /// A `tracing` placeholder for a span that is reported later: what is traced inside becomes a child of that span.
    /// The placeholder itself is not reported.
    fn placeholder(&self, _trace: Uuid, _span: SpanId) -> tracing::Span {
        tracing::Span::none()
    }
}

/// A finished operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub name: String,
    pub kind: SpanKind,
    /// The run that the trace belongs to.
    pub trace: Uuid,
    pub id: SpanId,
    pub parent: Option<SpanId>,
    pub start: Timestamp,
    pub end: Timestamp,
    /// Why it failed, as the run records it.
    pub error: Option<String>,
    /// Strings, integers and booleans.
    pub attributes: Vec<(&'static str, Value)>,
    /// Related spans of other runs.
    pub links: Vec<(Uuid, SpanId)>,
}

/// The OpenTelemetry kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Handles an external request.
    Server,
    Internal,
}

/// Discards all spans.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSpans;

impl Spans for NoSpans {
    fn enabled(&self) -> bool {
        false
    }

    fn ended(&self, _: Span) {}
}
