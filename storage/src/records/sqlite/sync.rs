//! Forcing the log to the disk, beside the writer.
//!
//! The writer commits without waiting for the disk and hands the answers over; a thread of its own
//! forces the log and only then lets the answers go. So one batch is written while the one before is
//! on its way to the disk, and still nobody is told of a change that could be lost. Reads wait for
//! what they may have seen. The log is written from front to back: what is forced later never
//! stands without what came before it.

use super::super::inbox::Waiter;
use chimera_core::record::Tx;
use chimera_engine::port::{CommitError, Receipt};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// Batches that may wait for the disk while the writer goes on.
const BATCHES_MAX: usize = 4;

/// An answer that waits for the disk.
pub(super) type Held = (Waiter, Receipt, Tx);

/// How far writing has come, and how much of that is on the disk.
#[derive(Clone, Debug)]
pub(super) struct Horizon(Arc<Marks>);

#[derive(Debug)]
struct Marks {
    begun: AtomicU64,
    forced: watch::Sender<u64>,
    broken: AtomicBool,
}

impl Horizon {
    pub(super) fn new() -> Self {
        let (begun, broken) = (AtomicU64::new(0), AtomicBool::new(false));
        Self(Arc::new(Marks { begun, forced: watch::Sender::new(0), broken }))
    }

    /// A batch begins: from now on somebody may see it. Gives its number.
    pub(super) fn begin(&self) -> u64 {
        self.0.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Waits until everything that could be seen a moment ago is on the disk.
    pub(super) async fn reach(&self) {
        let seen = self.0.begun.load(Ordering::SeqCst);
        if *self.0.forced.borrow() >= seen {
            return;
        }
        // It fails only when the writer is gone, and then nothing is under way.
        let _ = self.0.forced.subscribe().wait_for(|forced| *forced >= seen).await;
    }

    /// Whether the disk has refused to take what was written.
    pub(super) fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::SeqCst)
    }

    /// The disk has refused, or can't be asked.
    pub(super) fn broke(&self) {
        self.0.broken.store(true, Ordering::SeqCst);
    }

    /// The log was written anew, from its beginning.
    pub(super) fn mended(&self) {
        self.0.broken.store(false, Ordering::SeqCst);
    }
}

/// What the thread is given.
enum Work {
    /// This log from now on.
    Log(File),
    /// The answers of the batch with this number, to be given when it is on the disk.
    Batch(u64, Vec<Held>),
}

/// The writer's end.
pub(super) struct Syncer {
    horizon: Horizon,
    work: SyncSender<Work>,
    thread: JoinHandle<()>,
}

impl Syncer {
    /// Starts the thread.
    pub(super) fn start(horizon: Horizon) -> io::Result<Self> {
        let (work, given) = sync_channel(BATCHES_MAX);
        let marks = horizon.clone();
        let thread = std::thread::Builder::new().name("chimera-sync".to_owned()).spawn(move || run(&given, &marks))?;
        Ok(Self { horizon, work, thread })
    }

    /// How far it has come.
    pub(super) const fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    /// Forces the log of the data file at `path` from now on.
    pub(super) fn attach(&self, path: &Path) -> io::Result<()> {
        let log = File::open(super::file::log_of(path))?;
        self.work.send(Work::Log(log)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    /// A batch is over, whatever became of it: these wait for the disk.
    pub(super) fn written(&self, number: u64, held: Vec<Held>) {
        // The thread ends after the writer only.
        let _ = self.work.send(Work::Batch(number, held));
    }

    /// Gives every answer that still waits and ends.
    pub(super) fn finish(self) {
        drop(self.work);
        let _ = self.thread.join();
    }
}

fn run(given: &Receiver<Work>, horizon: &Horizon) {
    let mut log = None;
    while let Ok(first) = given.recv() {
        let mut held = Vec::new();
        let mut last = None;
        for work in std::iter::once(first).chain(given.try_iter()) {
            match work {
                Work::Log(file) => log = Some(file),
                Work::Batch(number, answers) => {
                    last = Some(number);
                    held.extend(answers);
                }
            }
        }
        let Some(number) = last else { continue };
        let forced = held.is_empty() || log.as_ref().is_some_and(|log| log.sync_data().is_ok());
        if !forced {
            horizon.broke();
        }
        horizon.0.forced.send_replace(number);
        for (waiter, receipt, tx) in held {
            // Whoever stopped waiting needs no answer. After a refusal nobody knows what is on the disk.
            let answer = if horizon.is_broken() { Err(CommitError::Unknown) } else { Ok(receipt) };
            let _ = waiter.send((answer, tx));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::os::fd::OwnedFd;
    use tokio::sync::oneshot;

    type Answer = oneshot::Receiver<(Result<Receipt, CommitError>, Tx)>;

    fn held() -> (Held, Answer) {
        let (waiter, answer) = oneshot::channel();
        ((waiter, Receipt { lane: 1, epoch: 1, first_seq: None, head_seq: 0 }, Tx::default()), answer)
    }

    fn syncer(log: File) -> Syncer {
        let syncer = Syncer::start(Horizon::new()).unwrap();
        syncer.work.send(Work::Log(log)).unwrap();
        syncer
    }

    #[tokio::test]
    async fn answers_and_reads_wait_for_the_disk() {
        let syncer = syncer(tempfile::tempfile().unwrap());
        let horizon = syncer.horizon().clone();
        horizon.reach().await;
        let number = horizon.begin();
        assert!(horizon.reach().now_or_never().is_none(), "a batch under way may be seen, and is not on the disk");
        let (held, answer) = held();
        syncer.written(number, vec![held]);
        horizon.reach().await;
        assert!(answer.await.unwrap().0.is_ok());
        syncer.finish();
    }

    #[tokio::test]
    async fn a_disk_that_refuses_leaves_nobody_with_a_promise_and_no_read_waiting() {
        // A pipe can't be forced to a disk.
        let (pipe, _other_end) = std::io::pipe().unwrap();
        let syncer = syncer(File::from(OwnedFd::from(pipe)));
        let horizon = syncer.horizon().clone();
        for _ in 0..2 {
            let (held, answer) = held();
            syncer.written(horizon.begin(), vec![held]);
            assert!(matches!(answer.await.unwrap().0, Err(CommitError::Unknown)));
            horizon.reach().await;
            assert!(horizon.is_broken());
        }
        horizon.mended();
        syncer.work.send(Work::Log(tempfile::tempfile().unwrap())).unwrap();
        let (held, answer) = held();
        syncer.written(horizon.begin(), vec![held]);
        assert!(answer.await.unwrap().0.is_ok());
        syncer.finish();
    }
}
