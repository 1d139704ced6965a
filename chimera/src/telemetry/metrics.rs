//! Every metric that this binary exports, described once; `docs/reference/metrics.md` is made from it.
//!
//! Metrics are recorded where things happen, by name. A test compares what a real server exports with the
//! page, so a metric that is missing here is found.

use metrics::Label;

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    /// A histogram without buckets, which Prometheus calls a summary.
    Summary,
}

/// A metric of ours.
struct Metric {
    name: &'static str,
    kind: Kind,
    labels: Labels,
    help: &'static str,
}

/// Names of labels, with the values that they can have where those are words of ours.
type Labels = &'static [(&'static str, &'static [&'static str])];

/// Names of tools, stores, lanes and routes: many, but bounded by what this process has.
const OPEN: &[&str] = &[];

const fn counter(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}

/// What there is, by what it is about.
const METRICS: &[(&str, &[Metric])] = &[
    (
        "Runs and steps",
        &[
            counter(
                "chimera_signals_unreadable_total",
                &[],
                "Signals to runs that could not be read; the run's events have `run.signal_unreadable`.",
            ),
            counter("chimera_runs_started_total", &[], "Runs that this process began, runs inside others included."),
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
                "What became of steps in this process; a step that is tried again counts each time.",
            ),
            counter("chimera_approvals_requested_total", &[], "Requests for approval that runs of this process made."),
            gauge(
                "chimera_runs_unfinished",
                &[("state", &["pending", "running", "awaiting_approval", "rolling_back"])],
                "Runs in the store that are not over.",
            ),
            gauge(
                "chimera_runs_unattended",
                &[],
                "Runs in the store that are not over and have neither an owner nor a deadline. Always 0; anything \
                 else is a fault.",
            ),
            gauge("chimera_approvals_pending", &[], "Requests for approval in the store that nobody has decided."),
            gauge(
                "chimera_approvals_pending_oldest_age_seconds",
                &[],
                "Age of the oldest request for approval that waits; 0 if none does.",
            ),
            gauge(
                "chimera_timers_overdue",
                &[],
                "Parked runs in the store whose time came more than 5 seconds ago and that no process took up.",
            ),
            gauge(
                "chimera_timers_overdue_oldest_age_seconds",
                &[],
                "How long ago the time of the most overdue parked run came; 0 if none is overdue.",
            ),
            gauge(
                "chimera_signals_overdue",
                &[],
                "Signals in the store that were sent to a run more than a minute ago and that it has not taken in.",
            ),
            gauge(
                "chimera_signals_overdue_oldest_age_seconds",
                &[],
                "How long ago the oldest of them was sent; 0 if none is overdue.",
            ),
        ],
    ),
    (
        "Calls of tools",
        &[
            counter(
                "chimera_tool_calls_total",
                &[
                    ("tool", OPEN),
                    ("call", &["execute", "dry", "check", "undo"]),
                    ("outcome", &["succeeded", "failed", "unknown"]),
                ],
                "Calls of tools that reach outside, by how they ended. After `unknown` nobody knows yet whether it \
                 happened; a check or another try may still tell.",
            ),
            histogram(
                "chimera_tool_call_duration_seconds",
                &[("tool", OPEN)],
                "How long calls of tools that reach outside took.",
            ),
            gauge(
                "chimera_calls_in_doubt",
                &[],
                "Calls in the store whose outcome is unknown until somebody settles it.",
            ),
            gauge(
                "chimera_calls_in_doubt_oldest_age_seconds",
                &[],
                "For how long the outcome of a call has been unknown at the most; 0 if none is.",
            ),
            gauge("chimera_runs_in_doubt", &[], "Runs in the store with such a call."),
            gauge("chimera_call_slots_taken", &[], "Calls of this process that are under way."),
            gauge("chimera_call_slots_limit", &[], "Calls of this process that may be under way at a time."),
            gauge("chimera_call_slots_waiting", &[], "Calls of this process that wait for a slot."),
            gauge("chimera_run_places_taken", &[], "Runs that this process drives."),
            gauge("chimera_run_places_limit", &[], "Runs that this process may drive at a time."),
        ],
    ),
    (
        "The store",
        &[
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
                kind: Kind::Summary,
                labels: &[("store", OPEN)],
                help: "Transactions in a committed batch.",
            },
            gauge(
                "chimera_commit_queue_txs",
                &[("store", OPEN), ("lane", OPEN)],
                "Transactions that waited in a lane of this process when its last batch began.",
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
                "How often the lane was claimed, when this process held it last.",
            ),
            gauge(
                "chimera_lane_head_seq",
                &[("lane", OPEN)],
                "Number of the lane's last ledger entry, when this process held it last.",
            ),
            gauge(
                "chimera_lane_lease_age_seconds",
                &[("lane", OPEN)],
                "Time since the lease of the lane was renewed, when this process held it last. The embedded store is \
                 locked by its process and renews nothing; while it is idle, it commits once a minute, when what has \
                 expired is swept.",
            ),
        ],
    ),
    (
        "HTTP",
        &[
            counter(
                "chimera_http_requests_total",
                &[("method", OPEN), ("route", OPEN), ("status", OPEN)],
                "Requests that were answered. `route` is a pattern of the route table, never an address.",
            ),
            histogram(
                "chimera_http_request_duration_seconds",
                &[("method", OPEN), ("route", OPEN)],
                "How long requests took.",
            ),
            gauge("chimera_http_requests_running", &[], "Requests that are being answered."),
            counter(
                "chimera_http_connections_refused_total",
                &[],
                "Connections that were refused because their address had too many.",
            ),
            counter(
                "chimera_http_bodies_refused_total",
                &[("reason", &["size", "slow", "address"])],
                "Bodies that were not read to their end: too large, too slow, or from an address with too many bytes of refused requests.",
            ),
            counter(
                "chimera_http_refused_body_bytes_total",
                &[],
                "Bytes of bodies that were read for requests that were then refused for their credential or quota.",
            ),
        ],
    ),
    (
        "Around it",
        &[
            counter(
                "chimera_access_refusals_not_entered_total",
                &[],
                "Refusals over a quota that were neither entered nor summed up, because too many actors were over theirs.",
            ),
            counter(
                "chimera_access_counters_lost_total",
                &[],
                "Requests that could not be counted for all nodes because Redis was not there.",
            ),
            counter("chimera_clock_jumps_total", &[], "Jumps of the machine's clock."),
            gauge(
                "chimera_clock_ahead_seconds",
                &[],
                "By how much the time of day is ahead of the time that deadlines go by.",
            ),
            counter("chimera_otlp_export_failures_total", &[], "Batches of spans that the collector did not take."),
            counter("chimera_metrics_sample_failures_total", &[], "Looks at the store for these metrics that failed."),
            gauge(
                "chimera_metrics_sampled_timestamp_seconds",
                &[],
                "Unix time of the last look at the store. Gauges about the store are as old as that.",
            ),
        ],
    ),
];

/// Describes every metric, and lets counters begin at zero wherever their labels are words of ours.
pub(super) fn describe() {
    for metric in METRICS.iter().flat_map(|(_, metrics)| *metrics) {
        match metric.kind {
            Kind::Counter => {
                metrics::describe_counter!(metric.name, metric.help);
                for labels in series(metric.labels) {
                    metrics::counter!(metric.name, labels).increment(0);
                }
            }
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram | Kind::Summary => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

/// Every combination of labels; none if a label has values that are not known beforehand.
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
        "# Metrics\n\nThis page is made from the catalogue in \
         [metrics.rs](../../chimera/src/telemetry/metrics.rs) and compared with what a server exports by a test.\n\n\
         `GET /metrics` gives them in the text format of Prometheus and asks for no credential. Names end in their unit \
         (`_seconds`) and, if they only grow, in `_total`. No label holds a tenant, an actor, a host or an address; \
         `tool` is a name of a tool that the process has.\n\n\
         Counters count what this process did since it started. Gauges about the store are looked up every {seconds} seconds \
         through indexes of what is not over, never among what has ended, and stop counting at {rows}. Every node of one \
         database sees the same store: take the maximum of those over the nodes, not the sum.\n\n\
         Worth an alert: `chimera_runs_unattended > 0`, `chimera_timers_overdue_oldest_age_seconds > 60`, \
         `chimera_signals_overdue > 0`, `chimera_calls_in_doubt > 0`, `time() - chimera_metrics_sampled_timestamp_seconds > 60`.\n",
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
