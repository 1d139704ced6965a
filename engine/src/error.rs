//! The error type of every use case.
//!
//! A use case fails in one of a few ways: the request is refused with a reason, or the store can't be read or written.
//! `EngineError::body` turns each of them into the error that clients see.

use crate::access::{is_nonce_conflict, nonce_used};
use crate::flow::KeyedRun;
use crate::ledger::audit::AuditError;
use crate::port::{Blocked, CommitError, ReadError, SchemaMismatch};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::ledger::EntryError;
use chimera_core::record::{DamagedRows, InvalidTx, JsonError, RowError, Unstorable};
use std::fmt::Display;

/// Why a text that contains U+0000 is refused: PostgreSQL can't store it.
pub(crate) const NUL_REASON: &str = "holds the character U+0000, which can't be stored";

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The request is refused; the body says why.
    #[error("{}", .0.message)]
    Refused(Box<ErrorBody>),
    /// A run of the caller already used the idempotency key.
    #[error("idempotency key already used by run {}", .0.id)]
    KeyUsed(Box<KeyedRun>),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Stored rows can't be decoded.
    #[error(transparent)]
    Damaged(#[from] DamagedRows),
    #[error(transparent)]
    Unstorable(#[from] Unstorable),
}

impl EngineError {
    #[must_use]
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Self::Refused(Box::new(ErrorBody::new(code, message)))
    }

    /// The thing does not exist, or the caller may not see it.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::refused(Code::NotFound, format!("there is no such {what}"))
    }

    /// Like [`Self::not_found`], with the name or id that the caller gave.
    #[must_use]
    pub fn unknown(what: &str, name: impl Display) -> Self {
        Self::refused(Code::NotFound, format!("no {what} `{name}`"))
    }

    #[must_use]
    pub fn missing_scope(scope: &str) -> Self {
        Self::Refused(Box::new(crate::access::missing_scope_error(scope)))
    }

    /// The cursor is malformed or belongs to another listing.
    #[must_use]
    pub fn invalid_cursor() -> Self {
        Self::refused(Code::SchemaInvalid, "the cursor does not belong to this listing")
    }

    /// Whether the request itself is at fault, so that retrying it unchanged fails again.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        Code::parse(&self.body().code).is_some_and(|code| code.status() < 500)
    }

    /// The error as clients see it.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        match self {
            Self::Refused(body) => (**body).clone(),
            Self::KeyUsed(run) => run.conflict(),
            Self::Read(ReadError::Unavailable(why)) => why.body("the store can't be read now"),
            Self::Read(ReadError::Schema(error)) => schema_body(*error),
            Self::Read(ReadError::Cursor(_)) => Self::invalid_cursor().body(),
            Self::Unstorable(Unstorable::Json(JsonError::Nul) | Unstorable::Row(InvalidTx::Nul { .. }))
            | Self::Audit(
                AuditError::Json(JsonError::Nul)
                | AuditError::Invalid(InvalidTx::Nul { .. })
                | AuditError::Entry(EntryError::Nul),
            )
            | Self::Commit(CommitError::Invalid(InvalidTx::Nul { .. })) => {
                ErrorBody::new(Code::ValidationFailed, format!("a string {NUL_REASON}"))
            }
            Self::Commit(error) => commit_body(error),
            Self::Read(ReadError::Invalid { .. }) | Self::Audit(_) | Self::Damaged(_) | Self::Unstorable(_) => {
                ErrorBody::new(Code::Internal, "the request could not be processed")
            }
        }
    }
}

impl From<ErrorBody> for EngineError {
    fn from(body: ErrorBody) -> Self {
        Self::Refused(Box::new(body))
    }
}

impl From<RowError> for EngineError {
    fn from(error: RowError) -> Self {
        Self::Damaged(error.into())
    }
}

impl From<InvalidTx> for EngineError {
    fn from(error: InvalidTx) -> Self {
        Self::Unstorable(error.into())
    }
}

impl From<JsonError> for EngineError {
    fn from(error: JsonError) -> Self {
        Self::Unstorable(error.into())
    }
}

/// Not retryable.
fn schema_body(error: SchemaMismatch) -> ErrorBody {
    ErrorBody::new(Code::SchemaMismatch, error.to_string())
}

fn commit_body(error: &CommitError) -> ErrorBody {
    match error {
        error if is_nonce_conflict(error) => nonce_used(),
        CommitError::Conflict(_) => {
            ErrorBody::new(Code::OccConflict, "the resource was changed concurrently; fetch it again and retry")
        }
        CommitError::Overloaded => ErrorBody::new(Code::Overloaded, "too many changes are queued").retry_after(1),
        CommitError::Unavailable(why) => why.body("the store does not accept changes now"),
        CommitError::Fenced => {
            ErrorBody::new(Code::StoreUnavailable, "the store does not accept changes now").retry_after(1)
        }
        CommitError::Blocked(Blocked::Schema(error)) => schema_body(*error),
        CommitError::Blocked(Blocked::Held(hold)) => hold.body(),
        CommitError::Unknown => ErrorBody::new(
            Code::OutcomeUnknown,
            "the outcome of the change is unknown; read the current state before you retry",
        ),
        CommitError::Invalid(_) | CommitError::Rejected { .. } => {
            ErrorBody::new(Code::Internal, "the change could not be stored")
        }
    }
}
