//! An HTTP server that records requests and answers as scripted, and the fixtures that tools need.

use async_trait::async_trait;
use chimera_connect::flow::ToolDependencies;
use chimera_connect::http::{Client, ClientSettings, Egress};
use chimera_core::json::schema::SchemaViolation;
use chimera_core::secret::{Secret, SecretName};
use chimera_engine::flow::port::{CallContext, CallLog, CancelToken, Tool, ToolError};
use chimera_engine::port::{SecretError, Secrets};
use chimera_testkit::build::NOON;
use chimera_testkit::seeded::FakeClock;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    /// Path and query as sent.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// What the server does with a request.
pub(crate) enum Reply {
    /// Answers.
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Closes the connection without an answer.
    Cut,
    /// Keeps the connection open without an answer.
    Hang,
}

impl Reply {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::Answer(status, vec![("content-type", "application/json".into())], body.to_string().into())
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, Vec::new(), Vec::new())
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Answer(_, headers, _) = &mut self {
            headers.push((name, value.into()));
        }
        self
    }

    pub(crate) fn to(status: u16, location: impl Into<String>) -> Self {
        Self::status(status).with("location", location)
    }
}

/// A server on a free port of this machine.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    count: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Server {
    /// Answers every request with `reply`, which gets the requests so far, the latest last.
    pub(crate) async fn start(reply: impl Fn(&[ReceivedRequest]) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (counted, count) = watch::channel(0);
        let (reply, counted, all) = (Arc::new(reply), Arc::new(counted), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (reply, counted, all) = (Arc::clone(&reply), Arc::clone(&counted), Arc::clone(&all));
                let service = service_fn(move |request| {
                    let (reply, counted, all) = (Arc::clone(&reply), Arc::clone(&counted), Arc::clone(&all));
                    async move {
                        let request = note(request).await;
                        let now: Vec<ReceivedRequest> = {
                            let mut all = all.lock().unwrap();
                            all.push(request);
                            all.clone()
                        };
                        counted.send_replace(now.len());
                        answer(reply(&now)).await
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { address, seen, count, task }
    }

    /// A server that gives every request the same answer.
    pub(crate) async fn with_answer(status: u16, body: Value) -> Self {
        Self::start(move |_| Reply::json(status, &body)).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().iter().map(ReceivedRequest::line).collect()
    }

    /// Waits until this many requests have arrived.
    pub(crate) async fn received(&self, count: usize) {
        self.count.clone().wait_for(|seen| *seen >= count).await.unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn note(request: Request<Incoming>) -> ReceivedRequest {
    let (head, body) = request.into_parts();
    ReceivedRequest {
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

async fn answer(reply: Reply) -> io::Result<Response<Full<Bytes>>> {
    match reply {
        Reply::Answer(status, headers, body) => {
            let mut answer = Response::builder().status(status);
            for (name, value) in headers {
                answer = answer.header(name, value);
            }
            Ok(answer.body(Full::new(body.into())).unwrap())
        }
        Reply::Cut => Err(io::Error::other("cut")),
        Reply::Hang => std::future::pending().await,
    }
}

/// Secrets of a test.
pub(crate) struct FixedSecrets(pub(crate) BTreeMap<String, String>);

impl FixedSecrets {
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Arc<dyn Secrets> {
        Arc::new(Self(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()))
    }
}

#[async_trait]
impl Secrets for FixedSecrets {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        let value = self.0.get(name.as_str()).ok_or_else(|| SecretError::Missing(name.clone()))?;
        Ok(Secret::new(value.as_str()))
    }
}

/// A client with these egress rules, at noon.
pub(crate) fn client(egress: &[&str]) -> Client {
    client_with_hosts(egress, &[])
}

/// The same with static host entries.
pub(crate) fn client_with_hosts(egress: &[&str], names: &[(&str, &[&str])]) -> Client {
    let names = names.iter().map(|(name, addresses)| {
        ((*name).to_owned(), addresses.iter().map(|address| address.parse().unwrap()).collect())
    });
    let egress = Egress::new(egress).unwrap();
    Client::new(ClientSettings { egress, clock: Arc::new(FakeClock::at(NOON)), names: names.collect() }).unwrap()
}

/// A client that may call this machine.
pub(crate) fn local() -> Client {
    client(&["127.0.0.1"])
}

/// A call with plenty of time.
pub(crate) fn ctx() -> CallContext {
    cancellable().1
}

/// A call that can be cancelled.
pub(crate) fn cancellable() -> (watch::Sender<bool>, CallContext) {
    let (wish, cancel) = CancelToken::pair();
    let ctx = CallContext {
        tenant: "acme".into(),
        actor: "ada".into(),
        run_id: Uuid::from_u128(1),
        step_id: Uuid::from_u128(2),
        effect_id: Uuid::from_u128(3),
        idempotency_key: "key-3".into(),
        attempt: 1,
        deadline: NOON.plus_seconds(60),
        time_left: Duration::from_secs(60),
        traceparent: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01".into(),
        log: CallLog::none(),
        cancel,
    };
    (wish, ctx)
}

/// Calls a tool as the engine does: validates input and output.
pub(crate) async fn call(tool: &dyn Tool, input: Value) -> Result<Value, ToolError> {
    call_as(tool, &ctx(), input).await
}

pub(crate) async fn call_as(tool: &dyn Tool, ctx: &CallContext, input: Value) -> Result<Value, ToolError> {
    let faults: Result<(), Vec<SchemaViolation>> = tool.spec().input.check(&input);
    assert_eq!(faults, Ok(()), "the input");
    let output = tool.execute(ctx, &input).await?;
    if output["status"] != "dry_run" {
        assert_eq!(tool.spec().output.check(&output), Ok(()), "the output {output}");
    }
    Ok(output)
}

/// Code, whether it is retryable, whether it was sent.
pub(crate) fn gist(error: &ToolError) -> (&str, bool, chimera_engine::flow::port::Sent) {
    (error.body.code.as_str(), error.body.retryable, error.sent)
}

/// The dependencies of tools, with every named vendor at `server`.
pub(crate) fn toolbox(secrets: &[(&str, &str)], vendors: &[&str], server: &Server) -> ToolDependencies {
    let base_urls = vendors.iter().map(|vendor| ((*vendor).to_owned(), server.url("")));
    ToolDependencies { client: local(), secrets: FixedSecrets::of(secrets), base_urls: base_urls.collect() }
}
