//! JSON Schemas of tools, workflows and patches, compiled once.
//!
//! A schema is closed over itself: references to other documents are refused, so that checking a
//! value never reads a file or the network. What is wrong is told with the pointer into the
//! caller's own document, never with what stands there, because faults are stored and logged; at
//! most a handful of them, because the first one is usually the cause.

use crate::limits::{FAULT_CHARS_MAX, SCHEMA_FAULTS_MAX};
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// A compiled schema with the document it came from.
pub struct Schema {
    document: Value,
    validator: jsonschema::Validator,
}

/// What a value breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// JSON pointer into the value that was checked.
    pub pointer: String,
    /// What is wrong there.
    pub message: String,
}

/// Why a schema can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema can't be used: {reason}")]
pub struct BadSchema {
    /// What is wrong with it.
    pub reason: String,
}

impl Schema {
    /// Compiles `document` (JSON Schema 2020-12 unless it says otherwise).
    pub fn compile(document: Value) -> Result<Self, BadSchema> {
        let bad = |error: jsonschema::ValidationError<'_>| BadSchema {
            reason: match remote(&document) {
                Some(to) => {
                    format!("{to:?} refers to another document; only references like \"#/$defs/x\" are taken")
                }
                None => error.to_string(),
            },
        };
        let validator = jsonschema::options().build(&document).map_err(bad)?;
        Ok(Self { document, validator })
    }

    /// The document it was compiled from.
    #[must_use]
    pub const fn document(&self) -> &Value {
        &self.document
    }

    /// Whether `value` is as the schema asks for, or what is wrong with it.
    pub fn check(&self, value: &Value) -> Result<(), Vec<Fault>> {
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let fault = |error: jsonschema::ValidationError<'_>| Fault {
            pointer: cut(error.instance_path().to_string()),
            message: cut(error.masked().to_string()),
        };
        Err(self.validator.iter_errors(value).take(SCHEMA_FAULTS_MAX).map(fault).collect())
    }
}

/// Names of members are the caller's, and as long as they like.
fn cut(text: String) -> String {
    match text.char_indices().nth(FAULT_CHARS_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The first reference to another document.
fn remote(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(members) => members.iter().find_map(|(name, value)| match (name.as_str(), value) {
            ("$ref" | "$dynamicRef", Value::String(to)) if !to.starts_with('#') => Some(to.as_str()),
            // What stands there is data, and may look like anything.
            ("const" | "enum" | "default" | "examples", _) => None,
            _ => remote(value),
        }),
        Value::Array(items) => items.iter().find_map(remote),
        _ => None,
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.document.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fault_says_where_it_is_and_never_what_stands_there() {
        let properties = json!({"n": {"type": "integer"}, "s": {"pattern": "^a"}, "e": {"enum": [1]}});
        let schema = Schema::compile(json!({"type": "object", "properties": properties})).unwrap();
        for sent in ["hunter2".to_owned(), "hunter2".repeat(20_000)] {
            let faults = schema.check(&json!({"n": sent, "s": sent, "e": sent})).unwrap_err();
            let mut places: Vec<&str> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
            places.sort_unstable();
            assert_eq!(places, ["/e", "/n", "/s"]);
            assert!(faults.iter().all(|fault| !fault.message.contains("hunter2")), "{faults:?}");
        }
        let strict = Schema::compile(json!({"additionalProperties": {"type": "integer"}})).unwrap();
        let faults = strict.check(&json!({"x".repeat(100_000): "no"})).unwrap_err();
        assert!(faults.iter().all(|fault| fault.pointer.len() + fault.message.len() < 2_000));
    }
}
