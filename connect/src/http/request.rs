//! A request as tools build it, and the call it belongs to.

use bytes::Bytes;
use chimera_core::limits::{HTTP_CALL_TIMEOUT_MAX, HTTP_REDIRECTS_MAX, HTTP_RESPONSE_BYTES_MAX};
use chimera_engine::flow::port::{CallContext, CallLog, CancelToken};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;
use tokio::time::Instant;

/// What it means if a request is sent and its answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retryability {
    /// Nothing: it only reads. Failures of such a request count as not sent.
    Read,
    /// Repeating it with the same key has no second effect.
    Repeatable,
    /// Repeating it could have a second effect.
    Once,
}

/// The call that requests are made for. All its requests share one deadline.
#[derive(Clone, Debug)]
pub struct Call {
    /// `None` for calls of the process itself.
    pub tenant: Option<String>,
    /// The deadline.
    pub until: Instant,
    pub cancel: CancelToken,
    /// Makes repeated sends one effect.
    pub idempotency_key: String,
    /// W3C trace context.
    pub traceparent: String,
    pub log: CallLog,
}

impl Call {
    /// The call of a tool, starting now.
    #[must_use]
    pub fn for_tool(ctx: &CallContext) -> Self {
        Self {
            tenant: Some(ctx.tenant.clone()),
            until: Instant::now() + ctx.time_left.min(HTTP_CALL_TIMEOUT_MAX),
            cancel: ctx.cancel.clone(),
            idempotency_key: ctx.idempotency_key.clone(),
            traceparent: ctx.traceparent.clone(),
            log: ctx.log.clone(),
        }
    }
}

#[derive(Clone)]
pub struct Request {
    pub method: Method,
    pub url: Url,
    /// Headers other than those that the client adds itself.
    pub headers: HeaderMap,
    /// Empty means none.
    pub body: Bytes,
    /// What a lost answer means.
    pub care: Retryability,
    pub redirects_max: usize,
    pub answer_bytes_max: usize,
    /// Whether a longer answer is cut instead of rejected.
    pub truncate_answer: bool,
    /// The name of the other side in errors; its host if absent.
    pub shown: Option<&'static str>,
}

impl Request {
    #[must_use]
    pub fn new(method: Method, url: Url, care: Retryability) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            care,
            redirects_max: HTTP_REDIRECTS_MAX,
            answer_bytes_max: HTTP_RESPONSE_BYTES_MAX,
            truncate_answer: false,
            shown: None,
        }
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into();
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self
    }

    /// The method and the other side, for errors; never the path, which may hold secrets.
    pub(super) fn shown(&self) -> String {
        let host = self.shown.unwrap_or_else(|| self.url.host_str().unwrap_or_default());
        format!("{} {host}", self.method)
    }

    /// Whether its method writes.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS)
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers, query and body may hold secrets.
        f.debug_struct("Request").field("shown", &self.shown()).field("care", &self.care).finish_non_exhaustive()
    }
}
