//! Publishes within the process why the outcome of the last commit is still unknown.
//!
//! The caller of that commit keeps waiting, since any answer could be wrong. Later callers get the reason instead of
//! waiting too.

use chimera_engine::port::Unavailable;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Set by the writer, read by anybody. Reading is nearly free in the normal case.
#[derive(Clone, Default)]
pub(super) struct UnknownOutcome(Arc<(AtomicBool, Mutex<Option<Unavailable>>)>);

impl UnknownOutcome {
    /// Sets the reason, or `None` once the outcome is known.
    pub(super) fn set(&self, reason: Option<Unavailable>) {
        let (any, cell) = &*self.0;
        any.store(reason.is_some(), Ordering::Release);
        *cell.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Fails while the outcome is unknown.
    pub(super) fn check(&self) -> Result<(), Unavailable> {
        let (any, cell) = &*self.0;
        let reason =
            any.load(Ordering::Acquire).then(|| cell.lock().unwrap_or_else(PoisonError::into_inner).clone()).flatten();
        reason.map_or(Ok(()), Err)
    }
}
