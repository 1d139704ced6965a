//! A fair semaphore: a fixed number of slots that all tenants share.

use chimera_core::access::{Claimant, Line, LineFull};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The slots and their wait queue. [`Line`] decides who is next.
#[derive(Clone)]
pub struct Turns {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    is_shared: Box<dyn Fn() -> bool + Send + Sync>,
}

struct State {
    line: Line,
    waiters: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Turns {
    /// `total` slots. `is_shared` says whether there are several tenants; if so, each one gets its share.
    pub fn new(total: usize, is_shared: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let state = State { line: Line::new(total), waiters: BTreeMap::new() };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), is_shared: Box::new(is_shared) }) }
    }

    /// Waits for a slot. Cancel safe: a dropped waiter leaves the queue, and a slot it was given goes to the next.
    pub async fn turn(&self, who: &Claimant) -> Turn {
        let (given, waits) = oneshot::channel();
        let turn = {
            let mut state = self.inner.state();
            let ask = state.line.ask(who);
            state.waiters.insert(ask, given);
            state.serve();
            Turn { inner: Arc::clone(&self.inner), ask }
        };
        // The sender is kept until a slot is free.
        let _ = waits.await;
        turn
    }

    /// Which wait queue limit a claimant has reached, if any: further work should be refused.
    #[must_use]
    pub fn full_for(&self, who: &Claimant) -> Option<LineFull> {
        self.inner.state().line.full_for(who)
    }

    /// The number of waiters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.state().line.waiting()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        let shared = (self.is_shared)();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.line.share(shared);
        state
    }
}

impl State {
    fn serve(&mut self) {
        while let Some(ask) = self.line.serve_next() {
            if let Some(waiter) = self.waiters.remove(&ask) {
                // A waiter that is gone releases the slot when its guard drops.
                let _ = waiter.send(());
            }
        }
    }
}

/// A slot, or a position in the wait queue. Dropping it releases either.
pub struct Turn {
    inner: Arc<Inner>,
    ask: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        state.waiters.remove(&self.ask);
        state.line.leave(self.ask);
        state.serve();
    }
}
