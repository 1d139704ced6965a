//! The writer thread: the thin loop around the committer.
//!
//! It owns the only connection that writes. While a batch is on its way to the disk, everything
//! that arrives waits in the channel and becomes the next batch.

use super::super::observe;
use super::texts::Texts;
use super::{execute, file, wal};
use chimera_core::limits;
use chimera_engine::commit::{Batch, Command, Committer, Event, Lane, Outcome, Prepared, Settled};
use chimera_engine::port::{Clock, CommitError, Receipt, Unavailable};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Who waits for a commit.
pub(super) type Waiter = oneshot::Sender<Result<Receipt, CommitError>>;

/// What the rest of the store tells the writer.
pub(super) enum Message {
    Commit(Prepared, Waiter),
    Close,
}

/// How long to wait before trying again to take the lane of a store that is down.
const CLAIM_PAUSE: Duration = Duration::from_millis(100);
/// How long a busy store lets more work arrive before it starts a smaller batch than the last.
const GATHER: Duration = Duration::from_micros(150);

pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) conn: Option<Connection>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) inbox: Receiver<Message>,
    pub(super) wal: wal::Keeper,
    pub(super) texts: Texts,
}

impl Writer {
    /// Runs until the committer gives its lane back.
    pub(super) fn run(mut self) {
        let mut committer = Committer::new();
        let mut commands: VecDeque<Command<Waiter>> = VecDeque::from([Command::Claim]);
        let mut claims = false;
        let mut last_batch = 0;
        loop {
            while let Some(command) = commands.pop_front() {
                match command {
                    Command::Reply(waiter, answer) => drop(waiter.send(answer)),
                    Command::Execute(batch) => {
                        last_batch = batch.txs.len();
                        let outcome = match &self.conn {
                            Some(conn) => execute::execute(conn, &mut self.texts, &batch),
                            None => Outcome::Unavailable(closed()),
                        };
                        observe::executed("sqlite", &batch, &outcome);
                        commands.extend(committer.step(Event::Executed { batch, outcome }));
                    }
                    Command::Claim if claims => {}
                    Command::Claim => match self.claim() {
                        Ok(lane) => commands.extend(committer.step(Event::Claimed(lane))),
                        Err(reason) => {
                            claims = true;
                            commands.extend(committer.step(Event::ClaimFailed(reason)));
                        }
                    },
                    Command::Settle(batch) => {
                        let settled = self.settle(&batch);
                        commands.extend(committer.step(Event::Settled { batch, settled }));
                    }
                    Command::Release(lane) => return self.release(lane),
                }
            }
            if let Some(conn) = &self.conn {
                self.wal.between_batches(conn, last_batch);
            }
            self.gather(&mut committer, &mut commands, last_batch, &mut claims);
            commands.extend(committer.start());
        }
    }

    /// Hands in what has arrived; waits when there is nothing to do.
    fn gather(
        &self,
        committer: &mut Committer<Waiter>,
        commands: &mut VecDeque<Command<Waiter>>,
        last_batch: usize,
        claims: &mut bool,
    ) {
        let mut take = |message| match message {
            Message::Commit(tx, waiter) => commands.extend(committer.step(Event::Submitted { tx, waiter })),
            Message::Close => commands.extend(committer.step(Event::Closing)),
        };
        let mut arrived = 0;
        while let Ok(message) = self.inbox.try_recv() {
            take(message);
            arrived += 1;
        }
        if *claims {
            match self.inbox.recv_timeout(CLAIM_PAUSE) {
                Ok(message) => take(message),
                Err(RecvTimeoutError::Timeout) => {
                    *claims = false;
                    commands.push_back(Command::Claim);
                }
                Err(RecvTimeoutError::Disconnected) => commands.extend(committer.step(Event::Closing)),
            }
            return;
        }
        if committer.queued() == 0 && commands.is_empty() {
            match self.inbox.recv() {
                Ok(message) => commands_of(committer, commands, message),
                Err(_) => return commands.extend(committer.step(Event::Closing)),
            }
            arrived = 1;
        }
        // Those just answered are about to come back: one fsync for all of them beats two.
        while arrived < last_batch
            && let Ok(message) = self.inbox.recv_timeout(GATHER)
        {
            commands_of(committer, commands, message);
            arrived += 1;
        }
    }

    fn claim(&mut self) -> Result<Lane, Unavailable> {
        let lease_until = self.clock.now().plus_seconds(limits::LANE_LEASE_SECONDS).micros();
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => file::open_writer(&self.path).map_err(|error| super::failure::unavailable(&error))?,
        };
        let lane = file::claim(&conn, lease_until)?;
        self.conn = Some(conn);
        Ok(lane)
    }

    /// Looks until there is an answer: who waits must not be told anything wrong.
    fn settle(&mut self, batch: &Batch) -> Settled {
        loop {
            self.conn = None;
            if let Ok(conn) = file::open_writer(&self.path)
                && let Ok(settled) = file::settle(&conn, batch)
            {
                self.conn = Some(conn);
                return settled;
            }
            std::thread::park_timeout(CLAIM_PAUSE);
        }
    }

    fn release(self, lane: Option<Lane>) {
        if let Some(conn) = &self.conn {
            if let Some(lane) = lane {
                file::release(conn, lane);
            }
            self.wal.finish(conn);
        }
    }
}

fn commands_of(committer: &mut Committer<Waiter>, commands: &mut VecDeque<Command<Waiter>>, message: Message) {
    commands.extend(match message {
        Message::Commit(tx, waiter) => committer.step(Event::Submitted { tx, waiter }),
        Message::Close => committer.step(Event::Closing),
    });
}

fn closed() -> Unavailable {
    Unavailable { reason: "the data file is not open".to_owned() }
}
