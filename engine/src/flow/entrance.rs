//! How a run that decides asks for slots, and for leave to wait for them in the store.

use super::gate::look_again_in;
use super::node::Inner;
use chimera_core::flow::run::{Gate, Slot};
use uuid::Uuid;

/// The gate as one run sees it in one turn.
pub(super) struct Entrance<'a> {
    pub(super) inner: &'a Inner,
    pub(super) tenant: &'a str,
    /// The run has waited for a while already.
    pub(super) has_waited: bool,
}

impl Gate for Entrance<'_> {
    fn enter(&mut self, slot: Slot<'_>) -> bool {
        if !self.inner.goes_on() {
            return false;
        }
        let host = slot.input.and_then(|input| self.inner.parts.registry.get(slot.tool)?.host(input));
        self.inner.gate().enter(slot, host.as_deref())
    }

    fn may_grow(&mut self, run: Uuid, memory_bytes: usize) -> bool {
        self.inner.memory().may_grow(run, self.tenant, memory_bytes)
    }

    /// A run waits in memory for a moment, as long as there are places enough: to take it up again costs
    /// a look into the store.
    fn park(&mut self, run: Uuid) -> Option<i64> {
        if !self.inner.goes_on() {
            return None;
        }
        // What it holds is what it waits for: it leaves at once.
        let (lacks_memory, waiting) = {
            let memory = self.inner.memory();
            (memory.waits(run), memory.waiting())
        };
        if lacks_memory {
            self.inner.gate().park(run, true);
            return Some(look_again_in(waiting, run));
        }
        let at_once = self.has_waited || self.inner.driven.is_scarce(self.tenant);
        self.inner.gate().park(run, at_once)
    }
}
