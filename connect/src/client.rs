//! Client for a Chimera server, used by the command line.
//!
//! The user chose the address, so no egress rule applies. An error response is returned with the server's error code.
//! A cut event stream simply ends; to resume, ask again after the last event received.

use bytes::BytesMut;
use chimera_core::access::mac;
use chimera_core::access::signature::{RequestParts, Signed};
use chimera_core::error::{Code, ErrorBody, ProblemDetails};
use chimera_core::limits;
use chimera_core::secret::Secret;
use chimera_engine::port::{Clock, Random};
use futures::stream::{BoxStream, StreamExt};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response, Url};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The header with the signature of a body.
const SIGNATURE: &str = "x-hmac-signature";

/// Paths where only the body is signed.
const BODY_SIGNED: [&str; 3] = ["act", "auth/token", "auth/refresh"];

#[derive(Clone)]
pub struct ApiCredentials {
    pub actor: String,
    pub key: Option<Secret>,
    /// An access token. Without one, the client signs in with the key.
    pub token: Option<String>,
    pub clock: Arc<dyn Clock>,
    /// Source of nonces.
    pub random: Arc<dyn Random>,
}

#[derive(Clone)]
pub struct Server {
    http: reqwest::Client,
    base: Url,
    credentials: ApiCredentials,
    token: Arc<OnceCell<HeaderValue>>,
}

/// Why a server gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiClientError {
    /// The address, the token or the actor can't be used.
    #[error("{0}")]
    Unusable(String),
    /// There is nothing to sign in with.
    #[error("no key for actor `{actor}`")]
    NoKey { actor: String },
    /// The server does not answer, or the answer was cut off.
    #[error("no answer from {place}: {reason}")]
    NoAnswer { place: String, reason: String },
    /// The server refused the request.
    #[error("{}", .0.message)]
    Refused(Box<ErrorBody>),
    /// Not a Chimera server.
    #[error("{place} answered {status}, but is not a Chimera server")]
    NotChimera { place: String, status: u16 },
}

impl Server {
    /// A client for the server at `base`.
    pub fn new(base: &str, credentials: ApiCredentials) -> Result<Self, ApiClientError> {
        let unusable = |what: &str| ApiClientError::Unusable(what.to_owned());
        let base = Url::parse(&format!("{}/", base.trim_end_matches('/')))
            .map_err(|error| ApiClientError::Unusable(format!("the server's address is not valid: {error}")))?;
        let token = OnceCell::new_with(credentials.token.as_deref().map(header).transpose()?);
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(limits::CLIENT_CONNECT_TIMEOUT)
            .user_agent(concat!("chimera/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(|_| unusable("the HTTP client can't be made"))?;
        Ok(Self { http, base, credentials, token: Arc::new(token) })
    }

    /// Sends a request and returns status and document. `path` has no leading slash.
    pub async fn ask(&self, method: &str, path: &str, body: Option<String>) -> Result<(u16, Value), ApiClientError> {
        let request = self
            .request(method, path)?
            .header(AUTHORIZATION, self.token().await?)
            .timeout(limits::CLIENT_RESPONSE_TIMEOUT);
        let request = self.signed(request, method, path, body)?;
        let answer = self.check_status(request.send().await).await?;
        let status = answer.status().as_u16();
        let bytes = answer.bytes().await.map_err(|error| self.no_answer(&error))?;
        if bytes.is_empty() {
            return Ok((status, Value::Null));
        }
        let document = serde_json::from_slice(&bytes);
        document.map(|document| (status, document)).map_err(|_| self.not_chimera(status))
    }

    /// The components that keep the server from being ready, with reasons; empty if it is ready. Needs no
    /// authentication.
    pub async fn readiness_failures(&self) -> Result<Vec<(String, String)>, ApiClientError> {
        let asked = self.request("GET", "readyz")?.timeout(limits::CLIENT_RESPONSE_TIMEOUT).send().await;
        match self.check_status(asked).await {
            Ok(_) => Ok(Vec::new()),
            Err(ApiClientError::Refused(body)) if body.code == Code::NotReady.as_str() => Ok(failed_components(&body)),
            Err(error) => Err(error),
        }
    }

    /// The data of server-sent events, each a JSON document, until the server ends the stream.
    pub async fn events(
        &self,
        path: &str,
    ) -> Result<BoxStream<'static, Result<Value, ApiClientError>>, ApiClientError> {
        let request = self.request("GET", path)?.header(AUTHORIZATION, self.token().await?);
        let request = request.header(ACCEPT, "text/event-stream");
        let answer = self.check_status(request.send().await).await?;
        let this = self.clone();
        let reader = EventReader { this, answer, waiting: BytesMut::new() };
        Ok(futures::stream::unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(event)) => Some((Ok(event), Some(reader))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed())
    }

    fn request(&self, method: &str, path: &str) -> Result<reqwest::RequestBuilder, ApiClientError> {
        let unusable = |_| ApiClientError::Unusable("the request has no usable address".to_owned());
        let url = self.base.join(path).map_err(unusable)?;
        let method = Method::from_bytes(method.as_bytes());
        let method = method.map_err(|_| ApiClientError::Unusable("no such method".to_owned()))?;
        Ok(self.http.request(method, url))
    }

    /// A request with its body, signed as the server requires for this path.
    fn signed(
        &self,
        request: reqwest::RequestBuilder,
        method: &str,
        path: &str,
        body: Option<String>,
    ) -> Result<reqwest::RequestBuilder, ApiClientError> {
        let ApiCredentials { actor, key, clock, random, .. } = &self.credentials;
        let mut request = request;
        let bytes = body.as_deref().unwrap_or_default().as_bytes();
        if key.is_none() && method != "GET" && !path.ends_with("/check") {
            let what = format!("no signing key for {actor}: with a token alone, only read requests are possible");
            return Err(ApiClientError::Unusable(what));
        }
        if let Some(key) = key.as_ref().filter(|_| method != "GET") {
            if BODY_SIGNED.contains(&path) {
                request = request.header(SIGNATURE, mac::sign(key, bytes));
            } else {
                let unusable = |what: &str| ApiClientError::Unusable(format!("the request can't be signed: {what}"));
                let url = self.base.join(path).map_err(|error| unusable(&error.to_string()))?;
                let parts = RequestParts {
                    method,
                    scheme: url.scheme(),
                    authority: url.authority(),
                    path: url.path(),
                    prefix: "",
                    query: url.query(),
                    fields: &[],
                    body: bytes,
                };
                let created = clock.now().millis().div_euclid(1_000);
                let signed = Signed::new(&parts, actor, key, created, &random.opaque_id());
                let signed = signed.ok_or_else(|| unusable("the actor's name is not plain text"))?;
                request = signed.headers().fold(request, |request, (name, value)| request.header(name, value));
            }
        }
        Ok(match body {
            Some(body) => request.header(CONTENT_TYPE, "application/json").body(body),
            None => request,
        })
    }

    /// Signs in with the key and returns the server's answer with its tokens, restricted to `scopes` if given.
    pub async fn sign_in(&self, scopes: Option<Vec<String>>) -> Result<Value, ApiClientError> {
        let ApiCredentials { actor, key, clock, random, .. } = &self.credentials;
        if key.is_none() {
            return Err(ApiClientError::NoKey { actor: actor.clone() });
        }
        let mut body = json!({"actor": actor, "issued_at": clock.now().to_string(), "nonce": random.opaque_id()});
        if let Some(scopes) = scopes {
            body["scopes"] = scopes.into();
        }
        let request = self.request("POST", "auth/token")?.timeout(limits::CLIENT_RESPONSE_TIMEOUT);
        let request = self.signed(request, "POST", "auth/token", Some(body.to_string()))?;
        let answer = self.check_status(request.send().await).await?;
        let status = answer.status().as_u16();
        answer.json().await.map_err(|_| self.not_chimera(status))
    }

    /// The access token; fetched with the key on first use.
    async fn token(&self) -> Result<HeaderValue, ApiClientError> {
        let token = self.token.get_or_try_init(|| async {
            let tokens = self.sign_in(None).await?;
            header(tokens["access_token"].as_str().ok_or_else(|| self.not_chimera(200))?)
        });
        token.await.cloned()
    }

    /// The answer, unless it is an error.
    async fn check_status(&self, answer: reqwest::Result<Response>) -> Result<Response, ApiClientError> {
        let answer = answer.map_err(|error| self.no_answer(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status().as_u16();
        let bytes = answer.bytes().await.map_err(|error| self.no_answer(&error))?;
        match serde_json::from_slice::<ProblemDetails>(&bytes) {
            Ok(problem) => Err(ApiClientError::Refused(Box::new(problem.error))),
            Err(_) => Err(self.not_chimera(status)),
        }
    }

    fn place(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    fn not_chimera(&self, status: u16) -> ApiClientError {
        ApiClientError::NotChimera { place: self.place(), status }
    }

    fn no_answer(&self, error: &reqwest::Error) -> ApiClientError {
        let reason = match error {
            error if error.is_timeout() => "it took too long",
            error if error.is_connect() => "cannot connect",
            _ => "the connection broke off",
        };
        ApiClientError::NoAnswer { place: self.place(), reason: reason.to_owned() }
    }
}

/// The `Authorization` header for a token.
fn header(token: &str) -> Result<HeaderValue, ApiClientError> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| ApiClientError::Unusable("the token is not a valid header value".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads server-sent events.
struct EventReader {
    this: Server,
    answer: Response,
    waiting: BytesMut,
}

impl EventReader {
    async fn next(&mut self) -> Result<Option<Value>, ApiClientError> {
        loop {
            while let Some(block) = self.block() {
                if let Some(data) = data(&block) {
                    return serde_json::from_str(&data).map(Some).map_err(|_| self.this.not_chimera(200));
                }
            }
            let chunk = tokio::time::timeout(limits::CLIENT_SILENCE_TIMEOUT, self.answer.chunk()).await;
            let silent = || ApiClientError::NoAnswer {
                place: self.this.place(),
                reason: "the event stream timed out".to_owned(),
            };
            match chunk.map_err(|_| silent())?.map_err(|error| self.this.no_answer(&error))? {
                None => return Ok(None),
                Some(bytes) if self.waiting.len() + bytes.len() > limits::CLIENT_EVENT_BYTES_MAX => {
                    return Err(self.this.not_chimera(200));
                }
                Some(bytes) => self.waiting.extend_from_slice(&bytes),
            }
        }
    }

    /// Everything up to the next empty line.
    fn block(&mut self) -> Option<String> {
        let at = self.waiting.windows(2).position(|pair| pair == b"\n\n")?;
        let block = self.waiting.split_to(at + 2);
        Some(String::from_utf8_lossy(&block).into_owned())
    }
}

/// The data lines of an event; none for a comment.
fn data(block: &str) -> Option<String> {
    let lines: Vec<&str> = block
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The components that are not ready, as reported by the server.
fn failed_components(body: &ErrorBody) -> Vec<(String, String)> {
    let parts = body.details.get("checks").and_then(Value::as_array).into_iter().flatten();
    let text = |part: &Value, member: &str| part[member].as_str().unwrap_or_default().to_owned();
    let failed = parts.filter(|part| part["ok"] == false);
    failed.map(|part| (text(part, "name"), text(part, "reason"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_its_data_lines_and_a_comment_is_none() {
        assert_eq!(data("id: 1\nevent: x\ndata: {\"a\":\ndata: 1}\n\n").as_deref(), Some("{\"a\":\n1}"));
        assert_eq!(data(":\n\n"), None);
    }
}
