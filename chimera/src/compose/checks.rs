//! Readiness checks, one for each part that requests need.

use crate::ambient::SystemClock;
use chimera_api::ReadinessCheck;
use chimera_core::limits::UPKEEP_SILENCE_SECONDS_MAX;
use chimera_engine::access::Directory;
use chimera_engine::access::port::Counters;
use chimera_engine::flow::Flow;
use chimera_engine::flow::port::Blobs;
use chimera_engine::heartbeat::Heartbeat;
use chimera_engine::port::{Clock, Records};
use std::path::Path;
use std::sync::Arc;
use tokio::task::{AbortHandle, JoinHandle};

pub(super) fn data_folder(dir: &Path) -> ReadinessCheck {
    let dir = dir.to_owned();
    ReadinessCheck::new("data_folder", move || {
        let dir = dir.clone();
        async move {
            let tried = tokio::task::spawn_blocking(move || crate::doctor::write_probe(&dir)).await;
            tried.unwrap_or(Err("the check did not finish".to_owned()))
        }
    })
}

pub(super) fn records_check(records: &Arc<dyn Records>) -> ReadinessCheck {
    let (records, noted) = (Arc::clone(records), Arc::clone(records));
    let check = ReadinessCheck::new("records", move || {
        let records = Arc::clone(&records);
        async move { records.ready().await.map_err(|error| error.reason) }
    });
    check.with_note(move || noted.warning())
}

/// Always ready: a broken file leaves its last usable content in use. The note is public, so it does not name the files.
pub(super) fn tools_check(flow: &Flow) -> ReadinessCheck {
    let flow = flow.clone();
    ReadinessCheck::new("tools", || std::future::ready(Ok(()))).with_note(move || {
        let broken = flow.registry().problems().len();
        (broken > 0).then(|| format!("broken tool files: {broken}; chimera tools list names them"))
    })
}

pub(super) fn blobs_check(blobs: &Arc<dyn Blobs>) -> ReadinessCheck {
    let blobs = Arc::clone(blobs);
    ReadinessCheck::new("blobs", move || {
        let blobs = Arc::clone(&blobs);
        async move { blobs.ready().await.map_err(|error| error.to_string()) }
    })
}

/// Checks the same counters that requests use: another connection may recover sooner.
pub(super) fn counters_check(counters: &Arc<dyn Counters>) -> ReadinessCheck {
    let counters = Arc::clone(counters);
    ReadinessCheck::new("redis", move || {
        let counters = Arc::clone(&counters);
        async move { counters.ready().await.map_err(|error| error.to_string()) }
    })
}

/// Not ready while the clock has jumped and the right time is undecided.
pub(super) fn clock_check(clock: &Arc<SystemClock>) -> ReadinessCheck {
    let clock = Arc::clone(clock);
    ReadinessCheck::new("clock", move || {
        std::future::ready(crate::ambient::watch::jump_message(&clock).map_or(Ok(()), Err))
    })
}

/// Whether the background loops of this process are alive.
pub(super) struct LoopHealth {
    clock: Arc<dyn Clock>,
    pulses: Vec<(&'static str, Heartbeat)>,
    loops: Vec<AbortHandle>,
    flow: Option<Flow>,
    directory: Option<Arc<Directory>>,
}

impl LoopHealth {
    pub(super) const fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, pulses: Vec::new(), loops: Vec::new(), flow: None, directory: None }
    }

    /// Loops may end once this engine is stopping.
    pub(super) fn until_stopped(&mut self, flow: &Flow) {
        self.flow = Some(flow.clone());
    }

    /// Watches a pulse; `what` is the start of the message when it is overdue.
    pub(super) fn watch_pulse(&mut self, what: &'static str, pulse: &Heartbeat) {
        self.pulses.push((what, pulse.clone()));
    }

    /// Watches the actor directory.
    pub(super) fn watch_directory(&mut self, directory: &Arc<Directory>) {
        self.directory = Some(Arc::clone(directory));
    }

    /// Loops that run until the process stops.
    pub(super) fn watch_loops<'a>(&mut self, loops: impl Iterator<Item = &'a JoinHandle<()>>) {
        self.loops.extend(loops.map(JoinHandle::abort_handle));
    }

    pub(super) fn check(self) -> ReadinessCheck {
        ReadinessCheck::new("upkeep", move || std::future::ready(self.trouble().map_or(Ok(()), Err)))
    }

    fn trouble(&self) -> Option<String> {
        if self.flow.as_ref().is_some_and(Flow::is_stopping) {
            return None;
        }
        if self.loops.iter().any(AbortHandle::is_finished) {
            return Some(
                "a loop of this process has ended; the log says why, and a restart begins it again".to_owned(),
            );
        }
        if self.directory.as_ref().is_some_and(|directory| directory.is_stale()) {
            return Some(
                "the actors could not be read again; what was disabled or revoked may still count here".to_owned(),
            );
        }
        let steady = self.clock.steady();
        let silent = |(what, pulse): &(&'static str, Heartbeat)| {
            let seconds = pulse.seconds_since_beat(steady);
            let said = || format!("{what} last looked after {seconds} seconds ago");
            (seconds > UPKEEP_SILENCE_SECONDS_MAX).then(said)
        };
        self.pulses.iter().find_map(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_testkit::build::NOON;
    use chimera_testkit::seeded::FakeClock;

    #[tokio::test]
    async fn a_loop_that_is_silent_or_has_ended_makes_the_process_not_ready() {
        let clock = Arc::new(FakeClock::at(NOON));
        let mut upkeep = LoopHealth::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let pulse = Heartbeat::start(NOON);
        upkeep.watch_pulse("runs were", &pulse);
        let running = tokio::spawn(std::future::pending());
        upkeep.watch_loops([&running].into_iter());
        let check = upkeep.check();
        clock.advance(UPKEEP_SILENCE_SECONDS_MAX * 1_000_000);
        assert_eq!(check.run().await, Ok(()));
        clock.advance(1_000_000);
        assert_eq!(check.run().await, Err("runs were last looked after 61 seconds ago".to_owned()));
        pulse.beat(clock.steady());
        assert_eq!(check.run().await, Ok(()));
        running.abort();
        assert!(running.await.is_err());
        assert!(check.run().await.is_err_and(|reason| reason.contains("has ended")));
    }
}
