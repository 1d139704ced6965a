//! A node that does not serve yet: it says that it lives, and why it is not ready.
//!
//! It takes connections as soon as it has its address, so whoever asks is answered, however long the store
//! takes. Until then nothing is driven or written.
//!
//! A clock that can't be right is waited for, too. Deadlines in the store are times of day: with a wrong
//! clock approvals would expire early or timers stand still. The node begins by itself as soon as its clock
//! agrees.

use crate::ambient::{Disagreement, SystemClock};
use crate::compose::{self, Ambient};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use chimera_api::{ReadinessCheck, ShutdownReport, Edge, ServerLimits};
use chimera_core::error::{Code, io_reason};
use chimera_core::limits::{CLOCK_COMPARE_INTERVAL, DATABASE_SILENCE_SECONDS_MAX, START_GRACE, START_SLOW_AFTER};
use chimera_engine::port::Clock;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What speaks against the clock, as far as it is known.
type Clocks = Arc<Mutex<Option<Disagreement>>>;

/// A server that only says why it is not ready.
pub(super) struct Waiting {
    clocks: Clocks,
    stop: oneshot::Sender<()>,
    served: JoinHandle<ShutdownReport>,
}

impl Waiting {
    /// Answers whoever connects, until it ends.
    pub(super) fn begin(config: &Config, listener: &TcpListener, edge: Edge, limits: ServerLimits) -> Outcome<Self> {
        let failed =
            |error: std::io::Error| Failure::new(Code::Internal, format!("can't listen: {}", io_reason(&error)));
        let second = second(listener).map_err(failed)?;
        let clocks = Clocks::default();
        let router = chimera_api::waiting_router(edge.with_checks(vec![clock(&clocks), records(config, &clocks)]));
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _: Result<(), _> = stopped.await;
            START_GRACE
        };
        let served = tokio::spawn(chimera_api::serve_until(second, router, limits, stopped));
        Ok(Self { clocks, stop, served })
    }

    /// Lets requests finish and takes no more: from now on somebody else answers.
    pub(super) async fn end(self) {
        drop(self.stop);
        let _ = self.served.await;
    }

    /// Waits until the clock agrees; says whether that took any time.
    pub(super) async fn until_the_clock_agrees(&self, config: &Config, ambient: &Ambient) -> Outcome<bool> {
        let found = match answered(config, compose::disagreement(config, &*ambient.clock)).await {
            // It would be asked in vain a second time.
            Err(failure) if config.database_url.is_some() && failure.code == Code::StoreUnavailable => {
                return Err(failure);
            }
            // What else keeps the store from being asked is told by whoever opens it.
            Err(_) | Ok(None) => return Ok(false),
            Ok(Some(found)) => found,
        };
        if !found.stops() {
            tracing::warn!(hint = found.hint(), "{found}");
            return Ok(false);
        }
        tracing::error!(critical = true, hint = found.hint(), "{found}; this node begins nothing until it is right");
        self.tell(Some(found));
        self.agreed(config).await;
        self.tell(None);
        tracing::warn!("the clock is right now; this node begins");
        Ok(true)
    }

    async fn agreed(&self, config: &Config) {
        loop {
            tokio::time::sleep(CLOCK_COMPARE_INTERVAL).await;
            // The machine's clock as it is: nobody goes by it yet, so a jump need not last first.
            let clock = SystemClock::default();
            match compose::disagreement(config, &clock as &dyn Clock).await {
                Ok(Some(found)) if found.stops() => self.tell(Some(found)),
                Ok(_) => return,
                // A store that does not answer says nothing about the clock.
                Err(_) => {}
            }
        }
    }

    fn tell(&self, found: Option<Disagreement>) {
        *self.clocks.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// Does what has to be done with the store before a node begins, as long as the store answers. What takes
/// long is told.
pub(super) async fn answered<T>(config: &Config, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let mut work = pin!(compose::while_answering(config, work));
    if let Ok(done) = tokio::time::timeout(START_SLOW_AFTER, &mut work).await {
        return done;
    }
    if config.database_url.is_some() {
        let seconds_max = DATABASE_SILENCE_SECONDS_MAX;
        tracing::warn!(seconds_max, "waiting for the database; the start fails if it answers nothing for so long");
    } else {
        tracing::warn!("waiting for the data folder to be opened");
    }
    work.await
}

fn known(clocks: &Clocks) -> Option<Disagreement> {
    *clocks.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clock(clocks: &Clocks) -> ReadinessCheck {
    let clocks = Arc::clone(clocks);
    ReadinessCheck::new("clock", move || std::future::ready(known(&clocks).map_or(Ok(()), |found| Err(found.to_string()))))
}

fn records(config: &Config, clocks: &Clocks) -> ReadinessCheck {
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

/// A second handle of the same socket: whoever connects is served by one or the other.
fn second(listener: &TcpListener) -> std::io::Result<TcpListener> {
    use std::os::fd::AsFd;
    let socket = std::net::TcpListener::from(listener.as_fd().try_clone_to_owned()?);
    TcpListener::from_std(socket)
}
