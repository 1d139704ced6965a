//! One log line: what it holds, as JSON and for reading.
//!
//! The JSON line has `timestamp`, `level`, `component`, `message`; ids where they apply; everything
//! else under `metadata`.

use super::fields::Fields;
use chimera_core::time::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write;

/// The levels of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
    Critical,
}

impl LogLevel {
    pub(crate) fn of(level: tracing::Level) -> Self {
        match level {
            tracing::Level::ERROR => Self::Error,
            tracing::Level::WARN => Self::Warning,
            tracing::Level::INFO => Self::Info,
            _ => Self::Debug,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Critical => "CRITICAL",
        }
    }

    const fn color(self) -> &'static str {
        match self {
            Self::Debug => "\x1b[2m",
            Self::Info => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Error => "\x1b[31m",
            Self::Critical => "\x1b[1;31m",
        }
    }
}

/// A log line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LogLine {
    timestamp: String,
    pub(crate) level: LogLevel,
    component: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    invocation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Value>,
}

impl LogLine {
    /// The line for an event with these fields, its own and those of the spans around it.
    pub(crate) fn new(at: Timestamp, level: LogLevel, target: &str, mut fields: Fields) -> Self {
        Self {
            timestamp: milliseconds(at),
            level,
            component: fields.take_text("component").unwrap_or_else(|| component(target)),
            message: fields.take_text("message").unwrap_or_default(),
            agent_id: fields.take_text("agent_id"),
            task_id: fields.take_text("task_id"),
            invocation_id: fields.take_text("invocation_id"),
            correlation_id: fields.take_text("correlation_id"),
            trace_id: fields.take_text("trace_id"),
            metadata: fields.rest(),
        }
    }

    /// One JSON object and a line end.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// One line for a person.
    pub(crate) fn human(&self, color: bool) -> String {
        let (on, dim, off) = if color { (self.level.color(), "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        let time = self.timestamp.get(11..23).unwrap_or_default();
        let message = visible(&self.message);
        let mut text =
            format!("{dim}{time}{off} {on}{:<8}{off} {dim}{}{off} {message}", self.level.as_str(), self.component);
        for (name, value) in &self.metadata {
            let value = value.as_str().map_or_else(|| value.to_string(), visible);
            let _ = write!(text, " {dim}{name}={off}{value}");
        }
        for (name, id) in
            [("task_id", &self.task_id), ("correlation_id", &self.correlation_id), ("trace_id", &self.trace_id)]
        {
            if let Some(id) = id {
                let _ = write!(text, " {dim}{name}={}{off}", visible(id));
            }
        }
        text + "\n"
    }
}

/// Control characters could forge lines or steer a terminal.
fn visible(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

fn milliseconds(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{}Z", text.get(..23).unwrap_or(&text))
}

/// The crate that speaks, without our own prefix.
fn component(target: &str) -> String {
    let krate = target.split("::").next().unwrap_or(target);
    krate.strip_prefix("chimera_").unwrap_or(krate).to_owned()
}
