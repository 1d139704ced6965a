//! A fair semaphore: a fixed number of slots that all tenants share.

use chimera_core::access::{Claimant, FairQueue, QueueFull};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The slots and their wait queue. [`FairQueue`] decides who is next.
#[derive(Clone)]
pub struct FairSlots {
    inner: Arc<SharedSlots>,
}

struct SharedSlots {
    state: Mutex<SlotState>,
    is_shared: Box<dyn Fn() -> bool + Send + Sync>,
}

struct SlotState {
    line: FairQueue,
    waiters: BTreeMap<u64, oneshot::Sender<()>>,
}

impl FairSlots {
    /// `total` slots. `is_shared` says whether there are several tenants; if so, each one gets its share.
    pub fn new(total: usize, is_shared: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let state = SlotState { line: FairQueue::new(total), waiters: BTreeMap::new() };
        Self { inner: Arc::new(SharedSlots { state: Mutex::new(state), is_shared: Box::new(is_shared) }) }
    }

    /// Waits for a slot. Cancel safe: a dropped waiter leaves the queue, and a slot it was given goes to the next.
    pub async fn acquire(&self, who: &Claimant) -> SlotGuard {
        self.turn_for(who, 1).await
    }

    /// Waits for so many slots at once; for all of them if it needs more than there are.
    pub async fn turn_for(&self, who: &Claimant, slots: usize) -> SlotGuard {
        let (given, waits) = oneshot::channel();
        let turn = {
            let mut state = self.inner.state();
            let ask = state.line.ask(who, slots);
            state.waiters.insert(ask, given);
            state.serve();
            SlotGuard { inner: Arc::clone(&self.inner), ticket: ask }
        };
        // The sender is kept until a slot is free.
        let _ = waits.await;
        turn
    }

    /// Which wait queue limit a claimant has reached, if any: further work should be refused.
    #[must_use]
    pub fn limit_reached(&self, who: &Claimant) -> Option<QueueFull> {
        self.inner.state().line.reached_limit(who)
    }

    /// The number of waiters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.state().line.waiting()
    }
}

impl SharedSlots {
    fn state(&self) -> MutexGuard<'_, SlotState> {
        let shared = (self.is_shared)();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.line.set_shared(shared);
        state
    }
}

impl SlotState {
    fn serve(&mut self) {
        while let Some(ask) = self.line.grant_next() {
            if let Some(waiter) = self.waiters.remove(&ask) {
                // A waiter that is gone releases the slot when its guard drops.
                let _ = waiter.send(());
            }
        }
    }
}

/// A slot, or a position in the wait queue. Dropping it releases either.
pub struct SlotGuard {
    inner: Arc<SharedSlots>,
    ticket: u64,
}

impl SlotGuard {
    /// Releases what it holds beyond so many slots.
    pub fn shrink(&self, slots: usize) {
        let mut state = self.inner.state();
        state.line.shrink(self.ticket, slots);
        state.serve();
    }

    /// Releases what it holds and waits for so many slots instead, before everything that its actor asked for later.
    pub async fn exchange(self, slots: usize) -> Self {
        let (given, waits) = oneshot::channel();
        {
            let mut state = self.inner.state();
            state.line.ask_again(self.ticket, slots);
            state.waiters.insert(self.ticket, given);
            state.serve();
        }
        // The sender is kept until the slots are free.
        let _ = waits.await;
        self
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        state.waiters.remove(&self.ticket);
        state.line.release(self.ticket);
        state.serve();
    }
}
