//! The loop that looks for due schedules.
//!
//! It sleeps until the earliest schedule is due, found by an index, and looks at what is due in bounded batches. Every
//! node runs it: the first to commit a tick has it, and what a dead node left is due for the others. A held or damaged
//! store starts nothing.

use super::{Schedules, tick};
use crate::error::EngineError;
use crate::rows;
use chimera_core::act::tables::{ScheduleDue, ScheduleRow, schedules};
use chimera_core::limits::{SCHEDULE_BATCH_MAX, SCHEDULE_SCAN_INTERVAL, SCHEDULE_TICKS_AT_ONCE_MAX};
use chimera_core::record::{Comparison, Direction, Scope, Select, StoredRow};
use futures::StreamExt;
use std::time::Duration;
use tokio::sync::watch;

/// Runs until it is stopped.
pub async fn run_ticker(scheduler: &Schedules, mut stopped: watch::Receiver<bool>) {
    loop {
        let pause = match run_due(scheduler).await {
            Ok(pause) => pause,
            Err(error) => {
                tracing::warn!(error = %error, "due schedules could not be looked at");
                SCHEDULE_SCAN_INTERVAL
            }
        };
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => return,
            () = scheduler.changed.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Looks at every due schedule once; returns how long nothing is due.
pub async fn run_due(scheduler: &Schedules) -> Result<Duration, EngineError> {
    let flow = &scheduler.actions.flow;
    scheduler.pulse.beat(scheduler.actions.access.directory.parts.clock.steady());
    if flow.is_stopping() || flow.hold().is_some() || flow.damage().is_some() {
        return Ok(SCHEDULE_SCAN_INTERVAL);
    }
    let by_time = |select: Select| select.by(&[schedules::due_at], Direction::Ascending);
    let now = scheduler.now();
    let due = by_time(ScheduleRow::select(Scope::System)).filter(schedules::due_at, Comparison::AtMost, now);
    let page = scheduler.records().read(due.take(SCHEDULE_BATCH_MAX)).await?;
    let looks = rows::decodable::<ScheduleRow>(page.rows).map(|row| async move {
        let (id, name) = (row.id, row.name.clone());
        tick::look_at(scheduler, row).await.inspect_err(|error| {
            tracing::warn!(schedule = %id, name, error = %error, "a schedule could not be looked at");
        })
    });
    let looks = futures::stream::iter(looks).buffer_unordered(SCHEDULE_TICKS_AT_ONCE_MAX);
    let results: Vec<_> = looks.collect().await;
    if !results.is_empty() {
        // More may be due: further rows, or the next tick of the same schedule.
        let failed = results.iter().any(Result::is_err);
        return Ok(if failed { SCHEDULE_SCAN_INTERVAL } else { Duration::ZERO });
    }
    let later = by_time(ScheduleDue::select(Scope::System)).filter(schedules::due_at, Comparison::Above, now);
    let next: Option<ScheduleDue> = rows::find(scheduler.records(), later).await?;
    let wait = next.map_or(i64::MAX, |row| row.due_at.micros().saturating_sub(scheduler.now().micros()));
    Ok(Duration::from_micros(u64::try_from(wait).unwrap_or(0)).min(SCHEDULE_SCAN_INTERVAL))
}
