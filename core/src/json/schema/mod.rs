//! JSON Schemas of tools, workflows and patches, compiled once.
//!
//! A schema is self-contained: references to other documents are rejected, so that validation never reads a file or
//! the network. Errors name the JSON Pointer into the caller's document, never the value, because they are stored and
//! logged. Only the first few are reported, since the first one is usually the cause. The cost of a schema is bounded
//! before it is compiled; see `cost`.

mod cost;
mod pattern;

use crate::limits::{
    FAULT_CHARS_MAX, PATTERN_BYTES_MAX, PATTERN_BYTES_MIN, SCHEMA_APPLIED_CHEAP_MAX, SCHEMA_FAULTS_MAX,
    SCHEMA_FAULTS_PATTERN_WORK_MAX, SCHEMA_FAULTS_WORK_MAX, SCHEMA_PATTERN_BYTES_MAX, SCHEMA_PATTERN_WORK_MAX,
    SCHEMA_WORK_MAX,
};
use cost::Cost;
use pattern::PatternWork;
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
    /// What its patterns may take, if it has any.
    pattern_work: Option<PatternWork>,
    /// Bytes that its compiled patterns take at most.
    pattern_bytes: usize,
    trust: Trust,
}

/// Who wrote a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// We or an operator: its patterns run on whatever a caller sends.
    Trusted,
    /// A caller: the time that its patterns spend on text is bounded, and the memory that they take.
    Untrusted,
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
        Self::compile_bounded(document, Trust::Trusted)
    }

    /// Compiles an untrusted schema: the time that its patterns spend on text is bounded, and the memory that they take.
    pub fn compile_untrusted(document: Value) -> Result<Self, InvalidSchema> {
        Self::compile_bounded(document, Trust::Untrusted)
    }

    fn compile_bounded(document: Value, trust: Trust) -> Result<Self, InvalidSchema> {
        let Cost { applied_max, patterns, pattern_work } = cost::estimate(&document)?;
        let pattern_bytes_max = if trust == Trust::Trusted { usize::MAX } else { SCHEMA_PATTERN_BYTES_MAX };
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
        let validator = validator(&document, PATTERN_BYTES_MAX);
        let validator = validator.map_err(|error| InvalidSchema { reason: error.to_string() })?;
        Ok(Self { document, validator, applied_max, pattern_work, pattern_bytes, trust })
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
        self.applied_max > SCHEMA_APPLIED_CHEAP_MAX || self.pattern_work.is_some()
    }

    /// Whether the patterns of a caller may take longer than this on a value.
    fn exceeds_pattern_work(&self, value: &Value, max: u64) -> bool {
        let work = self.pattern_work.as_ref().filter(|_| self.trust == Trust::Untrusted);
        work.is_some_and(|work| work.on(value, max) > max)
    }

    /// Why a value is too large to be validated.
    fn budget_violation(&self, value: &Value) -> Option<String> {
        if !self.is_expensive() {
            return None;
        }
        // First: counting the work of patterns takes as long as what this bounds.
        if self.applied_max.saturating_mul(count_values(value)) > SCHEMA_WORK_MAX {
            return Some("the value is too large for a schema with this many subschemas".to_owned());
        }
        self.exceeds_pattern_work(value, SCHEMA_PATTERN_WORK_MAX).then(|| {
            format!(
                "the text is too large for the patterns of the schema, which would take more than \
                 {SCHEMA_PATTERN_WORK_MAX} steps; send less text, or use patterns with smaller counts such as {{5}}"
            )
        })
    }

    /// Validates `value`.
    pub fn check(&self, value: &Value) -> Result<(), Vec<SchemaViolation>> {
        if let Some(message) = self.budget_violation(value) {
            return Err(vec![SchemaViolation { pointer: String::new(), message }]);
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        // The validator collects the errors of every subschema before the first few are reported, and applies the
        // patterns below nested alternatives several times for that.
        if self.applied_max.saturating_mul(count_values(value)) > SCHEMA_FAULTS_WORK_MAX
            || self.exceeds_pattern_work(value, SCHEMA_FAULTS_PATTERN_WORK_MAX)
        {
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

    /// One pattern with many states, and one with few that is applied twenty times, took 36 and 11 seconds.
    #[test]
    fn a_pattern_is_not_run_where_it_would_take_seconds() {
        let states = Schema::compile_untrusted(json!({"pattern": "[a-q][a-t]{1800}[u-z0-9A-Z]"})).unwrap();
        let text = |bytes: usize| json!("abcdefghijklmnopq".repeat(bytes / 17));
        assert!(states.check(&text(990_000)).unwrap_err()[0].message.contains("too large for the patterns"));
        assert!(!states.check(&text(200)).unwrap_err()[0].message.contains("too large"));
        let refs: Vec<Value> = (0..20).map(|_| json!({"$ref": "#/$defs/p"})).collect();
        let defs = json!({"p": {"pattern": "[a-q][a-t]{1800}[u-z0-9A-Z]"}});
        let often = Schema::compile_untrusted(json!({"$defs": defs, "anyOf": refs})).unwrap();
        assert!(often.check(&text(15_000)).unwrap_err()[0].message.contains("too large for the patterns"));

        let properties = json!({"id": {"pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}, "slug": {"pattern": "^[a-z0-9-]{1,63}$"}});
        let plain = Schema::compile_untrusted(json!({"properties": properties})).unwrap();
        let long = json!({"id": "0e37df36-f698-11e6-8dd4-cb9ced3df976", "slug": "a-b", "body": "x".repeat(1_000_000)});
        assert_eq!(plain.check(&long), Ok(()), "no pattern is applied to the long text");
        let words = Schema::compile_untrusted(json!({"properties": {"body": {"pattern": "^[ -~]+$"}}})).unwrap();
        assert_eq!(words.check(&long), Ok(()), "a simple pattern may read a long text");
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
