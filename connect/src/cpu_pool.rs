//! CPU-bound work of tools and on large answers: on threads for such work, a few at a time, each tenant in its turn.
//!
//! The slots are separate from the engine's: a call is polled by a run that may hold an engine slot, and would
//! deadlock with itself.

use chimera_core::access::Claimant;
use chimera_core::error::Code;
use chimera_engine::fair_slots::FairSlots;
use chimera_engine::flow::port::{CallContext, ToolError};

#[derive(Clone)]
pub(crate) struct CpuPool {
    turns: FairSlots,
}

impl CpuPool {
    /// Does at most `total` pieces of work at a time.
    pub(crate) fn new(total: usize) -> Self {
        // Each piece of work is short, so turns are enough; nobody needs a place that is kept free.
        Self { turns: FairSlots::new(total, || false) }
    }

    /// Does the work, on a blocking thread if it may take long. `None` if it panicked.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        who: &Claimant,
        may_take_long: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if !may_take_long {
            return Some(work());
        }
        let turn = self.turns.acquire(who).await;
        // Whoever stops waiting does not end the work: the place is free when it is done.
        let worked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        worked.await.ok()
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// Does the work of a tool. A panic in it fails the tool call, not the process.
    pub(crate) async fn tool<T: Send + 'static>(
        &self,
        ctx: &CallContext,
        work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let who = Claimant::new(&ctx.tenant, &ctx.actor);
        let failed = || Err(ToolError::not_sent(Code::Internal, "the tool failed on this input"));
        self.work(&who, true, work).await.unwrap_or_else(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::limits::HTTP_RESPONSES_PROCESSED_MAX;
    use std::sync::mpsc;

    /// One running, one waiting: another tenant comes next, however many of the first tenant's are queued.
    #[tokio::test]
    async fn tenants_take_turns() {
        let aside = CpuPool::new(HTTP_RESPONSES_PROCESSED_MAX);
        let (order, done) = mpsc::sync_channel(32);
        let (release, held) = mpsc::sync_channel::<()>(HTTP_RESPONSES_PROCESSED_MAX);
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        let begin = |tenant: &'static str, waits: bool| {
            let (aside, order, held) = (aside.clone(), order.clone(), std::sync::Arc::clone(&held));
            tokio::spawn(async move {
                let who = Claimant::new(tenant, "");
                let work = move || {
                    if waits {
                        held.lock().unwrap().recv().unwrap();
                    }
                    order.send(tenant).unwrap();
                };
                aside.work(&who, true, work).await.unwrap();
            })
        };
        let mut works: Vec<_> = (0..HTTP_RESPONSES_PROCESSED_MAX).map(|_| begin("bob", true)).collect();
        works.extend((0..20).map(|_| begin("bob", false)));
        until_waiting(&aside, 20).await;
        works.push(begin("acme", false));
        until_waiting(&aside, 21).await;
        for _ in 0..HTTP_RESPONSES_PROCESSED_MAX {
            release.send(()).unwrap();
        }
        for work in works {
            work.await.unwrap();
        }
        let at = done.try_iter().position(|tenant| tenant == "acme").unwrap();
        assert!(at <= HTTP_RESPONSES_PROCESSED_MAX * 2, "{at}");
    }

    #[tokio::test]
    async fn a_panic_gives_its_place_back() {
        let (aside, who) = (CpuPool::new(HTTP_RESPONSES_PROCESSED_MAX), Claimant::new("bob", ""));
        for _ in 0..=HTTP_RESPONSES_PROCESSED_MAX {
            assert!(aside.work(&who, true, || panic!("on purpose")).await.is_none());
        }
        assert_eq!(aside.work(&who, true, || 1).await, Some(1));
    }

    async fn until_waiting(aside: &CpuPool, count: usize) {
        while aside.waiting() < count {
            tokio::task::yield_now().await;
        }
    }
}
