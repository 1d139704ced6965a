//! A node that may not begin yet, because its clock can't be right.
//!
//! Deadlines in the store are times of day: with a wrong clock approvals would expire early or timers
//! stand still. So nothing is opened, driven or written. Whoever asks for readiness hears why, and
//! the node begins by itself as soon as its clock agrees.

use super::Signals;
use crate::ambient::{Disagreement, SystemClock};
use crate::compose::{self, Ambient};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use chimera_api::{Check, Edge, ServerLimits};
use chimera_core::error::{Code, io_reason};
use chimera_engine::port::Clock;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// How often the clocks are compared.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
/// How long a request may go on when the node begins.
const GRACE: Duration = Duration::from_secs(1);

/// What became of a node that compared its clock.
pub(super) enum Compared {
    /// It agrees, from the beginning on or since then.
    Agrees { waited: bool },
    /// It was stopped while it waited.
    Stopped,
}

/// Waits until the clock agrees, or for a signal. Serves readiness meanwhile.
pub(super) async fn until_the_clock_agrees(
    config: &Config,
    ambient: &Ambient,
    signals: &mut Signals,
    listener: &TcpListener,
    edge: Edge,
    limits: ServerLimits,
) -> Outcome<Compared> {
    // What keeps the store from being asked is told by whoever opens it.
    let Ok(found) = compose::disagreement(config, &*ambient.clock).await else {
        return Ok(Compared::Agrees { waited: false });
    };
    let Some(found) = found else { return Ok(Compared::Agrees { waited: false }) };
    if !found.stops() {
        tracing::warn!(hint = found.hint(), "{found}");
        return Ok(Compared::Agrees { waited: false });
    }
    tracing::error!(critical = true, hint = found.hint(), "{found}; this node begins nothing until it is right");
    let told = Arc::new(Mutex::new(found));
    let edge = edge.with_checks(vec![check(&told)]);
    let failed = |error: std::io::Error| Failure::new(Code::Internal, format!("can't listen: {}", io_reason(&error)));
    let second = second(listener).map_err(failed)?;
    let mut stopped = false;
    let stop = async {
        tokio::select! {
            biased;
            _ = &mut signals.first => stopped = true,
            () = agreed(config, &told) => tracing::warn!("the clock is right now; this node begins"),
        }
        GRACE
    };
    chimera_api::serve_until(second, chimera_api::waiting_router(edge), limits, stop).await;
    Ok(if stopped { Compared::Stopped } else { Compared::Agrees { waited: true } })
}

fn check(told: &Arc<Mutex<Disagreement>>) -> Check {
    let told = Arc::clone(told);
    Check::new("clock", move || {
        let found = *told.lock().unwrap_or_else(PoisonError::into_inner);
        std::future::ready(Err(found.to_string()))
    })
}

async fn agreed(config: &Config, told: &Mutex<Disagreement>) {
    loop {
        tokio::time::sleep(COMPARE_EVERY).await;
        // The machine's clock as it is: nobody goes by it yet, so a jump need not last first.
        let clock = SystemClock::default();
        match compose::disagreement(config, &clock as &dyn Clock).await {
            Ok(Some(found)) if found.stops() => *told.lock().unwrap_or_else(PoisonError::into_inner) = found,
            Ok(_) => return,
            // A store that does not answer says nothing about the clock.
            Err(_) => {}
        }
    }
}

/// A second handle of the same socket: whoever connects is served by one or the other.
fn second(listener: &TcpListener) -> std::io::Result<TcpListener> {
    use std::os::fd::AsFd;
    let socket = std::net::TcpListener::from(listener.as_fd().try_clone_to_owned()?);
    TcpListener::from_std(socket)
}
