//! The log of tool calls that goes to the process's own log, which masks every secret that the process knows.

use super::port::{CallLogSink, LogLevel, LogLine};
use tracing::Level;

/// Writes the lines of tools to the log of the process.
pub struct ProcessLog;

macro_rules! line {
    ($level:expr, $line:expr, $fields:expr) => {
        tracing::event!(
            $level,
            tenant = $line.call.tenant,
            run_id = %$line.call.run_id,
            step_id = %$line.call.step_id,
            call_id = %$line.call.call_id,
            tool = $line.call.tool.name,
            tool_version = $line.call.tool.version,
            attempt = $line.call.attempt,
            facts = $fields,
            "{}",
            $line.message
        )
    };
}

impl CallLogSink for ProcessLog {
    fn takes(&self, level: LogLevel) -> bool {
        match level {
            LogLevel::Debug => tracing::enabled!(Level::DEBUG),
            LogLevel::Info => tracing::enabled!(Level::INFO),
            LogLevel::Warn => tracing::enabled!(Level::WARN),
        }
    }

    fn write(&self, line: &LogLine<'_>) {
        let fields: Vec<String> = line.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let fields = (!fields.is_empty()).then(|| fields.join(" "));
        match line.level {
            LogLevel::Debug => line!(Level::DEBUG, line, fields),
            LogLevel::Info => line!(Level::INFO, line, fields),
            LogLevel::Warn => line!(Level::WARN, line, fields),
        }
    }
}
