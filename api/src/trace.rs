//! W3C trace context: reading and writing `traceparent`.
//!
//! An invalid header is ignored, as the recommendation demands: the request starts a new trace. Versions
//! above 00 are read by their first four parts.
//! A request that starts a run belongs to the run's own trace and only links to the caller's, so that
//! every run has exactly one trace.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use chimera_core::flow::trace::SpanId;
use chimera_core::id;
use chimera_engine::port::Random;
use std::convert::Infallible;
use std::fmt;
use uuid::Uuid;

/// The trace that a request's span belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The run that the request starts; its trace takes precedence.
    pub run: Option<Uuid>,
    /// The caller's trace: continued, or only linked if the request starts a run.
    pub caller: Option<&'a TraceContext>,
}

/// The id of the run that a request starts, and the request's own span; both absent on routes that
/// start no run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunSeed {
    pub(crate) run_id: Option<Uuid>,
    pub(crate) span: Option<SpanId>,
}

impl RunSeed {
    /// The span is set only if it is exported in the run's own trace.
    pub(crate) fn new(run: Uuid, exported: Option<&TraceContext>) -> Self {
        let own = exported.filter(|context| context.trace_id == id::trace_id(run));
        Self { run_id: Some(run), span: own.and_then(|context| SpanId::parse(&context.span_id)) }
    }
}

impl<S: Sync> FromRequestParts<S> for RunSeed {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}

/// The trace and span of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// 32 hex digits, not all zero.
    pub trace_id: String,
    /// 16 hex digits, not all zero.
    pub span_id: String,
    /// Whether the caller records the trace.
    pub sampled: bool,
}

impl TraceContext {
    /// Parses a `traceparent` header.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let (version, trace_id, span_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let valid = is_hex(version, 2)
            && version != "ff"
            && (version != "00" || parts.next().is_none())
            && is_hex(trace_id, 32)
            && is_hex(span_id, 16)
            && is_hex(flags, 2)
            && trace_id.bytes().any(|digit| digit != b'0')
            && span_id.bytes().any(|digit| digit != b'0');
        let sampled = u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1);
        valid.then(|| Self { trace_id: trace_id.to_owned(), span_id: span_id.to_owned(), sampled })
    }

    /// A new span: in the trace of the run, else in the caller's, else in a new one.
    #[must_use]
    pub fn begin(origin: &Origin<'_>, random: &dyn Random) -> Self {
        let span_id = || random.opaque_id().chars().take(16).collect();
        match (origin.run, origin.caller) {
            (Some(run), caller) => Self {
                trace_id: id::trace_id(run),
                span_id: SpanId::request(run).to_string(),
                sampled: caller.is_some_and(|caller| caller.sampled),
            },
            (None, Some(caller)) => {
                Self { trace_id: caller.trace_id.clone(), span_id: span_id(), sampled: caller.sampled }
            }
            (None, None) => Self { span_id: span_id(), trace_id: random.opaque_id(), sampled: false },
        }
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_header_reads_and_writes_unchanged() {
        let context = TraceContext::parse(EXAMPLE).unwrap();
        assert_eq!(context.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(context.sampled);
        assert_eq!(context.to_string(), EXAMPLE);
        assert!(TraceContext::parse(&EXAMPLE.replace("00-4b", "cc-4b").replace("-01", "-01-more")).is_some());
    }

    #[test]
    fn an_invalid_header_is_no_context() {
        for header in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        ] {
            assert_eq!(TraceContext::parse(header), None, "{header}");
        }
    }
}
