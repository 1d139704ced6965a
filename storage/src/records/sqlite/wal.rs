//! Moving the write-ahead log into the data file, off the writer's path.
//!
//! A helper thread copies pages while the writer goes on appending. The writer itself only does
//! the last step, when little is left to copy and the log may begin anew.

use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Transactions between two looks at the log.
const TXS_BETWEEN: usize = 2_000;
/// Pages after which the log should begin anew.
const PAGES_MAX: i64 = 8_192;
/// How long the writer waits for readers when the log begins anew.
const READERS_WAIT: Duration = Duration::from_millis(20);

/// The writer's end.
pub(super) struct Keeper {
    nudge: SyncSender<()>,
    restart: Arc<AtomicBool>,
    since: usize,
}

impl Keeper {
    /// Starts the copying thread for the file at `path`.
    pub(super) fn start(path: PathBuf) -> std::io::Result<Self> {
        let (nudge, nudged) = sync_channel::<()>(1);
        let restart = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&restart);
        std::thread::Builder::new().name("chimera-wal".to_owned()).spawn(move || {
            let mut conn = None;
            while nudged.recv().is_ok() {
                conn = conn.take().or_else(|| super::file::open_writer(&path).ok());
                let pages = conn.as_ref().map(|conn| checkpoint(conn, "PASSIVE"));
                match pages {
                    Some(Ok(pages)) => flag.store(pages > PAGES_MAX, Ordering::Relaxed),
                    // A file that can't be copied to now is opened anew at the next nudge.
                    Some(Err(_)) | None => conn = None,
                }
            }
        })?;
        Ok(Self { nudge, restart, since: 0 })
    }

    /// Called by the writer after each batch.
    pub(super) fn between_batches(&mut self, conn: &Connection, txs: usize) {
        self.since += txs;
        if self.since >= TXS_BETWEEN {
            self.since = 0;
            match self.nudge.try_send(()) {
                Ok(()) | Err(TrySendError::Full(())) => {}
                Err(TrySendError::Disconnected(())) => self.restart.store(true, Ordering::Relaxed),
            }
        }
        if self.restart.swap(false, Ordering::Relaxed) {
            let _ = conn.busy_timeout(READERS_WAIT);
            // Readers in the way only put it off: the next look asks again.
            let _ = checkpoint(conn, "RESTART");
            let _ = conn.busy_timeout(Duration::from_secs(5));
        }
    }

    /// Leaves a data file that needs no recovery.
    pub(super) fn finish(&self, conn: &Connection) {
        // What can't be copied now is recovered at the next start.
        let _ = checkpoint(conn, "TRUNCATE");
    }
}

/// Runs a checkpoint and says how many pages the log holds.
fn checkpoint(conn: &Connection, mode: &str) -> rusqlite::Result<i64> {
    conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get(1))
}
