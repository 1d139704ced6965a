//! The embedded store: one SQLite file, one writer thread, readers beside it.
//!
//! A folder belongs to one writing process at a time; the binary holds a lock file for that. Should
//! two write all the same, the lane's epoch fences the one that came first, and no chain breaks.

pub(crate) mod cells;
mod execute;
pub(super) mod failure;
pub(crate) mod file;
mod reader;
pub(crate) mod state;
mod texts;
mod wal;
mod writer;

use super::OpenError;
use super::held::HeldLane;
use super::hold::{HoldCell, epoch_of, not_ready};
use super::inbox::Message;
use super::mark::{MARK_FILE, MarkFile};
use super::schema::{self, SchemaWatch};
use crate::migrate;
use async_trait::async_trait;
use chimera_core::limits;
use chimera_core::record::{Count, Counted, Page, Select, Tx};
use chimera_engine::commit::Prepared;
use chimera_engine::port::{Blocked, Clock, CommitError, Held, Hold, ReadError, Receipt, Records, Unavailable};
use std::path::Path;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;
use writer::Writer;

/// What a process wants to do with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and write, as the only process that does.
    Write,
    /// Read only, beside whoever writes.
    Read,
    /// Read and write data that is held, to resume it. No mark is compared or written.
    Resume,
}

/// Records in one SQLite file.
pub struct SqliteRecords {
    readers: Arc<reader::Readers>,
    writing: Option<Writing>,
    schema: SchemaWatch,
}

struct Writing {
    held: HeldLane,
    hold: HoldCell,
    inbox: SyncSender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SqliteRecords {
    /// Opens the data in `folder`. For writing it creates the folder and the file, brings the
    /// schema up to date and takes the lane; for reading the file must be there.
    pub fn open(folder: &Path, access: Access, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        Self::open_marked(folder, &folder.join(MARK_FILE), access, clock)
    }

    /// The same, with its marks in a file of their own place. Data that is older than they say is
    /// held: it can be read, and every commit is refused.
    pub fn open_marked(folder: &Path, marks: &Path, access: Access, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let path = file::path_in(folder);
        let readers = Arc::new(reader::Readers::new(path.clone()));
        if access == Access::Read {
            if !path.is_file() {
                return Err(OpenError::Absent);
            }
            let conn = file::open_reader(&path).map_err(|error| failure::unavailable(&error))?;
            schema::readable(&migrate::sqlite_status(&conn)?)?;
            return Ok(Self { readers, writing: None, schema: SchemaWatch::default() });
        }
        std::fs::create_dir_all(folder).map_err(OpenError::Folder)?;
        let mut conn = file::open_writer(&path).map_err(|error| failure::unavailable(&error))?;
        migrate::sqlite(&mut conn)?;
        let resumes = access == Access::Resume;
        let marks = Arc::new(MarkFile::open(marks).map_err(OpenError::Folder)?);
        let (held, hold) = (HeldLane::default(), HoldCell::default());
        if resumes {
            let leapt = state::leap(&conn, epoch_of(&marks.marks()));
            leapt.map_err(|error| failure::unavailable(&error))?;
        } else {
            // Known before anybody asks: nothing begins on data that is held.
            let known = state::check(&conn, &marks.marks(), clock.now());
            hold.set(known.map_err(|error| failure::unavailable(&error))?.hold);
        }
        let (inbox, messages) = sync_channel(limits::LANE_QUEUE_MAX);
        let wal = wal::Keeper::start(path.clone(), Arc::clone(&marks)).map_err(OpenError::Folder)?;
        let identity = file::Identity::of(&path);
        let schema = SchemaWatch::default();
        let writer = Writer {
            schema: schema.clone(),
            held: held.clone(),
            hold: hold.clone(),
            marks: (!resumes).then_some(marks),
            generation: 0,
            identity,
            path,
            conn: Some(conn),
            clock,
            inbox: messages,
            wal,
            texts: texts::Texts::default(),
        };
        let thread = std::thread::Builder::new().name("chimera-writer".to_owned());
        let thread = thread.spawn(move || writer.run()).map_err(OpenError::Folder)?;
        let writing = Writing { held, hold, inbox, thread: Mutex::new(Some(thread)) };
        Ok(Self { readers, writing: Some(writing), schema })
    }
}

#[async_trait]
impl Records for SqliteRecords {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        let writing = self.writing.as_ref().ok_or_else(|| stopped("the data is open for reading only"))?;
        if let Some(hold) = writing.hold.get() {
            return Err(Blocked::from(hold).into());
        }
        let tx = Prepared::new(tx)?;
        let (waiter, answer) = oneshot::channel();
        writing.inbox.try_send(Message::Commit(tx, waiter)).map_err(|error| match error {
            TrySendError::Full(_) => CommitError::Overloaded,
            TrySendError::Disconnected(_) => stopped("the store is stopped").into(),
        })?;
        let (answer, _spent) = answer.await.map_err(|_| stopped("the store is stopped"))?;
        answer.map_err(|error| writing.hold.explain(self.schema.explain(error)))
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        let _slot = self.readers.slot().await;
        let readers = Arc::clone(&self.readers);
        let read = tokio::task::spawn_blocking(move || readers.read(&select)).await;
        let read = read.unwrap_or_else(|_| Err(stopped("the store is stopped").into()));
        read.map_err(|error| self.schema.explain_read(error))
    }

    async fn count(&self, count: Count) -> Result<Vec<Counted>, ReadError> {
        let _slot = self.readers.slot().await;
        let readers = Arc::clone(&self.readers);
        let counted = tokio::task::spawn_blocking(move || readers.count(&count)).await;
        counted.unwrap_or_else(|_| Err(stopped("the store is stopped").into()))
    }

    fn lane(&self, _affinity: u64) -> Option<Held> {
        self.writing.as_ref().filter(|writing| writing.hold.get().is_none()).and_then(|writing| writing.held.get())
    }

    fn hold(&self) -> Option<Hold> {
        self.writing.as_ref().and_then(|writing| writing.hold.get())
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        match self.commit(Tx::default()).await {
            Ok(_) => Ok(()),
            Err(CommitError::Unavailable(reason)) => Err(reason),
            Err(CommitError::Blocked(Blocked::Held(hold))) => Err(not_ready(&hold)),
            Err(other) => Err(Unavailable { reason: other.to_string() }),
        }
    }

    async fn close(&self) {
        let Some(writing) = &self.writing else { return };
        let thread = writing.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let inbox = writing.inbox.clone();
        // Off the runtime's threads: a full inbox makes it wait. A writer that is gone already has
        // nothing left to finish.
        let _ = tokio::task::spawn_blocking(move || {
            let _ = inbox.send(Message::Close);
            thread.map(JoinHandle::join)
        })
        .await;
    }
}

fn stopped(reason: &str) -> Unavailable {
    Unavailable { reason: reason.to_owned() }
}
