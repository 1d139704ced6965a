//! The shared store: PostgreSQL 14 or later, a few lanes per process, and a pool of readers.
//!
//! Each lane has its own connection and committer. Several processes may share one database: lanes are fenced by
//! their row, and all lock row keys in the same order.

pub(crate) mod cells;
pub(crate) mod connect;
pub(crate) mod damage_check;
mod execute;
pub(super) mod failure;
mod foreign;
pub(crate) mod guards;
mod lane;
pub(crate) mod objects;
mod reader;
mod silence;
pub(crate) mod state;
mod statements;
mod trial;
mod watch;
mod worker;

pub use silence::until_postgres_silent;

use super::OpenError;
use super::failed_commits::Unproven;
use super::health::Health;
use super::hold::{HoldCell, KnownProgress, not_ready};
use super::inbox::Message;
use super::lane_cell::LaneCell;
use super::mark::{self, MarkFile};
use super::schema::{self, SchemaWatch};
use crate::migrate;
use async_trait::async_trait;
use chimera_core::ledger::tables::LEDGER_LANES;
use chimera_core::limits;
use chimera_core::record::{CountQuery, Page, RowGroup, Scope, Select, Tx};
use chimera_engine::commit::PreparedTx;
use chimera_engine::port::{Blocked, CommitError, HeldLane, Hold, ReadError, Receipt, Records, Unavailable};
use connect::Server;
use guards::GuardWatch;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use worker::Worker;

#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database?sslmode=…`
    pub url: String,
    /// Number of lanes of this process.
    pub lanes: usize,
    /// A name for this process, shown in the lane table.
    pub node: String,
    /// How long a lane stays ours without renewal.
    pub lease: Duration,
    /// The mark file. A database that is older than its marks is held: it can be read, but every commit of every node
    /// is rejected. Without it nothing is compared.
    pub marks: Option<PathBuf>,
    /// Claim lanes of a database that is held, to resume it. No mark is compared or written.
    pub resume: bool,
}

impl PostgresOptions {
    /// Options for a URL, with defaults.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        let lease = Duration::from_secs(limits::LANE_LEASE_SECONDS.unsigned_abs());
        Self { url: url.into(), lanes: 2, node: "chimera".to_owned(), lease, marks: None, resume: false }
    }
}

pub struct PostgresRecords {
    readers: Arc<reader::PostgresReaders>,
    lanes: Vec<mpsc::Sender<Message>>,
    held: Vec<LaneCell>,
    hold: HoldCell,
    /// Dropped to stop the watch task.
    watching: Mutex<Option<oneshot::Sender<()>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    schema: SchemaWatch,
    guards: GuardWatch,
    server: Server,
    health: Arc<Health>,
    /// The marks that this process writes.
    marks: Option<Arc<MarkFile>>,
    /// What was wrong with the mark file at the start.
    note: Option<String>,
}

impl PostgresRecords {
    /// Connects, migrates the schema and starts the lanes.
    pub async fn open(options: PostgresOptions) -> Result<Self, OpenError> {
        let server = Server::parse(&options.url)?;
        let mut client = server.connect().await?;
        connect::check(&client).await?;
        objects::check_objects(&client).await?;
        guards::check_home_schema(&client).await?;
        migrate::postgres(&mut client).await?;
        let marks = options.marks.as_deref().map(MarkFile::open).transpose()?.map(Arc::new);
        let hold = HoldCell::default();
        // Known before anybody asks: a server that starts on a held database must not begin any work.
        let known = marks.as_ref().map(|marks| marks.marks()).unwrap_or_default();
        let found = state::check(&client, &known).await?;
        guards::check_guards(&client).await?;
        let mut note = None;
        if options.resume {
            state::raise_epochs(&client, KnownProgress::of(&known))
                .await
                .map_err(|error| failure::unavailable(&error))?;
        } else {
            let used = state::was_used(&client).await?;
            note = marks.as_ref().and_then(|marks| marks.missing_note(used, true));
            hold.set(found.hold);
        }
        drop(client);
        let mut lanes = Vec::new();
        let mut tasks = Vec::new();
        let mut held = Vec::new();
        let (schema, guards) = (SchemaWatch::default(), GuardWatch::default());
        for _ in 0..options.lanes.max(1) {
            let (sender, inbox) = mpsc::channel(limits::LANE_QUEUE_MAX);
            let (server, node) = (server.clone(), options.node.clone());
            let lane = LaneCell::default();
            held.push(lane.clone());
            let watched = (!options.resume).then(|| hold.clone());
            let marks = marks.clone().filter(|_| !options.resume);
            let known = worker::LaneContext {
                hold: watched,
                marks,
                generation: 0,
                schema: schema.clone(),
                guards: guards.clone(),
            };
            let lease = options.lease;
            let worker =
                Worker { looked: None, held: lane, known, server, node, lease, inbox, session: None, lane: None };
            tasks.push(tokio::spawn(worker.run()));
            lanes.push(sender);
        }
        let (watching, stop) = oneshot::channel();
        if !options.resume {
            tasks.push(tokio::spawn(watch::watch(server.clone(), hold.clone(), guards.clone(), marks.clone(), stop)));
        }
        let watching = Mutex::new(Some(watching));
        let readers = Arc::new(reader::PostgresReaders::new(server.clone()));
        let (tasks, health) = (Mutex::new(tasks), Arc::default());
        let marks = marks.filter(|_| !options.resume);
        Ok(Self { readers, lanes, held, hold, watching, tasks, schema, guards, server, health, marks, note })
    }

    /// Opens for reading only: claims no lane and migrates nothing.
    pub async fn open_read_only(url: &str) -> Result<Self, OpenError> {
        let server = Server::parse(url)?;
        schema::readable(&migrate::postgres_status(&server.connect().await?).await?)?;
        Ok(Self {
            readers: Arc::new(reader::PostgresReaders::new(server.clone())),
            lanes: Vec::new(),
            held: Vec::new(),
            hold: HoldCell::default(),
            watching: Mutex::default(),
            tasks: Mutex::default(),
            schema: SchemaWatch::default(),
            guards: GuardWatch::default(),
            server,
            health: Arc::default(),
            marks: None,
            note: None,
        })
    }

    /// Probes whether what failed before would work now. The probe continues when the caller is gone: it may take
    /// longer than a readiness request, and its result counts for the next one.
    async fn probe(&self, unproven: Unproven) -> Result<(), Unavailable> {
        if !self.health.try_begin_probe() {
            return Err(connect::passing("a probe of the previous failure is still in progress"));
        }
        let (server, health) = (self.server.clone(), Arc::clone(&self.health));
        let probing = tokio::spawn(async move {
            let shown = prove(&server, &unproven).await;
            if shown.is_ok() {
                health.probed(&unproven);
            }
            health.end_probe();
            shown
        });
        probing.await.unwrap_or_else(|_| Err(connect::passing("the store is stopped")))
    }

    /// Rechecks recorded damage in the background.
    fn recheck_damage(&self) {
        let Some(tables) = self.health.due_recheck() else { return };
        let (server, health) = (self.server.clone(), Arc::clone(&self.health));
        tokio::spawn(async move {
            let whole = match server.connect().await {
                Ok(client) => damage_check::intact_tables(&client, tables).await,
                Err(_) => Vec::new(),
            };
            health.finish_recheck(&whole);
        });
    }
}

/// Proves that what failed before would work now.
async fn prove(server: &Server, unproven: &Unproven) -> Result<(), Unavailable> {
    let client = server.connect().await?;
    if let Some(uses) = unproven.uses() {
        damage_check::prove_usable(&client, &uses).await?;
    }
    for tx in unproven.trials() {
        trial::prove(&client, tx).await?;
    }
    match unproven.room() {
        Some(bytes) => damage_check::prove_space(&client, bytes).await,
        None => Ok(()),
    }
}

#[async_trait]
impl Records for PostgresRecords {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        let lanes = self.lanes.len().max(1) as u64;
        let at = usize::try_from(tx.affinity % lanes).unwrap_or_default();
        let lane = self.lanes.get(at).ok_or_else(|| connect::passing("the database is open for reading only"))?;
        if let Some(hold) = self.hold.get() {
            return Err(Blocked::from(hold).into());
        }
        if let Some(mismatch) = self.schema.mismatch() {
            // Yield, so that a caller in a retry loop lets the lanes check again.
            tokio::task::yield_now().await;
            return Err(Blocked::from(mismatch).into());
        }
        self.guards.check()?;
        let tx = PreparedTx::new(tx)?;
        let (waiter, answer) = oneshot::channel();
        let stopped = || connect::passing("the store is stopped");
        lane.try_send(Message::Commit(tx, waiter)).map_err(|error| match error {
            TrySendError::Full(_) => CommitError::Overloaded,
            TrySendError::Closed(_) => stopped().into(),
        })?;
        let (answer, spent) = answer.await.map_err(|_| stopped())?;
        let answer = answer.map_err(|error| self.hold.explain(self.schema.explain(error)));
        self.health.record_commit(answer, &spent)
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        let answer = self.readers.ask(select.clone()).await.map_err(|error| self.schema.explain_read(error));
        self.health.read(&select, answer)
    }

    async fn count(&self, count: CountQuery) -> Result<Vec<RowGroup>, ReadError> {
        let answer = self.readers.ask(count.clone()).await;
        self.health.read(&Select::from(count.select.table, Scope::System), answer)
    }

    fn lane(&self, affinity: u64) -> Option<HeldLane> {
        let at = usize::try_from(affinity % self.held.len().max(1) as u64).unwrap_or_default();
        self.held.get(at).filter(|_| self.hold.get().is_none()).and_then(LaneCell::get)
    }

    fn hold(&self) -> Option<Hold> {
        self.hold.get()
    }

    fn damage(&self) -> Option<Unavailable> {
        let damage = self.health.damage()?;
        // A rejected caller also triggers a recheck, in case nobody asks for readiness.
        self.recheck_damage();
        Some(damage)
    }

    fn warning(&self) -> Option<String> {
        self.note.clone()
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        self.recheck_damage();
        let unproven = self.health.unproven();
        for affinity in 0..self.lanes.len() as u64 {
            match self.commit(Tx { affinity, ..Tx::default() }).await {
                Ok(_) => {}
                Err(CommitError::Unavailable(reason)) => return Err(reason),
                Err(CommitError::Blocked(Blocked::Held(hold))) => return Err(not_ready(&hold)),
                Err(other) => return Err(connect::passing(&other.to_string())),
            }
        }
        if let Some(unproven) = unproven {
            self.probe(unproven).await?;
        }
        let reads = self.health.failed_reads();
        for select in reads.into_iter().chain([Select::from(&LEDGER_LANES, Scope::System).take(1)]) {
            match self.read(select).await {
                Err(ReadError::Unavailable(reason)) => return Err(reason),
                Err(other) => return Err(connect::passing(&other.to_string())),
                Ok(_) => {}
            }
        }
        self.health.check()?;
        self.hold.check_known()?;
        mark::check_marks(self.marks.as_ref()).await
    }

    async fn close(&self) {
        for lane in &self.lanes {
            // A lane that has already stopped has nothing left to finish.
            let _ = lane.send(Message::Close).await;
        }
        drop(self.watching.lock().unwrap_or_else(PoisonError::into_inner).take());
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        futures::future::join_all(tasks).await;
        self.readers.close();
    }
}
