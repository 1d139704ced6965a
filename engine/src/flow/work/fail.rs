//! A worker could not execute a call.

use super::lease::Lease;
use super::report::{Report, report};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::Flow;
use crate::flow::error::masked_text;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::call::Sent;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureReport {
    pub code: Code,
    pub message: String,
    /// Whether another attempt may succeed. `None`: as the code says.
    pub retryable: Option<bool>,
    pub retry_after_seconds: Option<u64>,
    /// Whether the call may have taken effect.
    pub sent: Sent,
}

/// Records that a call failed. The run decides by its own rules whether it is made again, under the same idempotency
/// key.
pub async fn fail(flow: &Flow, permit: &Permit, lease: &Lease, failure: FailureReport) -> Result<(), EngineError> {
    let message = masked_text("message", Some(failure.message))?.unwrap_or_default();
    let mut error = ErrorBody::new(failure.code, message);
    error.retryable = failure.retryable.unwrap_or(error.retryable);
    error.retry_after_seconds = failure.retry_after_seconds;
    let may_have_happened = failure.sent == Sent::Maybe;
    report(flow, permit, lease, &Report::Failure { error: Box::new(error), may_have_happened }).await
}
