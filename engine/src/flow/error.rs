//! Why a use case of the flow room did not happen.

use crate::access::{is_repeated, used_before};
use crate::ledger::audit::AuditError;
use crate::port::{Blocked, CommitError, ReadError, SchemaMismatch};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air::Problem;
use chimera_core::flow::run::{Damaged, Unstorable};
use chimera_core::ledger::{EntryError, Redactor};
use chimera_core::limits;
use chimera_core::record::{InvalidTx, JsonError};
use serde_json::json;

/// What is wrong with a text that not every store can hold.
const NUL: &str = "holds the character U+0000, which can't be stored";

/// Refuses words of a caller that can't be kept.
pub(super) fn check_words(what: &str, words: Option<&str>) -> Result<(), FlowError> {
    let Some(words) = words else { return Ok(()) };
    if words.contains('\0') {
        return Err(FlowError::refused(Code::ValidationFailed, format!("the {what} {NUL}")));
    }
    if words.len() > limits::NOTES_BYTES_MAX {
        let message = format!("the {what} has more than {} bytes", limits::NOTES_BYTES_MAX);
        return Err(FlowError::refused(Code::PayloadTooLarge, message));
    }
    Ok(())
}

/// Words of a caller that the ledger and messages tell of, without what looks like a credential.
pub(super) fn told_words(what: &str, words: Option<String>) -> Result<Option<String>, FlowError> {
    check_words(what, words.as_deref())?;
    Ok(words.map(|words| masked(&words)))
}

/// A text without what looks like a credential.
pub(super) fn masked(text: &str) -> String {
    Redactor::default().text(text).into_owned()
}

/// Why not.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// What was asked for can't be done, and this says why.
    #[error("{}", .0.message)]
    Refused(Box<ErrorBody>),
    /// The change was not made.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The store gave no rows.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The ledger's entry can't be made.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Rows are not what we wrote.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// A row can't be made.
    #[error(transparent)]
    Unstorable(#[from] Unstorable),
}

impl FlowError {
    /// A refusal.
    #[must_use]
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Self::Refused(Box::new(ErrorBody::new(code, message)))
    }

    /// Nothing is here, or nothing that the caller may see.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::refused(Code::NotFound, format!("there is no such {what}"))
    }

    /// The caller lacks a scope.
    #[must_use]
    pub fn lacking(scope: &str) -> Self {
        Self::Refused(Box::new(crate::access::lacking(scope)))
    }

    /// A cursor that another listing gave, or none.
    #[must_use]
    pub fn foreign_cursor() -> Self {
        Self::refused(Code::SchemaInvalid, "the cursor does not belong to this listing")
    }

    /// There is no such workflow, or not in this version.
    #[must_use]
    pub fn no_workflow(id: &str, version: Option<i64>) -> Self {
        let version = version.map(|version| format!(" in version {version}")).unwrap_or_default();
        Self::refused(Code::NotFound, format!("there is no workflow {id}{version}"))
    }

    /// A document with faults.
    #[must_use]
    pub fn problems(what: &str, problems: &[Problem]) -> Self {
        let first = problems.first().map(|problem| match problem.path.as_str() {
            "" => format!(": {}", problem.reason),
            path => format!(" at {path}: {}", problem.reason),
        });
        let message = format!("{what} is not valid{}", first.unwrap_or_default());
        let problems: Vec<_> = problems
            .iter()
            .map(|problem| json!({"code": problem.code.word(), "pointer": problem.path, "message": problem.reason}))
            .collect();
        Self::Refused(Box::new(ErrorBody::new(Code::ValidationFailed, message).with("problems", problems)))
    }

    /// The error as every surface tells it.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        match self {
            Self::Refused(body) => (**body).clone(),
            Self::Read(ReadError::Unavailable(why)) => why.body("the store can't be read now"),
            Self::Read(ReadError::Schema(error)) => schema_body(*error),
            Self::Read(ReadError::Cursor(_)) => Self::foreign_cursor().body(),
            Self::Unstorable(Unstorable::Json(JsonError::Nul) | Unstorable::Row(InvalidTx::Nul { .. }))
            | Self::Audit(
                AuditError::Json(JsonError::Nul)
                | AuditError::Invalid(InvalidTx::Nul { .. })
                | AuditError::Entry(EntryError::Nul),
            )
            | Self::Commit(CommitError::Invalid(InvalidTx::Nul { .. })) => {
                ErrorBody::new(Code::ValidationFailed, format!("a text {NUL}"))
            }
            Self::Commit(error) => commit_body(error),
            Self::Read(ReadError::Invalid { .. }) | Self::Audit(_) | Self::Damaged(_) | Self::Unstorable(_) => {
                ErrorBody::new(Code::Internal, "the request could not be worked on")
            }
        }
    }
}

/// A refusal that trying again does not change.
fn schema_body(error: SchemaMismatch) -> ErrorBody {
    ErrorBody::new(Code::SchemaMismatch, error.to_string())
}

fn commit_body(error: &CommitError) -> ErrorBody {
    match error {
        error if is_repeated(error) => used_before(),
        CommitError::Conflict(_) => ErrorBody::new(Code::OccConflict, "somebody else changed it first"),
        CommitError::Overloaded => ErrorBody::new(Code::Overloaded, "too many changes are waiting").retry_after(1),
        CommitError::Unavailable(why) => why.body("the store takes no changes now"),
        CommitError::Fenced => ErrorBody::new(Code::StoreUnavailable, "the store takes no changes now").retry_after(1),
        CommitError::Blocked(Blocked::Schema(error)) => schema_body(*error),
        CommitError::Blocked(Blocked::Held(hold)) => hold.body(),
        CommitError::Unknown => ErrorBody::new(Code::OutcomeUnknown, "nobody can tell whether the change was made"),
        CommitError::Invalid(_) | CommitError::Rejected { .. } => {
            ErrorBody::new(Code::Internal, "the change could not be stored")
        }
    }
}
