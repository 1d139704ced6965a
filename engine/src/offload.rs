//! Work that callers choose and that may keep a processor busy: a few at a time, and never on the threads that answer
//! requests.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::ready;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Where such work is done.
pub(crate) struct Offload {
    places: Semaphore,
    /// Apart from the others: whoever is polled aside may wait for a place.
    polls: Semaphore,
}

thread_local! {
    /// What is polled on this thread is aside already.
    static ASIDE: Cell<bool> = const { Cell::new(false) };
}

impl Offload {
    /// With as many places as leave half of the threads to everybody else.
    pub(crate) fn new() -> Self {
        let threads = Handle::try_current().map_or(1, |handle| handle.metrics().num_workers());
        let most = (threads / 2).max(1);
        Self { places: Semaphore::new(most), polls: Semaphore::new(most) }
    }

    /// Goes through work that waits in between, each piece between two waits off the threads that answer requests; as
    /// it is if it can't take long.
    pub(crate) async fn aside<T>(&self, may_take_long: bool, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if !may_take_long {
            return work.await;
        }
        let mut turn = None;
        poll_fn(|context| {
            if ASIDE.get() {
                return work.as_mut().poll(context);
            }
            let waits = turn.get_or_insert_with(|| Box::pin(self.polls.acquire()));
            let permit = ready!(waits.as_mut().poll(context));
            turn = None;
            let polled = in_place(|| {
                ASIDE.set(true);
                let _reset = Reset;
                work.as_mut().poll(context)
            });
            drop(permit);
            polled
        })
        .await
    }

    /// A place for a piece of work, at once if it can't take long.
    pub(crate) async fn place(&self, may_take_long: bool) -> Place<'_> {
        // They are never closed.
        Place { taken: if may_take_long { self.places.acquire().await.ok() } else { None } }
    }
}

/// Says that a thread goes on with what is not aside.
struct Reset;

impl Drop for Reset {
    fn drop(&mut self) {
        ASIDE.set(false);
    }
}

fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let is_many = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if is_many { tokio::task::block_in_place(work) } else { work() }
}

/// A place to work at.
pub(crate) struct Place<'a> {
    taken: Option<SemaphorePermit<'a>>,
}

impl Place<'_> {
    /// Does the work.
    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        if self.taken.is_some() { in_place(work) } else { work() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    /// With two threads one piece of work is done at a time, and the other thread answers meanwhile.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_answers_requests_is_not_held_up() {
        let (offload, under_way) = (Arc::new(Offload::new()), Arc::new(AtomicUsize::new(0)));
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
                    offload.place(true).await.run(work)
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
        let offload = Arc::new(Offload::new());
        let works: Vec<_> = (0..8)
            .map(|n| {
                let offload = Arc::clone(&offload);
                tokio::spawn(async move {
                    let inner = async {
                        tokio::task::yield_now().await;
                        let place = offload.place(true).await;
                        tokio::task::yield_now().await;
                        place.run(|| n)
                    };
                    offload.aside(true, offload.aside(true, inner)).await
                })
            })
            .collect();
        for (n, work) in works.into_iter().enumerate() {
            assert_eq!(work.await.unwrap(), n);
        }
        assert!(!ASIDE.get());
    }
}
