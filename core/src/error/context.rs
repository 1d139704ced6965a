//! An error as it propagates from the agent that failed to the one that made the request.
//!
//! Timestamps are kept as received, so that a report can be forwarded unchanged.

use super::ErrorBody;
use crate::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

/// An error with its propagation history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// The original error.
    pub error: ErrorBody,
    pub context: ErrorContext,
}

/// Which agents handled a failed request, in order, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorContext {
    /// The agents that handled the request. The one that failed comes first.
    pub agent_chain: Vec<String>,
    pub timestamps: ErrorTimestamps,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
}

/// When an error occurred and when it was last propagated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorTimestamps {
    /// When the first agent failed.
    #[serde(deserialize_with = "date_time")]
    pub initial_failure: String,
    /// When it was last propagated.
    #[serde(deserialize_with = "date_time")]
    pub propagated_at: String,
}

fn date_time<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    let text = String::deserialize(input)?;
    text.parse::<Timestamp>().map_err(serde::de::Error::custom)?;
    Ok(text)
}

impl ErrorReport {
    /// A report from the agent that failed.
    #[must_use]
    pub fn new(error: ErrorBody, agent: &str, task_id: Option<&str>, at: Timestamp) -> Self {
        let at = at.to_string();
        Self {
            error,
            context: ErrorContext {
                agent_chain: vec![agent.to_owned()],
                timestamps: ErrorTimestamps { initial_failure: at.clone(), propagated_at: at },
                task_id: task_id.map(str::to_owned),
            },
        }
    }

    /// The report after `agent` handled it: the error stays, the chain grows.
    #[must_use]
    pub fn handled_by(mut self, agent: &str, at: Timestamp) -> Self {
        self.context.agent_chain.push(agent.to_owned());
        self.context.timestamps.propagated_at = at.to_string();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use serde_json::{Value, json};

    fn example() -> Value {
        json!({
            "error": {
                "code": "EXTERNAL_SERVICE_ERROR",
                "message": "Trend API returned 503",
                "error_type": "external_service_error",
                "retryable": true,
                "retry_after_seconds": 60
            },
            "context": {
                "agent_chain": ["worker_agent_001", "planner_agent_001"],
                "timestamps": {
                    "initial_failure": "2026-02-06T15:30:00Z",
                    "propagated_at": "2026-02-06T15:30:01Z"
                },
                "task_id": "aa0e8400-e29b-41d4-a716-446655440002"
            }
        })
    }

    /// CONTENT-140
    #[test]
    fn the_example_of_the_context_schema_reads_and_writes_unchanged() {
        let report: ErrorReport = serde_json::from_value(example()).unwrap();
        let mut written = serde_json::to_value(&report).unwrap();
        assert_eq!(written["error"].as_object_mut().unwrap().remove("details"), Some(json!({})));
        assert_eq!(written, example());
        assert_eq!(Code::parse(&report.error.code), Some(Code::ExternalServiceError));
    }

    /// CONTENT-139
    #[test]
    fn a_report_without_chain_or_dates_or_with_other_types_is_refused() {
        for (pointer, wrong) in [
            ("/error/error_type", json!("other_error")),
            ("/error/retryable", json!("yes")),
            ("/error/retry_after_seconds", json!(-1)),
            ("/context/agent_chain", json!("worker_agent_001")),
            ("/context/agent_chain/0", json!(1)),
            ("/context/timestamps/initial_failure", json!("yesterday")),
            ("/context/timestamps/propagated_at", json!(null)),
            ("/context/task_id", json!(7)),
        ] {
            let mut bad = example();
            *bad.pointer_mut(pointer).unwrap() = wrong;
            assert!(serde_json::from_value::<ErrorReport>(bad).is_err(), "{pointer}");
        }
    }

    /// CONTENT-138
    #[test]
    fn a_report_keeps_the_first_error_and_lists_agents_and_times_in_order() {
        let at = |micros| Timestamp::from_micros(micros);
        let error = ErrorBody::new(Code::ExternalServiceError, "Trend API returned 503").retry_after(60);
        let report = ErrorReport::new(error.clone(), "worker", Some("t1"), at(1)).handled_by("planner", at(2));
        assert_eq!(report.error, error);
        assert_eq!(report.context.agent_chain, ["worker", "planner"]);
        assert!(report.context.timestamps.initial_failure < report.context.timestamps.propagated_at);
    }
}
