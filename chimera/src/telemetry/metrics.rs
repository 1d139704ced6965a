//! The catalogue of exported metrics; `docs/reference/metrics.md` is generated from it.
//!
//! Metrics are recorded by name where the events happen. A test compares the export of a real server with the
//! page, so a metric that is missing here fails it.

use metrics::Label;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricKind {
    Counter,
    Gauge,
    Histogram,
    /// A histogram without buckets, which Prometheus calls a summary.
    Summary,
}

struct Metric {
    name: &'static str,
    kind: MetricKind,
    labels: Labels,
    help: &'static str,
}

/// Label names, with their possible values where those are a fixed set.
type Labels = &'static [(&'static str, &'static [&'static str])];

/// Open-ended values (tools, stores, lanes, routes): many, but bounded by what this process has.
const OPEN: &[&str] = &[];

const fn counter(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Histogram, labels, help }
}

/// All metrics, grouped by topic.
const METRICS: &[(&str, &[Metric])] = &[
    (
        "Runs and steps",
        &[
            counter(
                "chimera_signals_unreadable_total",
                &[],
                "Signals to runs that could not be decoded; the run gets the event `run.signal_discarded`.",
            ),
            counter("chimera_runs_started_total", &[], "Runs started by this process, including child runs."),
            counter(
                "chimera_runs_ended_total",
                &[("status", &["completed", "failed", "cancelled", "rolled_back"])],
                "Runs that ended or were rolled back in this process.",
            ),
            counter(
                "chimera_steps_total",
                &[(
                    "outcome",
                    &[
                        "completed",
                        "failed",
                        "skipped",
                        "retrying",
                        "outcome_unknown",
                        "rolled_back",
                        "rollback_failed",
                    ],
                )],
                "Step outcomes in this process; each attempt of a retried step counts.",
            ),
            counter("chimera_approvals_requested_total", &[], "Approval requests made by runs of this process."),
            counter("chimera_steps_refused_total", &[], "Steps of this process's runs that a rule or a limit refused."),
            counter(
                "chimera_limits_consulted_total",
                &[],
                "Times that this process looked up what limits have counted, for calls and requests.",
            ),
            counter(
                "chimera_schedule_ticks_total",
                &[("outcome", &["started", "skipped", "queued", "refused"])],
                "Ticks of schedules that this process decided.",
            ),
            counter(
                "chimera_schedule_ticks_late_total",
                &[],
                "Runs that this process started later than the grace time after their tick.",
            ),
            counter(
                "chimera_schedule_ticks_missed_total",
                &[],
                "Ticks of schedules that passed while no node could start them and were not caught up.",
            ),
            counter(
                "chimera_intents_total",
                &[("result", &["accepted", "rejected"])],
                "Intents that this process accepted or rejected.",
            ),
            counter(
                "chimera_intents_rejected_total",
                &[("code", OPEN)],
                "Intents that this process rejected, by error code.",
            ),
            histogram(
                "chimera_intent_duration_seconds",
                &[],
                "Time that the Router took for an intent, until its first change was durable or it was rejected.",
            ),
            gauge(
                "chimera_runs_unfinished",
                &[("state", &["pending", "running", "awaiting_approval", "rolling_back"])],
                "Unfinished runs in the store.",
            ),
            gauge(
                "chimera_runs_unattended",
                &[],
                "Unfinished runs in the store with neither an owner nor a deadline. Always 0; any other value is a bug.",
            ),
            gauge("chimera_approvals_pending", &[], "Pending approval requests in the store."),
            gauge(
                "chimera_approvals_pending_oldest_age_seconds",
                &[],
                "Age of the oldest pending approval request; 0 if there is none.",
            ),
            gauge("chimera_work_items", &[("state", &["queued", "claimed"])], "Calls for workers in the store."),
            gauge(
                "chimera_work_items_queued_oldest_age_seconds",
                &[],
                "Age of the oldest call that waits for a worker; 0 if there is none.",
            ),
            counter(
                "chimera_work_leases_expired_total",
                &[],
                "Leases of workers that this process ended because they had expired.",
            ),
            gauge(
                "chimera_timers_overdue",
                &[],
                "Parked runs in the store that were due more than 5 seconds ago and that no process has picked up.",
            ),
            gauge(
                "chimera_timers_overdue_oldest_age_seconds",
                &[],
                "How long the most overdue parked run has been due; 0 if none is overdue.",
            ),
            gauge(
                "chimera_signals_overdue",
                &[],
                "Signals in the store that were sent more than a minute ago and that their run has not consumed.",
            ),
            gauge(
                "chimera_signals_overdue_oldest_age_seconds",
                &[],
                "Age of the oldest overdue signal; 0 if none is overdue.",
            ),
        ],
    ),
    (
        "Tool calls",
        &[
            counter(
                "chimera_tool_calls_total",
                &[
                    ("tool", OPEN),
                    ("call", &["execute", "dry", "check", "undo"]),
                    ("outcome", &["succeeded", "failed", "unknown"]),
                ],
                "Calls of external tools, by outcome. `unknown` means that the effect may or may not have happened; a check or a retry may still resolve it.",
            ),
            histogram("chimera_tool_call_duration_seconds", &[("tool", OPEN)], "Duration of calls of external tools."),
            gauge(
                "chimera_tool_files_broken",
                &[],
                "Tool files that can't be used as they are. `chimera tools list` names them.",
            ),
            counter(
                "chimera_tool_reloads_total",
                &[("outcome", &["changed", "failed"])],
                "Reloads that changed the declared tools, and reloads that could not be recorded.",
            ),
            gauge(
                "chimera_calls_in_doubt",
                &[],
                "Calls in the store whose outcome is unknown and must be resolved by a person.",
            ),
            gauge(
                "chimera_calls_in_doubt_oldest_age_seconds",
                &[],
                "Age of the oldest call whose outcome is unknown; 0 if there is none.",
            ),
            gauge("chimera_runs_in_doubt", &[], "Runs in the store with a call whose outcome is unknown."),
            gauge("chimera_call_slots_taken", &[], "Calls of this process in flight."),
            gauge("chimera_call_slots_limit", &[], "Maximum number of concurrent calls of this process."),
            gauge("chimera_call_slots_waiting", &[], "Calls of this process waiting for a slot."),
            gauge("chimera_run_places_taken", &[], "Runs that this process drives."),
            gauge("chimera_run_places_limit", &[], "Maximum number of runs that this process drives concurrently."),
        ],
    ),
    (
        "The store",
        &[
            counter(
                "chimera_rows_unreadable_total",
                &[],
                "Stored rows that could not be decoded and were skipped; the log names the table and the column.",
            ),
            counter(
                "chimera_commit_batches_total",
                &[
                    ("store", OPEN),
                    (
                        "outcome",
                        &["committed", "lost", "contended", "refused", "lacking", "fenced", "unavailable", "unsure"],
                    ),
                ],
                "Batches that this process sent to the store.",
            ),
            counter("chimera_commit_txs_total", &[("store", OPEN)], "Transactions that this process committed."),
            Metric {
                name: "chimera_commit_batch_txs",
                kind: MetricKind::Summary,
                labels: &[("store", OPEN)],
                help: "Transactions in a committed batch.",
            },
            gauge(
                "chimera_commit_queue_txs",
                &[("store", OPEN), ("lane", OPEN)],
                "Transactions queued in a lane of this process when its last batch started.",
            ),
            gauge(
                "chimera_lanes",
                &[("state", &["held", "leased", "free"])],
                "Ledger lanes in the store: held by this process, leased to another, or free.",
            ),
            gauge("chimera_lane_held", &[("lane", OPEN)], "1 if this process holds the lane."),
            gauge(
                "chimera_lane_epoch",
                &[("lane", OPEN)],
                "The lane's epoch (number of claims) when this process last held it.",
            ),
            gauge(
                "chimera_lane_head_seq",
                &[("lane", OPEN)],
                "Sequence number of the lane's last ledger entry when this process last held it.",
            ),
            gauge(
                "chimera_lane_lease_age_seconds",
                &[("lane", OPEN)],
                "Time since the lane's lease was renewed, when this process last held it. The embedded store is locked by its process and renews no lease; while idle, it commits once a minute, when expired rows are swept.",
            ),
        ],
    ),
    (
        "HTTP",
        &[
            counter(
                "chimera_http_requests_total",
                &[("method", OPEN), ("route", OPEN), ("status", OPEN)],
                "Requests answered. `route` is a pattern from the route table, never a concrete path.",
            ),
            histogram(
                "chimera_http_request_duration_seconds",
                &[("method", OPEN), ("route", OPEN)],
                "Request duration.",
            ),
            gauge("chimera_http_requests_running", &[], "Requests in flight."),
            counter(
                "chimera_http_connections_refused_total",
                &[],
                "Connections rejected because their address had too many.",
            ),
            counter(
                "chimera_http_bodies_refused_total",
                &[("reason", &["size", "slow", "address"])],
                "Bodies not read to the end: too large, too slow, or from an address with too many bytes in rejected requests.",
            ),
            counter(
                "chimera_http_refused_body_bytes_total",
                &[],
                "Body bytes read for requests that were then rejected for their credentials or quota.",
            ),
        ],
    ),
    (
        "Other",
        &[
            counter(
                "chimera_access_refusals_not_entered_total",
                &[],
                "Quota rejections that were not written to the ledger, not even in a summary, because too many actors were over quota.",
            ),
            counter(
                "chimera_access_counters_lost_total",
                &[],
                "Requests that could not be counted across nodes because Redis was unavailable.",
            ),
            counter("chimera_clock_jumps_total", &[], "Jumps of the machine's clock."),
            gauge(
                "chimera_clock_ahead_seconds",
                &[],
                "How far the wall clock is ahead of the steady clock that deadlines use.",
            ),
            counter("chimera_otlp_export_failures_total", &[], "Batches of spans that the collector did not accept."),
            counter("chimera_metrics_sample_failures_total", &[], "Failed samples of the store for these metrics."),
            gauge(
                "chimera_metrics_sampled_timestamp_seconds",
                &[],
                "Unix time of the last sample of the store. Gauges about the store are as old as that.",
            ),
        ],
    ),
];

/// Describes every metric, and starts counters at zero where their label values are a fixed set.
pub(super) fn describe() {
    for metric in METRICS.iter().flat_map(|(_, metrics)| *metrics) {
        match metric.kind {
            MetricKind::Counter => {
                metrics::describe_counter!(metric.name, metric.help);
                for labels in series(metric.labels) {
                    metrics::counter!(metric.name, labels).increment(0);
                }
            }
            MetricKind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            MetricKind::Histogram | MetricKind::Summary => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

/// Every combination of label values; none if a label is open-ended.
fn series(labels: Labels) -> Vec<Vec<Label>> {
    let mut all = vec![Vec::new()];
    for (name, values) in labels {
        all = all
            .iter()
            .flat_map(|known| {
                values.iter().map(|value| [known.as_slice(), &[Label::from_static_parts(name, value)]].concat())
            })
            .collect();
    }
    all
}

/// The text of `docs/reference/metrics.md`.
#[cfg(test)]
pub(crate) fn page() -> String {
    use chimera_core::limits;
    use std::fmt::Write;
    let (seconds, rows) = (limits::METRICS_SECONDS, limits::COUNT_ROWS_MAX);
    let mut text = format!(
        "# Metrics\n\nThis page is generated from the catalogue in [metrics.rs](../../chimera/src/telemetry/metrics.rs) and compared with what a server exports by a test.\n\n\
         `GET /metrics` returns them in the Prometheus text format, without authentication. Names end in their unit \
         (`_seconds`) or, for counters, in `_total`. No label holds a tenant, an actor, a host or an address; \
         `tool` is the name of a tool that the process has loaded.\n\n\
         Counters count what this process did since it started. Gauges about the store are sampled every {seconds} seconds \
         through indexes of unfinished work only, and are capped at {rows}. Every node of one \
         database sees the same store: aggregate these gauges with the maximum over the nodes, not the sum.\n\n\
         Recommended alerts: `chimera_runs_unattended > 0`, `chimera_timers_overdue_oldest_age_seconds > 60`, \
         `chimera_signals_overdue > 0`, `chimera_calls_in_doubt > 0`, `min_over_time(chimera_runs_unfinished{{state=\"rolling_back\"}}[1h]) > 0`, \
         `time() - chimera_metrics_sampled_timestamp_seconds > 60`.\n",
    );
    for (title, metrics) in METRICS {
        let _ = write!(text, "\n## {title}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n");
        for metric in *metrics {
            let kind = format!("{:?}", metric.kind).to_lowercase();
            let labels: Vec<String> = metric.labels.iter().map(|(name, values)| label(name, values)).collect();
            let _ = writeln!(text, "| `{}` | {kind} | {} | {} |", metric.name, labels.join("; "), metric.help);
        }
    }
    text
}

#[cfg(test)]
fn label(name: &str, values: &[&str]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
    if values.is_empty() { format!("`{name}`") } else { format!("`{name}`: {}", values.join(", ")) }
}
