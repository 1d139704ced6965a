//! Transport errors in words that are safe to show.
//!
//! The library's errors contain addresses and internal state; none of that is repeated. `sent` depends on whether the
//! body was polled: the connection does that only when it is about to write the request.

use super::egress::EgressDenied;
use super::request::{Request, Retryability};
use chimera_core::error::Code;
use chimera_engine::flow::port::{Sent, ToolError};
use std::error::Error;

/// Whether the request may have been sent, for calls where that matters.
pub(super) const fn sent(care: Retryability, begun: bool) -> Sent {
    if begun && !matches!(care, Retryability::Read) { Sent::Maybe } else { Sent::No }
}

pub(super) fn failed(sent: Sent, code: Code, message: String) -> ToolError {
    ToolError { sent, ..ToolError::not_sent(code, message) }
}

/// Marks an error as not retryable.
pub(crate) fn not_retryable(mut error: ToolError) -> ToolError {
    error.body.retryable = false;
    error
}

/// A call that the egress rules forbid.
pub(super) fn refused(sent: Sent, request: &Request, why: EgressDenied) -> ToolError {
    failed(sent, Code::PolicyDenied, format!("{} was refused: {why}", request.shown()))
        .with("policy_id", "egress")
        .with("host", request.shown.unwrap_or_else(|| request.url.host_str().unwrap_or_default()))
}

/// The deadline passed when the request was about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline passed before the request was sent")]
pub(super) struct DeadlinePassed;

/// Converts a connection error to a tool error. `begun` is whether the request may have been sent.
pub(super) fn transport(error: &reqwest::Error, request: &Request, begun: bool, done_before: bool) -> ToolError {
    if let Some(why) = find::<EgressDenied>(error) {
        return refused(sent(request.care, done_before), request, *why);
    }
    if find::<DeadlinePassed>(error).is_some() {
        return failed(
            sent(request.care, done_before),
            Code::RequestTimeout,
            format!("{}: {DeadlinePassed}", request.shown()),
        );
    }
    if error.is_connect() {
        let what = if error.is_dns() {
            "the host name can't be resolved"
        } else if error.is_timeout() {
            "connection refused"
        } else {
            "the connection failed"
        };
        let sent = sent(request.care, done_before);
        return failed(sent, Code::ExternalServiceUnavailable, format!("{}: {what}", request.shown()));
    }
    if error.is_builder() {
        let error = failed(
            sent(request.care, done_before),
            Code::MalformedArgs,
            format!("{} is not a valid request", request.shown()),
        );
        return not_retryable(error);
    }
    let sent = sent(request.care, begun || done_before);
    failed(sent, Code::ExternalServiceError, format!("{}: the connection was lost before the answer", request.shown()))
}

/// The first error of a type in the source chain.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
