//! Where large answers are looked through: on threads for such work, a few at a time, each tenant in its turn.
//!
//! These places are not those of the engine: a call is polled by a run that may hold one of them, and would wait for
//! itself.

use chimera_core::access::Claimant;
use chimera_core::limits::HTTP_RESPONSES_PROCESSED_MAX;
use chimera_engine::turns::FairSlots;

/// The places.
#[derive(Clone)]
pub(crate) struct Aside {
    turns: FairSlots,
}

impl Aside {
    pub(crate) fn new() -> Self {
        // Each piece of work is short, so turns are enough; nobody needs a place that is kept free.
        Self { turns: FairSlots::new(HTTP_RESPONSES_PROCESSED_MAX, || false) }
    }

    /// Does the work, elsewhere if it may take long. None: it panicked.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// One that is under way and one that waits: whoever else asks comes next, however many of the first wait.
    #[tokio::test]
    async fn tenants_take_turns() {
        let aside = Aside::new();
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
        let (aside, who) = (Aside::new(), Claimant::new("bob", ""));
        for _ in 0..=HTTP_RESPONSES_PROCESSED_MAX {
            assert!(aside.work(&who, true, || panic!("on purpose")).await.is_none());
        }
        assert_eq!(aside.work(&who, true, || 1).await, Some(1));
    }

    async fn until_waiting(aside: &Aside, count: usize) {
        while aside.turns.waiting() < count {
            tokio::task::yield_now().await;
        }
    }
}
