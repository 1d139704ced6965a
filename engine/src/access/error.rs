//! Why a use case of the access room did not happen.

use crate::flow::FlowError;
use crate::ledger::audit::AuditError;
use crate::port::{CommitError, ReadError};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::Unstorable;
use chimera_core::record::{InvalidTx, JsonError};

/// Why not.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// What was asked for can't be done, and this says why.
    #[error("{}", .0.message)]
    Refused(Box<ErrorBody>),
    /// The run or its records refused.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl AccessError {
    /// A refusal.
    #[must_use]
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Self::Refused(Box::new(ErrorBody::new(code, message)))
    }

    /// Whether the request is at fault: asked again as it is, it would be refused again.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        Code::parse(&self.body().code).is_some_and(|code| code.status() < 500)
    }

    /// The error as every surface tells it.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        match self {
            Self::Refused(body) => (**body).clone(),
            Self::Flow(error) => error.body(),
        }
    }
}

impl From<ErrorBody> for AccessError {
    fn from(body: ErrorBody) -> Self {
        Self::Refused(Box::new(body))
    }
}

impl From<CommitError> for AccessError {
    fn from(error: CommitError) -> Self {
        Self::Flow(error.into())
    }
}

impl From<ReadError> for AccessError {
    fn from(error: ReadError) -> Self {
        Self::Flow(error.into())
    }
}

impl From<AuditError> for AccessError {
    fn from(error: AuditError) -> Self {
        Self::Flow(error.into())
    }
}

impl From<InvalidTx> for AccessError {
    fn from(error: InvalidTx) -> Self {
        Self::Flow(Unstorable::from(error).into())
    }
}

impl From<JsonError> for AccessError {
    fn from(error: JsonError) -> Self {
        Self::Flow(Unstorable::from(error).into())
    }
}
