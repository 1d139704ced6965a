//! One request of a declared tool and its answer.

use super::auth::{Credential, TokenCache};
use super::plan::{HeaderTemplate, RateLimitRule, RequestTemplate, Vendor};
use super::template::{JsonTemplate, TemplateValues, plain};
use crate::flow::exchange_log::{self, ExchangeLog, TOO_MANY_REQUESTS};
use crate::http::{Answer, Call, Client, Keyring, ParsedAnswer, Request, Retryability};
use chimera_core::error::Code;
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::ToolError;
use chimera_engine::port::Secrets;
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::Arc;

/// A vendor's endpoint, client and credentials.
pub(super) struct VendorConnection {
    pub(super) client: Client,
    pub(super) secrets: Arc<dyn Secrets>,
    pub(super) vendor: Arc<Vendor>,
    pub(super) base_url: Url,
    pub(super) tokens: Arc<TokenCache>,
}

impl VendorConnection {
    /// The request with its placeholders filled, before any secret is added.
    pub(super) fn request(
        &self,
        step: &RequestTemplate,
        values: &TemplateValues<'_>,
        care: Retryability,
    ) -> Result<Request, ToolError> {
        let path = step.paths.iter().find_map(|path| path.fill(values, encoded));
        let path = path.ok_or_else(|| malformed("a value that the path needs is missing"))?;
        if path.split('/').skip(1).any(|part| matches!(unescaped(part).as_str(), "." | ".." | "")) {
            return Err(malformed("a path value must not be empty, `.` or `..`"));
        }
        let mut url = self.base_url.clone();
        url.set_path(&format!("{}{path}", self.base_url.path().trim_end_matches('/')));
        let query: Vec<(String, String)> =
            step.query.iter().flat_map(|(name, tree)| pairs(name, tree, values)).collect();
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = Request::new(step.method.clone(), url, care);
        if let Some(body) = step.body.as_ref().and_then(|body| body.fill(values)) {
            request = request.json(&body);
        }
        for (name, text) in self.vendor.headers.iter().chain(&step.headers) {
            let value = match text {
                HeaderTemplate::Fixed(value) => value.clone(),
                HeaderTemplate::Secret(_) => continue,
                HeaderTemplate::Filled(text) => {
                    let Some(text) = text.fill(values, str::to_owned) else { continue };
                    HeaderValue::from_str(&text).map_err(|_| malformed("a value is not a valid header value"))?
                }
            };
            request.headers.insert(name, value);
        }
        Ok(request)
    }

    /// Adds the credentials. Only the vendor's own origin gets them.
    pub(super) async fn sign(
        &self,
        request: &mut Request,
        step: &RequestTemplate,
        call: &Call,
        keys: &mut Keyring,
    ) -> Result<(), ToolError> {
        for (name, text) in self.vendor.headers.iter().chain(&step.headers) {
            if let HeaderTemplate::Secret(secret) = text {
                request.headers.insert(name, keys.header("", secret).await?);
            }
        }
        if let Some(credential) = &self.vendor.credential {
            let (name, value) = credential.header(&self.client, &self.tokens, call, keys).await?;
            request.headers.insert(name, value);
        }
        Ok(())
    }

    /// Sends it; an answer that is not a success becomes an error that quotes the vendor.
    pub(super) async fn send(&self, call: &Call, request: Request, keys: &Keyring) -> Result<Answer, ToolError> {
        let exchange = ExchangeLog::begin(call, &request, keys);
        let answer = self.client.send(call, request).await;
        exchange.end(call, &answer);
        let answer = answer?;
        if answer.status < 300 {
            return Ok(answer);
        }
        let vendor = Arc::clone(&self.vendor);
        let read = move |answer: &ParsedAnswer<'_>| {
            let document = answer.document();
            let limited = vendor.rate_limited.iter().find_map(|rate| rate_limit_error(rate, answer, &document));
            let words = vendor.error_message.as_ref().and_then(|place| place.find(&document)).map(plain);
            (limited, words)
        };
        let (limited, words) = answer.open(read).await?;
        if let Some(error) = limited {
            exchange_log::rate_limited(call, &error);
            return Err(error);
        }
        if answer.is_success() {
            return Err(answer.unusable(&format!("answered {}", answer.status)));
        }
        let mut error = answer.refusal();
        if answer.status == TOO_MANY_REQUESTS {
            exchange_log::rate_limited(call, &error);
        }
        if let Some(words) = words.map(|words| keys.quote(&words)) {
            let _ = write!(error.body.message, ": {words}");
        }
        // A fetched token may have been revoked; the next try fetches another.
        let fetched = matches!(self.vendor.credential, Some(Credential::Oauth2 { .. }));
        if answer.status == 401 && fetched && self.tokens.forget() {
            error.body.retryable = true;
        }
        Err(error.with("vendor", self.vendor.name.as_str()))
    }
}

/// The error, if the answer means "rate limited".
fn rate_limit_error(rate: &RateLimitRule, answer: &Answer, document: &Value) -> Option<ToolError> {
    let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
    let by_header = rate.header.as_ref().is_none_or(|(name, value)| {
        header(name).is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
    });
    let by_place = rate
        .at
        .as_ref()
        .is_none_or(|(place, words)| place.find(document).is_some_and(|found| words.contains(&plain(found))));
    if answer.status != rate.status || !by_header || !by_place {
        return None;
    }
    let reset = rate.reset_header.as_deref().and_then(header).and_then(|text| text.parse::<i64>().ok());
    let wait = reset.and_then(|at| answer.seconds_until(Timestamp::from_micros(at.checked_mul(1_000_000)?)));
    Some(answer.rate_limited(answer.retry_after().or(wait)))
}

/// The parameters for one query entry: none, one, or one per element.
fn pairs(name: &str, tree: &JsonTemplate, values: &TemplateValues<'_>) -> Vec<(String, String)> {
    let filled = match tree.fill(values) {
        None => Vec::new(),
        Some(Value::Array(several)) => several,
        Some(single) => vec![single],
    };
    filled.iter().map(|value| (name.to_owned(), plain(value))).collect()
}

/// A value as one path segment: everything but unreserved characters is escaped.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// Decodes escaped dots, as the URL parser does.
fn unescaped(part: &str) -> String {
    part.replace("%2e", ".").replace("%2E", ".")
}

pub(super) fn malformed(what: &str) -> ToolError {
    ToolError::not_sent(Code::MalformedArgs, what)
}
