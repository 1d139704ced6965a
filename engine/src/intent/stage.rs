//! The stages of the Router, and what stops an intent at one of them.

use crate::error::EngineError;
use crate::port::ReadError;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::json::schema::SchemaViolation;
use chimera_core::limits::SCHEMA_FAULTS_MAX;
use serde::Serialize;
use serde_json::{Value, json};

/// A check of the Router. The order is that of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Shape,
    Signature,
    Age,
    Idempotency,
    Arguments,
    Rights,
    Policy,
    Dispatch,
}

/// One reason why an intent would be refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub stage: Stage,
    pub error: ErrorBody,
}

/// Why an intent goes no further.
pub(super) enum Stopped {
    /// It is refused; the verdict is recorded.
    Refused(Stage, Box<ErrorBody>),
    /// The store failed, or somebody else was faster.
    Failed(EngineError),
}

impl Stopped {
    pub(super) fn refused(stage: Stage, body: ErrorBody) -> Self {
        Self::Refused(stage, Box::new(body))
    }

    /// An error of a use case that the intent was dispatched to. What does not exist is a mistake in the arguments.
    pub(super) fn of_dispatch(error: EngineError) -> Self {
        let is_refused = matches!(error, EngineError::Refused(_)) || error.is_refusal();
        if !is_refused || matches!(error, EngineError::Commit(_)) {
            return Self::Failed(error);
        }
        Self::refused(Stage::Dispatch, in_terms_of_arguments(error.body()))
    }
}

impl From<EngineError> for Stopped {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Self {
        Self::Failed(error.into())
    }
}

/// The refusal of a document that does not match its schema: the first place, and all of them.
pub(super) fn schema_invalid(what: &str, base: &str, violations: &[SchemaViolation]) -> ErrorBody {
    let place = |violation: &SchemaViolation| format!("{base}{}", violation.pointer);
    let (path, reason) = violations
        .first()
        .map_or_else(|| (base.to_owned(), String::new()), |first| (place(first), first.message.clone()));
    let faults: Vec<Value> = violations
        .iter()
        .take(SCHEMA_FAULTS_MAX)
        .map(|violation| json!({"pointer": place(violation), "message": violation.message}))
        .collect();
    let at = if path.is_empty() { String::new() } else { format!(" at `{path}`") };
    ErrorBody::new(Code::SchemaInvalid, format!("{what}{at}: {reason}"))
        .with("path", path)
        .with("reason", reason)
        .with("faults", faults)
}

/// The same error as the Router says it.
fn in_terms_of_arguments(mut body: ErrorBody) -> ErrorBody {
    match Code::parse(&body.code) {
        Some(Code::NotFound | Code::ValidationFailed | Code::MalformedArgs | Code::SchemaInvalid) => {
            let plain = ErrorBody::new(Code::MalformedArgs, body.message.clone());
            body = ErrorBody { details: body.details, ..plain };
        }
        Some(Code::PolicyDenied) if !body.details.contains_key("policy_id") => {
            let rule = ["rule", "level_because"].into_iter().find_map(|name| body.details.get(name).cloned());
            body = body.with("policy_id", rule.unwrap_or_else(|| "dispatch".into()));
        }
        _ => {}
    }
    body
}
