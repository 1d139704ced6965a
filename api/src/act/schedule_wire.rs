//! Wire types of schedules.

use crate::access::wire::AutonomyLevel;
use crate::edge::Edge;
use crate::flow::wire::pages;
use crate::ops::schema::ErrorDocument;
use crate::params;
use crate::problem::ApiError;
use crate::wire::{DateTime, JsonObject, wire, words};
use chimera_core::act::schedule;
use chimera_core::limits;
use chimera_engine::act::{self, ScheduleDefinition, Schedules};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

words! {
    /// What a tick does while a run of an earlier tick is not finished: `skip`, `queue` (wait for its end), `allow` or
    /// `cancel_previous`.
    pub(crate) OverlapPolicy from schedule::Overlap {
        Skip = "skip",
        Queue = "queue",
        Allow = "allow",
        CancelPrevious = "cancel_previous",
    }

    /// What is done about ticks that passed while no node could start them: `skip` them, start the `last`, or start
    /// `all` within the catch-up window.
    pub(crate) CatchUpPolicy from schedule::CatchUp {
        Skip = "skip",
        Last = "last",
        All = "all",
    }

    /// What became of a tick.
    pub(crate) TickOutcome from schedule::TickOutcome {
        Started = "started",
        /// A run of an earlier tick was not finished, or the owner's rate limit was reached.
        Skipped = "skipped",
        /// It starts when the run of an earlier tick ends.
        Queued = "queued",
        /// The owner may not start the workflow, or it can't be started.
        Refused = "refused",
        /// It passed while no node could start it.
        Missed = "missed",
    }

    /// Whether a schedule ticks. `ended`: there are no further ticks.
    pub(crate) ScheduleStatus from act::ScheduleStatus {
        Active = "active",
        Paused = "paused",
        Ended = "ended",
    }
}

wire! {
    /// The last tick of a schedule.
    pub(crate) LastTick from act::LastTick {
        /// Time of the tick.
        tick_at: DateTime,
        /// What became of it.
        outcome: TickOutcome,
        /// The run that it started.
        run_id: Option<Uuid>,
        /// Why no run was started.
        error: Option<ErrorDocument>,
    }

    /// A schedule.
    pub(crate) ScheduleDocument from act::ScheduleView {
        /// Schedule id, the subject of its ledger entries.
        schedule_id: Uuid,
        /// Name, unique in the tenant.
        name: String,
        /// Actor in whose name runs are started.
        owner: String,
        /// Whether it ticks.
        status: ScheduleStatus,
        /// Id of the workflow that it starts.
        workflow_id in starts: String,
        /// Workflow version that ticks start; null: the newest at every tick.
        version in starts: Option<i64>,
        /// Whether ticks start the newest version. One that somebody else wrote since the owner last confirmed the
        /// schedule needs approval.
        follow_latest in starts: bool,
        /// Highest autonomy level of its runs: that of a run which started when the owner last confirmed the schedule.
        autonomy_level_max in starts: Option<AutonomyLevel>,
        /// Inputs of the workflow.
        inputs in starts: JsonObject,
        /// Cron expression.
        cron in timing: Option<String>,
        /// IANA time zone in which the expression is read.
        time_zone in timing: Option<String>,
        /// Interval such as `15m`.
        every in timing: Option<String>,
        /// Instant from which the intervals are counted.
        anchor_at in timing: Option<DateTime>,
        /// Overlap policy.
        overlap in policies: OverlapPolicy,
        /// Ticks that may wait under the policy `queue`.
        queue_max in policies: u32,
        /// Catch-up policy.
        catch_up in policies: CatchUpPolicy,
        /// How old a tick may be to be started under the policy `all`.
        catch_up_window_seconds in policies: i64,
        /// A tick starts up to this much later.
        jitter_seconds in timing: i64,
        /// No tick is earlier.
        starts_at in timing: Option<DateTime>,
        /// No tick is later.
        ends_at in timing: Option<DateTime>,
        /// When it was paused.
        paused_at in pause: Option<DateTime>,
        /// Actor who paused it; `system` if its ticks were refused too often or the owner's key has ended.
        paused_by in pause: Option<String>,
        /// Why it was paused.
        pause_reason in pause: Option<String>,
        /// The next tick.
        next_at in progress: Option<DateTime>,
        /// Ticks that wait for a run to end.
        queued in progress: Vec<DateTime>,
        /// Runs that were not finished at the last tick.
        active_runs in progress: Vec<Uuid>,
        /// The last tick.
        last_tick in progress: Option<LastTick>,
        /// The run that a tick started last.
        last_run_id in progress: Option<Uuid>,
        /// When it was created.
        created_at: DateTime,
        /// When it was last changed by somebody.
        updated_at: DateTime,
        /// Version of the schedule's state.
        state_version: i64,
    }
}

pages! {
    /// A page of schedules.
    pub(crate) SchedulePage of ScheduleDocument from act::ScheduleView: "Ordered by name.";
}

/// Declares the body of a request that defines a schedule.
macro_rules! definitions {
    ($($(#[$about:meta])* $body:ident { $($(#[$doc:meta])* $own:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $body {
            $($(#[$doc])* pub(crate) $own: $kind,)*
            /// Id of the workflow to start.
            workflow_id: String,
            /// Workflow version; the newest at this moment if omitted.
            version: Option<i64>,
            /// Start the newest version at every tick, instead of a fixed one; false if omitted. A version that
            /// somebody else wrote needs approval until you confirm the schedule by replacing it.
            follow_latest: Option<bool>,
            /// Inputs of the workflow.
            #[schema(value_type = Option<JsonObject>)]
            inputs: Option<Value>,
            /// Cron expression with five fields. Exactly one of `cron` and `every` is required.
            #[schema(example = "0 7 * * MON-FRI")]
            cron: Option<String>,
            /// IANA time zone in which `cron` is read; UTC if omitted.
            #[schema(example = "Europe/Berlin")]
            time_zone: Option<String>,
            /// Interval: a number and `s`, `m`, `h`, `d` or `w`.
            #[schema(example = "15m")]
            every: Option<String>,
            /// RFC 3339 time from which the intervals are counted; the start, or now, if omitted.
            anchor_at: Option<String>,
            /// Overlap policy; `skip` if omitted.
            overlap: Option<OverlapPolicy>,
            /// Ticks that may wait under the policy `queue`; 1 if omitted.
            #[schema(minimum = 1, maximum = 100)]
            queue_max: Option<u32>,
            /// Catch-up policy; `last` if omitted.
            catch_up: Option<CatchUpPolicy>,
            /// How old a tick may be to be started under the policy `all`; one day if omitted.
            #[schema(minimum = 0, maximum = 604_800)]
            catch_up_window_seconds: Option<i64>,
            /// A tick starts up to this much later, to spread load; 0 if omitted. It must be shorter than the time
            /// between two ticks.
            #[schema(minimum = 0, maximum = 3_600)]
            jitter_seconds: Option<i64>,
            /// RFC 3339 time before which there is no tick.
            starts_at: Option<String>,
            /// RFC 3339 time after which there is no tick.
            ends_at: Option<String>,
        }

        impl $body {
            pub(crate) fn definition(self) -> Result<ScheduleDefinition, ApiError> {
                let default = ScheduleDefinition::of("");
                Ok(ScheduleDefinition {
                    workflow_id: params::workflow(&self.workflow_id)?.to_owned(),
                    version: self.version,
                    follow_latest: self.follow_latest.unwrap_or_default(),
                    inputs: self.inputs.unwrap_or_else(|| json!({})),
                    cron: self.cron,
                    time_zone: self.time_zone,
                    every: self.every,
                    anchor_at: params::time("anchor_at", self.anchor_at.as_deref())?,
                    overlap: self.overlap.map_or(default.overlap, Into::into),
                    queue_max: self.queue_max,
                    catch_up: self.catch_up.map_or(default.catch_up, Into::into),
                    catch_up_window_seconds: self.catch_up_window_seconds,
                    jitter_seconds: self.jitter_seconds.unwrap_or_default(),
                    starts_at: params::time("starts_at", self.starts_at.as_deref())?,
                    ends_at: params::time("ends_at", self.ends_at.as_deref())?,
                })
            }
        }
    )*};
}

definitions! {
    /// A new schedule.
    NewScheduleBody {
        /// Name, unique in the tenant: letters, digits, `_`, `-` and `.`.
        #[schema(min_length = 1, max_length = 128)]
        name: String,
    }

    /// What a schedule starts, when, and its policies.
    ScheduleBody {}
}

pub(crate) fn schedules(edge: &Edge) -> Result<&Schedules, ApiError> {
    edge.entry_points.schedules.as_deref().ok_or_else(ApiError::internal)
}

/// The number of ticks to show.
pub(crate) fn parse_count(count: Option<usize>) -> Result<usize, ApiError> {
    let count = count.unwrap_or(limits::SCHEDULE_PREVIEW_DEFAULT);
    if (1..=limits::SCHEDULE_PREVIEW_MAX).contains(&count) {
        return Ok(count);
    }
    let what = format!("count must be a number from 1 to {}", limits::SCHEDULE_PREVIEW_MAX);
    Err(ApiError::new(chimera_core::error::Code::SchemaInvalid, what).with("parameter", "count"))
}
