//! Publishes which lane a worker holds.

use chimera_engine::commit::Lane;
use chimera_engine::port::HeldLane;
use std::sync::{Arc, Mutex, PoisonError};

/// Written by the lane's worker, read by anybody.
#[derive(Clone, Default)]
pub(super) struct LaneCell(Arc<Mutex<Option<HeldLane>>>);

impl LaneCell {
    /// The worker holds this lane from now on.
    pub(super) fn set(&self, lane: Lane) {
        let held = HeldLane { lane: lane.id, epoch: lane.epoch };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }

    /// The worker holds no lane until it claims one again.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn get(&self) -> Option<HeldLane> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
