//! The body of an error, and the problem document that carries it over HTTP.
//!
//! The body is the union of what the specifications require: `code`, `message`, `error_type`, `retryable`, `details`,
//! and `retry_after_seconds` where waiting is known to help.
//!
//! Messages and details repeat text from callers and other systems, and are stored and written to the ledger. They
//! are therefore sanitized and bounded on construction: an error that cannot be stored would lose the record of the
//! action it reports.

use super::{Code, ErrorType};
use crate::text;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An error in the form that every surface uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Machine-readable code. A string, because skills may define their own codes.
    pub code: String,
    /// Human-readable message.
    pub message: String,
    pub error_type: ErrorType,
    /// Whether sending the same request again may succeed. Absent means no.
    #[serde(default)]
    pub retryable: bool,
    /// Further details: pointers into the caller's document, limits, ids.
    #[serde(default)]
    pub details: Map<String, Value>,
    /// How long to wait before retrying.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

impl ErrorBody {
    /// An error with the class and retryability of its code.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code: code.as_str().to_owned(),
            message: text::sanitize_message(message.into()),
            error_type: code.error_type(),
            retryable: code.retryable(),
            details: Map::new(),
            retry_after_seconds: None,
        }
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), text::sanitize_detail(value.into()));
        self
    }

    /// Sanitizes an error that was built elsewhere, so that every store can hold it.
    #[must_use]
    pub fn sanitized(self) -> Self {
        let details = self.details.into_iter();
        let details =
            details.map(|(name, value)| (text::sanitize_message(name), text::sanitize_detail(value))).collect();
        Self { code: text::sanitize_message(self.code), message: text::sanitize_message(self.message), details, ..self }
    }

    /// Sets the time after which a retry makes sense.
    #[must_use]
    pub const fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }
}

/// A problem document (RFC 9457).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProblemDetails {
    /// Path of the code's documentation page.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// The message of this occurrence.
    pub detail: String,
    /// The requested path.
    pub instance: String,
    /// The error in the form that every surface uses.
    pub error: ErrorBody,
    /// Trace id for logs and traces.
    pub trace_id: String,
}

impl ProblemDetails {
    /// The document for `error`, which occurred at path `instance`.
    #[must_use]
    pub fn new(code: Code, error: ErrorBody, instance: &str, trace_id: &str) -> Self {
        Self {
            kind: code.page(),
            title: code.title().to_owned(),
            status: code.status(),
            detail: error.message.clone(),
            instance: instance.to_owned(),
            error,
            trace_id: trace_id.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;
    use serde_json::json;

    /// CONTENT-135, CONTENT-133
    #[test]
    fn the_example_of_the_error_schema_reads_and_writes_unchanged() {
        let example = json!({
            "code": "VALIDATION_ERROR",
            "message": "Input parameter 'sources' must be a non-empty array",
            "error_type": "validation_error",
            "details": {"parameter": "sources", "received_type": "string", "expected_type": "array"},
            "retryable": false
        });
        let body: ErrorBody = serde_json::from_value(example.clone()).unwrap();
        assert_eq!(serde_json::to_value(&body).unwrap(), example);
        for required in ["code", "message", "error_type"] {
            let mut less = example.clone();
            less.as_object_mut().unwrap().remove(required);
            assert!(serde_json::from_value::<ErrorBody>(less).is_err(), "{required}");
        }
    }

    /// CONTENT-134
    #[test]
    fn details_retryable_and_the_waiting_time_are_optional_and_typed() {
        let least = json!({"code": "INTERNAL", "message": "m", "error_type": "system_error"});
        let body: ErrorBody = serde_json::from_value(least.clone()).unwrap();
        assert_eq!((body.retryable, body.details.len(), body.retry_after_seconds), (false, 0, None));
        for (field, wrong) in [("details", json!([])), ("retryable", json!("no")), ("retry_after_seconds", json!(1.5))]
        {
            let mut bad = least.clone();
            bad[field] = wrong;
            assert!(serde_json::from_value::<ErrorBody>(bad).is_err(), "{field}");
        }
    }

    #[test]
    fn a_message_and_details_are_bounded_and_hold_nothing_that_no_store_takes() {
        let long = format!("550 no su\0ch user\r\n{}", "é".repeat(100_000));
        let body = ErrorBody::new(Code::ExternalServiceError, long.clone());
        assert!(body.message.starts_with("550 no su\u{fffd}ch user\u{fffd}\n"));
        assert_eq!(body.message.chars().count(), limits::ERROR_MESSAGE_CHARS_MAX + 1);
        let faults: Vec<Value> = (0..10_000).map(|n| json!({"poin\0ter": n, "message": long})).collect();
        let body = body.with("faults", faults).with("limit", 7);
        let text = serde_json::to_string(&body).unwrap();
        assert!(text.len() < 2 * limits::ERROR_DETAIL_BYTES_MAX && !text.contains("\\u0000"), "{}", text.len());
        assert!(body.details["faults"].as_array().is_some_and(|faults| faults[0]["poin\u{fffd}ter"] == 0));
        assert_eq!(body.details["limit"], 7);
        assert_eq!(body.clone().sanitized(), body);
    }

    #[test]
    fn a_body_takes_class_and_retry_rule_from_its_code() {
        for code in Code::ALL {
            let body = ErrorBody::new(*code, "m");
            assert_eq!((body.code.as_str(), body.error_type), (code.as_str(), code.error_type()));
            assert_eq!(body.retryable, code.retryable());
        }
    }
}
