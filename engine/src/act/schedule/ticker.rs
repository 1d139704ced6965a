//! The loop that looks for due schedules.
//!
//! It sleeps until the earliest schedule is due, found by an index, and hands what is due to tasks of their own (`ticks`)
//! without waiting for them. Every node runs it: the first to commit a tick has it, and what a dead node left is due for
//! the others. A held or damaged store starts nothing.

use super::Schedules;
use super::ticks::Ticks;
use crate::access::port::Tenancy;
use crate::error::EngineError;
use crate::rows;
use chimera_core::act::tables::{ScheduleDue, ScheduleRow, schedules};
use chimera_core::limits::{SCHEDULE_BATCH_MAX, SCHEDULE_SCAN_INTERVAL};
use chimera_core::record::{Comparison, Direction, Scope, Select, StoredRow};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Runs until it is stopped; then it waits for the ticks under way.
pub async fn run_ticker(scheduler: &Arc<Schedules>, mut stopped: watch::Receiver<bool>) {
    let mut ticks = Ticks::default();
    loop {
        let pause = match start_due(scheduler, &mut ticks).await {
            Ok(pause) => pause,
            Err(error) => {
                tracing::warn!(error = %error, "due schedules could not be looked for");
                SCHEDULE_SCAN_INTERVAL
            }
        };
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            Some(()) = ticks.next_ended(scheduler) => {}
            () = scheduler.changed.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
    while ticks.next_ended(scheduler).await.is_some() {}
}

/// Looks at what is due, as far as it fits the limits, and waits for it; returns how long nothing is due.
pub async fn run_due(scheduler: &Arc<Schedules>) -> Result<Duration, EngineError> {
    let mut ticks = Ticks::default();
    let pause = start_due(scheduler, &mut ticks).await?;
    if ticks.is_empty() {
        return Ok(pause);
    }
    while ticks.next_ended(scheduler).await.is_some() {}
    // More may be due: further rows, or the next tick of the same schedule.
    Ok(if ticks.has_failed() { SCHEDULE_SCAN_INTERVAL } else { Duration::ZERO })
}

/// Starts what is due and fits the limits; returns how long nothing else is due.
async fn start_due(scheduler: &Arc<Schedules>, ticks: &mut Ticks) -> Result<Duration, EngineError> {
    let flow = &scheduler.actions.flow;
    let directory = &scheduler.actions.access.directory;
    let steady = directory.parts.clock.steady();
    scheduler.pulse.beat(steady);
    ticks.forgive(steady);
    if flow.is_stopping() || flow.hold().is_some() || flow.damage().is_some() {
        return Ok(SCHEDULE_SCAN_INTERVAL);
    }
    let by_time = |select: Select| select.by(&[schedules::due_at], Direction::Ascending);
    let (now, shared) = (scheduler.now(), directory.is_shared());
    while !ticks.is_full() {
        let due = by_time(ScheduleRow::select(Scope::System)).filter(schedules::due_at, Comparison::AtMost, now);
        let page = scheduler.records().read(ticks.exclude_busy(due, shared).take(SCHEDULE_BATCH_MAX)).await?;
        let mut rows: Vec<ScheduleRow> = rows::decodable(page.rows).collect();
        if rows.is_empty() {
            break;
        }
        while let Some(row) = ticks.take_next(&mut rows, shared) {
            ticks.begin(scheduler, row);
        }
    }
    if ticks.is_full() {
        return Ok(SCHEDULE_SCAN_INTERVAL);
    }
    let later = by_time(ScheduleDue::select(Scope::System)).filter(schedules::due_at, Comparison::Above, now);
    let next: Option<ScheduleDue> = rows::find(scheduler.records(), later).await?;
    let wait = next.map_or(i64::MAX, |row| row.due_at.micros().saturating_sub(scheduler.now().micros()));
    Ok(Duration::from_micros(u64::try_from(wait).unwrap_or(0)).min(SCHEDULE_SCAN_INTERVAL))
}
