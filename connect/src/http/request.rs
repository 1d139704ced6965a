//! A request as tools ask for it, and the call it belongs to.

use bytes::Bytes;
use chimera_core::limits::{HTTP_RESPONSE_BYTES_MAX, HTTP_CALL_TIMEOUT_MAX, HTTP_REDIRECTS_MAX};
use chimera_engine::flow::port::{CallContext, CancelToken};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;
use tokio::time::Instant;

/// What happens if the other side gets a request and we never hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// Nothing: it only asks. Failures of such a request count as not sent.
    Read,
    /// The same request under the same key has no second effect.
    Repeatable,
    /// Sending it again could do it twice.
    Once,
}

/// The call that requests are made for. All its requests share one deadline.
#[derive(Clone, Debug)]
pub struct Call {
    /// Whose call it is; none: the process's own.
    pub tenant: Option<String>,
    /// When the answer must be there.
    pub until: Instant,
    /// Says when nobody wants it any more.
    pub cancel: CancelToken,
    /// What makes repeated sends one effect.
    pub idempotency_key: String,
    /// W3C trace context.
    pub traceparent: String,
}

impl Call {
    /// The call of a tool, beginning now.
    #[must_use]
    pub fn of(ctx: &CallContext) -> Self {
        Self {
            tenant: Some(ctx.tenant.clone()),
            until: Instant::now() + ctx.time_left.min(HTTP_CALL_TIMEOUT_MAX),
            cancel: ctx.cancel.clone(),
            idempotency_key: ctx.idempotency_key.clone(),
            traceparent: ctx.traceparent.clone(),
        }
    }
}

/// A request.
#[derive(Clone)]
pub struct Request {
    /// What to do.
    pub method: Method,
    /// Where.
    pub url: Url,
    /// Everything but what the client adds itself.
    pub headers: HeaderMap,
    /// The body; empty is none.
    pub body: Bytes,
    /// What a lost answer means.
    pub care: Care,
    /// How many redirects are followed.
    pub redirects_max: usize,
    /// How much of the answer is read.
    pub answer_bytes_max: usize,
    /// Whether a longer answer is cut instead of refused.
    pub cuts: bool,
    /// What errors call the other side; its host if nothing else.
    pub shown: Option<&'static str>,
}

impl Request {
    /// A request without headers and body.
    #[must_use]
    pub fn new(method: Method, url: Url, care: Care) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            care,
            redirects_max: HTTP_REDIRECTS_MAX,
            answer_bytes_max: HTTP_RESPONSE_BYTES_MAX,
            cuts: false,
            shown: None,
        }
    }

    /// Takes a JSON body.
    #[must_use]
    pub fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into();
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self
    }

    /// What errors call it: the method and the other side, never the path, which may hold secrets.
    pub(super) fn shown(&self) -> String {
        let host = self.shown.unwrap_or_else(|| self.url.host_str().unwrap_or_default());
        format!("{} {host}", self.method)
    }

    /// Whether it changes something by its method alone.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS)
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers, query and body may hold what must not be read.
        f.debug_struct("Request").field("shown", &self.shown()).field("care", &self.care).finish_non_exhaustive()
    }
}
