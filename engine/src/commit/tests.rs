//! Tests of the committer against every outcome a store can report.

use super::*;
use crate::port::{CommitError, Outage, Receipt, Unavailable};
use chimera_core::ledger::{ActorType, ChainHead, Digest32, Entry, SubjectType};
use chimera_core::record::{Column, ColumnType, Conflict, Insert, InvalidTx, Table, Tx, Update, Value};
use chimera_core::time::Timestamp;

static THINGS: Table = Table {
    name: "things",
    columns: &[Column::new("id", ColumnType::Int), Column::new("state_version", ColumnType::Int)],
    key: &["id"],
    uniques: &[],
    tenant: None,
    rank: 1,
};

type Machine = Committer<usize>;
type Answers = Vec<(usize, Result<Receipt, CommitError>)>;

fn lane(epoch: i64, seq: i64) -> Lane {
    Lane { id: 1, epoch, head: ChainHead { seq, hash: Digest32::ZERO } }
}

fn insert(id: i64) -> Tx {
    let row = vec![("id", Value::Int(id)), ("state_version", Value::Int(0))];
    Tx { inserts: vec![Insert::new(&THINGS, row).unwrap()], ..Tx::default() }
}

fn update(id: i64) -> Tx {
    Tx { updates: vec![Update::versioned(&THINGS, vec![Value::Int(id)], 0, vec![]).unwrap()], ..Tx::default() }
}

fn entry() -> Tx {
    let entry = Entry {
        id: "e".into(),
        tenant_id: "t".into(),
        subject_type: SubjectType::Other,
        subject_id: "s".into(),
        event_type: "happened".into(),
        actor_type: ActorType::System,
        actor_id: None,
        timestamp: Timestamp::from_micros(0),
        data: serde_json::json!({}),
        run_id: None,
        run_seq: None,
        trace_id: None,
    };
    Tx { entries: vec![entry.seal([0; 16]).unwrap()], ..Tx::default() }
}

fn conflict() -> TxRejection {
    TxRejection::Conflict(Conflict::Rows { step: 0, table: "things", touched: 0 })
}

fn down() -> Unavailable {
    Unavailable::new(Outage::Transient, "gone")
}

fn ready() -> Machine {
    let mut machine = Machine::new();
    machine.step(CommitEvent::Claimed(lane(1, 0)));
    machine
}

fn submit(machine: &mut Machine, waiter: usize, tx: Tx) -> Answers {
    answers(machine.step(CommitEvent::Submitted { tx: PreparedTx::new(tx).unwrap(), waiter }))
}

fn started(machine: &mut Machine) -> Batch {
    match machine.start() {
        Some(Command::Execute(batch)) => batch,
        other => panic!("no batch: {other:?}"),
    }
}

fn answers(commands: Vec<Command<usize>>) -> Answers {
    let reply = |command| if let Command::Reply(waiter, answer, _) = command { Some((waiter, answer)) } else { None };
    commands.into_iter().filter_map(reply).collect()
}

fn split(commands: Vec<Command<usize>>) -> (Answers, Vec<Command<usize>>) {
    let (replies, rest): (Vec<_>, Vec<_>) = commands.into_iter().partition(|c| matches!(c, Command::Reply(..)));
    (answers(replies), rest)
}

fn executed(machine: &mut Machine, batch: Batch, outcome: BatchOutcome) -> (Answers, Vec<Command<usize>>) {
    split(machine.step(CommitEvent::Executed { batch, outcome }))
}

fn committed(batch: &Batch) -> BatchOutcome {
    BatchOutcome::Committed { head: batch.chain(|_| true).1, lost: Vec::new() }
}

#[test]
fn waiting_transactions_commit_together_and_get_their_place() {
    let mut machine = ready();
    (0..3).for_each(|n| assert!(submit(&mut machine, n, entry()).is_empty()));
    let batch = started(&mut machine);
    assert_eq!(batch.txs.len(), 3);
    let outcome = committed(&batch);
    let (answered, _) = executed(&mut machine, batch, outcome);
    let places: Vec<_> = answered.into_iter().map(|(n, answer)| (n, answer.unwrap().first_seq)).collect();
    assert_eq!(places, [(0, Some(1)), (1, Some(2)), (2, Some(3))]);
}

#[test]
fn two_transactions_on_one_row_never_share_a_batch_and_keep_their_order() {
    let mut machine = ready();
    for (waiter, tx) in [update(1), update(1), update(2), update(1)].into_iter().enumerate() {
        submit(&mut machine, waiter, tx);
    }
    let mut order = Vec::new();
    while machine.queued() > 0 {
        let batch = started(&mut machine);
        let outcome = committed(&batch);
        order.push(executed(&mut machine, batch, outcome).0.into_iter().map(|(n, _)| n).collect::<Vec<_>>());
    }
    assert_eq!(order, [vec![0, 2], vec![1], vec![3]]);
}

#[test]
fn an_insert_and_an_update_of_one_key_do_not_share_a_batch_either() {
    let mut machine = ready();
    submit(&mut machine, 0, insert(1));
    submit(&mut machine, 1, update(1));
    assert_eq!(started(&mut machine).txs.len(), 1);
}

#[test]
fn a_loser_is_told_and_the_others_are_sent_again_without_it() {
    let mut machine = ready();
    (0..3).for_each(|n| drop(submit(&mut machine, n, insert(n as i64))));
    let batch = started(&mut machine);
    let (answered, mut next) = executed(&mut machine, batch, BatchOutcome::Lost(vec![(1, conflict())]));
    assert!(matches!(answered.as_slice(), [(1, Err(CommitError::Conflict(_)))]));
    let Some(Command::Execute(batch)) = next.pop() else { panic!("the rest was not sent") };
    assert_eq!(batch.txs, [insert(0), insert(2)]);
    let outcome = committed(&batch);
    let (answered, _) = executed(&mut machine, batch, outcome);
    assert!(answered.iter().all(|(_, answer)| answer.is_ok()));
    assert_eq!(answered.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn what_could_not_be_serialised_is_sent_in_halves_until_it_can() {
    let mut machine = ready();
    (0..4).for_each(|n| drop(submit(&mut machine, n, insert(n as i64))));
    let batch = started(&mut machine);
    let (answered, mut next) = executed(&mut machine, batch, BatchOutcome::Contended);
    assert!(answered.is_empty());
    let Some(Command::Execute(half)) = next.pop() else { panic!("nothing was sent") };
    assert_eq!(half.txs.len(), 2);
    let outcome = committed(&half);
    assert_eq!(executed(&mut machine, half, outcome).0.len(), 2);
    assert_eq!(started(&mut machine).txs, [insert(2), insert(3)]);
}

#[test]
fn endless_contention_ends_as_unavailable() {
    let mut machine = ready();
    submit(&mut machine, 0, insert(1));
    let mut batch = started(&mut machine);
    for _ in 1..chimera_core::limits::CONTENTION_TRIES_MAX {
        let (answered, mut next) = executed(&mut machine, batch, BatchOutcome::Contended);
        assert!(answered.is_empty());
        let Some(Command::Execute(again)) = next.pop() else { panic!("not tried again") };
        batch = again;
    }
    let (answered, _) = executed(&mut machine, batch, BatchOutcome::Contended);
    assert!(matches!(answered.as_slice(), [(0, Err(CommitError::Unavailable(_)))]));
}

#[test]
fn a_refused_transaction_is_found_by_halving_and_only_it_fails() {
    let mut machine = ready();
    (0..5).for_each(|n| drop(submit(&mut machine, n, insert(n as i64))));
    let mut all = Vec::new();
    let mut next = machine.start();
    while let Some(Command::Execute(batch)) = next {
        let poisoned = batch.txs.contains(&insert(3));
        let outcome = if poisoned { BatchOutcome::Refused("check".into()) } else { committed(&batch) };
        let (answered, mut commands) = executed(&mut machine, batch, outcome);
        all.extend(answered);
        next = commands.pop().or_else(|| machine.start());
    }
    all.sort_by_key(|(n, _)| *n);
    let failed: Vec<_> = all.iter().filter(|(_, answer)| answer.is_err()).map(|(n, _)| *n).collect();
    assert_eq!((all.len(), failed), (5, vec![3]));
}

#[test]
fn what_lacks_a_table_is_found_by_halving_and_only_it_fails_with_its_transaction_given_back() {
    let mut machine = ready();
    (0..5).for_each(|n| drop(submit(&mut machine, n, insert(n as i64))));
    let (mut back, mut next) = (Vec::new(), machine.start());
    while let Some(Command::Execute(batch)) = next {
        let lacking = batch.txs.contains(&insert(3));
        let outcome = if lacking { BatchOutcome::Lacking(down()) } else { committed(&batch) };
        let mut commands = machine.step(CommitEvent::Executed { batch, outcome });
        next = commands.pop_if(|command| matches!(command, Command::Execute(_))).or_else(|| machine.start());
        back.extend(commands.into_iter().filter_map(|command| match command {
            Command::Reply(waiter, Err(error), tx) => Some((waiter, error, tx)),
            _ => None,
        }));
    }
    assert_eq!(back, [(3, CommitError::Unavailable(down()), insert(3))]);
}

#[test]
fn a_stale_epoch_fails_everybody_and_claims_anew() {
    let mut machine = ready();
    submit(&mut machine, 0, insert(0));
    let batch = started(&mut machine);
    submit(&mut machine, 1, insert(1));
    let (answered, next) = executed(&mut machine, batch, BatchOutcome::Fenced);
    assert_eq!(answered.iter().filter(|(_, answer)| *answer == Err(CommitError::Fenced)).count(), 2);
    assert!(matches!(next.as_slice(), [Command::Claim]));
}

#[test]
fn while_the_store_is_down_changes_are_refused_at_once_and_afterwards_taken() {
    let mut machine = ready();
    submit(&mut machine, 0, insert(0));
    let batch = started(&mut machine);
    let (answered, _) = executed(&mut machine, batch, BatchOutcome::Unavailable(down()));
    assert_eq!(answered, [(0, Err(CommitError::Unavailable(down())))]);
    assert_eq!(submit(&mut machine, 1, insert(1)), [(1, Err(CommitError::Unavailable(down())))]);
    machine.step(CommitEvent::Claimed(lane(2, 0)));
    assert!(submit(&mut machine, 2, insert(2)).is_empty());
    assert_eq!(started(&mut machine).lane.epoch, 2);
}

#[test]
fn a_lost_commit_that_happened_ends_in_receipts() {
    let mut machine = ready();
    submit(&mut machine, 0, entry());
    let batch = started(&mut machine);
    let (answered, mut next) = executed(&mut machine, batch, BatchOutcome::Unknown { lost: vec![] });
    assert!(answered.is_empty());
    let Some(Command::Settle(batch)) = next.pop() else { panic!("nobody looks") };
    let answered = answers(machine.step(CommitEvent::Settled { batch, settled: Resolution::Committed(lane(2, 1)) }));
    assert_eq!(answered, [(0, Ok(Receipt { lane: 1, epoch: 1, first_seq: Some(1), head_seq: 1 }))]);
}

#[test]
fn a_lost_commit_that_never_happened_is_sent_again_under_a_new_epoch() {
    let mut machine = ready();
    submit(&mut machine, 0, entry());
    let first = started(&mut machine);
    let first_id = first.id;
    let (_, mut next) = executed(&mut machine, first, BatchOutcome::Unknown { lost: vec![] });
    let Some(Command::Settle(batch)) = next.pop() else { panic!("nobody looks") };
    let (answered, mut next) =
        split(machine.step(CommitEvent::Settled { batch, settled: Resolution::NotCommitted(lane(2, 0)) }));
    assert!(answered.is_empty());
    let Some(Command::Execute(batch)) = next.pop() else { panic!("not sent again") };
    assert_eq!((batch.lane.epoch, batch.txs.len()), (2, 1));
    assert_ne!(batch.id, first_id);
}

#[test]
fn a_lost_commit_on_a_lost_lane_is_told_as_far_as_it_is_known() {
    let cases = [(Some(true), None), (Some(false), Some(CommitError::Fenced)), (None, Some(CommitError::Unknown))];
    for (durable, expected) in cases {
        let mut machine = ready();
        submit(&mut machine, 0, entry());
        let batch = started(&mut machine);
        let (_, mut next) = executed(&mut machine, batch, BatchOutcome::Unknown { lost: vec![] });
        let Some(Command::Settle(batch)) = next.pop() else { panic!("nobody looks") };
        let (answered, next) =
            split(machine.step(CommitEvent::Settled { batch, settled: Resolution::Fenced { durable } }));
        assert_eq!(answered[0].1.clone().err(), expected);
        assert!(matches!(next.as_slice(), [Command::Claim]));
    }
}

#[test]
fn a_full_queue_refuses_instead_of_growing() {
    let mut machine = ready();
    for n in 0..chimera_core::limits::LANE_QUEUE_MAX {
        assert!(submit(&mut machine, n, Tx::default()).is_empty());
    }
    assert_eq!(submit(&mut machine, 0, Tx::default()), [(0, Err(CommitError::Overloaded))]);
}

#[test]
fn an_impossible_transaction_is_refused_before_a_store_sees_it() {
    let twice = Tx { inserts: insert(1).inserts, updates: update(1).updates, ..Tx::default() };
    assert_eq!(PreparedTx::new(twice).err(), Some(InvalidTx::DuplicateRow { table: "things" }));
}

#[test]
fn closing_finishes_the_queue_and_gives_the_lane_back() {
    let mut machine = ready();
    submit(&mut machine, 0, insert(0));
    let batch = started(&mut machine);
    submit(&mut machine, 1, insert(1));
    assert!(machine.step(CommitEvent::Closing).is_empty());
    assert!(matches!(submit(&mut machine, 2, insert(2)).as_slice(), [(2, Err(CommitError::Unavailable(_)))]));
    let outcome = committed(&batch);
    assert_eq!(executed(&mut machine, batch, outcome).0.len(), 1);
    let batch = started(&mut machine);
    let outcome = committed(&batch);
    let (answered, next) = executed(&mut machine, batch, outcome);
    assert_eq!(answered.len(), 1);
    assert!(matches!(next.as_slice(), [Command::Release(Some(_))]));
}

#[test]
fn an_idle_lane_is_renewed_with_an_empty_batch() {
    let mut machine = ready();
    let commands = machine.step(CommitEvent::Tick);
    assert!(matches!(commands.as_slice(), [Command::Execute(batch)] if batch.txs.is_empty()));
}
