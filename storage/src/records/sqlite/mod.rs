//! The embedded store: one SQLite file, one writer thread, and a pool of readers.
//!
//! A folder belongs to one writing process at a time; the binary holds a lock file for that. If two processes write
//! nevertheless, the lane's epoch fences the first one, and no chain breaks.

pub(crate) mod cells;
pub(crate) mod damage_check;
mod execute;
pub(super) mod failure;
pub(crate) mod file;
pub(crate) mod guards;
pub(crate) mod log_pairing;
pub(crate) mod objects;
pub(super) mod read_errors;
mod reader;
pub(crate) mod state;
mod statement_cache;
mod unsettled;
mod wal;
mod writer;

use super::OpenError;
use super::failed_commits::Unproven;
use super::health::Health;
use super::hold::{HoldCell, KnownProgress, not_ready};
use super::inbox::Message;
use super::lane_cell::LaneCell;
use super::mark::{self, MARK_FILE, MarkFile};
use super::schema::{self, SchemaWatch};
use crate::migrate;
use async_trait::async_trait;
use chimera_core::ledger::tables::LEDGER_LANES;
use chimera_core::limits;
use chimera_core::record::{CountQuery, Page, RowGroup, Scope, Select, Tx};
use chimera_engine::commit::PreparedTx;
use chimera_engine::port::{
    Blocked, Clock, CommitError, HeldLane, Hold, Outage, ReadError, Receipt, Records, Unavailable,
};
use file::DataFile;
use std::path::Path;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;
use unsettled::UnknownOutcome;
use writer::Writer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// Read and write, as the only writing process.
    Write,
    /// Read only, beside a writer.
    Read,
    /// Read and write data that is held, to resume it. No mark is compared or written.
    Resume,
}

pub struct SqliteRecords {
    readers: Arc<reader::SqliteReaders>,
    writing: Option<WriterHandle>,
    schema: SchemaWatch,
    health: Arc<Health>,
}

struct WriterHandle {
    /// The marks that this process writes.
    marks: Option<Arc<MarkFile>>,
    /// What was wrong with the mark file at the start.
    note: Option<String>,
    held: LaneCell,
    hold: HoldCell,
    unsettled: UnknownOutcome,
    inbox: SyncSender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SqliteRecords {
    /// Opens the data in `folder`. For writing it creates the folder and the file, migrates the schema and claims the
    /// lane; for reading and resuming the file must exist. Rejects, unchanged, a file with a damaged header or a
    /// damaged first page of any table or index, and a log without its file.
    pub fn open(folder: &Path, access: AccessMode, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        Self::open_marked(folder, &folder.join(MARK_FILE), access, clock)
    }

    /// The same with a separate mark file. Data that is older than its marks is held: it can be read, but every
    /// commit is rejected.
    pub fn open_marked(
        folder: &Path,
        marks: &Path,
        access: AccessMode,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        read_errors::explain(folder, Self::try_open(folder, marks, access, clock))
    }

    fn try_open(folder: &Path, marks: &Path, access: AccessMode, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        if access == AccessMode::Read {
            let data = DataFile::find(folder)?.ok_or(OpenError::Absent)?;
            schema::readable(&migrate::sqlite_status(&data.open_reader()?)?)?;
            let readers = Arc::new(reader::SqliteReaders::new(data));
            return Ok(Self { readers, writing: None, schema: SchemaWatch::default(), health: Arc::default() });
        }
        let resumes = access == AccessMode::Resume;
        if resumes && DataFile::find(folder)?.is_none() {
            return Err(OpenError::Absent);
        }
        crate::folder::create(folder).map_err(OpenError::Folder)?;
        let (data, mut conn) = DataFile::create(folder)?;
        // On a separate connection: its page cache is dropped, so that later readers read from disk.
        damage_check::quick_check(&data.open_reader()?)?;
        objects::check_objects(&conn)?;
        migrate::sqlite(&mut conn)?;
        let marks = Arc::new(MarkFile::open(marks)?);
        let (held, hold) = (LaneCell::default(), HoldCell::default());
        // Known before anybody asks: no work begins on data that is held.
        let found = state::check(&conn, &marks.marks(), clock.now()).map_err(|error| failure::unavailable(&error))?;
        guards::check_guards(&conn)?;
        let mut note = None;
        if resumes {
            let leapt = state::raise_epoch(&conn, KnownProgress::of(&marks.marks()));
            leapt.map_err(|error| failure::unavailable(&error))?;
        } else {
            let used = state::was_used(&conn).map_err(|error| failure::unavailable(&error))?;
            note = marks.missing_note(used, false);
            hold.set(found.hold);
        }
        let (inbox, messages) = sync_channel(limits::LANE_QUEUE_MAX);
        let readers = Arc::new(reader::SqliteReaders::new(data.clone()));
        let wal = wal::Checkpointer::start(data.clone(), Arc::clone(&marks)).map_err(OpenError::Folder)?;
        let schema = SchemaWatch::default();
        let kept = (!resumes).then_some(marks);
        let unsettled = UnknownOutcome::default();
        let writer = Writer {
            schema: schema.clone(),
            held: held.clone(),
            hold: hold.clone(),
            unsettled: unsettled.clone(),
            marks: kept.clone(),
            generation: 0,
            log: None,
            data,
            conn: Some(conn),
            clock,
            inbox: messages,
            wal,
            texts: statement_cache::StatementCache::default(),
            objects: objects::ObjectWatch::new()?,
        };
        let thread = std::thread::Builder::new().name("chimera-writer".to_owned());
        let thread = thread.spawn(move || writer.run()).map_err(OpenError::Folder)?;
        let writing =
            Some(WriterHandle { marks: kept, note, held, hold, unsettled, inbox, thread: Mutex::new(Some(thread)) });
        Ok(Self { readers, writing, schema, health: Arc::default() })
    }

    /// Probes whether what failed before would work now. The probe continues when the caller is gone: it may take
    /// longer than a readiness request, and its result counts for the next one.
    async fn probe(&self, unproven: Unproven) -> Result<(), Unavailable> {
        if !self.health.try_begin_probe() {
            return Err(stopped("a probe of the previous failure is still in progress"));
        }
        let (readers, health) = (Arc::clone(&self.readers), Arc::clone(&self.health));
        let probing = tokio::task::spawn_blocking(move || {
            let shown = prove(&readers, &unproven);
            if shown.is_ok() {
                health.probed(&unproven);
            }
            health.end_probe();
            shown
        });
        probing.await.unwrap_or_else(|_| Err(stopped("the store is stopped")))
    }

    /// Rechecks recorded damage in the background.
    fn recheck_damage(&self) {
        let Some(tables) = self.health.due_recheck() else { return };
        let (readers, health) = (Arc::clone(&self.readers), Arc::clone(&self.health));
        tokio::task::spawn_blocking(move || {
            let whole = match readers.open_connection() {
                Ok(conn) => {
                    tables.into_iter().filter(|table| damage_check::check_table(&conn, table) == Ok(true)).collect()
                }
                Err(_) => Vec::new(),
            };
            health.finish_recheck(&whole);
        });
    }
}

/// Proves that what failed before would work now. Planning proves all of it: the file has no foreign triggers.
fn prove(readers: &reader::SqliteReaders, unproven: &Unproven) -> Result<(), Unavailable> {
    if let Some(uses) = unproven.uses() {
        damage_check::usable(&readers.open_connection()?, &uses)?;
    }
    match unproven.room() {
        Some(bytes) => damage_check::prove_space(readers.path(), bytes),
        None => Ok(()),
    }
}

#[async_trait]
impl Records for SqliteRecords {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        let writing = self.writing.as_ref().ok_or_else(|| stopped("the data is open for reading only"))?;
        if let Some(hold) = writing.hold.get() {
            return Err(Blocked::from(hold).into());
        }
        writing.unsettled.check()?;
        let tx = PreparedTx::new(tx)?;
        let (waiter, answer) = oneshot::channel();
        writing.inbox.try_send(Message::Commit(tx, waiter)).map_err(|error| match error {
            TrySendError::Full(_) => CommitError::Overloaded,
            TrySendError::Disconnected(_) => stopped("the store is stopped").into(),
        })?;
        let (answer, spent) = answer.await.map_err(|_| stopped("the store is stopped"))?;
        let answer = answer.map_err(|error| writing.hold.explain(self.schema.explain(error)));
        self.health.record_commit(answer, &spent)
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        let (health, schema, scope) = (Arc::clone(&self.health), self.schema.clone(), select.scope.clone());
        self.readers
            .ask(scope, move |readers| {
                let answer = readers.read(&select).map_err(|error| schema.explain_read(error));
                health.read(&select, answer)
            })
            .await
    }

    async fn count(&self, count: CountQuery) -> Result<Vec<RowGroup>, ReadError> {
        let (health, scope) = (Arc::clone(&self.health), count.select.scope.clone());
        self.readers
            .ask(scope, move |readers| {
                let answer = readers.count(&count);
                health.read(&Select::from(count.select.table, Scope::System), answer)
            })
            .await
    }

    fn lane(&self, _affinity: u64) -> Option<HeldLane> {
        self.writing.as_ref().filter(|writing| writing.hold.get().is_none()).and_then(|writing| writing.held.get())
    }

    fn hold(&self) -> Option<Hold> {
        self.writing.as_ref().and_then(|writing| writing.hold.get())
    }

    fn damage(&self) -> Option<Unavailable> {
        let damage = self.health.damage()?;
        // A rejected caller also triggers a recheck, in case nobody asks for readiness.
        self.recheck_damage();
        Some(damage)
    }

    fn warning(&self) -> Option<String> {
        self.writing.as_ref().and_then(|writing| writing.note.clone())
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        self.recheck_damage();
        let unproven = self.health.unproven();
        match self.commit(Tx::default()).await {
            Ok(_) => {}
            Err(CommitError::Unavailable(reason)) => return Err(reason),
            Err(CommitError::Blocked(Blocked::Held(hold))) => return Err(not_ready(&hold)),
            Err(other) => return Err(stopped(&other.to_string())),
        }
        if let Some(unproven) = unproven {
            self.probe(unproven).await?;
        }
        let reads = self.health.failed_reads();
        for select in reads.into_iter().chain([Select::from(&LEDGER_LANES, Scope::System).take(1)]) {
            match self.read(select).await {
                Err(ReadError::Unavailable(reason)) => return Err(reason),
                Err(other) => return Err(stopped(&other.to_string())),
                Ok(_) => {}
            }
        }
        self.health.check()?;
        mark::check_marks(self.writing.as_ref().and_then(|writing| writing.marks.as_ref())).await
    }

    async fn close(&self) {
        self.readers.close_idle();
        let Some(writing) = &self.writing else { return };
        let thread = writing.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let inbox = writing.inbox.clone();
        // On a blocking thread: a full inbox makes it wait. A writer that has already stopped has nothing left to
        // finish.
        let _ = tokio::task::spawn_blocking(move || {
            let _ = inbox.send(Message::Close);
            thread.map(JoinHandle::join)
        })
        .await;
    }
}

fn stopped(reason: &str) -> Unavailable {
    Unavailable::new(Outage::Transient, reason)
}
