//! Collects the fields of spans and events, already without secrets.

use crate::mask::Mask;
use chimera_core::limits;
use chimera_core::redact::{REDACTED, Redactor};
use serde_json::Value;
use std::error::Error;
use std::fmt::Debug;
use tracing::field::{Field, Visit};

/// Fields by name; a later value of the same name replaces the earlier.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    pub(crate) fn set(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes a field out.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(at).1)
    }

    /// Takes a field out as text.
    pub(crate) fn take_text(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }
    }

    /// Puts these fields over the others.
    pub(crate) fn extend(&mut self, over: &Self) {
        for (name, value) in &over.0 {
            self.set(name, value.clone());
        }
    }

    /// What is left, without what only concerns span export.
    pub(crate) fn rest(self) -> serde_json::Map<String, Value> {
        let ours = self.0.into_iter().filter(|(name, _)| !name.starts_with("otel."));
        ours.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Reads fields as `tracing` offers them.
pub(crate) struct FieldVisitor<'a> {
    pub(crate) fields: &'a mut Fields,
    pub(crate) mask: &'a Mask,
}

impl FieldVisitor<'_> {
    fn put(&mut self, field: &Field, value: impl FnOnce(&Mask) -> Value) {
        let value = if Redactor::is_secret_name(field.name()) { REDACTED.into() } else { value(self.mask) };
        self.fields.set(field.name(), value);
    }
}

impl Visit for FieldVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, |mask| mask.text(value).into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, |_| value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, |_| value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, |_| value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, |_| value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, |mask| mask.text(&chain(value)).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, |mask| mask.text(&format!("{value:?}")).into());
    }
}

/// An error and what caused it, in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    for _ in 0..limits::LOG_SOURCES_MAX {
        let Some(source) = below else { break };
        text = format!("{text}: {source}");
        below = source.source();
    }
    text
}
