//! Why rows cannot be written or decoded.

use super::{InvalidTx, JsonError};

/// Why something cannot be stored. This is a bug, since external input is validated before.
#[derive(Debug, thiserror::Error)]
pub enum Unstorable {
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error(transparent)]
    Row(#[from] InvalidTx),
}

/// Stored rows that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rows are damaged: {what}")]
pub struct DamagedRows {
    pub what: String,
}
