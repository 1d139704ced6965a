//! The keeper: finds runs that nobody drives, because they have a pending signal, their deadline has passed, or their
//! owner is gone. Bus messages are hints; polling is authoritative.
//!
//! A lane is considered dead when its row was observed unchanged for longer than its lease, by this process's own
//! clock; clocks are never compared. Time without observation does not count: while the store is down nobody can renew
//! a lease, and a suspended process observes nothing. The runs of a dead lane are taken over; a call that its owner may
//! still be making is waited for until its deadline.

use super::engine::{Shutdown, TOPIC};
use super::events::sweep::sweep_expired;
use super::{Flow, reservations, work};
use crate::error::EngineError;
use crate::port::BusEvent;
use crate::rows;
use chimera_core::flow::tables::{RUNS, RunBrief, RunVersion, SignalBrief, runs};
use chimera_core::ledger::tables::LaneRow;
use chimera_core::limits;
use chimera_core::record::{Comparison, Direction, Scope, Select, StoredRow, Value};
use chimera_core::time::Timestamp;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

const SECOND_MICROS: i64 = 1_000_000;

/// How long a lane must be observed unchanged before it is considered dead.
const SILENT_MICROS_MIN: i64 = (limits::LANE_LEASE_SECONDS + limits::LANE_SILENCE_MARGIN_SECONDS) * SECOND_MICROS;

/// The last observed state of a lane, and for how long it was observed.
#[derive(Clone, Debug, PartialEq)]
struct LaneObservation {
    epoch: i64,
    head: i64,
    lease_until: Timestamp,
    silent_micros: i64,
}

/// The keeper's state between polls.
#[derive(Default)]
pub struct KeeperState {
    lanes: BTreeMap<i64, LaneObservation>,
    /// When the lanes were last read; `None` if the last poll failed to.
    looked_at: Option<Timestamp>,
    /// Own lanes whose runs were adopted: in which epoch, and when.
    mine: BTreeMap<i64, (i64, Timestamp)>,
    /// When expired events were last deleted; `None` before the first poll.
    events_swept_at: Option<Timestamp>,
    /// When expired rows of limits were last deleted.
    limits_swept_at: Option<Timestamp>,
}

/// Runs until the engine stops.
pub async fn run_keeper(flow: &Flow) {
    let mut keeper = KeeperState::default();
    let mut stopping = flow.inner.stopping();
    let mut hints = flow.inner.parts.bus.subscribe(TOPIC).await.ok();
    loop {
        match run_keeper_once(flow, &mut keeper).await {
            Ok(()) => flow.inner.pulse.beat(flow.inner.parts.clock.steady()),
            Err(error) => tracing::warn!(error = %error, "the store could not be polled for runs"),
        }
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop != Shutdown::Running) => return,
            heard = async {
                match hints.as_mut() {
                    Some(hints) => hints.next().await,
                    None => std::future::pending().await,
                }
            } => match heard {
                Some(BusEvent::Message(message)) => {
                    // Only nudge: republishing the hint would loop back to this process.
                    if let Ok(run) = Uuid::from_slice(&message) {
                        flow.inner.nudge(run, super::drive::WakeUp::CheckSignals);
                    }
                }
                Some(BusEvent::Lagged { .. }) => {}
                None => hints = None,
            },
            () = tokio::time::sleep(limits::KEEPER_SCAN_INTERVAL) => {}
        }
    }
}

/// One poll.
pub async fn run_keeper_once(flow: &Flow, keeper: &mut KeeperState) -> Result<(), EngineError> {
    let looked_at = keeper.looked_at.take();
    if flow.inner.parts.records.hold().is_some() {
        return Ok(());
    }
    adopt_orphans(flow, keeper, looked_at).await?;
    work::expire_leases(flow).await?;
    look_for_signals(flow).await?;
    look_for_deadlines(flow).await?;
    let now = flow.inner.parts.clock.steady();
    let swept_at = *keeper.events_swept_at.get_or_insert(now);
    if now >= swept_at.plus_seconds(limits::EVENT_SWEEP_SECONDS) {
        keeper.events_swept_at = Some(now);
        sweep_expired(flow).await?;
    }
    let due = |at: Timestamp| at.plus_seconds(limits::RESERVATIONS_SWEEP_SECONDS) <= now;
    if flow.inner.parts.policy.has_limits() && keeper.limits_swept_at.is_none_or(due) {
        keeper.limits_swept_at = Some(now);
        reservations::sweep(&flow.inner).await?;
    }
    Ok(())
}

async fn look_for_signals(flow: &Flow) -> Result<(), EngineError> {
    let mut select = SignalBrief::select(Scope::System).take(limits::PAGE_ROWS_MAX);
    loop {
        let page = flow.inner.parts.records.read(select.clone()).await?;
        let runs: BTreeSet<Uuid> = rows::decodable(page.rows).map(|row: SignalBrief| row.run_id).collect();
        for run in runs {
            if !flow.inner.nudge(run, super::drive::WakeUp::CheckSignals) {
                resume_or_log(flow, run).await;
            }
        }
        match page.next {
            Some(next) => select.after = Some(next),
            None => return Ok(()),
        }
    }
}

async fn look_for_deadlines(flow: &Flow) -> Result<(), EngineError> {
    let now = flow.inner.parts.clock.steady();
    let mut select = RunVersion::select(Scope::System)
        .with(runs::owner_lane, Value::Null)
        .filter(runs::next_deadline, Comparison::AtMost, now)
        // By the index: in the order of their ids, a store would look at every parked run.
        .by(&[runs::next_deadline], Direction::Ascending)
        .take(limits::PAGE_ROWS_MAX);
    // Runs that can't be resumed now must not hide those behind them.
    while flow.inner.has_capacity() {
        let page = flow.inner.parts.records.read(select.clone()).await?;
        for row in rows::decodable::<RunVersion>(page.rows) {
            resume_or_log(flow, row.id).await;
        }
        match page.next {
            Some(next) => select.after = Some(next),
            None => break,
        }
    }
    Ok(())
}

async fn resume_or_log(flow: &Flow, run: Uuid) {
    if let Err(error) = flow.inner.resume_unowned(run).await {
        tracing::warn!(run_id = %run, error = %error, "a run could not be resumed");
    }
}

/// Finds runs whose owner is gone: of own lanes that belonged to another node before, and of lanes that nobody
/// renews. Sets when the lanes were read.
async fn adopt_orphans(flow: &Flow, keeper: &mut KeeperState, looked_at: Option<Timestamp>) -> Result<(), EngineError> {
    let asked_at = flow.inner.parts.clock.steady();
    let select = LaneRow::select(Scope::System);
    let lanes: Vec<LaneRow> = rows::list(&*flow.inner.parts.records, select, limits::LANES_MAX).await?;
    let now = flow.inner.parts.clock.steady();
    keeper.looked_at = Some(now);
    let watched_micros = observed_micros(looked_at, asked_at);
    let held: BTreeMap<i64, i64> = (0..limits::LANES_MAX as u64)
        .map_while(|affinity| flow.inner.parts.records.lane(affinity))
        .take(limits::NODE_LANES_MAX)
        .map(|held| (held.lane, held.epoch))
        .collect();
    for row in &lanes {
        let lane = row.lane;
        if let Some(epoch) = held.get(&lane) {
            let again = |(known, at): &(i64, Timestamp)| {
                known != epoch || at.plus_seconds(limits::KEEPER_OWN_LANE_SECONDS) <= now
            };
            if keeper.mine.get(&lane).is_none_or(again) && adopt_runs_of(flow, lane).await? {
                keeper.mine.insert(lane, (*epoch, now));
            }
            continue;
        }
        let (epoch, head, lease_until) = (row.epoch, row.head_seq, row.lease_until);
        let seen = keeper
            .lanes
            .get(&lane)
            .filter(|seen| (seen.epoch, seen.head) == (epoch, head) && seen.lease_until == lease_until);
        let silent_micros = seen.map_or(0, |seen| seen.silent_micros.saturating_add(watched_micros));
        let dead = flow.inner.parts.alone || silent_micros >= SILENT_MICROS_MIN;
        keeper.lanes.insert(lane, LaneObservation { epoch, head, lease_until, silent_micros });
        if dead {
            adopt_runs_of(flow, lane).await?;
        }
    }
    Ok(())
}

/// Adopts the runs that a lane's owner left behind; returns whether that was all.
async fn adopt_runs_of(flow: &Flow, lane: i64) -> Result<bool, EngineError> {
    let mut select = Select::from(&RUNS, Scope::System).with(runs::owner_lane, lane).by(&[], Direction::Ascending);
    select = select.take(limits::PAGE_ROWS_MAX);
    let mut all = true;
    loop {
        let page = flow.inner.parts.records.read(select.clone()).await?;
        for row in page.rows {
            if !flow.inner.has_capacity() {
                return Ok(false);
            }
            let Ok(brief) = RunBrief::peek(&row).inspect_err(rows::log_skipped) else {
                all = false;
                continue;
            };
            let id = brief.id;
            if !flow.inner.has_capacity_for(&brief.tenant_id) {
                all = false;
                continue;
            }
            if !flow.inner.is_active(id)
                && let Err(error) = flow.inner.drive_row(brief, row).await
            {
                // One run that can't be loaded must not delay the others.
                tracing::warn!(run_id = %id, error = %error, "a run could not be taken over");
                all = false;
            }
        }
        match page.next {
            Some(next) => select.after = Some(next),
            None => return Ok(all),
        }
    }
}

/// How much of the time since the last read counts as observed.
fn observed_micros(looked_at: Option<Timestamp>, asked_at: Timestamp) -> i64 {
    let since = looked_at.map_or(0, |at| asked_at.micros().saturating_sub(at.micros()));
    since.clamp(0, limits::KEEPER_GAP_SECONDS_MAX * SECOND_MICROS)
}
