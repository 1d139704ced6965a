//! Spans: what was done within a trace, told when it is over.

use chimera_core::flow::trace::SpanId;
use chimera_core::time::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// Hears what the engine did, for whoever looks at traces.
///
/// **Late.** A span is told once, when it is over; its children may be told before it, by another
/// process, days earlier. Ids are the teller's.
/// **Lossy.** A span that can't be passed on is dropped. The ledger is the record, not this.
/// **Cheap.** No call waits. Nobody builds a span before `enabled` said yes.
pub trait Spans: Send + Sync {
    /// Whether anybody listens.
    fn enabled(&self) -> bool;

    /// A span is over.
    fn ended(&self, span: Span);

    /// Something of `tracing` that stands where a span will be told later: whatever is traced
    /// inside becomes a child of that span, and it is not told itself.
    fn stand_in(&self, _trace: Uuid, _span: SpanId) -> tracing::Span {
        tracing::Span::none()
    }
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// What.
    pub name: String,
    /// From whose point of view.
    pub kind: SpanKind,
    /// The run whose trace it belongs to.
    pub trace: Uuid,
    /// Its id.
    pub id: SpanId,
    /// What it is a part of.
    pub parent: Option<SpanId>,
    /// When it began.
    pub start: Timestamp,
    /// When it was over.
    pub end: Timestamp,
    /// Why it failed, in the words that the run's record has.
    pub error: Option<String>,
    /// Facts about it: texts, whole numbers, yes or no.
    pub attributes: Vec<(&'static str, Value)>,
    /// Spans of other runs that it has to do with.
    pub links: Vec<(Uuid, SpanId)>,
}

/// From whose point of view a span is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Done for somebody who asked.
    Server,
    /// Done within.
    Internal,
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSpans;

impl Spans for NoSpans {
    fn enabled(&self) -> bool {
        false
    }

    fn ended(&self, _: Span) {}
}
