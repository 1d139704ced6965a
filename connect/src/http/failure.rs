//! What went wrong on the way, in words that are safe to show.
//!
//! The client's own errors carry addresses and inner states; nothing of them is repeated. What
//! decides about `sent` is whether the body was asked for: the connection does that only when it
//! is about to write the request.

use super::egress::Refused;
use super::request::{Care, Request};
use chimera_core::error::Code;
use chimera_engine::flow::port::{Sent, ToolError};
use std::error::Error;

/// Whether anything that matters may have been sent.
pub(super) const fn sent(care: Care, begun: bool) -> Sent {
    if begun && !matches!(care, Care::Read) { Sent::Maybe } else { Sent::No }
}

pub(super) fn failed(sent: Sent, code: Code, message: String) -> ToolError {
    match sent {
        Sent::No => ToolError::not_sent(code, message),
        Sent::Maybe => ToolError::maybe_sent(code, message),
    }
}

/// The same request would fail again.
pub(crate) fn lasting(mut error: ToolError) -> ToolError {
    error.body.retryable = false;
    error
}

/// A call that the rules forbid.
pub(super) fn refused(sent: Sent, request: &Request, why: Refused) -> ToolError {
    failed(sent, Code::PolicyDenied, format!("{} was refused: {why}", request.shown()))
        .with("policy_id", "egress")
        .with("host", request.shown.unwrap_or_else(|| request.url.host_str().unwrap_or_default()))
}

/// The call's time was over when its request was about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call's time was over before it was sent")]
pub(super) struct Late;

/// What the connection says, told as a tool's error. `begun` is whether the request may have left.
pub(super) fn transport(error: &reqwest::Error, request: &Request, begun: bool, done_before: bool) -> ToolError {
    if let Some(why) = find::<Refused>(error) {
        return refused(sent(request.care, done_before), request, *why);
    }
    if find::<Late>(error).is_some() {
        return failed(sent(request.care, done_before), Code::RequestTimeout, format!("{}: {Late}", request.shown()));
    }
    if error.is_connect() {
        let what = if error.is_dns() {
            "its name can't be found"
        } else if error.is_timeout() {
            "it doesn't take the connection"
        } else {
            "no connection can be made"
        };
        let sent = sent(request.care, done_before);
        return failed(sent, Code::ExternalServiceUnavailable, format!("{}: {what}", request.shown()));
    }
    if error.is_builder() {
        let error = failed(
            sent(request.care, done_before),
            Code::MalformedArgs,
            format!("{} is no possible request", request.shown()),
        );
        return lasting(error);
    }
    let sent = sent(request.care, begun || done_before);
    failed(sent, Code::ExternalServiceError, format!("{}: the connection broke before the answer", request.shown()))
}

/// The first error of a type in the chain of causes.
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
