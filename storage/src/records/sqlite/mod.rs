//! The embedded store: one SQLite file, one writer thread, readers beside it.
//!
//! A folder belongs to one writing process at a time: `open` takes the folder's lock file, and the
//! lane's epoch fences whoever got past it. Reading needs no lock.

pub(crate) mod cells;
mod execute;
mod failure;
pub(crate) mod file;
mod reader;
mod wal;
mod writer;

use super::OpenError;
use crate::migrate;
use async_trait::async_trait;
use chimera_core::record::{Page, Select, Tx};
use chimera_engine::port::{Clock, CommitError, ReadError, Receipt, Records, Unavailable};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;
use writer::{Message, Writer};

/// What a process wants to do with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and write, as the only process that does.
    Write,
    /// Read only, beside whoever writes.
    Read,
}

/// Records in one SQLite file.
pub struct SqliteRecords {
    readers: Arc<reader::Readers>,
    writing: Option<Writing>,
}

struct Writing {
    inbox: Sender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
    _lock: std::fs::File,
}

impl SqliteRecords {
    /// Opens the data in `folder`. For writing it creates the folder and the file, brings the
    /// schema up to date and takes the lane; for reading the file must be there.
    pub fn open(folder: &Path, access: Access, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let path = file::path_in(folder);
        let readers = Arc::new(reader::Readers::new(path.clone()));
        if access == Access::Read {
            if !path.is_file() {
                return Err(OpenError::Absent);
            }
            return Ok(Self { readers, writing: None });
        }
        std::fs::create_dir_all(folder).map_err(OpenError::Folder)?;
        let lock = lock(folder)?;
        let mut conn = file::open_writer(&path).map_err(|error| failure::unavailable(&error))?;
        migrate::sqlite(&mut conn)?;
        let (inbox, messages) = channel();
        let wal = wal::Keeper::start(path.clone()).map_err(OpenError::Folder)?;
        let writer = Writer { path, conn: Some(conn), clock, inbox: messages, wal };
        let thread = std::thread::Builder::new().name("chimera-writer".to_owned());
        let thread = thread.spawn(move || writer.run()).map_err(OpenError::Folder)?;
        Ok(Self { readers, writing: Some(Writing { inbox, thread: Mutex::new(Some(thread)), _lock: lock }) })
    }
}

/// The folder's lock, held until the process ends or the store is dropped.
fn lock(folder: &Path) -> Result<std::fs::File, OpenError> {
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("lock"));
    let file = file.map_err(OpenError::Folder)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::InUse),
        Err(std::fs::TryLockError::Error(error)) => Err(OpenError::Folder(error)),
    }
}

#[async_trait]
impl Records for SqliteRecords {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        let writing = self.writing.as_ref().ok_or_else(|| stopped("the data is open for reading only"))?;
        let (waiter, answer) = oneshot::channel();
        writing.inbox.send(Message::Commit(tx, waiter)).map_err(|_| stopped("the store is stopped"))?;
        answer.await.unwrap_or_else(|_| Err(stopped("the store is stopped").into()))
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        let _slot = self.readers.slot().await;
        let readers = Arc::clone(&self.readers);
        let read = tokio::task::spawn_blocking(move || readers.read(&select)).await;
        read.unwrap_or_else(|_| Err(stopped("the store is stopped").into()))
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        match self.commit(Tx::default()).await {
            Ok(_) => Ok(()),
            Err(CommitError::Unavailable(reason)) => Err(reason),
            Err(other) => Err(Unavailable { reason: other.to_string() }),
        }
    }

    async fn close(&self) {
        let Some(writing) = &self.writing else { return };
        // A writer that is gone already has nothing left to finish.
        let _ = writing.inbox.send(Message::Close);
        let thread = writing.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

fn stopped(reason: &str) -> Unavailable {
    Unavailable { reason: reason.to_owned() }
}
