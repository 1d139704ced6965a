//! Whether the schema is still the one that this binary works with.
//!
//! Somebody may migrate the database while this process runs. Nothing is committed then: a
//! migration takes every lane away, and whoever takes one looks at the version first. What is seen
//! stands here, so that everybody who is refused is told why, and that trying again is of no use.

use crate::migrate;
use chimera_engine::port::{CommitError, Outage, ReadError, SchemaMismatch, Unavailable};
use std::sync::{Arc, Mutex, PoisonError};

/// What was last seen of the schema; shared by all lanes of a store.
#[derive(Clone, Default)]
pub(super) struct SchemaWatch(Arc<Mutex<Option<SchemaMismatch>>>);

impl SchemaWatch {
    /// Takes note of the version that the store has now.
    pub(super) fn saw(&self, found: i64) -> Result<(), Unavailable> {
        let known = migrate::newest();
        let mismatch = (found != known).then_some(SchemaMismatch { found, known });
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), mismatch);
        match mismatch {
            Some(mismatch) => {
                if before != Some(mismatch) {
                    tracing::error!(reason = %mismatch, "this node steps aside");
                }
                Err(Unavailable::new(Outage::Unusable, mismatch.to_string()))
            }
            None => {
                if before.is_some() {
                    tracing::warn!(version = found, "the schema is this version's again; this node goes on");
                }
                Ok(())
            }
        }
    }

    /// Why a change was not made, if the schema is the reason.
    pub(super) fn explain(&self, error: CommitError) -> CommitError {
        match (&error, self.mismatch()) {
            (CommitError::Unavailable(_) | CommitError::Fenced, Some(mismatch)) => {
                CommitError::Blocked(mismatch.into())
            }
            _ => error,
        }
    }

    /// Why nothing could be read, if the schema is the reason.
    pub(super) fn explain_read(&self, error: ReadError) -> ReadError {
        match (&error, self.mismatch()) {
            (ReadError::Unavailable(_), Some(mismatch)) => mismatch.into(),
            _ => error,
        }
    }

    /// What one lane has seen counts for all of them, before they have looked themselves.
    pub(super) fn mismatch(&self) -> Option<SchemaMismatch> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a store that this binary can't read: there is nobody here who would migrate it.
pub(super) fn readable(status: &migrate::Status) -> Result<(), SchemaMismatch> {
    let (found, known) = (status.version, migrate::newest());
    if found == known { Ok(()) } else { Err(SchemaMismatch { found, known }) }
}
