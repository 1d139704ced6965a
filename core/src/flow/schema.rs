//! JSON Schemas of tools, workflows and patches, compiled once.
//!
//! A schema is closed over itself: references to other documents are refused, so that checking a
//! value never reads a file or the network. What is wrong is told with the pointer into the
//! caller's own document; at most a handful of faults, because the first one is usually the cause.

use crate::limits::SCHEMA_FAULTS_MAX;
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
            pointer: error.instance_path().to_string(),
            message: error.to_string(),
        };
        Err(self.validator.iter_errors(value).take(SCHEMA_FAULTS_MAX).map(fault).collect())
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
