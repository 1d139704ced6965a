//! How much work expressions do together, for one plan or in one turn of a run.
//!
//! One rendering is bounded by itself. A map renders its inputs for every item, so what counts is the sum: a turn
//! ends when its share is used up and the run goes on in the next one, and a plan is not laid out any further.

use crate::limits::EXPRESSION_WORK_MAX;
use std::sync::atomic::{AtomicU64, Ordering};

/// Work that may still be done.
#[derive(Debug)]
pub struct WorkMeter {
    share: u64,
    left: AtomicU64,
    /// What one rendering may do when nothing is left.
    floor: u64,
}

impl WorkMeter {
    /// A share of work. Whatever has begun comes to its end, however little is left.
    #[must_use]
    pub const fn lenient(share: u64) -> Self {
        Self { share, left: AtomicU64::new(share), floor: EXPRESSION_WORK_MAX }
    }

    /// A share of work beyond which nothing is computed.
    #[must_use]
    pub const fn strict(share: u64) -> Self {
        Self { share, left: AtomicU64::new(share), floor: 0 }
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.left() == 0
    }

    /// Whether nothing more may be computed at all.
    pub fn is_over(&self) -> bool {
        self.allowance() == 0
    }

    /// Begins anew; gives what was done.
    pub fn begin_anew(&self) -> u64 {
        self.share.saturating_sub(self.left.swap(self.share, Ordering::Relaxed))
    }

    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// What the next rendering may do.
    pub(crate) fn allowance(&self) -> u64 {
        self.left().max(self.floor).min(EXPRESSION_WORK_MAX)
    }

    pub(crate) fn charge(&self, work: u64) {
        self.left.store(self.left().saturating_sub(work), Ordering::Relaxed);
    }
}
