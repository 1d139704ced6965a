//! A deciding run's view of its limits: call slots, memory, and parking.

use super::call_slots::recheck_delay;
use super::engine::EngineState;
use chimera_core::flow::run::{Gate, SlotRequest};
use uuid::Uuid;

/// Call slots and memory as one run uses it in one turn.
pub(super) struct TurnGate<'a> {
    pub(super) inner: &'a EngineState,
    pub(super) tenant: &'a str,
    /// Whether the run has already waited for a while.
    pub(super) has_waited: bool,
}

impl Gate for TurnGate<'_> {
    fn enter(&mut self, slot: SlotRequest<'_>) -> bool {
        if !self.inner.is_running() {
            return false;
        }
        let host = slot.input.and_then(|input| {
            let (tool, _) = self.inner.parts.registry.exact(slot.tenant, slot.tool, slot.version)?;
            tool.host(input)
        });
        self.inner.call_slots().acquire(slot, host.as_deref())
    }

    fn may_grow(&mut self, run: Uuid, memory_bytes: usize) -> bool {
        self.inner.memory().may_grow(run, self.tenant, memory_bytes)
    }

    /// A run waits in memory briefly while there is capacity, because resuming it from the store costs a read.
    fn park(&mut self, run: Uuid) -> Option<i64> {
        if !self.inner.is_running() {
            return None;
        }
        // It waits for memory that it holds itself: unload it at once.
        let (lacks_memory, waiting) = {
            let memory = self.inner.memory();
            (memory.waits(run), memory.waiting())
        };
        if lacks_memory {
            self.inner.call_slots().park(run, true);
            return Some(recheck_delay(waiting, run));
        }
        let at_once = self.has_waited || self.inner.driven.is_scarce(self.tenant);
        self.inner.call_slots().park(run, at_once)
    }
}
