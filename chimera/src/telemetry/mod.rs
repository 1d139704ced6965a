//! Logs, spans, metrics: set up once, flushed at the end.
//!
//! Log lines go to stderr, because stdout is for data. Whatever leaves the process here, line or
//! span, passes the mask first.

mod fields;
mod layer;
mod line;
mod metrics;
mod otlp;
mod panic;
mod preset_ids;

use crate::config::{Config, LogFormat};
use crate::failure::{Failure, Outcome};
use chimera_api::TraceLink;
use chimera_core::error::Code;
use chimera_engine::port::{Clock, NoSpans, Spans};
use layer::{LineFormat, LogLayer};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::io::Write;
use std::sync::Arc;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Upper bounds of the buckets for durations, in seconds.
const DURATION_BUCKETS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The same for calls of tools, which may take minutes.
const CALL_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// What was set up, and must be flushed.
pub(crate) struct Telemetry {
    spans: Option<otlp::SpanExport>,
    metrics: PrometheusHandle,
}

/// How log lines are to look where they go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    /// Whether stderr is a terminal.
    pub(crate) attached: bool,
    /// Whether the user asked for plain output.
    pub(crate) no_color: bool,
}

/// Sets up logs, spans and metrics for this process. Must run inside the runtime that will send
/// the spans.
pub(crate) fn start(config: &Config, terminal: Terminal, clock: Arc<dyn Clock>) -> Outcome<Telemetry> {
    let calls = Matcher::Full("chimera_tool_call_duration_seconds".to_owned());
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), DURATION_BUCKETS)
        .and_then(|builder| builder.set_buckets_for_metric(calls, CALL_BUCKETS))
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| Failure::new(Code::Internal, format!("metrics can't be set up: {error}")))?;
    metrics::describe();
    let spans = match &config.otlp_endpoint {
        Some(endpoint) => Some(otlp::SpanExport::start(&endpoint.0, &config.mask)?),
        None => None,
    };
    let form = match (config.log_format, terminal.attached) {
        (LogFormat::Json, _) | (LogFormat::Auto, false) => LineFormat::Json,
        (LogFormat::Human, _) | (LogFormat::Auto, true) => {
            LineFormat::Human { color: terminal.attached && !terminal.no_color }
        }
    };
    let lines = LogLayer::new(form, config.mask.clone(), clock, |line| {
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    });
    tracing_subscriber::registry()
        .with(lines.with_filter(filter(&config.log_level)?))
        .with(spans.as_ref().map(otlp::SpanExport::layer))
        .try_init()
        .map_err(|error| Failure::new(Code::Internal, format!("logs can't be set up: {error}")))?;
    panic::log_panics();
    Ok(Telemetry { spans, metrics })
}

impl Telemetry {
    /// What renders the metrics as Prometheus text.
    pub(crate) fn render_metrics(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let handle = self.metrics.clone();
        move || {
            handle.run_upkeep();
            handle.render()
        }
    }

    /// How requests join the caller's trace, when spans are exported.
    pub(crate) fn link(&self) -> Option<TraceLink> {
        self.spans.as_ref().map(|_| otlp::link())
    }

    /// Who hears what runs did.
    pub(crate) fn spans(&self) -> Arc<dyn Spans> {
        self.spans.as_ref().map_or_else(|| Arc::new(NoSpans) as Arc<dyn Spans>, otlp::SpanExport::port)
    }

    /// Sends what is left, unless that takes longer than this.
    pub(crate) async fn flush(self, patience: std::time::Duration) {
        if let Some(spans) = self.spans {
            let _ = tokio::time::timeout(patience, spans.flush()).await;
        }
    }
}

#[cfg(test)]
pub(crate) use metrics::page as metrics_page;

/// A bare level is for our own lines; what libraries say is shown from warnings on.
pub(crate) fn filter(level: &str) -> Outcome<EnvFilter> {
    let directives = if level.contains(['=', ',']) { level.to_owned() } else { format!("warn,chimera={level}") };
    EnvFilter::try_new(format!("{directives},opentelemetry=off"))
        .map_err(|error| Failure::new(Code::ConfigInvalid, format!("`log.level` is not a log filter: {error}")))
}
