//! The state that handlers share: clock, randomness, stores, readiness checks, metrics.

use crate::flow::stream_limit::{StreamLimitReached, StreamLimiter, StreamSlot};
use crate::gate::refused_bytes::RefusedBytes;
use crate::gate::unread::UnreadResponses;
use crate::ops::readyz::CachedReadiness;
use crate::problem::ApiError;
use crate::trace::{Origin, TraceContext};
use axum::http::Uri;
use chimera_core::access::Claimant;
use chimera_core::limits;
use chimera_engine::access::port::Tenancy;
use chimera_engine::access::{Access, Permit};
use chimera_engine::act::{Actions, Schedules};
use chimera_engine::flow::Flow;
use chimera_engine::flow::port::Blobs;
use chimera_engine::intent::IntentRouter;
use chimera_engine::port::{Clock, Random};
use futures::future::{BoxFuture, OptionFuture};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// Links a request's span into the exported trace, and returns the ids under which it is exported; `None`
/// when spans are not exported.
pub type TraceLink = Arc<dyn Fn(&tracing::Span, &Origin<'_>) -> Option<TraceContext> + Send + Sync>;

type Probe = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
/// A probe that outlived the timeout of its caller and is still running.
type BackgroundProbe = Arc<Mutex<Option<JoinHandle<Result<(), String>>>>>;
type Note = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A readiness check of one component.
#[derive(Clone)]
pub struct ReadinessCheck {
    pub name: &'static str,
    probe: Probe,
    note: Option<Note>,
    open: BackgroundProbe,
}

impl ReadinessCheck {
    /// The error of `probe` is public in `/readyz`, so it must not contain paths, addresses or SQL.
    pub fn new<F, Fut>(name: &'static str, probe: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { name, probe: Arc::new(move || Box::pin(probe())), note: None, open: Arc::default() }
    }

    /// Adds a note for the operator that is shown while the check passes. It is public too.
    #[must_use]
    pub fn with_note(self, note: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { note: Some(Arc::new(note)), ..self }
    }

    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.note.as_ref().and_then(|note| note())
    }

    /// Runs the probe and waits at most `limit`. A probe that takes longer keeps running in the background, so that what
    /// it proves still counts. While one is running, a caller starts a probe of its own as well, and gets the result that
    /// comes first; a caller's own probe is dropped with the call, so at most one runs in the background.
    pub(crate) async fn run_within(&self, limit: Duration) -> Result<(), String> {
        let mut open = self.open.lock().await;
        // A result that arrived while nobody waited is stale.
        let late = open.take().filter(|question| !question.is_finished());
        let own = if late.is_some() { Some((self.probe)()) } else { None };
        let question = open.insert(late.unwrap_or_else(|| tokio::spawn((self.probe)())));
        let own = OptionFuture::from(own);
        let answer = async {
            tokio::select! {
                biased;
                answer = question => answer.unwrap_or_else(|_| Err("the check did not finish".to_owned())),
                Some(answer) = own => answer,
            }
        };
        tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    pub async fn run(&self) -> Result<(), String> {
        (self.probe)().await
    }
}

/// Scheme and path prefix under which callers reach the server; a proxy may rewrite both.
#[derive(Clone, Debug, Default)]
pub(crate) struct PublicUrl(Option<Arc<(String, String)>>);

impl PublicUrl {
    fn of(url: &str) -> Self {
        let Ok(uri) = url.parse::<Uri>() else { return Self::default() };
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Self(Some(Arc::new((uri.scheme_str().unwrap_or("http").to_owned(), prefix))))
    }

    /// `http` or `https`.
    pub(crate) fn scheme(&self) -> &str {
        self.0.as_ref().map_or("http", |parts| &parts.0)
    }

    /// The path prefix, without a trailing slash.
    pub(crate) fn prefix(&self) -> &str {
        self.0.as_ref().map_or("", |parts| &parts.1)
    }
}

/// The state of the HTTP API. Every layer clones it for each request, so a clone is one reference count.
#[derive(Clone)]
pub struct Edge {
    parts: Arc<EdgeState>,
}

/// What `/readyz` asks, and what it last found.
#[derive(Clone)]
pub(crate) struct Readiness {
    pub(crate) checks: Arc<[ReadinessCheck]>,
    /// How long one check may take.
    pub(crate) check_timeout: Duration,
    pub(crate) cached: Arc<Mutex<Option<CachedReadiness>>>,
}

/// What requests to act go through.
#[derive(Clone, Default)]
pub(crate) struct EntryPoints {
    pub(crate) schedules: Option<Arc<Schedules>>,
    pub(crate) intents: Option<Arc<IntentRouter>>,
}

/// How long the parts of a request may take.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    /// Until the response begins.
    pub(crate) request: Duration,
    /// Until the minimum rate applies to the body.
    pub(crate) body: Duration,
}

#[derive(Clone)]
pub struct EdgeState {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) blobs: Option<Arc<dyn Blobs>>,
    pub(crate) flow: Option<Flow>,
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) entry_points: EntryPoints,
    pub(crate) streams: StreamLimiter,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Arc<dyn Fn() -> String + Send + Sync>,
    pub(crate) link: Option<TraceLink>,
    pub(crate) timeouts: Timeouts,
    pub(crate) refused_bytes: Arc<RefusedBytes>,
    pub(crate) unread: Arc<UnreadResponses>,
    pub(crate) public: PublicUrl,
    stopping: Arc<AtomicBool>,
}

impl Edge {
    /// Without stores, checks, metrics or exported traces.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        let parts = EdgeState {
            clock,
            random,
            blobs: None,
            flow: None,
            access: None,
            entry_points: EntryPoints::default(),
            streams: StreamLimiter::default(),
            readiness: Readiness {
                checks: Arc::new([]),
                check_timeout: limits::READINESS_CHECK_TIMEOUT,
                cached: Arc::default(),
            },
            metrics: Arc::new(String::new),
            link: None,
            timeouts: Timeouts { request: limits::REQUEST_TIMEOUT_DEFAULT, body: limits::BODY_TIMEOUT_DEFAULT },
            refused_bytes: Arc::default(),
            unread: Arc::default(),
            public: PublicUrl::default(),
            stopping: Arc::default(),
        };
        Self { parts: Arc::new(parts) }
    }

    fn with(mut self, set: impl FnOnce(&mut EdgeState)) -> Self {
        set(Arc::make_mut(&mut self.parts));
        self
    }

    /// Sets the artifact store. Without it, artifact links are `NOT_FOUND`.
    #[must_use]
    pub fn with_blobs(self, blobs: Arc<dyn Blobs>) -> Self {
        self.with(|parts| parts.blobs = Some(blobs))
    }

    /// Sets the workflow engine.
    #[must_use]
    pub fn with_flow(self, flow: Flow) -> Self {
        self.with(|parts| parts.flow = Some(flow))
    }

    /// Sets how many event streams may be open at a time, in total and per actor.
    #[must_use]
    pub fn with_streams_max(self, total: usize, per_actor: usize) -> Self {
        self.with(|parts| parts.streams = StreamLimiter::bounded(total, per_actor))
    }

    /// Runs async work; if it may use much CPU, on a worker thread where it does not block other requests. Refused if
    /// too much work of the same caller is already queued.
    pub(crate) async fn run_offloaded<T>(
        &self,
        who: &Claimant,
        may_take_long: bool,
        work: Pin<Box<impl Future<Output = T>>>,
    ) -> Result<T, ApiError> {
        match &self.flow {
            Some(flow) => Ok(flow.offload(who, may_take_long, work).await?),
            None => Ok(work.await),
        }
    }

    /// Reserves a slot for an event stream.
    pub(crate) fn reserve_stream(&self, permit: &Permit) -> Result<StreamSlot, StreamLimitReached> {
        let shared = self.access.as_ref().is_some_and(|access| access.directory().is_shared());
        self.streams.acquire(permit.tenant(), permit.actor(), shared)
    }

    /// Sets authentication and what callers may start. Without it every guarded route is `UNAUTHENTICATED`.
    #[must_use]
    pub fn with_actions(self, actions: Arc<Actions>) -> Self {
        self.with_schedules(Arc::new(Schedules::new(actions)))
    }

    /// The same, with the schedules whose loop this process runs, so that a change wakes it.
    #[must_use]
    pub fn with_schedules(self, schedules: Arc<Schedules>) -> Self {
        let intents = IntentRouter::new(schedules.shared_actions());
        let intents = intents.inspect_err(|error| tracing::error!(%error, "a schema of intents can't be used"));
        self.with(|parts| {
            parts.access = Some(Arc::clone(schedules.actions().access()));
            parts.entry_points = EntryPoints { schedules: Some(schedules), intents: intents.ok().map(Arc::new) };
        })
    }

    /// Sets the router of intents, after the actions that it dispatches to.
    #[must_use]
    pub fn with_intents(self, intents: Arc<IntentRouter>) -> Self {
        self.with(|parts| parts.entry_points.intents = Some(intents))
    }

    /// Sets the readiness checks.
    #[must_use]
    pub fn with_checks(self, checks: Vec<ReadinessCheck>) -> Self {
        self.with(|parts| parts.readiness.checks = checks.into())
    }

    /// Sets how long one check may take.
    #[must_use]
    pub fn with_check_timeout(self, timeout: Duration) -> Self {
        self.with(|parts| parts.readiness.check_timeout = timeout)
    }

    /// Sets what renders `/metrics`.
    #[must_use]
    pub fn with_metrics(self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.with(|parts| parts.metrics = Arc::new(render))
    }

    /// Sets how spans are linked to exported traces.
    #[must_use]
    pub fn with_trace_link(self, link: TraceLink) -> Self {
        self.with(|parts| parts.link = Some(link))
    }

    /// Sets how long a request may take until its response begins.
    #[must_use]
    pub fn with_request_timeout(self, timeout: Duration) -> Self {
        self.with(|parts| parts.timeouts.request = timeout)
    }

    /// How long a request may wait for its run, so that the response begins before the request times out.
    pub(crate) fn wait_max(&self) -> Duration {
        self.timeouts.request * limits::RUN_WAIT_PERCENT_MAX / 100
    }

    /// Sets how long a body may arrive at any rate before the minimum rate applies.
    #[must_use]
    pub fn with_body_timeout(self, timeout: Duration) -> Self {
        self.with(|parts| parts.timeouts.body = timeout)
    }

    /// Sets how many body bytes of refused requests are read per sender and minute.
    #[must_use]
    pub fn with_refused_bytes_max(self, bytes_max: u64) -> Self {
        self.with(|parts| parts.refused_bytes = Arc::new(RefusedBytes::bounded(bytes_max)))
    }

    /// Sets the URL under which callers reach this server.
    #[must_use]
    pub fn with_public_url(self, url: &str) -> Self {
        self.with(|parts| parts.public = PublicUrl::of(url))
    }

    /// Makes readiness fail, so that load balancers stop sending requests.
    pub fn begin_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

impl Deref for Edge {
    type Target = EdgeState;

    fn deref(&self) -> &EdgeState {
        &self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::Notify;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    /// The probe takes longer than any caller waits.
    #[tokio::test]
    async fn a_question_that_takes_longer_goes_on_and_what_it_proves_counts() {
        let (proven, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (shown, waits) = (Arc::clone(&proven), Arc::clone(&done));
        let check = ReadinessCheck::new("records", move || {
            let (shown, waits) = (Arc::clone(&shown), Arc::clone(&waits));
            async move {
                if !shown.load(Ordering::SeqCst) {
                    waits.notified().await;
                    shown.store(true, Ordering::SeqCst);
                }
                Ok(())
            }
        });
        assert_eq!(check.run_within(SHORT).await, Err("no answer in time".to_owned()));
        done.notify_one();
        while !proven.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        assert_eq!(check.run_within(LONG).await, Ok(()));
    }

    /// The first probe hangs; later ones report what is wrong.
    #[tokio::test]
    async fn a_question_that_hangs_keeps_nobody_from_hearing_what_is_wrong() {
        let asked = AtomicUsize::new(0);
        let check = ReadinessCheck::new("records", move || {
            let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
                Err("the disk is full".to_owned())
            }
        });
        assert_eq!(check.run_within(SHORT).await, Err("no answer in time".to_owned()));
        assert_eq!(check.run_within(LONG).await, Err("the disk is full".to_owned()));
    }
}
