//! Watches the machine's clock while a server runs: its jumps are logged and counted.

use super::clock::{ClockNotice, SystemClock};
use chimera_core::limits::{CLOCK_CHECK_INTERVAL, CLOCK_JUMP_LASTING_SECONDS};
use std::sync::Arc;

/// Watches until it is dropped.
pub(crate) async fn watch(clock: Arc<SystemClock>) {
    let jumps = metrics::counter!("chimera_clock_jumps_total");
    let ahead = metrics::gauge!("chimera_clock_ahead_seconds");
    loop {
        for notice in clock.take_notices() {
            if matches!(notice, ClockNotice::Jumped(_)) {
                jumps.increment(1);
            }
            log(notice);
        }
        ahead.set(clock.ahead());
        tokio::time::sleep(CLOCK_CHECK_INTERVAL).await;
    }
}

fn log(notice: ClockNotice) {
    match notice {
        ClockNotice::Jumped(seconds) => tracing::warn!(
            seconds,
            lasting_seconds = CLOCK_JUMP_LASTING_SECONDS,
            "the machine's clock jumped; times follow it once that has lasted"
        ),
        ClockNotice::Followed(seconds) => {
            tracing::warn!(seconds, "the machine's clock jumped and stayed there; times follow it now");
        }
        ClockNotice::Returned(seconds) => tracing::info!(seconds, "the machine's clock is back where it was"),
    }
}

/// Why the time of day can't be trusted now, if it can't.
pub(crate) fn jump_message(clock: &SystemClock) -> Option<String> {
    let seconds = clock.jump()?;
    Some(format!(
        "the machine's clock jumped by {seconds} seconds; times follow it once that has lasted {CLOCK_JUMP_LASTING_SECONDS} seconds"
    ))
}
