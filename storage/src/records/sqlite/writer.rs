//! The writer thread: a thin loop around the committer.
//!
//! It owns the only writing connection. While a batch is being flushed, everything that arrives waits in the channel
//! and becomes the next batch.

use super::super::hold::{HoldCell, not_ready};
use super::super::inbox::{Message, Waiter};
use super::super::lane_cell::LaneCell;
use super::super::mark::MarkFile;
use super::super::observe;
use super::super::schema::SchemaWatch;
use super::objects::ObjectWatch;
use super::statement_cache::StatementCache;
use super::unsettled::UnknownOutcome;
use super::{execute, failure, file, state, wal};
use crate::migrate;
use chimera_core::ledger::Mark;
use chimera_core::limits;
use chimera_engine::commit::{Batch, BatchOutcome, Command, CommitEvent, Committer, Lane, Resolution};
use chimera_engine::port::{Clock, Outage, Unavailable};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

const CLAIM_PAUSE_MICROS: i64 = limits::SQLITE_CLAIM_PAUSE.as_micros() as i64;

pub(super) struct Writer {
    pub(super) schema: SchemaWatch,
    pub(super) held: LaneCell,
    pub(super) hold: HoldCell,
    pub(super) unsettled: UnknownOutcome,
    /// The marks of the data; `None` while it is being resumed.
    pub(super) marks: Option<Arc<MarkFile>>,
    /// The store's generation when the lane was claimed.
    pub(super) generation: i64,
    pub(super) data: file::DataFile,
    pub(super) conn: Option<Connection>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) inbox: Receiver<Message>,
    pub(super) wal: wal::Checkpointer,
    pub(super) texts: StatementCache,
    /// Watches its tables for foreign objects.
    pub(super) objects: ObjectWatch,
    /// The write-ahead log of this connection, once it has been written.
    pub(super) log: Option<file::FileId>,
}

impl Writer {
    /// Runs until the committer releases its lane.
    pub(super) fn run(mut self) {
        let mut committer = Committer::new();
        let mut commands: VecDeque<Command<Waiter>> = VecDeque::from([Command::Claim]);
        let mut retry_at = None;
        let mut last_batch = 0;
        loop {
            while let Some(command) = commands.pop_front() {
                match command {
                    Command::Reply(waiter, answer, tx) => drop(waiter.send((answer, tx))),
                    Command::Execute(batch) => {
                        last_batch = batch.txs.len();
                        observe::queue("sqlite", &batch, committer.queued());
                        let outcome = self.execute(&batch);
                        observe::executed("sqlite", &batch, &outcome);
                        commands.extend(committer.step(CommitEvent::Executed { batch, outcome }));
                    }
                    Command::Claim if retry_at.is_some() => {}
                    Command::Claim => match self.claim() {
                        Ok(lane) => commands.extend(committer.step(CommitEvent::Claimed(lane))),
                        Err(reason) => {
                            retry_at = Some(self.clock.steady().micros() + CLAIM_PAUSE_MICROS);
                            commands.extend(committer.step(CommitEvent::ClaimFailed(reason)));
                        }
                    },
                    Command::Settle(batch) => {
                        let settled = self.settle(&batch);
                        commands.extend(committer.step(CommitEvent::Settled { batch, settled }));
                    }
                    Command::Release(lane) => return self.release(lane),
                }
            }
            if let Some(conn) = &self.conn {
                self.wal.between_batches(conn, last_batch);
            }
            self.gather(&mut committer, &mut commands, &mut retry_at);
            commands.extend(committer.start());
        }
    }

    /// Feeds arrived messages to the committer; waits when idle.
    fn gather(
        &mut self,
        committer: &mut Committer<Waiter>,
        commands: &mut VecDeque<Command<Waiter>>,
        retry_at: &mut Option<i64>,
    ) {
        while let Ok(message) = self.inbox.try_recv() {
            commands.extend(committer.step(message.into()));
        }
        if let Some(at) = *retry_at {
            // Messages don't restart the pause: however many arrive, the claim is retried.
            let rest = u64::try_from(at - self.clock.steady().micros()).map_or(Duration::ZERO, Duration::from_micros);
            match self.inbox.recv_timeout(rest.min(limits::SQLITE_CLAIM_PAUSE)) {
                Ok(message) => commands.extend(committer.step(message.into())),
                Err(RecvTimeoutError::Timeout) => {
                    *retry_at = None;
                    commands.push_back(Command::Claim);
                }
                Err(RecvTimeoutError::Disconnected) => commands.extend(committer.step(CommitEvent::Closing)),
            }
            return;
        }
        if committer.queued() == 0 && commands.is_empty() {
            let event = self.inbox.recv().map_or(CommitEvent::Closing, Into::into);
            commands.extend(committer.step(event));
        }
    }

    fn execute(&mut self, batch: &Batch) -> BatchOutcome {
        if let Some(reason) = self.files_gone() {
            return BatchOutcome::Unavailable(reason);
        }
        let Some(conn) = &self.conn else { return BatchOutcome::Unavailable(closed()) };
        let outcome = match execute::execute(conn, &mut self.texts, &mut self.objects, batch) {
            BatchOutcome::Unavailable(reason) => BatchOutcome::Unavailable(self.data.explain(reason)),
            outcome => outcome,
        };
        match &outcome {
            // The waiter gets the reason; the next claim checks again.
            BatchOutcome::Fenced => drop(self.check_schema(conn)),
            BatchOutcome::Committed { head, .. } if *head != batch.lane.head => {
                self.mark(Lane { head: *head, ..batch.lane });
            }
            _ => {}
        }
        if self.log.is_none() && matches!(outcome, BatchOutcome::Committed { .. }) {
            self.log = file::FileId::of(&file::log_of(self.data.path()));
        }
        outcome
    }

    /// Whether writes would be lost: the paths no longer lead to the files that this connection has open.
    fn files_gone(&self) -> Option<Unavailable> {
        if !self.data.is_in_place() {
            return Some(file::data_file_gone());
        }
        let log = self.log?;
        (file::FileId::of(&file::log_of(self.data.path())) != Some(log)).then(file::log_gone)
    }

    /// Checks whether the schema version is ours.
    fn check_schema(&self, conn: &Connection) -> Result<(), Unavailable> {
        self.schema.record_version(migrate::sqlite_version(conn).map_err(|error| failure::unavailable(&error))?)
    }

    /// Records the lane's durable progress in the mark file.
    fn mark(&self, lane: Lane) {
        if let Some(marks) = &self.marks {
            marks.write(Mark { lane: lane.id, generation: self.generation, epoch: lane.epoch, head: lane.head });
        }
    }

    /// Rejects data with another schema version, with foreign objects on its tables, older than its marks, or held.
    fn check(&mut self, conn: &Connection) -> Result<(), Unavailable> {
        self.check_schema(conn)?;
        self.objects.forget();
        self.objects.check_if_changed(conn)?;
        let marks = self.marks.as_ref().map(|marks| marks.marks());
        let state = match &marks {
            Some(marks) => state::check(conn, marks, self.clock.now()),
            None => state::read(conn),
        };
        let state = state.map_err(|error| failure::unavailable(&error))?;
        self.generation = state.generation;
        let hold = state.hold.filter(|_| marks.is_some());
        let refusal = hold.as_ref().map(not_ready);
        self.hold.set(hold);
        refusal.map_or(Ok(()), Err)
    }

    fn claim(&mut self) -> Result<Lane, Unavailable> {
        self.held.clear();
        if self.conn.is_none() {
            // The last connection to close removes the log cleanly.
            self.log = None;
        }
        if let Some(reason) = self.files_gone() {
            return Err(reason);
        }
        let lease_until = self.clock.steady().plus_seconds(limits::LANE_LEASE_SECONDS).micros();
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.data.open_writer()?,
        };
        if let Err(reason) = self.check(&conn) {
            self.conn = self.hold.get().map(|_| conn);
            return Err(self.data.explain(reason));
        }
        let lane = file::claim(&conn, lease_until).map_err(|reason| self.data.explain(reason))?;
        self.conn = Some(conn);
        self.held.set(lane);
        self.mark(lane);
        self.marks.iter().for_each(|marks| marks.sync());
        Ok(lane)
    }

    /// Retries until there is an answer: a waiter must not get a wrong one.
    fn settle(&mut self, batch: &Batch) -> Resolution {
        let settled = self.look_until_settled(batch);
        self.unsettled.set(None);
        settled
    }

    fn look_until_settled(&mut self, batch: &Batch) -> Resolution {
        loop {
            (self.conn, self.log) = (None, None);
            if self.files_gone().is_some() {
                return Resolution::Fenced { durable: None };
            }
            let conn = match self.data.open_writer() {
                Ok(conn) => conn,
                Err(reason) => {
                    self.unsettled.set(Some(reason));
                    std::thread::park_timeout(limits::SQLITE_CLAIM_PAUSE);
                    continue;
                }
            };
            if self.check(&conn).is_err() && self.hold.get().is_some() {
                self.conn = Some(conn);
                return Resolution::Fenced { durable: None };
            }
            match file::settle(&conn, batch) {
                Ok(settled) => {
                    self.conn = Some(conn);
                    if let Resolution::Committed(lane) | Resolution::NotCommitted(lane) = settled {
                        self.held.set(lane);
                        self.mark(lane);
                    }
                    return settled;
                }
                Err(reason) => self.unsettled.set(Some(self.data.explain(reason))),
            }
            std::thread::park_timeout(limits::SQLITE_CLAIM_PAUSE);
        }
    }

    fn release(self, lane: Option<Lane>) {
        if let Some(conn) = &self.conn {
            // A lease in a log whose file is gone expires by itself.
            if let Some(lane) = lane.filter(|_| self.data.is_in_place()) {
                file::release(conn, lane);
            }
            self.wal.finish(conn);
        }
        self.marks.iter().for_each(|marks| marks.sync());
    }
}

fn closed() -> Unavailable {
    Unavailable::new(Outage::Transient, "the data file is not open")
}
