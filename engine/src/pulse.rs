//! When a loop last did its work, for whoever asks whether it still does.

use chimera_core::time::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The last sign of life of a loop. Copies show the same.
#[derive(Clone, Debug)]
pub struct Pulse(Arc<AtomicI64>);

impl Pulse {
    /// A loop that begins at this steady time.
    #[must_use]
    pub fn begin(steady: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(steady.micros())))
    }

    /// The loop did its work.
    pub fn beat(&self, steady: Timestamp) {
        self.0.store(steady.micros(), Ordering::Relaxed);
    }

    /// Whole seconds since then.
    #[must_use]
    pub fn silent_seconds(&self, steady: Timestamp) -> i64 {
        (steady.micros() - self.0.load(Ordering::Relaxed)).max(0) / 1_000_000
    }
}
