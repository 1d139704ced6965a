//! The outcome of a tool call, and what is known about the effect when it failed.

use crate::error::{Code, ErrorBody};
use crate::words::words;
use serde_json::Value;

words! {
    /// How a recorded call ended. A call in flight has none.
    CallEnd {
        Succeeded = "succeeded",
        Failed = "failed",
        /// It is unknown whether it took effect.
        Unknown = "unknown",
        DryRun = "dry_run",
        /// Not made: a replay used the recorded output.
        Recorded = "recorded",
        /// Not made: the output was cached.
        Cached = "cached",
        /// The tool found that it had taken effect.
        Checked = "checked",
        /// A person found that it had taken effect.
        Resolved = "resolved",
    }
}

/// Whether the request may have reached the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Certainly not.
    No,
    /// It did, and the other side answered that it failed, perhaps halfway. Repeating it has no second effect, so the
    /// call fails and nobody is asked whether it took effect.
    Answered,
    /// Unknown.
    Maybe,
}

/// Why a call produced no output.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", body.message)]
pub struct ToolError {
    /// The error, with its code, whether it is retryable, and when to retry.
    pub body: Box<ErrorBody>,
    /// `No` if the other side refused the request.
    pub sent: Sent,
}

/// The detail of an error that says that the failed call may have taken effect.
const MAY_HAVE_TAKEN_EFFECT: &str = "may_have_taken_effect";

/// Whether a call that failed with this error may have taken effect, although nobody is asked about it.
#[must_use]
pub fn may_have_taken_effect(error: &ErrorBody) -> bool {
    error.details.get(MAY_HAVE_TAKEN_EFFECT) == Some(&Value::Bool(true))
}

/// The result of checking whether an earlier call took effect.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckResult {
    /// It took effect. The value is the output that the call would have returned.
    Happened(Value),
    /// It did not take effect and never will.
    DidNotHappen,
    /// The tool cannot tell.
    Unknown,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum CallOutcome {
    Output(Value),
    Failed(ToolError),
    Checked(CheckResult),
}

impl ToolError {
    /// An error after which nothing has taken effect: nothing was sent, or the other side refused it.
    #[must_use]
    pub fn not_sent(code: Code, message: impl Into<String>) -> Self {
        Self { body: Box::new(ErrorBody::new(code, message)), sent: Sent::No }
    }

    /// An error after which the request may have taken effect.
    #[must_use]
    pub fn maybe_sent(code: Code, message: impl Into<String>) -> Self {
        Self { body: Box::new(ErrorBody::new(code, message)), sent: Sent::Maybe }
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        *self.body = self.body.with(name, value);
        self
    }

    /// The error as it is recorded: every store can hold it, and it says by itself what is only known from `sent`.
    #[must_use]
    pub fn recorded(self) -> Self {
        let body = self.body.sanitized();
        let body = match self.sent {
            Sent::Answered => body.with(MAY_HAVE_TAKEN_EFFECT, true),
            Sent::No | Sent::Maybe => body,
        };
        Self { body: Box::new(body), sent: self.sent }
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.body.retry_after_seconds = Some(seconds);
        self
    }
}
