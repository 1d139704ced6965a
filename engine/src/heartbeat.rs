//! Liveness of a background loop: when it last completed an iteration.

use chimera_core::time::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The last heartbeat of a loop. Clones share it.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<AtomicI64>);

impl Heartbeat {
    /// Starts the heartbeat at this steady time.
    #[must_use]
    pub fn start(steady: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(steady.micros())))
    }

    /// Records a completed iteration.
    pub fn beat(&self, steady: Timestamp) {
        self.0.store(steady.micros(), Ordering::Relaxed);
    }

    /// Whole seconds since the last heartbeat.
    #[must_use]
    pub fn seconds_since_beat(&self, steady: Timestamp) -> i64 {
        (steady.micros() - self.0.load(Ordering::Relaxed)).max(0) / 1_000_000
    }
}
