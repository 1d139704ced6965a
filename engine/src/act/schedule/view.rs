//! How a schedule is shown.

use chimera_core::access::Level;
use chimera_core::act::schedule::{CatchUp, Overlap, TickOutcome, interval_text};
use chimera_core::act::tables::ScheduleRow;
use chimera_core::error::ErrorBody;
use chimera_core::record::{DamagedRows, Json};
use chimera_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

/// Whether a schedule ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleStatus {
    Active,
    Paused,
    /// There are no further ticks.
    Ended,
}

#[derive(Clone, Debug, Serialize)]
pub struct ScheduleView {
    pub schedule_id: Uuid,
    pub name: String,
    pub owner: String,
    pub status: ScheduleStatus,
    #[serde(flatten)]
    pub starts: ScheduledWorkflow,
    #[serde(flatten)]
    pub timing: ScheduleTiming,
    #[serde(flatten)]
    pub policies: SchedulePolicies,
    #[serde(flatten)]
    pub pause: SchedulePause,
    #[serde(flatten)]
    pub progress: ScheduleProgress,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub state_version: i64,
}

/// What a schedule starts.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduledWorkflow {
    pub workflow_id: String,
    pub version: Option<i64>,
    /// Ticks start the newest version of their time.
    pub follow_latest: bool,
    /// No run of a tick acts more freely.
    pub autonomy_level_max: Option<Level>,
    pub inputs: Json,
}

/// When a schedule ticks.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleTiming {
    pub cron: Option<String>,
    pub time_zone: Option<String>,
    pub every: Option<String>,
    pub anchor_at: Option<Timestamp>,
    pub jitter_seconds: i64,
    pub starts_at: Option<Timestamp>,
    pub ends_at: Option<Timestamp>,
}

/// What happens to ticks that overlap or were missed.
#[derive(Clone, Debug, Serialize)]
pub struct SchedulePolicies {
    pub overlap: Overlap,
    pub queue_max: u32,
    pub catch_up: CatchUp,
    pub catch_up_window_seconds: i64,
}

/// Since when a schedule is paused, by whom and why.
#[derive(Clone, Debug, Serialize)]
pub struct SchedulePause {
    pub paused_at: Option<Timestamp>,
    pub paused_by: Option<String>,
    pub pause_reason: Option<String>,
}

/// Where a schedule is: ticks and runs.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleProgress {
    pub next_at: Option<Timestamp>,
    pub queued: Vec<Timestamp>,
    /// Runs that were not finished when the schedule was last looked at.
    pub active_runs: Vec<Uuid>,
    pub last_tick: Option<LastTick>,
    /// The run that a tick started last.
    pub last_run_id: Option<Uuid>,
}

/// What became of the last tick.
#[derive(Clone, Debug, Serialize)]
pub struct LastTick {
    pub tick_at: Timestamp,
    pub outcome: TickOutcome,
    /// The run that it started.
    pub run_id: Option<Uuid>,
    /// Why no run was started.
    pub error: Option<ErrorBody>,
}

impl ScheduleView {
    pub(super) fn of(row: ScheduleRow) -> Result<Self, DamagedRows> {
        let status = match (row.paused_at, row.next_at) {
            (Some(_), _) => ScheduleStatus::Paused,
            (None, None) if row.queued.is_empty() => ScheduleStatus::Ended,
            _ => ScheduleStatus::Active,
        };
        let last_tick = match (row.last_tick_at, row.last_outcome) {
            (Some(tick_at), Some(outcome)) => {
                let error = row.last_error.as_ref().map(Json::decode).transpose()?;
                Some(LastTick {
                    tick_at,
                    outcome,
                    run_id: row.last_run_id.filter(|_| outcome == TickOutcome::Started),
                    error,
                })
            }
            _ => None,
        };
        Ok(Self {
            schedule_id: row.id,
            name: row.name,
            owner: row.owner,
            status,
            starts: ScheduledWorkflow {
                workflow_id: row.workflow_id,
                version: row.workflow_version,
                follow_latest: row.workflow_version.is_none(),
                autonomy_level_max: row.level_max,
                inputs: row.inputs,
            },
            timing: ScheduleTiming {
                cron: row.cron,
                time_zone: row.time_zone,
                every: row.every_seconds.map(interval_text),
                anchor_at: row.anchor_at,
                jitter_seconds: row.jitter_seconds,
                starts_at: row.starts_at,
                ends_at: row.ends_at,
            },
            policies: SchedulePolicies {
                overlap: row.overlap,
                queue_max: row.queue_max,
                catch_up: row.catch_up,
                catch_up_window_seconds: row.catch_up_seconds,
            },
            pause: SchedulePause { paused_at: row.paused_at, paused_by: row.paused_by, pause_reason: row.pause_reason },
            progress: ScheduleProgress {
                next_at: row.next_at,
                queued: row.queued.iter().filter_map(|tick| tick.parse().ok()).collect(),
                active_runs: row.active_runs,
                last_tick,
                last_run_id: row.last_run_id,
            },
            created_at: row.created_at,
            updated_at: row.updated_at,
            state_version: row.state_version,
        })
    }
}
