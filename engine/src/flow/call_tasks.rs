//! The calls of a run that are under way in this process, and what came of them.
//!
//! They continue while the run waits for the store; what they answer meanwhile is kept for the next turn. A call with
//! effects outside is remembered until its answer is stored, because it can't be made again.

use super::engine::Shutdown;
use crate::flow::port::CancelToken;
use chimera_core::flow::run::{Event, RunPlace};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;
use uuid::Uuid;

/// Calls and lookups of the cache.
#[derive(Default)]
pub(super) struct CallTasks {
    running: FuturesUnordered<BoxFuture<'static, Event>>,
    cancels: BTreeMap<RunPlace, watch::Sender<bool>>,
    /// Responses that arrived while waiting for the store.
    answered: Vec<Event>,
    /// Calls with outside effects, whose responses must not be lost.
    outside: BTreeSet<Uuid>,
}

impl CallTasks {
    /// Whether nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether anything is in flight, or has answered and was not decided yet.
    pub(super) fn has_any(&self) -> bool {
        !self.running.is_empty() || !self.answered.is_empty()
    }

    pub(super) fn push(&self, task: BoxFuture<'static, Event>) {
        self.running.push(task);
    }

    /// The token by which the call at this place is cancelled.
    pub(super) fn register(&mut self, at: RunPlace) -> CancelToken {
        let (sender, cancel) = CancelToken::pair();
        self.cancels.insert(at, sender);
        cancel
    }

    pub(super) fn cancel(&self, at: RunPlace) {
        if let Some(cancel) = self.cancels.get(&at) {
            cancel.send_replace(true);
        }
    }

    /// Forgets the token of a place where nothing is in flight any more.
    pub(super) fn release(&mut self, at: RunPlace) {
        self.cancels.remove(&at);
    }

    /// Remembers that the answer of a call must not be lost.
    pub(super) fn keep_answer(&mut self, call: Uuid) {
        self.outside.insert(call);
    }

    /// Whether the answer of a call must not be lost.
    pub(super) fn must_keep(&self, call: Uuid) -> bool {
        self.outside.contains(&call)
    }

    /// The answer of a call is stored.
    pub(super) fn settle(&mut self, call: Uuid) {
        self.outside.remove(&call);
    }

    pub(super) fn settle_all(&mut self) {
        self.outside.clear();
    }

    /// The responses that arrived while waiting for the store.
    pub(super) fn take_answered(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.answered)
    }

    /// Waits for the store while calls in flight continue.
    pub(super) async fn run_while<T>(&mut self, wait: impl Future<Output = T>) -> T {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return done,
                Some(event) = self.running.next() => self.answered.push(event),
            }
        }
    }

    /// All calls that have ended by now, to decide them in one turn.
    pub(super) fn take_ended(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(Some(event)) = self.running.next().now_or_never() {
            events.push(event);
        }
        events
    }

    /// Waits until a call ends, and returns it with all others that have. `None`: nothing is in flight.
    pub(super) async fn next(&mut self) -> Option<Vec<Event>> {
        let mut events = vec![self.running.next().await?];
        events.append(&mut self.take_ended());
        Some(events)
    }

    /// The same, unless the process ends first.
    pub(super) async fn next_or_stop(&mut self, stopping: &mut watch::Receiver<Shutdown>) -> Vec<Event> {
        tokio::select! {
            biased;
            Some(ended) = self.next() => ended,
            _ = stopping.wait_for(|stop| *stop == Shutdown::Now) => Vec::new(),
        }
    }
}
