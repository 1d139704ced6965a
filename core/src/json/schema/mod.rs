//! JSON Schemas of tools, workflows and patches, compiled once.
//!
//! A schema is self-contained: references to other documents are rejected, so that validation never reads a file or
//! the network. Errors name the JSON Pointer into the caller's document, never the value, because they are stored and
//! logged. Only the first few are reported, since the first one is usually the cause. The cost of a schema is bounded
//! before it is compiled; see `cost`.

mod cost;

use crate::limits::{
    FAULT_CHARS_MAX, PATTERN_BYTES_MAX, PATTERN_BYTES_MIN, SCHEMA_APPLIED_CHEAP_MAX, SCHEMA_FAULTS_MAX,
    SCHEMA_FAULTS_WORK_MAX, SCHEMA_PATTERN_BYTES_MAX, SCHEMA_TEXT_MAX, SCHEMA_WORK_MAX,
};
use cost::Cost;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// A pattern is compiled to be read forwards and backwards, and each has a cache.
const AUTOMATA_OF_PATTERN: usize = 4;

/// A compiled schema with the document it came from.
pub struct Schema {
    document: Value,
    validator: jsonschema::Validator,
    /// Maximum number of subschemas that may apply to one location of a value.
    applied_max: u64,
    patterns: usize,
    /// Bytes that its compiled patterns take at most.
    pattern_bytes: usize,
    /// Maximum of text bytes in a value times patterns.
    text_max: u64,
}

/// A validation error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchemaViolation {
    /// JSON Pointer into the validated value.
    pub pointer: String,
    pub message: String,
}

/// Why a schema can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid schema: {reason}")]
pub struct InvalidSchema {
    pub reason: String,
}

impl Schema {
    /// Compiles a trusted schema, ours or an operator's (JSON Schema 2020-12 unless it says otherwise).
    pub fn compile(document: Value) -> Result<Self, InvalidSchema> {
        Self::compile_bounded(document, u64::MAX, usize::MAX)
    }

    /// Compiles an untrusted schema: the time that its patterns spend on text is bounded, and the memory that they take.
    pub fn compile_untrusted(document: Value) -> Result<Self, InvalidSchema> {
        Self::compile_bounded(document, SCHEMA_TEXT_MAX, SCHEMA_PATTERN_BYTES_MAX)
    }

    fn compile_bounded(document: Value, text_max: u64, pattern_bytes_max: usize) -> Result<Self, InvalidSchema> {
        let Cost { applied_max, patterns } = cost::estimate(&document)?;
        let mut pattern_bytes = 0;
        for pattern in &patterns {
            pattern_bytes += compiled_bytes(pattern);
            if pattern_bytes > pattern_bytes_max {
                let reason = format!(
                    "its patterns take more than {pattern_bytes_max} bytes of memory when compiled; use fewer, or \
                     simpler ones: classes such as \\p{{L}} and counts such as {{5}} take most"
                );
                return Err(InvalidSchema { reason });
            }
        }
        let patterns = patterns.len();
        let validator = validator(&document, PATTERN_BYTES_MAX);
        let validator = validator.map_err(|error| InvalidSchema { reason: error.to_string() })?;
        Ok(Self { document, validator, applied_max, patterns, pattern_bytes, text_max })
    }

    /// Bytes that the compiled patterns take at most.
    #[must_use]
    pub const fn pattern_bytes(&self) -> usize {
        self.pattern_bytes
    }

    #[must_use]
    pub const fn document(&self) -> &Value {
        &self.document
    }

    /// Whether validation may be CPU-intensive.
    #[must_use]
    pub const fn is_expensive(&self) -> bool {
        self.applied_max > SCHEMA_APPLIED_CHEAP_MAX || self.patterns > 0
    }

    fn exceeds_budget(&self, value: &Value) -> bool {
        self.applied_max.saturating_mul(count_values(value)) > SCHEMA_WORK_MAX
            || (self.patterns as u64).saturating_mul(text_bytes(value)) > self.text_max
    }

    /// Validates `value`.
    pub fn check(&self, value: &Value) -> Result<(), Vec<SchemaViolation>> {
        if self.is_expensive() && self.exceeds_budget(value) {
            let message = "the value is too large for a schema with this many subschemas or patterns".to_owned();
            return Err(vec![SchemaViolation { pointer: String::new(), message }]);
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        // The validator collects the errors of every subschema before the first few are reported.
        if self.applied_max.saturating_mul(count_values(value)) > SCHEMA_FAULTS_WORK_MAX {
            let message = "the value does not match the schema, and is too large to list the errors".to_owned();
            return Err(vec![SchemaViolation { pointer: String::new(), message }]);
        }
        let fault = |error: jsonschema::ValidationError<'_>| SchemaViolation {
            pointer: truncate(error.instance_path().to_string()),
            message: truncate(error.masked().to_string()),
        };
        Err(self.validator.iter_errors(value).take(SCHEMA_FAULTS_MAX).map(fault).collect())
    }
}

/// A validator whose patterns take so many bytes each at most. The engine is linear: a backtracking one could run
/// forever.
fn validator(
    document: &Value,
    pattern_bytes_max: usize,
) -> Result<jsonschema::Validator, jsonschema::ValidationError<'static>> {
    let patterns = jsonschema::PatternOptions::regex().size_limit(pattern_bytes_max).dfa_size_limit(pattern_bytes_max);
    jsonschema::options().with_pattern_options(patterns).build(document)
}

/// Bytes that a compiled pattern takes at most: it is the smallest limit that it compiles under, for its automata in
/// both directions and their caches.
fn compiled_bytes(pattern: &str) -> usize {
    let document = serde_json::json!({"pattern": pattern});
    let limits = std::iter::successors(Some(PATTERN_BYTES_MIN), |limit| Some(limit * 4));
    let mut fits = limits.take_while(|limit| *limit < PATTERN_BYTES_MAX);
    let limit = fits.find(|limit| validator(&document, *limit).is_ok()).unwrap_or(PATTERN_BYTES_MAX);
    limit * AUTOMATA_OF_PATTERN
}

/// Member names come from the caller and may be long.
fn truncate(text: String) -> String {
    match text.char_indices().nth(FAULT_CHARS_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Bytes of text in a value, including member names.
fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() as u64 + text_bytes(value)).sum(),
        _ => 0,
    }
}

/// Number of values in a value, including itself.
fn count_values(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(count_values).sum::<u64>() + 1,
        Value::Object(members) => members.values().map(count_values).sum::<u64>() + 1,
        _ => 1,
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
    fn patterns_are_weighed_and_too_much_of_them_is_refused() {
        let of = |count: usize, pattern: &str| {
            let patterns: Vec<Value> = (0..count).map(|n| json!({"pattern": format!("{pattern}{n}")})).collect();
            Schema::compile_untrusted(json!({"anyOf": patterns}))
        };
        let light = of(50, "^[a-z]+$").unwrap().pattern_bytes();
        let heavy = of(10, "\\p{L}{5}").unwrap().pattern_bytes();
        assert!(light < 2 * 1024 * 1024 && heavy > 2 * light, "{light} {heavy}");
        assert!(of(50, "^\\p{L}+$").is_ok());
        let why = of(50, "\\p{L}{5}").unwrap_err().reason;
        assert!(why.starts_with("its patterns take more than 16777216 bytes"), "{why}");
    }

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

    #[test]
    fn a_pattern_never_goes_back_to_try_again() {
        let slow =
            Schema::compile_untrusted(json!({"properties": {"a": {"pattern": "(?:a|b)*a(?:a|b){150}c"}}})).unwrap();
        let long = json!({"a": "ab".repeat(1_000_001)});
        assert!(slow.check(&long).unwrap_err()[0].message.contains("too large"));
        let schema = Schema::compile(json!({"pattern": "^(a+)+$"})).unwrap();
        assert!(schema.check(&json!(format!("{}b", "a".repeat(50_000)))).is_err());
        for unbounded in ["(?=a)b", "^(a)\\1$", "(a{1000}){1000}"] {
            assert!(Schema::compile(json!({"pattern": unbounded})).is_err(), "{unbounded}");
        }
    }

    #[test]
    fn a_large_value_is_refused_by_a_schema_with_many_parts() {
        let variants: Vec<Value> = (0..500).map(|n| json!({"const": n})).collect();
        let schema = Schema::compile(json!({"items": {"anyOf": variants}})).unwrap();
        assert!(schema.check(&json!(vec![499; 1_000])).is_ok());
        let faults = schema.check(&json!(vec![499; 30_000])).unwrap_err();
        assert!(faults[0].message.contains("too large"), "{faults:?}");
    }

    /// Thousands of items times hundreds of parts make millions of faults, each with its part of the value.
    #[test]
    fn faults_are_listed_only_where_they_are_few() {
        let branches: Vec<Value> = (0..300).map(|n| json!({"const": n})).collect();
        let document = json!({"properties": {"x": {"type": "array", "items": {"anyOf": branches}}}});
        let schema = Schema::compile(document).unwrap();
        let faults = |items: usize| schema.check(&json!({"x": vec!["q"; items]})).unwrap_err();
        assert_eq!(faults(2)[0].pointer, "/x/0");
        let many = faults(5_000);
        assert_eq!((many.len(), many[0].pointer.as_str()), (1, ""), "{many:?}");
        assert!(many[0].message.contains("too large to list the errors"));
    }
}
