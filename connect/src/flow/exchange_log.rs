//! What HTTP tools write to the log of their call: each exchange, without anything that the request carried.
//!
//! The query, the headers and the bodies stay out. A path may contain values of the input, and is masked like an error.

use crate::http::{Answer, Call, Keyring, Request};
use chimera_engine::flow::port::{CallContext, LogLevel, ToolError};
use serde_json::Value;
use tokio::time::Instant;

/// The status that says that the other side has had enough.
pub(super) const TOO_MANY_REQUESTS: u16 = 429;

/// An exchange that began.
pub(super) struct ExchangeLog {
    line: Option<ExchangeLine>,
}

struct ExchangeLine {
    method: String,
    host: String,
    path: String,
    began: Instant,
}

impl ExchangeLog {
    /// Remembers what is sent, if anybody wants to know.
    pub(super) fn begin(call: &Call, request: &Request, keys: &Keyring) -> Self {
        let line = || ExchangeLine {
            method: request.method.to_string(),
            host: request.url.host_str().unwrap_or_default().to_owned(),
            path: keys.quote(request.url.path()),
            began: Instant::now(),
        };
        Self { line: call.log.takes(LogLevel::Debug).then(line) }
    }

    /// Writes how it ended.
    pub(super) fn end(self, call: &Call, answer: &Result<Answer, ToolError>) {
        let Some(ExchangeLine { method, host, path, began }) = self.line else { return };
        call.log.write(LogLevel::Debug, "exchange", || {
            let (status, error) = match answer {
                Ok(answer) => (Value::from(answer.status), Value::Null),
                Err(error) => (Value::Null, Value::from(error.body.code.as_str())),
            };
            let took_ms = Value::from(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
            [
                ("method", method.into()),
                ("host", host.into()),
                ("path", path.into()),
                ("status", status),
                ("error", error),
                ("took_ms", took_ms),
            ]
        });
    }
}

/// Says that a call is made once more.
pub(super) fn retried(ctx: &CallContext) {
    if ctx.attempt > 1 {
        ctx.log.write(LogLevel::Info, "the call is made again", || []);
    }
}

/// Says that the other side has had enough.
pub(super) fn rate_limited(call: &Call, error: &ToolError) {
    call.log.write(LogLevel::Info, "rate limited", || [("retry_after_seconds", error.body.retry_after_seconds.into())]);
}

/// Says how many pages were read.
pub(super) fn pages_read(call: &Call, pages: usize, items: usize) {
    call.log.write(LogLevel::Debug, "pages read", || [("pages", pages.into()), ("items", items.into())]);
}
