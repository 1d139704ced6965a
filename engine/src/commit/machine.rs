//! The committer of one lane.
//!
//! | state    | on                    | becomes                                                         |
//! |----------|-----------------------|-----------------------------------------------------------------|
//! | Claiming | Claimed               | Idle                                                            |
//! | Claiming | ClaimFailed           | Claiming; all queued are `Unavailable`                          |
//! | any      | Submitted             | the same; the transaction is queued or refused                  |
//! | Idle     | `start()`             | Busy, if anything is queued                                     |
//! | Idle     | Tick                  | Busy with an empty batch                                        |
//! | Busy     | Executed: Committed   | Idle; receipts and conflicts are sent                           |
//! | Busy     | Executed: Lost        | Busy with the rest; Idle if there is none                       |
//! | Busy     | Executed: Contended   | Busy with half of it; a single one is retried, up to a limit    |
//! | Busy     | Executed: Refused     | Busy with half of it; a single one is `Rejected`, then Idle     |
//! | Busy     | Executed: Lacking     | Busy with half of it; a single one is `Unavailable`, then Idle  |
//! | Busy     | Executed: Fenced      | Claiming; the batch and all queued are `Fenced`                 |
//! | Busy     | Executed: Unavailable | Claiming; the batch and all queued are `Unavailable`            |
//! | Busy     | Executed: Unknown     | Settling; all waiters wait                                      |
//! | Settling | Settled: Committed    | Idle; receipts and conflicts are sent                           |
//! | Settling | Settled: NotCommitted | Busy with the same transactions; Idle if there are none         |
//! | Settling | Settled: Fenced       | Claiming; the batch gets what is known, all queued are `Fenced` |
//! | any      | Closing               | Closed once nothing is queued or in flight                      |
//!
//! After `Closing`, Idle and Claiming with an empty queue become Closed. `Submitted` only queues: the loop calls
//! `start()` after submitting everything that arrived.

use super::batch::{Batch, BatchOutcome, Lane, Resolution, TxRejection};
use super::queue::{PreparedTx, Queue, QueuedTx};
use crate::port::{CommitError, Outage, Receipt, Unavailable};
use chimera_core::limits;
use chimera_core::record::Tx;
use uuid::Uuid;

#[derive(Debug)]
pub enum CommitEvent<W> {
    /// A transaction to commit.
    Submitted {
        tx: PreparedTx,
        /// Receives the reply.
        waiter: W,
    },
    /// A batch was executed.
    Executed { batch: Batch, outcome: BatchOutcome },
    /// The lane was claimed.
    Claimed(Lane),
    /// No lane could be claimed; the loop retries.
    ClaimFailed(Unavailable),
    /// The outcome of an `Unknown` batch was resolved.
    Settled { batch: Batch, settled: Resolution },
    /// Time to renew the lease.
    Tick,
    /// Finish the queue, accept nothing more.
    Closing,
}

/// What the loop has to execute.
#[derive(Debug)]
pub enum Command<W> {
    /// Execute the batch; report `Executed`.
    Execute(Batch),
    /// Reply to a waiter. The transaction is handed back, if available, so that the waiter's thread and not the
    /// committer's frees it.
    Reply(W, Result<Receipt, CommitError>, Tx),
    /// Claim a lane; report `Claimed` or `ClaimFailed` after each attempt.
    Claim,
    /// Claim the lane again and look for the batch; report `Settled`, however long it takes.
    Settle(Batch),
    /// Release the lane: everything is done.
    Release(Option<Lane>),
}

#[derive(Debug)]
enum State<W> {
    Claiming { down: Option<Unavailable> },
    Idle(Lane),
    Busy(Vec<QueuedTx<W>>),
    Settling(Vec<QueuedTx<W>>, Vec<(usize, TxRejection)>),
    Closed,
}

/// The state machine. `W` identifies a waiter.
#[derive(Debug)]
pub struct Committer<W> {
    state: State<W>,
    queue: Queue<W>,
    batches: u64,
    /// Splitting a batch lowers this; committed batches raise it again.
    txs_max: usize,
    closing: bool,
}

impl<W> Default for Committer<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> Committer<W> {
    /// Starts without a lane; the loop claims one first.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: State::Claiming { down: None },
            queue: Queue::new(),
            batches: 0,
            txs_max: limits::BATCH_TXS_MAX,
            closing: false,
        }
    }

    /// Whether it is waiting for work, so that the loop may let more arrive.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle(_))
    }

    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Handles one event and returns the commands to execute.
    pub fn step(&mut self, event: CommitEvent<W>) -> Vec<Command<W>> {
        let mut commands = Vec::new();
        match event {
            CommitEvent::Submitted { tx, waiter } => self.submitted(tx, waiter, &mut commands),
            CommitEvent::Executed { batch, outcome } => self.executed(batch, outcome, &mut commands),
            CommitEvent::Claimed(lane) if matches!(self.state, State::Closed) => {
                commands.push(Command::Release(Some(lane)))
            }
            CommitEvent::Claimed(lane) => self.resume(lane, &mut commands),
            CommitEvent::ClaimFailed(reason) => self.claim_failed(reason, &mut commands),
            CommitEvent::Settled { batch, settled } => self.settled(batch, settled, &mut commands),
            CommitEvent::Tick => self.tick(&mut commands),
            CommitEvent::Closing => {
                self.closing = true;
                self.close_if_done(&mut commands);
            }
        }
        commands
    }

    /// Starts a batch if there is work and the lane is idle. The loop calls it after submitting everything that
    /// arrived, so that one batch carries all of it.
    pub fn start(&mut self) -> Option<Command<W>> {
        let State::Idle(lane) = self.state else { return None };
        let drawn = self.queue.take_batch(self.txs_max);
        (!drawn.is_empty()).then(|| self.send(lane, drawn))
    }

    fn submitted(&mut self, tx: PreparedTx, waiter: W, commands: &mut Vec<Command<W>>) {
        let refusal = match &self.state {
            _ if self.closing => Some(CommitError::Unavailable(stopping())),
            State::Closed => Some(CommitError::Unavailable(stopping())),
            State::Claiming { down: Some(reason) } => Some(CommitError::Unavailable(reason.clone())),
            _ if self.queue.len() >= limits::LANE_QUEUE_MAX => Some(CommitError::Overloaded),
            _ => None,
        };
        match refusal {
            Some(error) => commands.push(Command::Reply(waiter, Err(error), Tx::default())),
            None => self.queue.push(QueuedTx::new(tx, waiter)),
        }
    }

    fn send(&mut self, lane: Lane, mut drawn: Vec<QueuedTx<W>>) -> Command<W> {
        let txs = drawn.iter_mut().map(|waiting| std::mem::take(&mut waiting.tx)).collect();
        self.batches += 1;
        let epoch = u64::try_from(lane.epoch).unwrap_or_default();
        let locked = drawn.iter().flat_map(|waiting| &waiting.touches).filter(|touch| touch.lock);
        let mut locks: Vec<u64> = locked.map(|touch| touch.digest).collect();
        locks.sort_unstable();
        locks.dedup();
        let batch = Batch { lane, id: Uuid::from_u64_pair(epoch, self.batches), txs, locks };
        self.state = State::Busy(drawn);
        Command::Execute(batch)
    }

    fn executed(&mut self, batch: Batch, outcome: BatchOutcome, commands: &mut Vec<Command<W>>) {
        let State::Busy(drawn) = &mut self.state else { return };
        let drawn = std::mem::take(drawn);
        self.state = State::Idle(batch.lane);
        let lane = batch.lane;
        match outcome {
            BatchOutcome::Committed { head, lost } => {
                // Grow back gradually: the cause of the split may still be there.
                self.txs_max = (self.txs_max * 2).min(limits::BATCH_TXS_MAX);
                let lane = Lane { head, ..lane };
                send_replies(batch, drawn, lane, lost, commands);
                self.resume(lane, commands);
            }
            BatchOutcome::Lost(lost) => {
                let rest = exclude(restore_txs(batch.txs, drawn), lost, commands);
                if rest.is_empty() {
                    self.resume(lane, commands);
                } else {
                    let command = self.send(lane, rest);
                    commands.push(command);
                }
            }
            BatchOutcome::Contended => self.split_and_resend(lane, restore_txs(batch.txs, drawn), None, commands),
            BatchOutcome::Refused(constraint) => {
                let refusal = CommitError::Rejected { constraint };
                self.split_and_resend(lane, restore_txs(batch.txs, drawn), Some(refusal), commands);
            }
            BatchOutcome::Lacking(reason) => {
                self.split_and_resend(lane, restore_txs(batch.txs, drawn), Some(reason.into()), commands);
            }
            BatchOutcome::Fenced => {
                self.fail(drawn, &CommitError::Fenced, None, commands);
            }
            BatchOutcome::Unavailable(reason) => {
                let back = restore_txs(batch.txs, drawn);
                self.fail(back, &CommitError::Unavailable(reason.clone()), Some(reason), commands);
            }
            BatchOutcome::Unknown { lost } => {
                self.state = State::Settling(drawn, lost);
                commands.push(Command::Settle(batch));
            }
        }
    }

    /// Splits a batch that hit a serialization failure or contains a refused transaction, and sends the first half.
    fn split_and_resend(
        &mut self,
        lane: Lane,
        mut back: Vec<QueuedTx<W>>,
        refusal: Option<CommitError>,
        commands: &mut Vec<Command<W>>,
    ) {
        if let [only] = back.as_mut_slice() {
            only.tries += 1;
            let answer = match refusal {
                Some(refusal) => Some(refusal),
                None if only.tries >= limits::CONTENTION_TRIES_MAX => Some(CommitError::Unavailable(contended())),
                None => None,
            };
            if let Some(error) = answer {
                commands.extend(back.pop().map(|only| Command::Reply(only.waiter, Err(error), only.tx)));
                return self.resume(lane, commands);
            }
        }
        let half = back.len().div_ceil(2);
        self.txs_max = half.max(1);
        let second = back.split_off(half);
        self.queue.push_front(second.into_iter());
        if back.is_empty() {
            return self.resume(lane, commands);
        }
        let command = self.send(lane, back);
        commands.push(command);
    }

    fn settled(&mut self, batch: Batch, settled: Resolution, commands: &mut Vec<Command<W>>) {
        let State::Settling(drawn, lost) = &mut self.state else { return };
        let (drawn, lost) = (std::mem::take(drawn), std::mem::take(lost));
        self.state = State::Idle(batch.lane);
        match settled {
            Resolution::Committed(lane) => {
                send_replies(batch, drawn, lane, lost, commands);
                self.resume(lane, commands);
            }
            Resolution::NotCommitted(lane) => {
                let back = restore_txs(batch.txs, drawn);
                if back.is_empty() {
                    return self.resume(lane, commands);
                }
                let command = self.send(lane, back);
                commands.push(command);
            }
            Resolution::Fenced { durable: Some(true) } => {
                let (_, head) = batch.chain(|at| lost.iter().all(|(position, _)| *position != at));
                let lane = Lane { head, ..batch.lane };
                send_replies(batch, drawn, lane, lost, commands);
                self.fail(Vec::new(), &CommitError::Fenced, None, commands);
            }
            Resolution::Fenced { durable } => {
                let error = if durable.is_some() { CommitError::Fenced } else { CommitError::Unknown };
                drawn
                    .into_iter()
                    .for_each(|w| commands.push(Command::Reply(w.waiter, Err(error.clone()), Tx::default())));
                self.fail(Vec::new(), &CommitError::Fenced, None, commands);
            }
        }
    }

    /// Sends everybody the same reply and claims a lane again.
    fn fail(
        &mut self,
        drawn: Vec<QueuedTx<W>>,
        error: &CommitError,
        down: Option<Unavailable>,
        commands: &mut Vec<Command<W>>,
    ) {
        let tried = drawn.into_iter().map(|waiting| (waiting.waiter, waiting.tx));
        // Queued transactions were never tried, so they are not handed back as evidence about the store.
        let all = tried.chain(self.queue.drain().map(|waiting| (waiting.waiter, Tx::default())));
        commands.extend(all.map(|(waiter, tx)| Command::Reply(waiter, Err(error.clone()), tx)));
        self.state = State::Claiming { down };
        if !self.close_if_done(commands) {
            commands.push(Command::Claim);
        }
    }

    fn claim_failed(&mut self, reason: Unavailable, commands: &mut Vec<Command<W>>) {
        if matches!(self.state, State::Claiming { .. }) {
            let error = CommitError::Unavailable(reason.clone());
            commands.extend(self.queue.drain().map(|w| Command::Reply(w.waiter, Err(error.clone()), Tx::default())));
            self.state = State::Claiming { down: Some(reason) };
            if !self.close_if_done(commands) {
                commands.push(Command::Claim);
            }
        }
    }

    fn tick(&mut self, commands: &mut Vec<Command<W>>) {
        if let State::Idle(lane) = self.state {
            let command = self.send(lane, Vec::new());
            commands.push(command);
        }
    }

    fn resume(&mut self, lane: Lane, commands: &mut Vec<Command<W>>) {
        self.state = State::Idle(lane);
        self.close_if_done(commands);
    }

    fn close_if_done(&mut self, commands: &mut Vec<Command<W>>) -> bool {
        let lane = match self.state {
            State::Idle(lane) if self.queue.len() == 0 => Some(lane),
            State::Claiming { .. } if self.queue.len() == 0 => None,
            _ => return false,
        };
        if self.closing {
            self.state = State::Closed;
            commands.push(Command::Release(lane));
        }
        self.closing
    }
}

/// Reunites the transactions of a returned batch with their waiters.
fn restore_txs<W>(txs: Vec<Tx>, drawn: Vec<QueuedTx<W>>) -> Vec<QueuedTx<W>> {
    drawn.into_iter().zip(txs).map(|(waiting, tx)| QueuedTx { tx, ..waiting }).collect()
}

/// Replies to the excluded transactions and returns the others.
fn exclude<W>(
    back: Vec<QueuedTx<W>>,
    lost: Vec<(usize, TxRejection)>,
    commands: &mut Vec<Command<W>>,
) -> Vec<QueuedTx<W>> {
    let mut lost = lost;
    let mut rest = Vec::with_capacity(back.len());
    for (at, waiting) in back.into_iter().enumerate() {
        match lost.iter().position(|(position, _)| *position == at) {
            Some(found) => {
                commands.push(Command::Reply(waiting.waiter, Err(commit_error(lost.swap_remove(found).1)), waiting.tx))
            }
            None => rest.push(waiting),
        }
    }
    rest
}

/// Sends the receipts of a batch that left the lane like this, and errors to the excluded transactions.
fn send_replies<W>(
    batch: Batch,
    drawn: Vec<QueuedTx<W>>,
    lane: Lane,
    mut lost: Vec<(usize, TxRejection)>,
    commands: &mut Vec<Command<W>>,
) {
    let before = batch.lane;
    let mut seq = before.head.seq;
    for ((at, waiting), tx) in drawn.into_iter().enumerate().zip(batch.txs) {
        let answer = match lost.iter().position(|(position, _)| *position == at) {
            Some(found) => Err(commit_error(lost.swap_remove(found).1)),
            None => {
                let first_seq = (!tx.entries.is_empty()).then_some(seq + 1);
                seq += i64::try_from(tx.entries.len()).unwrap_or_default();
                Ok(Receipt { lane: lane.id, epoch: before.epoch, first_seq, head_seq: lane.head.seq })
            }
        };
        commands.push(Command::Reply(waiting.waiter, answer, tx));
    }
}

fn commit_error(loss: TxRejection) -> CommitError {
    match loss {
        TxRejection::Conflict(conflict) => CommitError::Conflict(conflict),
        TxRejection::Rejected(constraint) => CommitError::Rejected { constraint },
        TxRejection::Lacking(reason) => CommitError::Unavailable(reason),
    }
}

fn stopping() -> Unavailable {
    Unavailable::new(Outage::Transient, "the store is stopping")
}

fn contended() -> Unavailable {
    Unavailable::new(Outage::Transient, "too much contention")
}
