//! The task of one lane: a thin loop around its committer.

use super::super::hold::{HoldCell, not_ready};
use super::super::inbox::{Message, Waiter};
use super::super::lane_cell::LaneCell;
use super::super::mark::MarkFile;
use super::super::observe;
use super::super::schema::SchemaWatch;
use super::connect::Server;
use super::execute::LaneSession;
use super::guards::GuardWatch;
use super::{failure, lane, objects, state};
use crate::migrate;
use chimera_core::ledger::Mark;
use chimera_core::limits;
use chimera_engine::commit::{Batch, BatchOutcome, Command, CommitEvent, Committer, Lane, Resolution};
use chimera_engine::port::Unavailable;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, timeout};
use tokio_postgres::Client;

/// The remaining time until an unreachable server is tried again.
type Pause = Pin<Box<Sleep>>;

/// What a lane knows of its store beyond its own row.
pub(super) struct LaneContext {
    /// Why the store may not be changed; `None` while it is being resumed.
    pub(super) hold: Option<HoldCell>,
    pub(super) marks: Option<Arc<MarkFile>>,
    /// Its generation when the lane was claimed.
    pub(super) generation: i64,
    pub(super) schema: SchemaWatch,
    pub(super) guards: GuardWatch,
}

pub(super) struct Worker {
    /// When the schema was last checked.
    pub(super) looked: Option<Instant>,
    pub(super) held: LaneCell,
    pub(super) known: LaneContext,
    pub(super) server: Server,
    pub(super) node: String,
    pub(super) lease: Duration,
    pub(super) inbox: mpsc::Receiver<Message>,
    pub(super) session: Option<LaneSession>,
    /// The lane as last claimed; it is claimed again after a lost connection.
    pub(super) lane: Option<Lane>,
}

impl Worker {
    /// Runs until the committer releases its lane.
    pub(super) async fn run(mut self) {
        let mut committer = Committer::new();
        let mut commands: VecDeque<Command<Waiter>> = VecDeque::from([Command::Claim]);
        let mut down = None;
        let mut last_batch = 0;
        loop {
            while let Some(command) = commands.pop_front() {
                match command {
                    Command::Reply(waiter, answer, tx) => drop(waiter.send((answer, tx))),
                    Command::Execute(batch) => {
                        last_batch = batch.txs.len();
                        observe::queue("postgres", &batch, committer.queued());
                        let outcome = self.execute(&batch).await;
                        commands.extend(committer.step(CommitEvent::Executed { batch, outcome }));
                    }
                    Command::Claim if down.is_some() => {}
                    Command::Claim => match self.claim().await {
                        Ok(lane) => commands.extend(committer.step(CommitEvent::Claimed(lane))),
                        Err(reason) => {
                            down = Some(Box::pin(tokio::time::sleep(limits::POSTGRES_CLAIM_PAUSE)));
                            commands.extend(committer.step(CommitEvent::ClaimFailed(reason)));
                        }
                    },
                    Command::Settle(batch) => {
                        let settled = self.settle(&batch).await;
                        commands.extend(committer.step(CommitEvent::Settled { batch, settled }));
                    }
                    Command::Release(lane) => return self.release(lane).await,
                }
            }
            self.gather(&mut committer, &mut commands, last_batch, &mut down).await;
            commands.extend(committer.start());
        }
    }

    /// Feeds arrived messages to the committer. When idle, waits and renews the lease.
    async fn gather(
        &mut self,
        committer: &mut Committer<Waiter>,
        commands: &mut VecDeque<Command<Waiter>>,
        last_batch: usize,
        down: &mut Option<Pause>,
    ) {
        let mut arrived = 0;
        while let Ok(message) = self.inbox.try_recv() {
            commands.extend(committer.step(event(Some(message))));
            arrived += 1;
        }
        if let Some(pause) = down {
            // Messages don't restart the pause: however many arrive, the server is tried again.
            tokio::select! {
                biased;
                () = pause => {
                    *down = None;
                    commands.push_back(Command::Claim);
                }
                message = self.inbox.recv() => commands.extend(committer.step(event(message))),
            }
            return;
        }
        if committer.queued() == 0 && commands.is_empty() {
            match timeout(self.lease / 3, self.inbox.recv()).await {
                Ok(message) => commands.extend(committer.step(event(message))),
                Err(_) => commands.extend(committer.step(CommitEvent::Tick)),
            }
            arrived += 1;
        }
        // Callers that were just answered are about to send again: one flush for all of them beats two. Yields to
        // them, and continues when yielding brings no more messages.
        let mut vain = 0;
        while arrived < last_batch && vain < limits::LANE_YIELDS_MAX {
            tokio::task::yield_now().await;
            vain += 1;
            while let Ok(message) = self.inbox.try_recv() {
                commands.extend(committer.step(event(Some(message))));
                arrived += 1;
                vain = 0;
            }
        }
    }

    async fn execute(&mut self, batch: &Batch) -> BatchOutcome {
        // A connection that died while the lane was idle lost nothing: the lane is still ours.
        if self.session.as_ref().is_none_or(LaneSession::is_lost) {
            self.session = match self.reconnect().await {
                Ok(client) => Some(LaneSession::new(client, self.lease.as_secs_f64())),
                Err(reason) => return Self::record_batch(batch, BatchOutcome::Unavailable(reason)),
            };
        }
        let Some(session) = self.session.as_mut() else {
            return BatchOutcome::Unavailable(super::connect::passing("the database is not connected"));
        };
        if self.looked.is_none_or(|looked| looked.elapsed() >= limits::SCHEMA_CHECK_INTERVAL) {
            if let Err(reason) = check_schema(&self.known.schema, session.client()).await {
                return Self::record_batch(batch, BatchOutcome::Unavailable(reason));
            }
            self.looked = Some(Instant::now());
        }
        // A suspended server answers nothing; the outcome is settled later.
        let outcome = timeout(limits::POSTGRES_BATCH_TIMEOUT, session.execute(batch)).await;
        let outcome = outcome.unwrap_or(BatchOutcome::Unknown { lost: Vec::new() });
        if matches!(outcome, BatchOutcome::Fenced | BatchOutcome::Unavailable(_)) && !session.is_lost() {
            // The waiter gets the reason; the next claim checks again.
            let _ = check_schema(&self.known.schema, session.client()).await;
        }
        if session.is_lost() || matches!(outcome, BatchOutcome::Unavailable(_) | BatchOutcome::Unknown { .. }) {
            self.session = None;
        }
        if let BatchOutcome::Committed { head, .. } = &outcome
            && *head != batch.lane.head
        {
            self.known.mark(Lane { head: *head, ..batch.lane });
        }
        Self::record_batch(batch, outcome)
    }

    /// The server may have failed over to one that lacks the latest writes of others.
    async fn reconnect(&mut self) -> Result<Client, Unavailable> {
        let client = self.server.connect_lane().await?;
        self.known.check(&client).await?;
        Ok(client)
    }

    fn record_batch(batch: &Batch, outcome: BatchOutcome) -> BatchOutcome {
        observe::executed("postgres", batch, &outcome);
        outcome
    }

    async fn claim(&mut self) -> Result<Lane, Unavailable> {
        self.held.clear();
        let session = match self.session.take() {
            Some(session) if !session.is_lost() => session,
            _ => LaneSession::new(self.server.connect_lane().await?, self.lease.as_secs_f64()),
        };
        self.known.check(session.client()).await?;
        let lane = lane::claim(session.client(), &self.node, self.lease.as_secs_f64(), self.lane).await?;
        // Another node may have held the database at the moment the lane was claimed, and a migration that ended in
        // between did not take over a lane of this task.
        if let Err(reason) = self.known.check(session.client()).await {
            lane::release(session.client(), lane).await;
            return Err(reason);
        }
        self.session = Some(session);
        self.lane = Some(lane);
        self.held.set(lane);
        self.known.mark(lane);
        Ok(lane)
    }

    /// Retries until there is an answer: a waiter must not get a wrong one.
    async fn settle(&mut self, batch: &Batch) -> Resolution {
        loop {
            let Ok(client) = self.server.connect_lane().await else {
                tokio::time::sleep(limits::POSTGRES_CLAIM_PAUSE).await;
                continue;
            };
            if self.known.check(&client).await.is_err() && self.known.is_held() {
                return Resolution::Fenced { durable: None };
            }
            if let Ok(Ok(settled)) =
                timeout(limits::POSTGRES_BATCH_TIMEOUT, lane::settle(&client, batch, self.lease.as_secs_f64())).await
            {
                self.session = Some(LaneSession::new(client, self.lease.as_secs_f64()));
                if let Resolution::Committed(lane) | Resolution::NotCommitted(lane) = settled {
                    self.lane = Some(lane);
                    self.held.set(lane);
                    self.known.mark(lane);
                }
                return settled;
            }
            tokio::time::sleep(limits::POSTGRES_CLAIM_PAUSE).await;
        }
    }

    async fn release(self, lane: Option<Lane>) {
        if let (Some(session), Some(lane)) = (&self.session, lane) {
            lane::release(session.client(), lane).await;
        }
    }
}

/// Checks whether the schema version is this binary's.
async fn check_schema(schema: &SchemaWatch, client: &Client) -> Result<(), Unavailable> {
    schema.record_version(migrate::postgres_version(client).await.map_err(|error| failure::unavailable(&error))?)
}

impl LaneContext {
    /// Records the lane's durable progress in the mark file.
    fn mark(&self, lane: Lane) {
        if let Some(marks) = &self.marks {
            marks.write(Mark { lane: lane.id, generation: self.generation, epoch: lane.epoch, head: lane.head });
        }
    }

    fn is_held(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.get().is_some())
    }

    /// Rejects a database with another schema version, with foreign objects on its tables, older than its marks,
    /// held, or with a missing guard.
    async fn check(&mut self, client: &Client) -> Result<(), Unavailable> {
        check_schema(&self.schema, client).await?;
        objects::check_objects(client).await?;
        let marks = self.marks.as_ref().map(|marks| marks.marks()).unwrap_or_default();
        let found = state::check(client, &marks).await?;
        self.generation = found.generation;
        if let Some(cell) = &self.hold {
            let refusal = found.hold.as_ref().map(not_ready);
            cell.set(found.hold);
            refusal.map_or(Ok(()), Err)?;
        }
        self.guards.run_check(client).await
    }
}

/// A closed channel means that the store was dropped.
fn event(message: Option<Message>) -> CommitEvent<Waiter> {
    message.map_or(CommitEvent::Closing, Into::into)
}
