//! Gauges of the current state, sampled every few seconds.
//!
//! Ended runs are never scanned: every count uses an index of unfinished rows and stops at `COUNT_ROWS_MAX`. All nodes
//! of one database report the same store, so don't sum these gauges across nodes; slots, active runs and held lanes are
//! per process.

use super::Flow;
use super::engine::Shutdown;
use crate::error::EngineError;
use crate::rows;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::status::RequestStatus;
use chimera_core::flow::tables::{
    RUN_SIGNALS, RUNS, SCOPED_APPROVALS, STEPS, WORK_ITEMS, run_signals, runs, scoped_approvals, steps, work_items,
};
use chimera_core::flow::work::WorkState;
use chimera_core::ledger::tables::LaneRow;
use chimera_core::limits;
use chimera_core::record::{Comparison, CountQuery, RowGroup, Scope, Select, StoredRow, Value};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The states of unfinished runs. A run that has ended and is driven is being rolled back.
const STATES: [&str; 4] = ["pending", "running", "awaiting_approval", "rolling_back"];

/// Samples the gauges every few seconds until the engine stops.
pub async fn run_gauges(flow: &Flow) {
    let mut stopping = flow.inner.stopping();
    loop {
        if let Err(error) = sample_gauges(flow).await {
            metrics::counter!("chimera_metrics_sample_failures_total").increment(1);
            tracing::debug!(error = %error, "the store could not be sampled for metrics");
        }
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop != Shutdown::Running) => return,
            () = tokio::time::sleep(Duration::from_secs(limits::METRICS_SECONDS)) => {}
        }
    }
}

/// Samples every gauge once.
pub async fn sample_gauges(flow: &Flow) -> Result<(), EngineError> {
    sample_process(flow);
    let now = flow.inner.parts.clock.steady();
    sample_runs(flow).await?;
    sample_waiting(flow, now).await?;
    sample_work(flow, now).await?;
    sample_lanes(flow, now).await?;
    metrics::gauge!("chimera_metrics_sampled_timestamp_seconds").set(seconds(flow.inner.parts.clock.now().micros()));
    Ok(())
}

/// This process's use of its limits.
fn sample_process(flow: &Flow) {
    let (taken, waiting) = {
        let slots = flow.inner.call_slots();
        (slots.taken(), slots.waiting())
    };
    metrics::gauge!("chimera_call_slots_taken").set(taken as f64);
    metrics::gauge!("chimera_call_slots_limit").set(flow.inner.parts.slots.total as f64);
    metrics::gauge!("chimera_call_slots_waiting").set(waiting as f64);
    metrics::gauge!("chimera_run_places_taken").set(flow.active_runs() as f64);
    metrics::gauge!("chimera_run_places_limit").set(flow.inner.runs_max() as f64);
}

async fn sample_runs(flow: &Flow) -> Result<(), EngineError> {
    let all = || Select::from(&RUNS, Scope::System);
    let owned = all().filter(runs::owner_lane, Comparison::IsNot, Value::Null);
    let parked = all().with(runs::owner_lane, Value::Null).filter(runs::next_deadline, Comparison::IsNot, Value::Null);
    let mut states = BTreeMap::from(STATES.map(|state| (state, 0)));
    for select in [owned, parked] {
        for counted in count(flow, select, runs::created_at).await? {
            *states.entry(state(&counted.value)).or_default() += counted.rows;
        }
    }
    for (state, rows) in states {
        metrics::gauge!("chimera_runs_unfinished", "state" => state).set(rows as f64);
    }
    let lost = all().with(runs::owner_lane, Value::Null).with(runs::next_deadline, Value::Null);
    let lost = lost.with(runs::completed_at, Value::Null).filter(runs::workflow_id, Comparison::IsNot, Value::Null);
    let lost = count(flow, lost, runs::created_at).await?;
    metrics::gauge!("chimera_runs_unattended").set(total(&lost));
    let doubted =
        count(flow, all().filter(runs::in_doubt_since, Comparison::IsNot, Value::Null), runs::in_doubt_since).await?;
    metrics::gauge!("chimera_runs_in_doubt").set(total(&doubted));
    Ok(())
}

/// What waits for people or for a node to pick it up, and for how long.
async fn sample_waiting(flow: &Flow, now: Timestamp) -> Result<(), EngineError> {
    let asked = Select::from(&SCOPED_APPROVALS, Scope::System).with(scoped_approvals::status, RequestStatus::Pending);
    let asked = count(flow, asked, scoped_approvals::created_at).await?;
    metrics::gauge!("chimera_approvals_pending").set(total(&asked));
    metrics::gauge!("chimera_approvals_pending_oldest_age_seconds").set(age(&asked, now));
    let doubted = Select::from(&STEPS, Scope::System).filter(steps::in_doubt_since, Comparison::IsNot, Value::Null);
    let doubted = count(flow, doubted, steps::in_doubt_since).await?;
    metrics::gauge!("chimera_calls_in_doubt").set(total(&doubted));
    metrics::gauge!("chimera_calls_in_doubt_oldest_age_seconds").set(age(&doubted, now));
    let due = now.plus_seconds(-limits::TIMER_OVERDUE_SECONDS);
    let late = Select::from(&RUNS, Scope::System).with(runs::owner_lane, Value::Null);
    let late = count(flow, late.filter(runs::next_deadline, Comparison::AtMost, due), runs::next_deadline).await?;
    metrics::gauge!("chimera_timers_overdue").set(total(&late));
    metrics::gauge!("chimera_timers_overdue_oldest_age_seconds").set(age(&late, now));
    let overdue = now.plus_seconds(-limits::SIGNAL_OVERDUE_SECONDS);
    let unheard =
        Select::from(&RUN_SIGNALS, Scope::System).filter(run_signals::created_at, Comparison::AtMost, overdue);
    let (by, oldest) = (run_signals::kind, run_signals::created_at);
    let unheard = CountQuery { select: unheard, by, oldest, rows_max: limits::COUNT_ROWS_MAX };
    let unheard = flow.inner.parts.records.count(unheard).await?;
    metrics::gauge!("chimera_signals_overdue").set(total(&unheard));
    metrics::gauge!("chimera_signals_overdue_oldest_age_seconds").set(age(&unheard, now));
    Ok(())
}

/// The calls that wait for a worker or are held by one.
async fn sample_work(flow: &Flow, now: Timestamp) -> Result<(), EngineError> {
    for state in [WorkState::Queued, WorkState::Claimed] {
        let select = Select::from(&WORK_ITEMS, Scope::System).with(work_items::state, state);
        let (by, oldest) = (work_items::state, work_items::created_at);
        let count = CountQuery { select, by, oldest, rows_max: limits::COUNT_ROWS_MAX };
        let counted = flow.inner.parts.records.count(count).await?;
        metrics::gauge!("chimera_work_items", "state" => state.as_str()).set(total(&counted));
        if state == WorkState::Queued {
            metrics::gauge!("chimera_work_items_queued_oldest_age_seconds").set(age(&counted, now));
        }
    }
    Ok(())
}

/// All lanes by state; those of this process individually.
async fn sample_lanes(flow: &Flow, now: Timestamp) -> Result<(), EngineError> {
    let select = LaneRow::select(Scope::System);
    let rows: Vec<LaneRow> = rows::list(&*flow.inner.parts.records, select, limits::LANES_MAX).await?;
    let held: BTreeMap<i64, i64> = (0..limits::NODE_LANES_MAX as u64)
        .map_while(|affinity| flow.inner.parts.records.lane(affinity))
        .map(|held| (held.lane, held.epoch))
        .collect();
    let mut states = BTreeMap::from([("held", 0_u32), ("leased", 0), ("free", 0)]);
    for row in &rows {
        let (lane, epoch, until) = (row.lane, row.epoch, row.lease_until);
        let name = lane.to_string();
        let mine = held.get(&lane) == Some(&epoch);
        let state = if mine {
            "held"
        } else if until > now {
            "leased"
        } else {
            "free"
        };
        *states.entry(state).or_default() += 1;
        metrics::gauge!("chimera_lane_held", "lane" => name.clone()).set(f64::from(u8::from(mine)));
        if mine {
            let renewed = until.plus_seconds(-limits::LANE_LEASE_SECONDS);
            metrics::gauge!("chimera_lane_epoch", "lane" => name.clone()).set(epoch as f64);
            metrics::gauge!("chimera_lane_head_seq", "lane" => name.clone()).set(row.head_seq as f64);
            metrics::gauge!("chimera_lane_lease_age_seconds", "lane" => name)
                .set(seconds((now.micros() - renewed.micros()).max(0)));
        }
    }
    for (state, lanes) in states {
        metrics::gauge!("chimera_lanes", "state" => state).set(lanes);
    }
    Ok(())
}

async fn count(flow: &Flow, select: Select, oldest: &'static str) -> Result<Vec<RowGroup>, EngineError> {
    let count = CountQuery { select, by: runs::status, oldest, rows_max: limits::COUNT_ROWS_MAX };
    Ok(flow.inner.parts.records.count(count).await?)
}

fn state(status: &str) -> &'static str {
    match RunStatus::parse(status) {
        Some(RunStatus::Pending) => "pending",
        Some(RunStatus::AwaitingApproval) => "awaiting_approval",
        Some(status) if status.is_final() => "rolling_back",
        _ => "running",
    }
}

fn total(counted: &[RowGroup]) -> f64 {
    counted.iter().map(|counted| counted.rows).sum::<u64>() as f64
}

/// Seconds since the oldest; zero if there is none.
fn age(counted: &[RowGroup], now: Timestamp) -> f64 {
    let oldest = counted.iter().filter_map(|counted| counted.oldest).min();
    oldest.map_or(0.0, |oldest| seconds((now.micros() - oldest.micros()).max(0)))
}

fn seconds(micros: i64) -> f64 {
    Duration::from_micros(micros.unsigned_abs()).as_secs_f64()
}
