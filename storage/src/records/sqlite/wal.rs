//! Moving the write-ahead log into the data file, off the writer's path.
//!
//! A helper thread copies pages while the writer goes on appending: when the log has grown, and
//! every other second while anything is written. The writer itself only does the last step, when
//! little is left to copy and the log may begin anew. A log that nobody writes to is cut to nothing.
//! The same thread brings the marks to the disk.

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

/// The writer's end.
pub(super) struct Keeper {
    data: DataFile,
    log: PathBuf,
    thread: JoinHandle<()>,
    nudge: SyncSender<()>,
    shared: Arc<Shared>,
    /// Batches and transactions since the pages were last copied.
    batches: usize,
    txs: usize,
}

/// What the two threads tell each other.
#[derive(Default)]
struct Shared {
    /// The log should begin anew.
    restart: AtomicBool,
    /// Something was written since the last look.
    written: AtomicBool,
}

impl Keeper {
    /// Starts the copying thread for a data file.
    pub(super) fn start(data: DataFile, marks: Arc<MarkFile>) -> std::io::Result<Self> {
        let (nudge, nudged) = sync_channel::<()>(1);
        let shared = Arc::new(Shared::default());
        let (log, told, file) = (file::log_of(data.path()), Arc::clone(&shared), data.clone());
        let thread = std::thread::Builder::new().name("chimera-wal".to_owned());
        let thread = thread.spawn(move || look_after(&file, &marks, &nudged, &told))?;
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
        if self.shared.restart.swap(false, Ordering::Relaxed) && self.data.in_place() {
            let _ = conn.busy_timeout(limits::SQLITE_LOG_READERS_TIMEOUT);
            // Readers in the way only put it off: the next look asks again.
            let _ = checkpoint(conn, "RESTART");
            let _ = conn.busy_timeout(limits::SQLITE_BUSY_TIMEOUT);
        }
    }

    /// Leaves a data file that needs no recovery. The log of one that is not in its place stays as it is: it
    /// holds what the file lacks that is put back.
    pub(super) fn finish(self, conn: &Connection) {
        drop(self.nudge);
        // A thread that panicked copies nothing either.
        let _ = self.thread.join();
        if self.data.in_place() {
            // What can't be copied now is recovered at the next start.
            let _ = file::merge_log(conn);
        }
    }
}

/// Copies until the writer is gone.
fn look_after(data: &DataFile, marks: &MarkFile, nudged: &Receiver<()>, shared: &Shared) {
    let mut conn = None;
    // What was written before the log was last cut needs no cutting again.
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
        if !data.in_place() {
            // Nobody would find again what is moved now. The file may come back.
            continue;
        }
        conn = conn.take().or_else(|| data.open_writer().ok());
        let mode = if idle { "TRUNCATE" } else { "PASSIVE" };
        // Whoever reads or writes at this moment is not waited for.
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
            // A file that can't be copied to now is opened anew at the next look.
            Some(Err(_)) | None => conn = None,
        }
    }
}

/// Runs a checkpoint and says how many pages the log holds.
fn checkpoint(conn: &Connection, mode: &str) -> rusqlite::Result<i64> {
    conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get(1))
}
