//! What a process remembers of the queues: who claims from one right now, and how many claims wait.
//!
//! Claims from one queue take turns within a process, so that they don't compete for the same items. Between processes
//! the store decides.

use crate::flow::engine::EngineState;
use bytes::Bytes;
use chimera_core::limits;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore, SemaphorePermit};
use tracing::Instrument;

/// The bus topic with the names of queues that have new items.
pub(super) const TOPIC: &str = "flow.work";

/// A tenant and the name of its queue.
type QueueKey = (String, String);

pub(in crate::flow) struct WorkQueues {
    turns: Mutex<BTreeMap<QueueKey, Weak<AsyncMutex<()>>>>,
    waits: Semaphore,
}

impl Default for WorkQueues {
    fn default() -> Self {
        Self { turns: Mutex::default(), waits: Semaphore::new(limits::WORK_WAITS_MAX) }
    }
}

impl WorkQueues {
    /// The turn to claim from a queue.
    pub(super) async fn turn(&self, tenant: &str, queue: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let known = turns.entry((tenant.to_owned(), queue.to_owned())).or_default();
            known.upgrade().unwrap_or_else(|| {
                let turn = Arc::new(AsyncMutex::new(()));
                *known = Arc::downgrade(&turn);
                turn
            })
        };
        turn.lock_owned().await
    }

    /// The permission to wait for items. `None`: too many claims wait already.
    pub(super) fn wait(&self) -> Option<SemaphorePermit<'_>> {
        self.waits.try_acquire().ok()
    }
}

/// The hint that a queue has an item.
pub(super) fn hint(tenant: &str, queue: &str) -> Bytes {
    Bytes::from(format!("{tenant}\0{queue}"))
}

/// Wakes the claims that wait for items of a queue, in every process.
pub(in crate::flow) fn wake_workers(inner: &Arc<EngineState>, tenant: &str, queue: &str) {
    let (inner, hint) = (Arc::clone(inner), hint(tenant, queue));
    // A lost hint only delays the claim.
    tokio::spawn(async move { drop(inner.parts.bus.publish(TOPIC, hint).await) }.in_current_span());
}
