//! One lane of a node: the loop around its committer, and the lane's row.
//!
//! A lane is free once its holder has released it or, if the store has a clock, once its lease has expired.

use super::tables::Tables;
use super::{LaneClaimOutcome, SharedState, lock};
use crate::build::NOON;
use chimera_core::ledger::ChainHead;
use chimera_core::ledger::tables::{LEDGER_LANES, LaneRow};
use chimera_core::limits::LANE_LEASE_SECONDS;
use chimera_core::record::{Row, StoredRow, Value};
use chimera_core::time::Timestamp;
use chimera_engine::commit::{
    Batch, BatchOutcome, Command, CommitEvent, Committer, Lane, PreparedTx, Resolution, TxRejection,
};
use chimera_engine::port::{CommitError, HeldLane, Outage, Receipt, Unavailable};
use std::collections::VecDeque;
use tokio::sync::oneshot;
use uuid::Uuid;

pub(super) type Waiter = oneshot::Sender<Result<Receipt, CommitError>>;

const FREE: Timestamp = Timestamp::from_micros(0);

pub(super) struct LaneLoop {
    committer: Committer<Waiter>,
    commands: VecDeque<Command<Waiter>>,
    /// The held lane; none while claiming one.
    mine: Option<Lane>,
    /// The lane held last; it is claimed again before any other.
    last: Option<Lane>,
}

impl LaneLoop {
    /// Claims a free lane, or adds one.
    pub(super) fn claim(disk: &SharedState) -> Self {
        let commands = VecDeque::from([Command::Claim]);
        let mut lane = Self { committer: Committer::new(), commands, mine: None, last: None };
        lane.run(disk);
        lane
    }

    pub(super) fn held(&self) -> Option<HeldLane> {
        self.mine.map(|mine| HeldLane { lane: mine.id, epoch: mine.epoch })
    }

    pub(super) fn submit(&mut self, tx: PreparedTx, waiter: Waiter) {
        self.commands.extend(self.committer.step(CommitEvent::Submitted { tx, waiter }));
    }

    pub(super) fn renew(&mut self, disk: &SharedState) {
        self.commands.extend(self.committer.step(CommitEvent::Tick));
        self.run(disk);
    }

    pub(super) fn close(&mut self, disk: &SharedState) {
        self.commands.extend(self.committer.step(CommitEvent::Closing));
        self.run(disk);
    }

    /// Runs every command. A claim that does not succeed is retried on the next call.
    pub(super) fn run(&mut self, disk: &SharedState) {
        self.commands.extend(self.committer.start());
        let mut later = None;
        while let Some(command) = self.commands.pop_front() {
            let event = match command {
                // The caller may have stopped waiting.
                Command::Reply(waiter, answer, _) => {
                    let _ = waiter.send(answer);
                    continue;
                }
                Command::Execute(batch) => {
                    let outcome = execute(disk, &batch);
                    CommitEvent::Executed { batch, outcome }
                }
                Command::Claim if later.is_some() => continue,
                Command::Claim => {
                    self.last = self.mine.take().or(self.last);
                    let fate = lock(&disk.claims).as_mut().map_or(LaneClaimOutcome::Taken, |claims| claims());
                    match fate {
                        LaneClaimOutcome::Taken => {
                            let lane = claim_lane(disk, &mut lock(&disk.tables), self.last);
                            self.mine = Some(lane);
                            CommitEvent::Claimed(lane)
                        }
                        LaneClaimOutcome::Pending => {
                            later = Some(Command::Claim);
                            continue;
                        }
                        LaneClaimOutcome::Failed => {
                            later = Some(Command::Claim);
                            CommitEvent::ClaimFailed(Unavailable::new(Outage::Transient, "cannot claim a lane"))
                        }
                    }
                }
                Command::Settle(batch) => {
                    let settled = settle(disk, &mut lock(&disk.tables), &batch);
                    if let Resolution::Committed(lane) | Resolution::NotCommitted(lane) = settled {
                        self.mine = Some(lane);
                    }
                    CommitEvent::Settled { batch, settled }
                }
                Command::Release(lane) => {
                    lane.into_iter().for_each(|lane| release(&mut lock(&disk.tables), lane));
                    continue;
                }
            };
            self.commands.extend(self.committer.step(event));
            self.commands.extend(self.committer.start());
        }
        self.commands.extend(later);
    }
}

fn execute(disk: &SharedState, batch: &Batch) -> BatchOutcome {
    let fault = lock(&disk.fault).as_mut().and_then(|fault| fault(batch));
    let mut tables = lock(&disk.tables);
    let answer_lost = match fault {
        // Also when the answer gets lost: a fenced node never commits.
        None | Some(BatchOutcome::Committed { .. }) if !holds(&tables, batch) => return BatchOutcome::Fenced,
        None => false,
        Some(BatchOutcome::Committed { .. }) => true,
        Some(outcome) => return outcome,
    };
    let (head, lost) = apply(disk, &mut tables, batch);
    show(disk, &mut tables, batch, &lost);
    drop(tables);
    disk.commits.send_modify(|commits| *commits += (batch.txs.len() - lost.len()) as u64);
    if answer_lost { BatchOutcome::Unknown { lost } } else { BatchOutcome::Committed { head, lost } }
}

/// Passes a committed batch to the watcher.
fn show(disk: &SharedState, tables: &mut Tables, batch: &Batch, lost: &[(usize, TxRejection)]) {
    let mut watcher = lock(&disk.watcher);
    let Some(watcher) = watcher.as_mut() else { return tables.changes(|_| ()) };
    tables.changes(|changed| watcher.changed(changed));
    let kept = batch.txs.iter().enumerate().filter(|(at, _)| lost.iter().all(|(position, _)| position != at));
    kept.flat_map(|(_, tx)| &tx.entries).for_each(|sealed| watcher.entered(sealed));
    watcher.committed();
}

fn apply(disk: &SharedState, tables: &mut Tables, batch: &Batch) -> (ChainHead, Vec<(usize, TxRejection)>) {
    let mut lost = Vec::new();
    for (at, tx) in batch.txs.iter().enumerate() {
        if let Err(conflict) = tables.apply(tx) {
            lost.push((at, TxRejection::Conflict(conflict)));
        }
    }
    let keep = |at: usize| lost.iter().all(|(position, _)| *position != at);
    let (links, head) = batch.chain(keep);
    let kept = batch.txs.iter().enumerate().filter(|(at, _)| keep(*at));
    for (sealed, link) in kept.flat_map(|(_, tx)| &tx.entries).zip(&links) {
        tables.put(sealed.row(batch.lane.id, link));
    }
    put_lane(tables, Lane { head, ..batch.lane }, Some(batch.id), lease(disk));
    (head, lost)
}

/// The expiry of a lease that starts now.
fn lease(disk: &SharedState) -> Timestamp {
    disk.clock.as_ref().map_or(NOON, |clock| clock.steady()).plus_seconds(LANE_LEASE_SECONDS)
}

fn put_lane(tables: &mut Tables, lane: Lane, last_batch: Option<Uuid>, lease_until: Timestamp) {
    let cells = vec![
        lane.id.into(),
        lane.epoch.into(),
        lane.head.seq.into(),
        lane.head.hash.0.to_vec().into(),
        last_batch.into(),
        lease_until.into(),
        Value::Null,
    ];
    tables.put(Row { table: &LEDGER_LANES, cells });
}

fn lane_of(row: &LaneRow) -> Lane {
    Lane { id: row.lane, epoch: row.epoch, head: ChainHead { seq: row.head_seq, hash: row.head_hash } }
}

fn lanes(tables: &Tables) -> Vec<LaneRow> {
    let rows = tables.all(&LEDGER_LANES).into_iter();
    rows.map(|row| LaneRow::decode(row).expect("a lane that can be read")).collect()
}

/// Frees every lane, including held ones.
pub(super) fn free_all(tables: &mut Tables) {
    for row in lanes(tables) {
        put_lane(tables, lane_of(&row), row.last_batch_id, FREE);
    }
}

/// The row of a lane if its epoch is unchanged.
fn held(tables: &Tables, lane: Lane) -> Option<LaneRow> {
    lanes(tables).into_iter().find(|row| (row.lane, row.epoch) == (lane.id, lane.epoch))
}

fn holds(tables: &Tables, batch: &Batch) -> bool {
    held(tables, batch.lane).is_some_and(|row| lane_of(&row) == batch.lane)
}

/// Claims the lane that was held, else a free one, else a new one, in a new epoch.
fn claim_lane(disk: &SharedState, tables: &mut Tables, mine: Option<Lane>) -> Lane {
    let rows = lanes(tables);
    let now = disk.clock.as_ref().map_or(FREE, |clock| clock.steady());
    let free = |row: &&LaneRow| row.lease_until <= now;
    let found = mine.and_then(|mine| held(tables, mine)).or_else(|| rows.iter().find(free).cloned());
    let last = rows.last().map_or(0, |row| row.lane);
    let lane = match &found {
        Some(row) => Lane { epoch: row.epoch + 1, ..lane_of(row) },
        None => Lane { id: last + 1, epoch: 1, head: ChainHead::EMPTY },
    };
    put_lane(tables, lane, found.and_then(|row| row.last_batch_id), lease(disk));
    lane
}

fn settle(disk: &SharedState, tables: &mut Tables, batch: &Batch) -> Resolution {
    let Some(row) = held(tables, batch.lane) else { return Resolution::Fenced { durable: None } };
    let lane = claim_lane(disk, tables, Some(batch.lane));
    let ours = row.last_batch_id == Some(batch.id);
    if ours { Resolution::Committed(lane) } else { Resolution::NotCommitted(lane) }
}

fn release(tables: &mut Tables, lane: Lane) {
    if let Some(row) = held(tables, lane) {
        put_lane(tables, lane_of(&row), row.last_batch_id, FREE);
    }
}
