//! `chimera schedule …`.

use super::flow::{ActorArg, PageArgs, named_value};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use std::path::PathBuf;

/// `chimera schedule …`
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Create a schedule. Its runs are started in your name, with your rights at each tick.
    ///
    /// Example: chimera schedule add daily-report --workflow report --cron "0 7 * * MON-FRI" --time-zone Europe/Berlin
    Add {
        /// Name, unique in the tenant.
        name: String,
        /// Id of the workflow to start.
        #[arg(long, value_name = "ID")]
        workflow: String,
        #[command(flatten)]
        terms: ScheduleArgs,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// List schedules.
    List {
        #[command(flatten)]
        page: PageArgs,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Show a schedule and what became of its last tick.
    Show(ScheduleName),
    /// Change a schedule of yours; what is not given stays.
    Edit {
        /// Name of the schedule.
        name: String,
        /// Id of the workflow to start.
        #[arg(long, value_name = "ID")]
        workflow: Option<String>,
        #[command(flatten)]
        terms: ScheduleArgs,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Stop the ticks of a schedule; runs in progress continue.
    Pause {
        #[command(flatten)]
        which: ScheduleName,
        /// Reason, for the record.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Resume a paused schedule with its next tick.
    Resume(ScheduleName),
    /// Remove a schedule; runs in progress continue.
    Remove(ScheduleName),
    /// Start a run of a schedule now, in your name.
    RunNow(ScheduleName),
    /// List the next ticks of a schedule.
    Next {
        #[command(flatten)]
        which: ScheduleName,
        /// Number of ticks.
        #[arg(long, value_name = "N", default_value_t = 5)]
        count: usize,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleName {
    /// Name of the schedule.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

/// When a schedule ticks, and its policies.
#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// Workflow version; by default the newest at this moment.
    #[arg(long, value_name = "N")]
    pub(crate) version: Option<i64>,
    /// Start the newest version at every tick; what somebody else wrote needs approval.
    #[arg(long, conflicts_with = "version")]
    pub(crate) follow_latest: bool,
    /// Start the version that is the newest at this moment.
    #[arg(long, conflicts_with_all = ["version", "follow_latest"])]
    pub(crate) newest: bool,
    /// An input; the value is parsed as JSON if possible, else used as text; repeatable.
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = named_value)]
    pub(crate) input: Vec<(String, Value)>,
    /// JSON file with all inputs; `-` reads stdin.
    #[arg(long, value_name = "FILE")]
    pub(crate) inputs: Option<PathBuf>,
    /// Cron expression: minute, hour, day of month, month, day of week.
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "every")]
    pub(crate) cron: Option<String>,
    /// IANA time zone of the cron expression; by default UTC.
    #[arg(long, value_name = "ZONE", conflicts_with = "every")]
    pub(crate) time_zone: Option<String>,
    /// Interval, such as 90s, 15m, 6h, 1d or 2w.
    #[arg(long, value_name = "INTERVAL")]
    pub(crate) every: Option<String>,
    /// RFC 3339 time from which intervals are counted; by default the start, or now.
    #[arg(long, value_name = "TIME", conflicts_with = "cron")]
    pub(crate) anchor: Option<String>,
    /// What a tick does while an earlier run is not finished; by default skip.
    #[arg(long, value_name = "POLICY")]
    pub(crate) overlap: Option<OverlapArg>,
    /// Ticks that may wait with --overlap queue; by default 1.
    #[arg(long, value_name = "N")]
    pub(crate) queue_max: Option<u32>,
    /// Which ticks are started after a downtime; by default last.
    #[arg(long, value_name = "POLICY")]
    pub(crate) catch_up: Option<CatchUpArg>,
    /// How old a tick may be with --catch-up all; by default 86400.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) catch_up_window: Option<i64>,
    /// Start each tick up to this many seconds later, to spread load; less than the time between two ticks.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) jitter: Option<i64>,
    /// RFC 3339 time before which there is no tick, or none.
    #[arg(long, value_name = "TIME")]
    pub(crate) starts_at: Option<String>,
    /// RFC 3339 time after which there is no tick, or none.
    #[arg(long, value_name = "TIME")]
    pub(crate) ends_at: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OverlapArg {
    /// Skip the tick.
    Skip,
    /// Start it when the run has ended.
    Queue,
    /// Start it at once.
    Allow,
    /// Start it at once, and cancel the run.
    #[value(name = "cancel_previous")]
    CancelPrevious,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CatchUpArg {
    /// None.
    Skip,
    /// Only the last.
    Last,
    /// All within the catch-up window.
    All,
}
