//! A starting node: it is alive, and reports why it is not ready.
//!
//! It accepts connections as soon as it listens, so health checks are answered however long the store takes.
//! Meanwhile it drives no run and writes nothing.
//!
//! It also waits while the clock is implausible. Deadlines in the store are wall clock times: with a wrong
//! clock, approvals would expire early or timers would not fire. The node starts by itself once the clock is
//! right.

use crate::ambient::{ClockDisagreement, SystemClock};
use crate::compose::{self, Ambient};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use chimera_api::{Edge, ReadinessCheck, ServerLimits, ShutdownReport};
use chimera_core::error::{Code, io_reason};
use chimera_core::limits::{CLOCK_COMPARE_INTERVAL, DATABASE_SILENCE_SECONDS_MAX, START_GRACE, START_SLOW_AFTER};
use chimera_engine::port::Clock;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The known clock problem, if any.
type ClockProblem = Arc<Mutex<Option<ClockDisagreement>>>;

pub(super) struct StartupServer {
    clocks: ClockProblem,
    stop: oneshot::Sender<()>,
    served: JoinHandle<ShutdownReport>,
}

impl StartupServer {
    /// Starts answering requests.
    pub(super) fn begin(config: &Config, listener: &TcpListener, edge: Edge, limits: ServerLimits) -> Outcome<Self> {
        let failed =
            |error: std::io::Error| Failure::new(Code::Internal, format!("can't listen: {}", io_reason(&error)));
        let second = clone_listener(listener).map_err(failed)?;
        let clocks = ClockProblem::default();
        let router = chimera_api::waiting_router(edge.with_checks(vec![clock(&clocks), records(config, &clocks)]));
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _: Result<(), _> = stopped.await;
            START_GRACE
        };
        let served = tokio::spawn(chimera_api::serve_until(second, router, limits, stopped));
        Ok(Self { clocks, stop, served })
    }

    /// Finishes running requests and accepts no more: the real server takes over.
    pub(super) async fn end(self) {
        drop(self.stop);
        let _ = self.served.await;
    }

    /// Waits until the clock is plausible. Returns whether it had to wait; fails if the store can't tell.
    pub(super) async fn wait_for_clock(&self, config: &Config, ambient: &Ambient) -> Outcome<bool> {
        // A store that can't tell its newest entry proves nothing about the clock.
        let compared = with_slow_warning(config, compose::disagreement(config, &*ambient.clock)).await?;
        let Some(found) = compared else { return Ok(false) };
        if !found.stops() {
            tracing::warn!(hint = found.hint(), "{found}");
            return Ok(false);
        }
        tracing::error!(critical = true, hint = found.hint(), "{found}; this node does not start until it is right");
        self.tell(Some(found));
        self.poll_clock(config).await?;
        self.tell(None);
        tracing::warn!("the clock is right now; this node starts");
        Ok(true)
    }

    async fn poll_clock(&self, config: &Config) -> Outcome {
        loop {
            tokio::time::sleep(CLOCK_COMPARE_INTERVAL).await;
            // A fresh clock: nothing depends on it yet, so a jump counts at once.
            let clock = SystemClock::default();
            match compose::disagreement(config, &clock as &dyn Clock).await {
                Ok(Some(found)) if found.stops() => self.tell(Some(found)),
                Ok(_) => return Ok(()),
                // It may respond again.
                Err(failure) if failure.code == Code::StoreUnavailable => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    fn tell(&self, found: Option<ClockDisagreement>) {
        *self.clocks.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// Runs startup work on the store while the database responds. Logs a warning if it takes long.
pub(super) async fn with_slow_warning<T>(config: &Config, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let mut work = pin!(compose::while_responsive(config, work));
    if let Ok(done) = tokio::time::timeout(START_SLOW_AFTER, &mut work).await {
        return done;
    }
    if config.database_url.is_some() {
        let seconds_max = DATABASE_SILENCE_SECONDS_MAX;
        tracing::warn!(seconds_max, "waiting for the database; the start fails if it does not respond for this long");
    } else {
        tracing::warn!("waiting for the data folder to be opened");
    }
    work.await
}

fn known(clocks: &ClockProblem) -> Option<ClockDisagreement> {
    *clocks.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clock(clocks: &ClockProblem) -> ReadinessCheck {
    let clocks = Arc::clone(clocks);
    ReadinessCheck::new("clock", move || {
        std::future::ready(known(&clocks).map_or(Ok(()), |found| Err(found.to_string())))
    })
}

fn records(config: &Config, clocks: &ClockProblem) -> ReadinessCheck {
    let clocks = Arc::clone(clocks);
    let waits = if config.database_url.is_some() {
        "starting: waiting for the database"
    } else {
        "starting: the data folder is being opened"
    };
    ReadinessCheck::new("records", move || {
        let reason = known(&clocks).map_or(waits, |_| "starting: waiting for the clock to be right");
        std::future::ready(Err(reason.to_owned()))
    })
}

/// A second handle of the listening socket; either one accepts a connection.
fn clone_listener(listener: &TcpListener) -> std::io::Result<TcpListener> {
    use std::os::fd::AsFd;
    let socket = std::net::TcpListener::from(listener.as_fd().try_clone_to_owned()?);
    TcpListener::from_std(socket)
}
