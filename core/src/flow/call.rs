//! A call of a tool: what it may end with, and what is known when it did not end well.

use crate::error::{Code, ErrorBody};
use serde_json::Value;

/// Whether anything may have reached the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Certainly nothing.
    No,
    /// Nobody can tell.
    Maybe,
}

/// Why a call gave no output.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", body.message)]
pub struct ToolError {
    /// What happened, with its code, whether a retry may help, and how long to wait.
    pub body: Box<ErrorBody>,
    /// Whether anything may have been sent. An answer that refuses the request is `No`.
    pub sent: Sent,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// It happened; this is what the call would have given.
    Happened(Value),
    /// It did not happen and will not.
    Never,
    /// Nobody can tell.
    Unknowable,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It gave this.
    Output(Value),
    /// It failed.
    Failed(ToolError),
    /// A check found this.
    Found(Found),
}

impl ToolError {
    /// Nothing was sent, or the other side has refused it.
    #[must_use]
    pub fn not_sent(code: Code, message: impl Into<String>) -> Self {
        Self { body: Box::new(ErrorBody::new(code, message)), sent: Sent::No }
    }

    /// It may have been sent.
    #[must_use]
    pub fn maybe_sent(code: Code, message: impl Into<String>) -> Self {
        Self { body: Box::new(ErrorBody::new(code, message)), sent: Sent::Maybe }
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        *self.body = self.body.with(name, value);
        self
    }

    /// Says when a retry makes sense.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.body.retry_after_seconds = Some(seconds);
        self
    }
}
