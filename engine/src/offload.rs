//! Work that callers choose and that may keep a processor busy: a few at a time, and never on the threads that answer
//! requests.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Where such work is done.
pub(crate) struct Offload {
    places: Semaphore,
}

impl Offload {
    /// With as many places as leave half of the threads to everybody else.
    pub(crate) fn new() -> Self {
        let threads = Handle::try_current().map_or(1, |handle| handle.metrics().num_workers());
        Self { places: Semaphore::new((threads / 2).max(1)) }
    }

    /// A place for a piece of work, at once if it can't take long.
    pub(crate) async fn place(&self, may_take_long: bool) -> Place<'_> {
        // They are never closed.
        Place { taken: if may_take_long { self.places.acquire().await.ok() } else { None } }
    }
}

/// A place to work at.
pub(crate) struct Place<'a> {
    taken: Option<SemaphorePermit<'a>>,
}

impl Place<'_> {
    /// Does the work.
    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        let is_many = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        if self.taken.is_some() && is_many() { tokio::task::block_in_place(work) } else { work() }
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
}
