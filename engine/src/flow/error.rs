//! Refusals that are specific to flow.

use crate::error::{EngineError, NUL_REASON};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air::DocumentProblem;
use chimera_core::json::Position;
use chimera_core::limits;
use chimera_core::redact::Redactor;
use serde_json::{Value, json};

/// Refuses caller-supplied text that can't be stored.
pub(super) fn check_text(what: &str, words: Option<&str>) -> Result<(), EngineError> {
    let Some(words) = words else { return Ok(()) };
    if words.contains('\0') {
        return Err(EngineError::refused(Code::ValidationFailed, format!("the {what} {NUL_REASON}")));
    }
    if words.len() > limits::NOTES_BYTES_MAX {
        let message = format!("the {what} has more than {} bytes", limits::NOTES_BYTES_MAX);
        return Err(EngineError::refused(Code::PayloadTooLarge, message));
    }
    Ok(())
}

/// Caller-supplied text for the ledger and messages, with credentials masked.
pub(super) fn masked_text(what: &str, words: Option<String>) -> Result<Option<String>, EngineError> {
    check_text(what, words.as_deref())?;
    Ok(words.map(|words| mask_credentials(&words)))
}

/// Masks what looks like a credential.
pub(super) fn mask_credentials(text: &str) -> String {
    Redactor::default().text(text).into_owned()
}

/// The workflow, or this version of it, does not exist. `close` is the suggestion of another name.
pub(crate) fn no_workflow(id: &str, version: Option<i64>, close: &str) -> EngineError {
    let version = version.map(|version| format!(" in version {version}")).unwrap_or_default();
    EngineError::refused(Code::NotFound, format!("no workflow `{id}`{version}{close}"))
}

/// An invalid document with its problems.
pub(crate) fn invalid_document(what: &str, problems: &[DocumentProblem]) -> EngineError {
    let first = problems.first().map(|problem| match problem.path.as_str() {
        "" => format!(": {}", problem.reason),
        path => format!(" at {path}: {}", problem.reason),
    });
    let message = format!("{what} is not valid{}", first.unwrap_or_default());
    let problems: Vec<_> = problems.iter().map(problem_detail).collect();
    EngineError::Refused(Box::new(ErrorBody::new(Code::ValidationFailed, message).with("problems", problems)))
}

/// A problem of a document in the details of an error.
fn problem_detail(problem: &DocumentProblem) -> Value {
    let mut detail = json!({"code": problem.code.as_str(), "pointer": problem.path, "message": problem.reason});
    if let Some(Position { line, column }) = problem.position {
        detail["line"] = line.into();
        detail["column"] = column.into();
    }
    if let Some(hint) = &problem.hint {
        detail["hint"] = hint.as_str().into();
    }
    detail
}
