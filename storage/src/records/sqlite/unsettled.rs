//! Why nobody can tell yet whether the last commit happened, for everybody in this process to see.
//!
//! Who waits for that commit goes on waiting, since any answer could be wrong. Whoever comes after it is told the
//! reason instead of waiting too.

use chimera_engine::port::Unavailable;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A cell that the writer sets and anybody reads. Looking costs next to nothing while all is well.
#[derive(Clone, Default)]
pub(super) struct Unsettled(Arc<(AtomicBool, Mutex<Option<Unavailable>>)>);

impl Unsettled {
    /// The reason, or that it is known by now.
    pub(super) fn set(&self, reason: Option<Unavailable>) {
        let (any, cell) = &*self.0;
        any.store(reason.is_some(), Ordering::Release);
        *cell.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Refuses while nobody can tell.
    pub(super) fn check(&self) -> Result<(), Unavailable> {
        let (any, cell) = &*self.0;
        let reason =
            any.load(Ordering::Acquire).then(|| cell.lock().unwrap_or_else(PoisonError::into_inner).clone()).flatten();
        reason.map_or(Ok(()), Err)
    }
}
