//! Runs a server, from taking the lock to the final flush.
//!
//! The order matters. Start: lock, telemetry, listener, not-ready responses, clock check, stores, workflows,
//! ready. Stop: not ready, nothing new starts, calls in flight end, no new connections, running requests
//! finish, stores close, spans are sent.

mod startup;

use crate::compose::{self, Ambient, ExampleActor};
use crate::config::{Config, ListenAddress};
use crate::data_folder::DataFolder;
use crate::failure::{Failure, Outcome};
use crate::telemetry::{self, Terminal};
use chimera_api::{Edge, ServerLimits};
use chimera_core::error::{Code, io_reason};
use chimera_core::limits;
use chimera_engine::flow::{Flow, reload_tools};
use startup::StartupServer;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShutdownKind {
    /// Clean shutdown.
    Clean,
    /// A second signal cut the shutdown short; what was acknowledged is durable nevertheless.
    Forced,
}

impl ShutdownKind {
    pub(crate) fn exit(self) -> ExitCode {
        match self {
            Self::Clean => ExitCode::SUCCESS,
            Self::Forced => ExitCode::from(130),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerMode {
    /// `chimera dev`, with example actors.
    Dev {
        /// Install the example workflows.
        examples: bool,
    },
    /// `chimera serve`.
    Serve,
}

pub(crate) struct ReadyServer {
    pub(crate) url: String,
    /// An access token of the first example actor, if there are any.
    pub(crate) token: Option<String>,
    /// Example actors with their keys.
    pub(crate) examples: Vec<ExampleActor>,
}

/// Runs until a signal; calls `ready` once requests are served.
pub(crate) async fn serve(
    config: &Config,
    terminal: Terminal,
    purpose: ServerMode,
    ready: impl FnOnce(&ReadyServer) -> Outcome,
) -> Outcome<ShutdownKind> {
    let mut ambient = Ambient::new();
    let mut signals = Signals::listen()?;
    let home = DataFolder::lock(&config.data_dir)?;
    let telemetry = telemetry::start(config, terminal, ambient.clock.clone())?;
    ambient.spans = telemetry.spans();
    let (listener, address) = listen(&config.listen).await?;
    let limits = limits(config);
    let edge = bounded_edge(config, &ambient).with_metrics(telemetry.render_metrics());
    let waiting = StartupServer::begin(config, &listener, edge, limits.clone())?;
    let started = tokio::select! {
        biased;
        // No run is driven yet, so there is nothing to drain.
        _ = &mut signals.first => None,
        started = async {
            wait_for_clock(config, &mut ambient, &waiting).await?;
            prepare(config, &home, &ambient, address, purpose).await
        } => Some(started?),
    };
    let Some((prepared, examples)) = started else {
        tracing::info!("stopped during startup");
        telemetry.flush(limits::STOP_TIME_MIN).await;
        return Ok(ShutdownKind::Clean);
    };
    let Signals { first, second } = signals;
    let parts = startup::with_slow_warning(config, compose::begin(config, &ambient, prepared)).await?;
    let token = match examples.first() {
        Some(example) => Some(crate::access::token(parts.actions.access(), &example.actor)?),
        None => None,
    };
    let mut edge = bounded_edge(config, &ambient)
        .with_checks(parts.checks.iter().map(|check| config.mask.check(check)).collect())
        .with_blobs(parts.blobs.clone())
        .with_metrics(telemetry.render_metrics())
        .with_public_url(&compose::base_url(config, address));
    if let Some(flow) = parts.flow() {
        if purpose == (ServerMode::Dev { examples: true }) && flow.hold().is_none() {
            crate::flow::examples::apply(&flow, &compose::operator()).await?;
        }
        reload_on_hangup(flow.clone())?;
        edge = edge.with_flow(flow);
    }
    edge = edge.with_schedules(parts.schedules.clone()).with_intents(parts.intents.clone());
    if let Some(link) = telemetry.link() {
        edge = edge.with_trace_link(link);
    }
    let until = OnceLock::new();
    let stopping = Shutdown { first, delay: config.shutdown_delay, grace: config.shutdown_grace, until: &until };
    let url = format!("http://{address}");
    waiting.end().await;
    home.publish_address(&url)?;
    ready(&ReadyServer { url, token, examples })?;
    tracing::info!(address = %address, "serving");
    let whole = async {
        let router = chimera_api::router(edge.clone());
        let drained = chimera_api::serve_until(listener, router, limits, stopping.drain(&edge, &parts)).await;
        let cut = drained.cut;
        if cut > 0 {
            tracing::warn!(connections = cut, "requests were aborted at the end of the grace time");
        }
        home.remove_address();
        parts.close(time_left(&until)).await;
        tracing::info!("stopped");
        telemetry.flush(time_left(&until)).await;
        ShutdownKind::Clean
    };
    tokio::select! {
        biased;
        ended = whole => Ok(ended),
        Ok(()) = second => Ok(ShutdownKind::Forced),
    }
}

/// The limits of the listener, as configured.
pub(crate) fn limits(config: &Config) -> ServerLimits {
    ServerLimits {
        connections_max: config.http.connections_max,
        connections_per_address_max: config.http.connections_per_address_max,
        proxies: config.http.proxies.clone().into(),
        header_timeout: config.http.header_timeout,
        shutdown_grace: config.shutdown_grace,
    }
}

/// An edge with the limits of requests, as configured.
pub(crate) fn bounded_edge(config: &Config, ambient: &Ambient) -> Edge {
    Edge::new(ambient.clock.clone(), ambient.random.clone())
        .with_request_timeout(config.http.request_timeout)
        .with_body_timeout(config.http.body_timeout)
        .with_refused_bytes_max(config.http.refused_bytes_per_minute_max)
}

/// Waits until the clock is plausible. Renews `ambient` if that took time.
async fn wait_for_clock(config: &Config, ambient: &mut Ambient, waiting: &StartupServer) -> Outcome {
    if waiting.wait_for_clock(config, ambient).await? {
        // Start over with the corrected clock.
        *ambient = Ambient { spans: Arc::clone(&ambient.spans), ..Ambient::new() };
    }
    Ok(())
}

/// Opens the stores.
async fn prepare(
    config: &Config,
    home: &DataFolder,
    ambient: &Ambient,
    address: SocketAddr,
    purpose: ServerMode,
) -> Outcome<(compose::PreparedNode, Vec<ExampleActor>)> {
    let examples = match purpose {
        ServerMode::Dev { .. } => compose::examples(config, home, ambient)?,
        ServerMode::Serve => Vec::new(),
    };
    let prepared =
        startup::with_slow_warning(config, compose::prepare(config, home, ambient, address, &examples)).await?;
    Ok((prepared, examples))
}

struct Shutdown<'a> {
    first: oneshot::Receiver<()>,
    delay: Duration,
    grace: Duration,
    /// The end of the grace time, once it has begun.
    until: &'a OnceLock<Instant>,
}

impl Shutdown<'_> {
    /// Waits for the signal, then for the calls in flight. Connections are served meanwhile, so that clients
    /// see that the server is stopping. Returns how long requests may continue.
    async fn drain(self, edge: &Edge, parts: &compose::Node) -> Duration {
        let _ = self.first.await;
        edge.begin_stopping();
        tracing::info!("stopping: running requests may finish");
        tokio::time::sleep(self.delay).await;
        let until = self.until.get_or_init(|| Instant::now() + self.grace);
        parts.drain(self.grace).await;
        until.saturating_duration_since(Instant::now()).max(limits::STOP_TIME_MIN.min(self.grace))
    }
}

/// The rest of the grace time, but at least enough for a clean shutdown when everything responds.
fn time_left(until: &OnceLock<Instant>) -> Duration {
    until
        .get()
        .map_or(limits::STOP_TIME_MIN, |until| until.saturating_duration_since(Instant::now()))
        .max(limits::STOP_TIME_MIN)
}

/// Raises the open file limit: every connection is an open file, and the default is often low.
fn allow_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If this fails, accepting a connection reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Listens on the first usable address of the host, loopback addresses first.
pub(crate) async fn listen(at: &ListenAddress) -> Outcome<(TcpListener, SocketAddr)> {
    allow_open_files();
    let failed = |reason: &str| {
        Failure::new(Code::ConfigInvalid, format!("can't listen at {at}: {reason}"))
            .hint("choose another address with --listen; port 0 takes a free one")
    };
    let found = tokio::net::lookup_host((at.host.as_str(), at.port)).await;
    let mut addresses: Vec<SocketAddr> = found.map_err(|_| failed("the name of the host can't be resolved"))?.collect();
    addresses.sort_by_key(|address| (!address.ip().is_loopback(), address.is_ipv6()));
    addresses.dedup();
    let mut refusals = Vec::new();
    for address in addresses {
        match TcpListener::bind(address).await.and_then(|listener| Ok((listener.local_addr()?, listener))) {
            Ok((bound, listener)) => return Ok((listener, bound)),
            Err(error) if address.to_string() == at.to_string() => refusals.push(io_reason(&error)),
            Err(error) => refusals.push(format!("{} at {address}", io_reason(&error))),
        }
    }
    Err(failed(&refusals.join(", ")))
}

/// Reads the tool files again at every SIGHUP, which would end the process otherwise.
fn reload_on_hangup(flow: Flow) -> Outcome {
    let failed =
        |error: std::io::Error| Failure::new(Code::Internal, format!("can't listen to signals: {}", io_reason(&error)));
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match reload_tools(&flow).await {
                Ok(found) => {
                    tracing::info!(tools = found.declared, changed = found.is_changed, "reloaded the tool files")
                }
                Err(error) => tracing::warn!(error = %error, "the tool files could not be reloaded"),
            }
        }
    });
    Ok(())
}

/// The first and the second SIGINT or SIGTERM.
pub(crate) struct Signals {
    pub(crate) first: oneshot::Receiver<()>,
    second: oneshot::Receiver<()>,
}

impl Signals {
    pub(crate) fn listen() -> Outcome<Self> {
        let failed = |error: std::io::Error| {
            Failure::new(Code::Internal, format!("can't listen to signals: {}", io_reason(&error)))
        };
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let ((tell_first, first), (tell_second, second)) = (oneshot::channel(), oneshot::channel());
        tokio::spawn(async move {
            either(&mut interrupt, &mut terminate).await;
            let _ = tell_first.send(());
            either(&mut interrupt, &mut terminate).await;
            let _ = tell_second.send(());
        });
        Ok(Self { first, second })
    }
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
