//! Runs CPU-heavy work that a request causes away from the threads that serve requests.
//!
//! A few pieces run at a time, and tenants take turns. Memory for large work is shared the same way. The work is polled
//! with `block_in_place`, so it need not be `'static`.

use crate::error::EngineError;
use crate::fair_slots::{FairSlots, SlotGuard};
use chimera_core::access::{Claimant, QueueFull};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::ready;
use tokio::runtime::{Handle, RuntimeFlavor};

pub(crate) struct Offload {
    turns: FairSlots,
    /// Bytes of memory.
    memory: FairSlots,
}

/// How often the work on a request has its JSON in memory: as received, as planned, as the inputs of a run and of its
/// step, as the output of the step and as the result. `chimera/tests/it/memory.rs` measures it.
const COPIES: usize = 6;

/// How often what is read for a response is in memory: as rows, as items, as written, and while what is written grows.
const READ_COPIES: usize = 4;

/// Slots beyond those of the busiest tenant. The rule of the pool lets a tenant take one of two slots.
const KEPT_FREE: usize = 1;

/// Memory to read a page of rows and to write it.
const PAGE_MEMORY_BYTES: usize = limits::PAGE_BYTES_MAX * READ_COPIES;

/// Memory for one piece of large work, until it is dropped.
#[derive(Default)]
pub struct SizeBudget {
    held: Option<(SlotGuard, usize)>,
}

impl SizeBudget {
    /// Whether it is for little work, which needs none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.held.is_none()
    }

    /// Whether JSON that takes so many bytes once parsed may be read and shown with it.
    #[must_use]
    pub fn covers(&self, weight: usize) -> bool {
        let needed = memory_to_show(weight);
        needed == 0 || self.held.as_ref().is_some_and(|(_, held)| needed <= *held)
    }

    /// Gives back what showing so much does not need.
    pub fn shrink(&mut self, weight: usize) {
        let needed = memory_to_show(weight);
        if let Some((turn, held)) = &mut self.held
            && needed < *held
        {
            *held = needed;
            turn.shrink(needed);
        }
    }

    /// Gives back everything but its place in the queue, for whoever waits for something else and asks for memory again.
    pub fn release(&mut self) {
        self.shrink(0);
    }
}

/// Memory to read and show JSON that takes so many bytes once parsed: none for little, and at most all that there is.
fn memory_to_show(weight: usize) -> usize {
    let bytes = weight.saturating_mul(READ_COPIES).min(limits::LARGE_WORK_BYTES_MAX);
    if Offload::needs_reservation(weight) { bytes } else { 0 }
}

thread_local! {
    /// Whether this thread is already polling offloaded work.
    static IS_OFFLOADED: Cell<bool> = const { Cell::new(false) };
}

impl Offload {
    /// Uses half of the worker threads, and one slot more that the busiest tenant leaves free: whoever has nothing under
    /// way never waits for a single tenant. With several tenants, each one gets its share of memory.
    pub(crate) fn new(is_shared: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let threads = Handle::try_current().map_or(1, |handle| handle.metrics().num_workers());
        let is_shared = Arc::new(is_shared);
        let shared = || {
            let is_shared = Arc::clone(&is_shared);
            move || is_shared()
        };
        let memory = FairSlots::new(limits::LARGE_WORK_BYTES_MAX, shared());
        // The slot is kept even from a single tenant, so that the work of one never takes more than its share of threads.
        Self { turns: FairSlots::new((threads / 2).max(1) + KEPT_FREE, || true), memory }
    }

    /// Waits for memory to work on the JSON of a request that takes so many bytes once parsed, unless it is little.
    /// Refused if too much of the caller's work waits already. Whoever waits should hold none of the data, and whoever
    /// has memory never asks for more, only for another amount in exchange.
    pub(crate) async fn reserve_memory(&self, who: &Claimant, weight: usize) -> Result<SizeBudget, EngineError> {
        if !Self::needs_reservation(weight) {
            return Ok(SizeBudget::default());
        }
        if let Some(full) = self.memory.limit_reached(who) {
            return Err(EngineError::Refused(Box::new(queue_full_error(full, who))));
        }
        let bytes = weight.saturating_mul(COPIES).min(limits::LARGE_WORK_BYTES_MAX);
        Ok(self.wait_for_memory(who, bytes).await)
    }

    /// Gives memory back and waits for as much as showing JSON of this size needs, in the place that it has in the queue.
    /// Whoever waits should hold none of the data.
    pub(crate) async fn reserve_to_show(&self, who: &Claimant, room: SizeBudget, weight: usize) -> SizeBudget {
        match room.held {
            Some(held) => Self::exchange(held, memory_to_show(weight)).await,
            None => self.wait_for_memory(who, memory_to_show(weight)).await,
        }
    }

    /// Waits for memory to read a page of rows and to write it, before its size is known, in exchange for what the
    /// caller has. Whoever waits holds nothing, so any number may wait.
    pub(crate) async fn reserve_page(&self, who: &Claimant, room: SizeBudget) -> SizeBudget {
        match room.held {
            Some(held) if held.1 >= PAGE_MEMORY_BYTES => SizeBudget { held: Some(held) },
            Some(held) => Self::exchange(held, PAGE_MEMORY_BYTES).await,
            None => self.wait_for_memory(who, PAGE_MEMORY_BYTES).await,
        }
    }

    async fn exchange((turn, _): (SlotGuard, usize), bytes: usize) -> SizeBudget {
        SizeBudget { held: Some((turn.exchange(bytes).await, bytes)) }
    }

    async fn wait_for_memory(&self, who: &Claimant, bytes: usize) -> SizeBudget {
        SizeBudget { held: Some((self.memory.turn_for(who, bytes).await, bytes)) }
    }

    /// Whether work on so much needs room.
    pub(crate) const fn needs_reservation(weight: usize) -> bool {
        weight > limits::RUN_MEMORY_BYTES_COUNTED
    }

    /// Refuses a request at once when too much work of its caller is waiting already.
    pub(crate) fn admit(&self, who: &Claimant, may_take_long: bool) -> Result<(), EngineError> {
        if !may_take_long || IS_OFFLOADED.get() {
            return Ok(());
        }
        self.turns
            .limit_reached(who)
            .map_or(Ok(()), |full| Err(EngineError::Refused(Box::new(queue_full_error(full, who)))))
    }

    /// Drives an async piece of work. Each poll runs off the request threads, unless it can't take long.
    ///
    /// The work is boxed: passed by value, it would be contained twice in the future of everybody who passes it on.
    pub(crate) async fn run<T>(
        &self,
        who: &Claimant,
        may_take_long: bool,
        work: Pin<Box<impl Future<Output = T>>>,
    ) -> T {
        if !may_take_long {
            return work.await;
        }
        self.run_when_costly(who, &CostFlag::new(true), work).await
    }

    /// Like `run`, for work that may become costly while it runs.
    pub(crate) async fn run_when_costly<T>(
        &self,
        who: &Claimant,
        costly: &CostFlag,
        mut work: Pin<Box<impl Future<Output = T>>>,
    ) -> T {
        let mut turn = None;
        poll_fn(|context| {
            if IS_OFFLOADED.get() || !costly.is_set() {
                return work.as_mut().poll(context);
            }
            let waits = turn.get_or_insert_with(|| Box::pin(self.turns.acquire(who)));
            let held = ready!(waits.as_mut().poll(context));
            turn = None;
            let polled = in_place(|| {
                IS_OFFLOADED.set(true);
                let _reset = ClearOffloaded;
                work.as_mut().poll(context)
            });
            drop(held);
            polled
        })
        .await
    }

    /// Waits for a slot, unless the work can't take long. Work that is already offloaded holds a slot, and would
    /// deadlock if it waited for another.
    pub(crate) async fn acquire(&self, who: &Claimant, may_take_long: bool) -> WorkSlot {
        let taken = if may_take_long && !IS_OFFLOADED.get() { Some(self.turns.acquire(who).await) } else { None };
        WorkSlot { taken }
    }
}

/// Whether work in progress may use a lot of CPU from now on.
#[derive(Clone, Debug, Default)]
pub(crate) struct CostFlag(Arc<AtomicBool>);

impl CostFlag {
    pub(crate) fn new(may_take_long: bool) -> Self {
        Self(Arc::new(AtomicBool::new(may_take_long)))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Never reset while the work runs.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Moves the work off the request threads from here on, if it may take long.
    pub(crate) async fn mark_costly(&self, may_take_long: bool) {
        if may_take_long && !self.0.swap(true, Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    }
}

/// The refusal of a caller with too much waiting work.
fn queue_full_error(full: QueueFull, who: &Claimant) -> ErrorBody {
    let body = match full {
        QueueFull::Actor => ErrorBody::new(
            Code::RateLimited,
            format!("{} costly requests of {} are waiting already", limits::ACTOR_WORK_WAITING_MAX, who.actor),
        )
        .with("costly_requests_waiting_max", limits::ACTOR_WORK_WAITING_MAX),
        QueueFull::Tenant => {
            ErrorBody::new(Code::Overloaded, format!("too many costly requests of tenant {} are waiting", who.tenant))
                .with("tenant", &*who.tenant)
        }
        QueueFull::Process => ErrorBody::new(Code::Overloaded, "too many costly requests are waiting"),
    };
    body.retry_after(1)
}

/// Clears the thread's `IS_OFFLOADED` flag.
struct ClearOffloaded;

impl Drop for ClearOffloaded {
    fn drop(&mut self) {
        IS_OFFLOADED.set(false);
    }
}

fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let is_many = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if is_many { tokio::task::block_in_place(work) } else { work() }
}

/// A slot for one piece of work.
pub(crate) struct WorkSlot {
    taken: Option<SlotGuard>,
}

impl WorkSlot {
    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        if self.taken.is_some() { in_place(work) } else { work() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    fn bob() -> Claimant {
        Claimant::new("bob", "a")
    }

    /// With two threads one piece of work is done at a time, and the other thread answers meanwhile.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_answers_requests_is_not_held_up() {
        let (offload, under_way) = (Arc::new(Offload::new(|| true)), Arc::new(AtomicUsize::new(0)));
        let (release, held) = mpsc::sync_channel::<()>(8);
        let held = Arc::new(std::sync::Mutex::new(held));
        let works: Vec<_> = (0..8)
            .map(|_| {
                let (offload, under_way, held) = (Arc::clone(&offload), Arc::clone(&under_way), Arc::clone(&held));
                tokio::spawn(async move {
                    let work = || {
                        let beside = under_way.fetch_add(1, Ordering::SeqCst);
                        held.lock().unwrap().recv().unwrap();
                        under_way.fetch_sub(1, Ordering::SeqCst);
                        beside
                    };
                    offload.acquire(&bob(), true).await.run(work)
                })
            })
            .collect();
        for _ in 0..8 {
            // As many answers as it takes: nothing but a free thread gives them.
            while under_way.load(Ordering::SeqCst) == 0 {
                tokio::spawn(tokio::task::yield_now()).await.unwrap();
            }
            release.send(()).unwrap();
            tokio::spawn(tokio::task::yield_now()).await.unwrap();
        }
        for work in works {
            assert_eq!(work.await.unwrap(), 0, "nothing else was under way");
        }
    }

    /// Also when work that is aside begins further work aside, or waits for a place.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_aside_that_waits_and_begins_more_comes_to_its_end() {
        let offload = Arc::new(Offload::new(|| true));
        let works: Vec<_> = (0..8)
            .map(|n| {
                let offload = Arc::clone(&offload);
                tokio::spawn(async move {
                    let inner = async {
                        tokio::task::yield_now().await;
                        let work_slot = offload.acquire(&bob(), true).await;
                        tokio::task::yield_now().await;
                        work_slot.run(|| n)
                    };
                    offload.run(&bob(), true, Box::pin(offload.run(&bob(), true, Box::pin(inner)))).await
                })
            })
            .collect();
        for (n, work) in works.into_iter().enumerate() {
            assert_eq!(work.await.unwrap(), n);
        }
        assert!(!IS_OFFLOADED.get());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_that_begins_to_take_long_goes_on_aside() {
        let (offload, costly) = (Offload::new(|| true), CostFlag::default());
        let work = async {
            costly.mark_costly(false).await;
            let before = IS_OFFLOADED.get();
            costly.mark_costly(true).await;
            let after = IS_OFFLOADED.get();
            tokio::task::yield_now().await;
            [before, after, IS_OFFLOADED.get()]
        };
        assert_eq!(offload.run_when_costly(&bob(), &costly, Box::pin(work)).await, [false, true, true]);
    }

    /// A hundred pieces of work of one tenant wait for one that takes long; another tenant waits for none of them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tenant_with_nothing_under_way_does_not_wait_for_the_work_of_another() {
        let offload = Arc::new(Offload::new(|| true));
        let first = offload.acquire(&bob(), true).await;
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let begin = |tenant: &'static str| {
            let (offload, order) = (Arc::clone(&offload), Arc::clone(&order));
            tokio::spawn(async move {
                let who = Claimant::new(tenant, "a");
                offload.run(&who, true, Box::pin(async { order.lock().unwrap().push(tenant) })).await;
            })
        };
        let works: Vec<_> = (0..100).map(|_| begin("bob")).collect();
        until_waiting(&offload, 100).await;
        begin("acme").await.unwrap();
        assert_eq!(*order.lock().unwrap(), ["acme"]);
        first.run(|| ());
        for work in works {
            work.await.unwrap();
        }
    }

    /// Between two that both have work under way, slots go back and forth.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tenant_waits_for_one_piece_of_work_of_another_and_not_for_all() {
        let offload = Arc::new(Offload::new(|| true));
        let first = offload.acquire(&bob(), true).await;
        let kept = offload.acquire(&Claimant::new("zoe", "a"), true).await;
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let begin = |tenant: &'static str| {
            let (offload, order) = (Arc::clone(&offload), Arc::clone(&order));
            tokio::spawn(async move {
                let who = Claimant::new(tenant, "a");
                offload.run(&who, true, Box::pin(async { order.lock().unwrap().push(tenant) })).await;
            })
        };
        let mut works: Vec<_> = (0..100).map(|_| begin("bob")).collect();
        until_waiting(&offload, 100).await;
        works.push(begin("acme"));
        until_waiting(&offload, 101).await;
        first.run(|| ());
        for work in works {
            work.await.unwrap();
        }
        drop(kept);
        assert!(order.lock().unwrap().iter().position(|tenant| *tenant == "acme").is_some_and(|at| at <= 1));
    }

    /// Whoever has too much waiting is told so at once, and another is not.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn beyond_what_may_wait_of_an_actor_and_of_a_tenant_requests_are_refused_at_once() {
        let offload = Arc::new(Offload::new(|| true));
        let first = offload.acquire(&bob(), true).await;
        let begin = |actor: usize| {
            let offload = Arc::clone(&offload);
            let who = Claimant::new("bob", &actor.to_string());
            tokio::spawn(async move { offload.acquire(&who, true).await.run(|| ()) })
        };
        let works: Vec<_> =
            (0..limits::TENANT_WORK_WAITING_MAX).map(|n| begin(n / limits::ACTOR_WORK_WAITING_MAX)).collect();
        until_waiting(&offload, limits::TENANT_WORK_WAITING_MAX).await;
        let refusal = |tenant: &str, actor: &str, long: bool| {
            let body = offload.admit(&Claimant::new(tenant, actor), long).err()?.body();
            assert_eq!(body.retry_after_seconds, Some(1));
            Some(body.code)
        };
        assert_eq!(refusal("bob", "0", true).as_deref(), Some("RATE_LIMITED"));
        assert_eq!(refusal("bob", "new", true).as_deref(), Some("OVERLOADED"));
        assert_eq!(refusal("bob", "0", false), None, "small work never waits");
        assert_eq!(refusal("acme", "0", true), None);
        drop(first);
        for work in works {
            work.await.unwrap();
        }
        assert_eq!(refusal("bob", "0", true), None);
    }

    /// However many ask, the memory that they were given never exceeds the limit, and what needs more works alone.
    #[tokio::test]
    async fn large_work_shares_one_budget_of_memory() {
        let offload = Offload::new(|| true);
        let (acme, quarter) = (Claimant::new("acme", "a"), limits::LARGE_WORK_BYTES_MAX / 4 / COPIES);
        let bobs: Vec<_> = vec![bob(); 8];
        let mut waits: Vec<_> = bobs.iter().map(|who| Box::pin(offload.reserve_memory(who, quarter))).collect();
        let mut given = Vec::new();
        for wait in &mut waits {
            if let std::task::Poll::Ready(room) = futures::poll!(wait.as_mut()) {
                given.push(room.unwrap());
            }
        }
        assert_eq!(given.len(), 3, "a tenant leaves a quarter to others");
        let other = offload.reserve_memory(&acme, quarter).await.unwrap();
        assert!(offload.reserve_memory(&acme, 1).await.is_ok(), "little work never waits");
        let mut huge = Box::pin(offload.reserve_memory(&acme, limits::LARGE_WORK_BYTES_MAX));
        drop(given);
        drop(waits);
        assert!(futures::poll!(huge.as_mut()).is_pending(), "something else is under way");
        drop(other);
        let huge = huge.await.unwrap();
        let who = bob();
        let mut small = Box::pin(offload.reserve_memory(&who, quarter));
        assert!(futures::poll!(small.as_mut()).is_pending());
        drop(huge);
        assert!(futures::poll!(small.as_mut()).is_ready());
    }

    /// What a page does not need once it is read goes to others, and whoever needs more waits without what they had.
    #[tokio::test]
    async fn pages_share_the_same_memory_and_are_exchanged_for_what_is_needed() {
        let (offload, who) = (Offload::new(|| false), bob());
        let page = || Box::pin(offload.reserve_page(&who, SizeBudget::default()));
        let mut pages = Vec::new();
        for _ in 0..limits::LARGE_WORK_BYTES_MAX / PAGE_MEMORY_BYTES {
            pages.push(page().await);
        }
        let mut next = page();
        assert!(futures::poll!(next.as_mut()).is_pending());
        let mut read = pages.pop().unwrap();
        assert!(read.covers(limits::PAGE_BYTES_MAX) && !read.covers(limits::PAGE_BYTES_MAX + 1));
        read.shrink(limits::PAGE_BYTES_MAX);
        assert!(futures::poll!(next.as_mut()).is_pending());
        read.shrink(1);
        pages.push(next.await);
        assert!(read.covers(limits::RUN_MEMORY_BYTES_COUNTED) && !read.covers(limits::PAGE_BYTES_MAX));

        let mut more = Box::pin(offload.reserve_to_show(&who, read, limits::PAGE_BYTES_MAX * 2));
        let mut later = page();
        assert!(futures::poll!(more.as_mut()).is_pending() && futures::poll!(later.as_mut()).is_pending());
        pages.pop();
        assert!(futures::poll!(later.as_mut()).is_pending(), "it is not passed");
        pages.pop();
        assert!(more.await.covers(limits::PAGE_BYTES_MAX * 2));
        assert!(later.await.covers(limits::PAGE_BYTES_MAX));
    }

    /// Whoever stops waiting, before or after a place was kept for them, keeps it from nobody.
    #[tokio::test]
    async fn a_place_goes_on_when_whoever_it_was_kept_for_is_gone() {
        let offload = Offload::new(|| true);
        let first = offload.acquire(&bob(), true).await;
        let mut waits: Vec<_> = (0..3).map(|_| Box::pin(async { drop(offload.acquire(&bob(), true).await) })).collect();
        for wait in &mut waits {
            assert!(futures::poll!(wait.as_mut()).is_pending());
        }
        drop(waits.remove(1));
        drop(first);
        drop(waits.remove(0));
        assert!(futures::poll!(waits[0].as_mut()).is_ready());
    }

    async fn until_waiting(offload: &Offload, count: usize) {
        while offload.turns.waiting() < count {
            tokio::task::yield_now().await;
        }
    }
}
