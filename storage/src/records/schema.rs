//! Whether the schema version is still the one that this binary works with.
//!
//! Somebody may migrate the database while this process runs. Nothing is committed then: a migration takes over every
//! lane, and a claim checks the version first. The mismatch is published here, so that every rejected caller learns
//! the reason, and that retrying is useless.

use crate::migrate;
use chimera_engine::port::{CommitError, Outage, ReadError, SchemaMismatch, Unavailable};
use std::sync::{Arc, Mutex, PoisonError};

/// The last seen schema mismatch; shared by all lanes of a store.
#[derive(Clone, Default)]
pub(super) struct SchemaWatch(Arc<Mutex<Option<SchemaMismatch>>>);

impl SchemaWatch {
    /// Records the version that the store has now.
    pub(super) fn record_version(&self, found: i64) -> Result<(), Unavailable> {
        let known = migrate::newest();
        let mismatch = (found != known).then_some(SchemaMismatch { found, known });
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), mismatch);
        match mismatch {
            Some(mismatch) => {
                if before != Some(mismatch) {
                    tracing::error!(reason = %mismatch, "schema mismatch; this node has stopped writing");
                }
                Err(Unavailable::new(Outage::Unusable, mismatch.to_string()))
            }
            None => {
                if before.is_some() {
                    tracing::warn!(version = found, "the schema version matches again; this node resumes");
                }
                Ok(())
            }
        }
    }

    /// The commit error, replaced by the schema mismatch if that is the cause.
    pub(super) fn explain(&self, error: CommitError) -> CommitError {
        match (&error, self.mismatch()) {
            (CommitError::Unavailable(_) | CommitError::Fenced, Some(mismatch)) => {
                CommitError::Blocked(mismatch.into())
            }
            _ => error,
        }
    }

    /// The read error, replaced by the schema mismatch if that is the cause.
    pub(super) fn explain_read(&self, error: ReadError) -> ReadError {
        match (&error, self.mismatch()) {
            (ReadError::Unavailable(_), Some(mismatch)) => mismatch.into(),
            _ => error,
        }
    }

    /// A mismatch seen by one lane counts for all of them.
    pub(super) fn mismatch(&self) -> Option<SchemaMismatch> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rejects a store with a schema that this binary can't read, when opened without migrating.
pub(super) fn readable(status: &migrate::MigrationStatus) -> Result<(), SchemaMismatch> {
    let (found, known) = (status.version, migrate::newest());
    if found == known { Ok(()) } else { Err(SchemaMismatch { found, known }) }
}
