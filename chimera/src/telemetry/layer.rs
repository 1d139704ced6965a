//! Turns events into log lines.
//!
//! The levels of `tracing` end at ERROR. A field `critical = true` on an error event asks for a
//! second line at CRITICAL, so that every error has its ERROR line and alerts have their own.

use super::fields::{FieldVisitor, Fields};
use super::line::{LogLevel, LogLine};
use crate::mask::Mask;
use chimera_engine::port::Clock;
use std::sync::Arc;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineFormat {
    /// One JSON object each.
    Json,
    /// For reading.
    Human {
        /// With colours.
        color: bool,
    },
}

/// Writes a line for every event.
pub(crate) struct LogLayer {
    form: LineFormat,
    mask: Mask,
    clock: Arc<dyn Clock>,
    write: Box<dyn Fn(&str) + Send + Sync>,
}

impl LogLayer {
    pub(crate) fn new(
        form: LineFormat,
        mask: Mask,
        clock: Arc<dyn Clock>,
        write: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        Self { form, mask, clock, write: Box::new(write) }
    }

    fn emit(&self, line: &LogLine) {
        match self.form {
            LineFormat::Json => (self.write)(&line.json()),
            LineFormat::Human { color } => (self.write)(&line.human(color)),
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut FieldVisitor { fields: &mut fields, mask: &self.mask });
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if let Some(fields) = extensions.get_mut::<Fields>() {
            values.record(&mut FieldVisitor { fields, mask: &self.mask });
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.extend(outer);
            }
            fields.set("span", span.name().into());
        }
        event.record(&mut FieldVisitor { fields: &mut fields, mask: &self.mask });
        let critical = fields.take("critical").is_some_and(|value| value == true);
        let level = LogLevel::of(*event.metadata().level());
        let mut line = LogLine::new(self.clock.now(), level, event.metadata().target(), fields);
        self.emit(&line);
        if critical && level == LogLevel::Error {
            line.level = LogLevel::Critical;
            self.emit(&line);
        }
    }
}

#[cfg(test)]
#[path = "layer_tests.rs"]
mod tests;
