//! A work budget that several renderings share, for one plan or one turn of a run.
//!
//! Each rendering has its own limit, but a map renders its inputs once per item, so the sum counts too. When the
//! share is used up, a turn ends and the run continues in the next one; a plan is not expanded any further.

use crate::limits::EXPRESSION_WORK_MAX;
use std::sync::atomic::{AtomicU64, Ordering};

/// The work that is left.
#[derive(Debug)]
pub struct WorkMeter {
    share: u64,
    left: AtomicU64,
    /// The allowance of one rendering when nothing is left.
    floor: u64,
}

impl WorkMeter {
    /// A share that never interrupts a rendering: one that starts may finish, however little is left.
    #[must_use]
    pub const fn lenient(share: u64) -> Self {
        Self { share, left: AtomicU64::new(share), floor: EXPRESSION_WORK_MAX }
    }

    /// A hard limit: nothing is computed beyond it.
    #[must_use]
    pub const fn strict(share: u64) -> Self {
        Self { share, left: AtomicU64::new(share), floor: 0 }
    }

    /// Whether the share is used up. A lenient meter still allows renderings then.
    #[must_use]
    pub fn is_share_spent(&self) -> bool {
        self.left() == 0
    }

    /// Whether no further rendering is allowed.
    pub fn is_exhausted(&self) -> bool {
        self.allowance() == 0
    }

    /// Resets the meter and returns the work that was done.
    pub fn reset(&self) -> u64 {
        self.share.saturating_sub(self.left.swap(self.share, Ordering::Relaxed))
    }

    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// The work that the next rendering may do.
    pub(crate) fn allowance(&self) -> u64 {
        self.left().max(self.floor).min(EXPRESSION_WORK_MAX)
    }

    pub(crate) fn charge(&self, work: u64) {
        self.left.store(self.left().saturating_sub(work), Ordering::Relaxed);
    }
}
