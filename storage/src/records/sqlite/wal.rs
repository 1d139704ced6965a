//! Checkpoints the write-ahead log off the writer's path.
//!
//! A helper thread copies pages while the writer keeps appending: when the log has grown, and every other second
//! while anything is written. The writer itself only does the last step, when little is left to copy and the log may
//! restart. An idle log is truncated. The same thread syncs the marks.

use super::super::mark::MarkFile;
use super::file::{self, DataFile};
use chimera_core::limits;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The writer's handle.
pub(super) struct Checkpointer {
    data: DataFile,
    log: PathBuf,
    thread: JoinHandle<()>,
    nudge: SyncSender<()>,
    shared: Arc<CheckpointFlags>,
    /// Batches and transactions since the last checkpoint.
    batches: usize,
    txs: usize,
}

/// State shared by the two threads.
#[derive(Default)]
struct CheckpointFlags {
    /// The log should restart.
    restart: AtomicBool,
    /// Something was written since the last round.
    written: AtomicBool,
}

impl Checkpointer {
    /// Starts the checkpoint thread for a data file.
    pub(super) fn start(data: DataFile, marks: Arc<MarkFile>) -> std::io::Result<Self> {
        let (nudge, nudged) = sync_channel::<()>(1);
        let shared = Arc::new(CheckpointFlags::default());
        let (log, state, file) = (file::log_of(data.path()), Arc::clone(&shared), data.clone());
        let thread = std::thread::Builder::new().name("chimera-wal".to_owned());
        let thread = thread.spawn(move || run_checkpoints(&file, &marks, &nudged, &state))?;
        Ok(Self { data, log, thread, nudge, shared, batches: 0, txs: 0 })
    }

    /// Called by the writer after each batch.
    pub(super) fn between_batches(&mut self, conn: &Connection, txs: usize) {
        if txs > 0 {
            self.shared.written.store(true, Ordering::Relaxed);
            self.batches += 1;
            self.txs += txs;
        }
        let large = || self.log.metadata().is_ok_and(|log| log.len() > limits::SQLITE_LOG_COPY_BYTES);
        let looked = self.batches >= limits::SQLITE_LOG_BATCHES_MAX;
        if self.txs >= limits::SQLITE_LOG_TXS_MAX || looked && large() {
            match self.nudge.try_send(()) {
                Ok(()) | Err(TrySendError::Full(())) => {}
                Err(TrySendError::Disconnected(())) => self.shared.restart.store(true, Ordering::Relaxed),
            }
            self.txs = 0;
        }
        if looked || self.txs == 0 {
            self.batches = 0;
        }
        if self.shared.restart.swap(false, Ordering::Relaxed) && self.data.is_in_place() {
            let _ = conn.busy_timeout(limits::SQLITE_LOG_READERS_TIMEOUT);
            // Readers only delay it: the next round tries again.
            let _ = checkpoint(conn, "RESTART");
            let _ = conn.busy_timeout(limits::SQLITE_BUSY_TIMEOUT);
        }
    }

    /// Leaves a data file that needs no recovery. The log of a file that is no longer in place is kept: it holds what
    /// the restored file lacks.
    pub(super) fn finish(self, conn: &Connection) {
        drop(self.nudge);
        // A thread that panicked copies nothing either.
        let _ = self.thread.join();
        if self.data.is_in_place() {
            // What can't be copied now is recovered at the next start.
            let _ = file::merge_log(conn);
        }
    }
}

/// Runs until the writer is gone.
fn run_checkpoints(data: &DataFile, marks: &MarkFile, nudged: &Receiver<()>, shared: &CheckpointFlags) {
    let mut conn = None;
    // Writes before the last truncation need no further one.
    let mut cut = true;
    loop {
        let idle = match nudged.recv_timeout(limits::SQLITE_LOG_CHECK_INTERVAL) {
            Ok(()) => false,
            Err(RecvTimeoutError::Timeout) => !shared.written.swap(false, Ordering::Relaxed),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        marks.sync();
        if idle && cut {
            continue;
        }
        if !data.is_in_place() {
            // Pages merged now would be lost. The file may come back.
            continue;
        }
        conn = conn.take().or_else(|| data.open_writer().ok());
        let mode = if idle { "TRUNCATE" } else { "PASSIVE" };
        // Does not wait for current readers and writers.
        let copied = conn.as_ref().map(|conn: &Connection| {
            conn.busy_timeout(Duration::ZERO)?;
            checkpoint(conn, mode)
        });
        match copied {
            Some(Ok(pages)) => {
                cut = idle;
                if pages > limits::SQLITE_LOG_PAGES_MAX {
                    shared.restart.store(true, Ordering::Relaxed);
                }
            }
            // A file that can't be written now is reopened in the next round.
            Some(Err(_)) | None => conn = None,
        }
    }
}

/// Runs a checkpoint and returns the number of pages in the log.
fn checkpoint(conn: &Connection, mode: &str) -> rusqlite::Result<i64> {
    conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get(1))
}
