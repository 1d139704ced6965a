//! Which lane a loop holds, for everybody else to see.

use chimera_engine::commit::Lane;
use chimera_engine::port::HeldLane;
use std::sync::{Arc, Mutex, PoisonError};

/// A cell that the loop of a lane writes and anybody reads.
#[derive(Clone, Default)]
pub(super) struct LaneCell(Arc<Mutex<Option<HeldLane>>>);

impl LaneCell {
    /// The loop holds this lane from now on.
    pub(super) fn set(&self, lane: Lane) {
        let held = HeldLane { lane: lane.id, epoch: lane.epoch };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }

    /// The loop holds no lane until it has claimed one again.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What the loop holds.
    pub(super) fn get(&self) -> Option<HeldLane> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
