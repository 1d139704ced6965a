//! A test server with a few extra routes, and a raw client for requests that HTTP libraries refuse to send.

use axum::Router;
use axum::routing::{get, post};
use chimera_api::{ApiError, ApiJson, Edge, ReadinessCheck, ServerLimits, ShutdownReport, serve, with_routes};
use chimera_core::time::Timestamp;
use chimera_engine::port::{Clock, Random};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Advances one millisecond with every read.
#[derive(Default)]
pub(crate) struct TickingClock(AtomicI64);

impl Clock for TickingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.fetch_add(1_000, Ordering::Relaxed))
    }

    fn steady(&self) -> Timestamp {
        self.now()
    }
}

/// Bytes that count up from one.
#[derive(Default)]
pub(crate) struct CountingRandom(AtomicU8);

impl Random for CountingRandom {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
    }
}

pub(crate) fn edge() -> Edge {
    Edge::new(Arc::new(TickingClock::default()), Arc::new(CountingRandom::default()))
        .with_request_timeout(Duration::from_secs(20))
}

pub(crate) fn limits() -> ServerLimits {
    ServerLimits {
        connections_max: 64,
        connections_per_address_max: 64,
        proxies: std::sync::Arc::new([]),
        header_timeout: Duration::from_secs(20),
        shutdown_grace: Duration::from_secs(20),
    }
}

#[derive(serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    name: String,
    #[serde(default)]
    tags: Vec<u8>,
}

/// Lets a test block a request in its handler, and see that it has started.
#[derive(Clone, Default)]
pub(crate) struct RequestGate {
    pub(crate) entered: Arc<Notify>,
    pub(crate) open: Arc<Notify>,
}

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) gate: RequestGate,
    pub(crate) edge: Edge,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<ShutdownReport>,
}

impl TestServer {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn begin_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn ended(self) -> ShutdownReport {
        self.server.await.unwrap()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes as they are, and reads until the server closes.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        read_to_end(&mut stream).await
    }
}

/// Connects from one of this machine's addresses.
pub(crate) async fn connect_from(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    socket.connect(to).await.unwrap()
}

pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

pub(crate) async fn served(edge: Edge) -> TestServer {
    serve_with_limits(edge, limits()).await
}

pub(crate) async fn serve_with_limits(edge: Edge, limits: ServerLimits) -> TestServer {
    LazyLock::force(&SUBSCRIBED);
    let gate = RequestGate::default();
    let held = gate.clone();
    let more = Router::new()
        .route("/orders", post(|ApiJson(order): ApiJson<Order>| async { axum::Json(order) }))
        .route("/any", post(|ApiJson(value): ApiJson<Value>| async { axum::Json(value) }))
        .route("/panic", get(|| async { panic!("inner secret at /etc/chimera/key") as &'static str }))
        .route("/bare", get(|| async { axum::http::StatusCode::BAD_GATEWAY }))
        .route("/plain", get(|| async { (axum::http::StatusCode::UNPROCESSABLE_ENTITY, "library text") }))
        .route("/number/{n}", get(|axum::extract::Path(n): axum::extract::Path<u8>| async move { n.to_string() }))
        .route(
            "/teapot",
            get(|| async {
                Err::<(), _>(ApiError::new(chimera_core::error::Code::RateLimited, "slow down").retry_after(7))
            }),
        )
        .route(
            "/held",
            get(move || async move {
                held.entered.notify_one();
                held.open.notified().await;
                "finished"
            }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let router = with_routes(edge.clone(), more);
    let server = tokio::spawn(serve(listener, router, limits, async {
        let _ = stopped.await;
    }));
    TestServer { address, gate, edge, stop: Some(stop), server }
}

pub(crate) fn failing_check(name: &'static str, reason: &'static str) -> ReadinessCheck {
    ReadinessCheck::new(name, move || async move { Err(reason.to_owned()) })
}

pub(crate) fn passing_check(name: &'static str) -> ReadinessCheck {
    ReadinessCheck::new(name, || async { Ok(()) })
}

pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

pub(crate) async fn get_json(url: String) -> (u16, Value) {
    let response = client().get(url).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// While a subscriber that takes everything exists, no span is disabled for the whole process. Without one, a span that
/// another test reaches first, without a subscriber, may stay disabled for the test that captures the log.
static SUBSCRIBED: LazyLock<tracing::Dispatch> =
    LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(std::io::sink).finish()));

/// Captures the log output of this thread.
#[derive(Clone, Default)]
pub(crate) struct LogCapture(Arc<Mutex<Vec<u8>>>);

impl LogCapture {
    pub(crate) fn listen(&self) -> tracing::subscriber::DefaultGuard {
        LazyLock::force(&SUBSCRIBED);
        let into = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || into.clone()).finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for LogCapture {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
