//! A few places that all tenants share, each in its turn.

use chimera_core::access::{Claimant, Line, LineFull};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Places, and those who wait for one. Who comes next is for [`Line`] to say.
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
    /// So many places; `is_shared` says whether there are several tenants, each of which has its share.
    pub fn new(total: usize, is_shared: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let state = State { line: Line::new(total), waiters: BTreeMap::new() };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), is_shared: Box::new(is_shared) }) }
    }

    /// Waits for a place. Whoever stops waiting loses nothing for others.
    pub async fn turn(&self, who: &Claimant) -> Turn {
        let (given, waits) = oneshot::channel();
        let turn = {
            let mut state = self.inner.state();
            let ask = state.line.ask(who);
            state.waiters.insert(ask, given);
            state.serve();
            Turn { inner: Arc::clone(&self.inner), ask }
        };
        // The sender stays until a place is given.
        let _ = waits.await;
        turn
    }

    /// Who has so much waiting that more of a claimant is better refused.
    #[must_use]
    pub fn full_for(&self, who: &Claimant) -> Option<LineFull> {
        self.inner.state().line.full_for(who)
    }

    /// How many wait.
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
                // Whoever is gone gives the place back when it is dropped.
                let _ = waiter.send(());
            }
        }
    }
}

/// A place, or the wait for one.
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
