//! The act room's tables: schedules.

use super::schedule::{CatchUp, Overlap, TickOutcome};
use crate::access::Level;
use crate::json::Digest32;
use crate::record::{Json, Table, part, table};
use crate::time::Timestamp;
use uuid::Uuid;

table! {
    /// Workflows that are started by the clock.
    SCHEDULES = schedules -> ScheduleRow {
        id: Uuid,
        tenant_id: String,
        name: String,
        owner: String,
        owner_scopes: Vec<String>,
        workflow_id: String,
        workflow_version: Option<i64>,
        inputs: Json,
        cron: Option<String>,
        time_zone: Option<String>,
        every_seconds: Option<i64>,
        anchor_at: Option<Timestamp>,
        overlap: Overlap,
        queue_max: u32,
        catch_up: CatchUp,
        catch_up_seconds: i64,
        jitter_seconds: i64,
        starts_at: Option<Timestamp>,
        ends_at: Option<Timestamp>,
        paused_at: Option<Timestamp>,
        paused_by: Option<String>,
        pause_reason: Option<String>,
        next_at: Option<Timestamp>,
        due_at: Timestamp,
        queued: Vec<String>,
        active_runs: Vec<Uuid>,
        last_tick_at: Option<Timestamp>,
        last_outcome: Option<TickOutcome>,
        last_run_id: Option<Uuid>,
        last_error: Option<Json>,
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        state_version: i64 [default],
        owner_key: Option<Uuid>,
        owner_key_of: Option<String>,
        level_max: Option<Level>,
        confirmed_digest: Option<Digest32>,
        streak: Option<Json>,
        place: Option<i64>,
    }
    key: [id],
    unique: [tenant_id, name],
    unique: [tenant_id, place],
    tenant: tenant_id,
    rank: 320,
}

part! {
    /// When a schedule has to be looked at.
    ScheduleDue of ScheduleRow in schedules {
        due_at: Timestamp,
    }
}

part! {
    /// Which of its tenant's places a schedule has.
    SchedulePlace of ScheduleRow in schedules {
        place: Option<i64>,
    }
}

/// The room's tables.
pub static ALL: &[&Table] = &[&SCHEDULES];
