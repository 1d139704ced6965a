//! The outermost middleware: trace, span, metrics, timeout and problem documents.
//!
//! Because it is outermost, an error from a handler, a panic, a timeout or a library leaves as a problem
//! document with its trace id.

use crate::edge::Edge;
use crate::ops::schema::ProblemDocument;
use crate::problem::{ApiError, PROBLEM_JSON, PendingProblem, RenderedError, sanitized};
use crate::routes;
use crate::trace::{Origin, RunSeed, TraceContext};
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chimera_core::error::Code;
use chimera_core::limits::{CORRELATION_CHARS_MAX, PATH_SHOWN_CHARS_MAX, TARGET_BYTES_MAX};
use chimera_core::redact::Redactor;
use chimera_engine::flow::Flow;
use tracing::Instrument;
use tracing::field::Empty;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// Middleware: runs a request in its span, renders its error, and records metrics.
pub(crate) async fn observe(State(edge): State<Edge>, mut request: Request, next: Next) -> Response {
    let began = edge.clock.steady();
    let _running = InFlightGuard::begin();
    let method = method_label(request.method());
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let instance = sanitized(request.uri().path().to_owned(), TARGET_BYTES_MAX);
    let correlation = correlation_id(request.headers()).unwrap_or_else(|| edge.random.opaque_id());
    let caller = header_text(request.headers(), &TRACEPARENT).and_then(TraceContext::parse);
    let acts = routes::route(request.method(), &route).is_some_and(|route| route.rules.starts_run);
    let run = acts.then(|| edge.random.row_id(began));
    let origin = Origin { run, caller: caller.as_ref() };
    let span = tracing::info_span!(
        "http_request",
        otel.kind = "server",
        otel.status_code = Empty,
        method,
        route,
        status = Empty,
        duration_ms = Empty,
        correlation_id = correlation,
        trace_id = Empty,
        caller_trace_id = Empty,
    );
    let exported = edge.link.as_ref().and_then(|link| link(&span, &origin));
    if let Some(run) = run {
        request.extensions_mut().insert(RunSeed::new(run, exported.as_ref()));
        span.record("caller_trace_id", caller.as_ref().map(|caller| caller.trace_id.as_str()));
    }
    let context = exported.unwrap_or_else(|| TraceContext::begin(&origin, &*edge.random));
    span.record("trace_id", context.trace_id.as_str());
    request.extensions_mut().insert(context.clone());
    let echoed = request.headers().contains_key(&CORRELATION_ID);

    let response = run_with_timeout(&edge, request, next).instrument(span.clone()).await;

    let micros = edge.clock.steady().micros() - began.micros();
    let entered = span.enter();
    let mut response = render_problem(response, &instance, &context.trace_id);
    let status = response.status();
    span.record("status", status.as_u16());
    span.record("duration_ms", micros / 1_000);
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    tracing::info!("request finished");
    drop(entered);
    record_metrics(method, &route, status.as_str(), micros);
    let headers = response.headers_mut();
    set_header(headers, TRACEPARENT, &context.to_string());
    set_header(headers, REQUEST_ID, &correlation);
    set_header(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    if echoed {
        set_header(headers, CORRELATION_ID, &correlation);
    }
    response
}

/// Runs the request with a timeout. Heads that HTTP forbids but the parser accepts are refused, because a
/// proxy may interpret them differently (request smuggling). These checks are not middleware of their own:
/// every layer clones all inner layers for each request.
async fn run_with_timeout(edge: &Edge, request: Request, next: Next) -> Response {
    if let Some(fault) = find_head_fault(&request) {
        return ApiError::new(Code::SchemaInvalid, fault).into_response();
    }
    // A held store accepts no changes from anybody, and no new work starts on a damaged one.
    if !request.method().is_safe() {
        if let Some(hold) = edge.flow.as_ref().and_then(Flow::hold) {
            return ApiError::from(hold.body()).into_response();
        }
        if let Some(damage) = edge.flow.as_ref().and_then(Flow::damage) {
            return ApiError::from(damage.body("nothing can be changed")).into_response();
        }
    }
    let changes = !request.method().is_safe();
    match tokio::time::timeout(edge.timeouts.request, next.run(request)).await {
        Ok(response) => response,
        Err(_) => request_timeout(changes).into_response(),
    }
}

/// What had begun to be committed is not undone by the end of the request.
fn request_timeout(changes: bool) -> ApiError {
    let message = if changes {
        "the request exceeded its time limit, and what it changes may have been changed: repeat it with the same \
         idempotency key, which is safe, or look first if it has none"
    } else {
        "the request exceeded its time limit"
    };
    let error = ApiError::new(Code::RequestTimeout, message).retry_after(1);
    if changes { error.with("may_have_changed", true) } else { error }
}

fn find_head_fault(request: &Request) -> Option<&'static str> {
    let hosts: Vec<&HeaderValue> = request.headers().get_all(header::HOST).iter().take(2).collect();
    let is_host = |value: &HeaderValue| {
        let authority = value.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
        value.is_empty() || authority.is_some_and(|authority| !authority.as_str().contains('@'))
    };
    let mut codings = request.headers().get_all(header::TRANSFER_ENCODING).iter();
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    match hosts[..] {
        _ if target.len() > TARGET_BYTES_MAX => Some("the request target is too long"),
        _ if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) => {
            Some("unsupported Transfer-Encoding: only chunked is supported")
        }
        [] if request.version() < Version::HTTP_11 => None,
        [host] if is_host(host) => None,
        _ => Some("exactly one Host header is required"),
    }
}

/// The response after a panic. Its message goes to the log only.
pub(crate) fn panic_response(_: Box<dyn std::any::Any + Send>) -> Response {
    ApiError::internal().into_response()
}

/// Writes the problem document and the log line of an error; leaves other responses alone.
fn render_problem(mut response: Response, instance: &str, trace_id: &str) -> Response {
    let status = response.status();
    if let Some(RenderedError(error)) = response.extensions_mut().remove::<RenderedError>() {
        log(&error);
        return response;
    }
    let error = match response.extensions_mut().remove::<PendingProblem>() {
        Some(PendingProblem(error)) => error,
        None if status.is_client_error() || status.is_server_error() => ApiError::from_status(status),
        None => return response,
    };
    log(&error);
    let problem = error.problem(&redacted_path(instance), trace_id);
    let mut headers = std::mem::take(response.headers_mut());
    headers.remove(header::CONTENT_LENGTH);
    let status = axum::http::StatusCode::from_u16(problem.status).unwrap_or(status);
    let document = ProblemDocument::from(problem);
    let mut explained = Response::new(Body::from(serde_json::to_vec(&document).unwrap_or_default()));
    *explained.status_mut() = status;
    set_header(&mut headers, header::CONTENT_TYPE, PROBLEM_JSON);
    set_header(&mut headers, header::CACHE_CONTROL, "no-store");
    *explained.headers_mut() = headers;
    explained
}

/// The path as shown in errors. It may contain a link token, so it is redacted, and before it is truncated: the
/// redactor would not recognise part of a token.
pub(crate) fn redacted_path(path: &str) -> String {
    let taken = &path[..path.floor_char_boundary(TARGET_BYTES_MAX)];
    sanitized(Redactor::default().text(taken).into_owned(), PATH_SHOWN_CHARS_MAX)
}

fn log(error: &ApiError) {
    let (class, code) = (error.code.error_type(), error.code.as_str());
    tracing::error!(
        error_code = code,
        error_type = class.as_str(),
        critical = class.is_alerting(),
        "{}",
        error.body.message
    );
}

/// Counts a request as in flight until dropped.
struct InFlightGuard(metrics::Gauge);

impl InFlightGuard {
    fn begin() -> Self {
        let gauge = metrics::gauge!("chimera_http_requests_running");
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

fn record_metrics(method: &'static str, route: &str, status: &str, micros: i64) {
    let (route, status) = (route.to_owned(), status.to_owned());
    metrics::counter!("chimera_http_requests_total", "method" => method, "route" => route.clone(), "status" => status)
        .increment(1);
    let seconds = std::time::Duration::from_micros(micros.unsigned_abs()).as_secs_f64();
    metrics::histogram!("chimera_http_request_duration_seconds", "method" => method, "route" => route).record(seconds);
}

/// A closed list, so that callers cannot create unbounded metric labels.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "OTHER",
    }
}

/// The caller's id for this request, if it is short and safe in a log line.
fn correlation_id(headers: &HeaderMap) -> Option<String> {
    let given = header_text(headers, &CORRELATION_ID).or_else(|| header_text(headers, &REQUEST_ID))?;
    let harmless = |c: u8| c.is_ascii_alphanumeric() || b"-_.:/+=".contains(&c);
    ((1..=CORRELATION_CHARS_MAX).contains(&given.len()) && given.bytes().all(harmless)).then(|| given.to_owned())
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn set_header(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_took_too_long_says_that_it_may_have_been_made() {
        let (change, read) = (request_timeout(true).body, request_timeout(false).body);
        assert_eq!((&change.details["may_have_changed"], change.retryable), (&true.into(), true));
        assert!(change.message.contains("may have been changed") && change.message.contains("same idempotency key"));
        assert!(read.details.is_empty() && !read.message.contains("changed"), "{read:?}");
    }

    #[test]
    fn a_long_path_is_masked_before_it_is_cut() {
        assert_eq!(redacted_path("/missing"), "/missing");
        let long = redacted_path(&format!("/{}", "a".repeat(TARGET_BYTES_MAX)));
        assert_eq!((long.chars().count(), long.ends_with('…')), (PATH_SHOWN_CHARS_MAX + 1, true));
        let link =
            redacted_path(&format!("/{}/approvals/{}", "a".repeat(PATH_SHOWN_CHARS_MAX - 20), "kB3x".repeat(20)));
        assert!(link.contains("/approvals/[red") && !link.contains("kB3x"), "{link}");
    }
}
