//! The only HTTP client for outgoing calls.
//!
//! There are two connection pools: one connects to public addresses only, the other serves hosts that the egress list
//! names exactly. The pool is chosen by host and port, so a pooled connection can't be reused under a weaker rule.
//! Redirects are followed here, not by the library: each target is checked again, and headers for one origin stay
//! there.

use super::answer::Answer;
use super::egress::{Egress, EgressDenied, EgressRule};
use super::failure::{DeadlinePassed, failed, not_retryable, refused, sent, transport};
use super::request::{Call, Request, Retryability};
use super::resolve::CheckedResolver;
use crate::cpu_pool::CpuPool;
use bytes::{Bytes, BytesMut};
use chimera_core::access::Claimant;
use chimera_core::error::Code;
use chimera_core::limits::{
    HTTP_CONNECT_TIMEOUT_MS, HTTP_REQUEST_BYTES_MAX, HTTP_RESPONSE_HEAD_BYTES_MAX, HTTP_RESPONSE_HEADERS_MAX,
    HTTP_RESPONSES_PROCESSED_MAX,
};
use chimera_engine::flow::port::ToolError;
use chimera_engine::port::Clock;
use hyper::body::{Body, Frame, SizeHint};
use reqwest::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    LOCATION, USER_AGENT,
};
use reqwest::{Method, Response, Url};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument, Span};

/// Header that makes repeated sends one effect.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Headers that may follow a redirect to another origin.
const CARRIED: &[HeaderName] = &[ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, USER_AGENT];

/// Sends requests under the egress rules.
#[derive(Clone)]
pub struct Client {
    public: reqwest::Client,
    listed: reqwest::Client,
    egress: Arc<Egress>,
    clock: Arc<dyn Clock>,
    aside: CpuPool,
}

pub struct ClientSettings {
    pub egress: Egress,
    pub clock: Arc<dyn Clock>,
    /// Static host entries, resolved without DNS; they pass the same rules.
    pub names: BTreeMap<String, Vec<IpAddr>>,
}

/// The client can't be built.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client can't be made: {0}")]
pub struct ClientError(#[from] reqwest::Error);

impl Client {
    /// A client with the system's root certificates.
    pub fn new(settings: ClientSettings) -> Result<Self, ClientError> {
        // A second installation fails and changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let names = Arc::new(settings.names);
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let build = |pass| {
            reqwest::Client::builder()
                .no_proxy()
                .http1_only()
                .http1_max_headers(HTTP_RESPONSE_HEADERS_MAX)
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .referer(false)
                .connect_timeout(Duration::from_millis(HTTP_CONNECT_TIMEOUT_MS))
                .user_agent(concat!("chimera/", env!("CARGO_PKG_VERSION")))
                .tls_backend_preconfigured(tls.clone())
                .dns_resolver(Arc::new(CheckedResolver::new(pass, Arc::clone(&names))))
                .build()
        };
        Ok(Self {
            public: build(EgressRule::Public)?,
            listed: build(EgressRule::Listed)?,
            egress: Arc::new(settings.egress),
            clock: settings.clock,
            aside: CpuPool::new(HTTP_RESPONSES_PROCESSED_MAX),
        })
    }

    #[must_use]
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Whether the rules allow a request, before its host name is resolved.
    pub fn allows(&self, request: &Request) -> Result<EgressRule, ToolError> {
        self.egress.check(&request.url).map_err(|why| refused(sent(request.care, false), request, why))
    }

    /// Sends it, follows redirects, and reads the answer, whatever its status. Stops at the call's deadline and on
    /// cancellation.
    pub async fn send(&self, call: &Call, request: Request) -> Result<Answer, ToolError> {
        let begun = Arc::new(AtomicBool::new(false));
        let (care, shown, span) = (request.care, request.shown(), span(&request));
        let mut cancel = call.cancel.clone();
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                let sent = sent(care, begun.load(Ordering::Acquire));
                Err(not_retryable(failed(sent, Code::RequestTimeout, format!("{shown} was cancelled"))))
            }
            () = tokio::time::sleep_until(call.until) => {
                let sent = sent(care, begun.load(Ordering::Acquire));
                Err(failed(sent, Code::RequestTimeout, format!("{shown} took longer than allowed")))
            }
            answer = traced(span, self.follow(call, request, &begun)) => answer,
        }
    }

    async fn follow(&self, call: &Call, mut request: Request, begun: &Arc<AtomicBool>) -> Result<Answer, ToolError> {
        if request.body.len() > HTTP_REQUEST_BYTES_MAX {
            let what = format!("{}: the body has more than {HTTP_REQUEST_BYTES_MAX} bytes", request.shown());
            return Err(ToolError::not_sent(Code::PayloadTooLarge, what));
        }
        request.headers.insert(TRACEPARENT, header(&call.traceparent)?);
        // A read sent by POST has no key: its further pages would be treated as duplicates.
        if request.writes() && request.care != Retryability::Read {
            request.headers.insert(IDEMPOTENCY_KEY, header(&call.idempotency_key)?);
        }
        // Set once an answer means "done, see other": from then on nothing counts as not sent.
        let mut done = false;
        for redirects in 0.. {
            let response = self.exchange(call, &request, begun, done).await?;
            match redirect_target(&response, &request) {
                Some(next) if redirects < request.redirects_max => {
                    done |= redirect(&mut request, response.status().as_u16(), next)
                        .map_err(|why| refused(sent(request.care, done), &request, why))?;
                    begun.store(done, Ordering::Release);
                }
                Some(_) if request.redirects_max > 0 => {
                    let what = format!("{}: more than {} redirects", request.shown(), request.redirects_max);
                    return Err(not_retryable(failed(sent(request.care, done), Code::ExternalServiceError, what)));
                }
                _ => return self.read(call, &request, response, done).await,
            }
        }
        Err(ToolError::maybe_sent(Code::Internal, "too many redirects"))
    }

    /// Sends one request and reads the head of its answer.
    async fn exchange(
        &self,
        call: &Call,
        request: &Request,
        begun: &Arc<AtomicBool>,
        done: bool,
    ) -> Result<Response, ToolError> {
        let pass = self.egress.check(&request.url).map_err(|why| refused(sent(request.care, done), request, why))?;
        let client = if pass == EgressRule::Listed { &self.listed } else { &self.public };
        let mut out = client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
        if request.body.is_empty() {
            // There is no signal for when a request without a body is sent.
            begun.store(true, Ordering::Release);
            if request.writes() {
                out = out.header(CONTENT_LENGTH, 0);
            }
        } else {
            let body = DeadlineBody { left: request.body.clone(), until: call.until, begun: Arc::clone(begun) };
            out = out.body(reqwest::Body::wrap(body));
        }
        let result = out.send().await;
        let response = result.map_err(|error| transport(&error, request, begun.load(Ordering::Acquire), done))?;
        let head: usize = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if head > HTTP_RESPONSE_HEAD_BYTES_MAX {
            let what = format!("{}: the head of the answer is too large", request.shown());
            return Err(not_retryable(failed(sent(request.care, true), Code::ExternalServiceError, what)));
        }
        Ok(response)
    }

    async fn read(
        &self,
        call: &Call,
        request: &Request,
        mut response: Response,
        done: bool,
    ) -> Result<Answer, ToolError> {
        let (mut body, mut truncated) = (BytesMut::new(), false);
        while let Some(chunk) = response.chunk().await.map_err(|error| transport(&error, request, true, done))? {
            let room = request.answer_bytes_max - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                truncated = true;
                break;
            }
        }
        if truncated && !request.truncate_answer {
            let what = format!("{}: the answer has more than {} bytes", request.shown(), request.answer_bytes_max);
            return Err(not_retryable(failed(sent(request.care, true), Code::ExternalServiceError, what)));
        }
        Ok(Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: body.freeze(),
            truncated,
            url: request.url.clone(),
            shown: request.shown(),
            care: request.care,
            done,
            at: self.clock.now(),
            aside: self.aside.clone(),
            who: Claimant::new(call.tenant.as_deref().unwrap_or_default(), ""),
        })
    }
}

/// The span of a request, if tracing is active. It names the host, not the purpose.
fn span(request: &Request) -> Span {
    if Span::current().is_none() {
        return Span::none();
    }
    tracing::info_span!(
        "http_call",
        otel.kind = "client",
        otel.status_code = Empty,
        http.request.method = request.method.as_str(),
        server.address = request.url.host_str().unwrap_or_default(),
        server.port = request.url.port_or_known_default(),
        http.response.status_code = Empty,
    )
}

async fn traced(span: Span, work: impl Future<Output = Result<Answer, ToolError>>) -> Result<Answer, ToolError> {
    let done = work.instrument(span.clone()).await;
    match &done {
        Ok(answer) => {
            span.record("http.response.status_code", answer.status);
            if answer.status >= 400 {
                span.record("otel.status_code", "ERROR");
            }
        }
        Err(_) => {
            span.record("otel.status_code", "ERROR");
        }
    }
    done
}

fn header(value: &str) -> Result<HeaderValue, ToolError> {
    HeaderValue::from_str(value)
        .map_err(|_| ToolError::not_sent(Code::MalformedArgs, "the idempotency key is not a valid header value"))
}

/// The redirect target of an answer, if any.
fn redirect_target(response: &Response, request: &Request) -> Option<Url> {
    matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308).then_some(())?;
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let mut next = request.url.join(location).ok()?;
    if next.fragment().is_none() {
        next.set_fragment(request.url.fragment());
    }
    Some(next)
}

/// Changes the request to its next target; returns whether the previous one has already taken effect.
fn redirect(request: &mut Request, status: u16, next: Url) -> Result<bool, EgressDenied> {
    if request.url.scheme() == "https" && next.scheme() != "https" {
        return Err(EgressDenied::Downgrade);
    }
    let becomes_get = match status {
        303 => request.writes(),
        301 | 302 => request.method == Method::POST,
        _ => false,
    };
    if becomes_get {
        request.method = Method::GET;
        request.body = Bytes::new();
        for name in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, IDEMPOTENCY_KEY] {
            request.headers.remove(name);
        }
    }
    if next.origin() != request.url.origin() {
        let kept = std::mem::take(&mut request.headers).into_iter();
        let kept = kept.filter_map(|(name, value)| Some((name?, value)));
        request.headers = kept.filter(|(name, _)| CARRIED.contains(name)).collect::<HeaderMap>();
    }
    request.url = next;
    Ok(becomes_get && request.care != Retryability::Read)
}

/// A body that records when it is first polled, and fails once the call's deadline has passed.
///
/// The connection polls it when it has buffered the head and is about to write both. A process that was suspended in
/// between resumes right there, before any timer fires, and another node may have taken over and sent the same
/// request. An error closes the connection with nothing written.
struct DeadlineBody {
    left: Bytes,
    until: Instant,
    begun: Arc<AtomicBool>,
}

impl Body for DeadlineBody {
    type Data = Bytes;
    type Error = DeadlinePassed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if Instant::now() >= self.until && !self.begun.load(Ordering::Acquire) {
            return Poll::Ready(Some(Err(DeadlinePassed)));
        }
        self.begun.store(true, Ordering::Release);
        let chunk = std::mem::take(&mut self.left);
        Poll::Ready((!chunk.is_empty()).then(|| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_engine::flow::port::{CallLog, CancelToken, Sent};
    use chimera_testkit::build::NOON;
    use chimera_testkit::seeded::FakeClock;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn nothing_of_a_request_leaves_when_its_time_is_over_by_then() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (egress, clock) = (Egress::new([address.as_str()]).unwrap(), Arc::new(FakeClock::at(NOON)));
        let client = Client::new(ClientSettings { egress, clock, names: BTreeMap::new() }).unwrap();
        let heard = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut heard = [0; 1024];
            connection.read(&mut heard).await.unwrap()
        });
        let cancel = CancelToken::pair().1;
        let until = Instant::now();
        let (idempotency_key, traceparent) = ("key".to_owned(), "trace".to_owned());
        let log = CallLog::none();
        let call = Call { tenant: None, until, cancel, idempotency_key, traceparent, log };
        let url = Url::parse(&format!("http://{address}/")).unwrap();
        let request = Request::new(Method::POST, url, Retryability::Once).json(&serde_json::json!({"pay": 1}));
        // Past the deadline: a suspended process resumes wherever it was.
        let error = client.follow(&call, request, &Arc::default()).await.err().unwrap();
        assert_eq!((error.sent, error.body.code.as_str()), (Sent::No, Code::RequestTimeout.as_str()), "{error:?}");
        drop(client);
        assert_eq!(heard.await.unwrap(), 0, "bytes were sent");
    }

    #[test]
    fn no_redirect_leads_from_https_to_anything_less() {
        let url = |text: &str| Url::parse(text).unwrap();
        for (from, to, leads) in [
            ("https://one.example/", "http://one.example/", Err(EgressDenied::Downgrade)),
            ("https://one.example/", "ftp://one.example/", Err(EgressDenied::Downgrade)),
            ("https://one.example/", "https://two.example/", Ok(false)),
            ("http://one.example/", "http://two.example/", Ok(false)),
            ("http://one.example/", "https://one.example/", Ok(false)),
        ] {
            let mut request = Request::new(Method::GET, url(from), Retryability::Read);
            assert_eq!(redirect(&mut request, 307, url(to)), leads, "{from} to {to}");
            assert_eq!(request.url, url(if leads.is_ok() { to } else { from }));
        }
    }
}
