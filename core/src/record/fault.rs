//! Why rows can't be written, or can't be read back.

use super::{InvalidTx, JsonError};

/// Why something can't be stored: a fault of ours, since everything from outside was checked.
#[derive(Debug, thiserror::Error)]
pub enum Unstorable {
    /// A document can't be stored.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A row can't be stored.
    #[error(transparent)]
    Row(#[from] InvalidTx),
}

/// Rows that don't make what they were written for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rows are damaged: {what}")]
pub struct Damaged {
    /// What is wrong.
    pub what: String,
}
