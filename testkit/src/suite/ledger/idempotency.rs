//! Requests with an idempotency key take effect once, however often they are repeated.

use super::{LedgerNodes, entries};
use crate::ledger_fixture::event;
use chimera_core::ledger::idempotency::{IdempotencyRecord, KeyOwner, KeyedRequest, RecordState};
use chimera_core::limits::IDEMPOTENCY_TTL_SECONDS;
use chimera_core::record::{Conflict, Tx};
use chimera_engine::ledger::LedgerError;
use chimera_engine::ledger::audit::EventRecord;
use chimera_engine::ledger::idempotency::{BeginOutcome, begin, find};
use chimera_engine::port::{Clock as _, CommitError};
use futures::future::join_all;
use serde_json::{Value, json};

fn request(user: &str, key: &str, body: &Value) -> KeyedRequest {
    let owner = KeyOwner::User { tenant: "acme".into(), user: user.into() };
    KeyedRequest::new(&owner, key, body).unwrap().with_resource("run-1")
}

/// The change of a request: one entry about `subject`.
fn change(stage: &LedgerNodes, subject: &str) -> Tx {
    let mut tx = Tx::default();
    stage.world.writer().event(&mut tx, EventRecord { subject_id: subject.into(), ..event("acme") }).unwrap();
    tx
}

/// How often the change was made.
async fn happened(stage: &LedgerNodes, subject: &str) -> usize {
    entries(&*stage.two).await.iter().filter(|row| row.subject_id == subject).count()
}

async fn eight(stage: &LedgerNodes, request: &KeyedRequest, subject: &str) -> Vec<BeginOutcome> {
    let now = stage.world.clock.now();
    let attempts = stage.nodes().take(8).zip(0..).map(|(node, affinity)| {
        let tx = Tx { affinity, ..change(stage, subject) };
        async move { begin(&**node, request, tx, now).await }
    });
    join_all(attempts).await.into_iter().map(Result::unwrap).collect()
}

async fn first(stage: &LedgerNodes, request: &KeyedRequest, subject: &str) -> IdempotencyRecord {
    match begin(&*stage.one, request, change(stage, subject), stage.world.clock.now()).await.unwrap() {
        BeginOutcome::First(_, record) => record,
        other => panic!("{other:?}"),
    }
}

async fn again(stage: &LedgerNodes, request: &KeyedRequest, subject: &str) -> BeginOutcome {
    begin(&*stage.two, request, change(stage, subject), stage.world.clock.now()).await.unwrap()
}

pub(super) async fn of_eight_at_once_one_is_the_first(stage: &LedgerNodes) {
    for round in 0..4 {
        let subject = format!("race-{round}");
        let asked = request("ann", &subject, &json!({"goal": "tidy"}));
        let begun = eight(stage, &asked, &subject).await;
        let firsts = begun.iter().filter(|begun| matches!(begun, BeginOutcome::First(..))).count();
        let waiting = begun.iter().filter(|begun| matches!(begun, BeginOutcome::InFlight(_))).count();
        assert_eq!((firsts, waiting), (1, 7), "{begun:?}");
        assert_eq!(happened(stage, &subject).await, 1);
    }
}

pub(super) async fn a_finished_request_is_answered_from_its_record(stage: &LedgerNodes) {
    let asked = request("ann", "finish", &json!({"goal": "tidy"}));
    let record = first(stage, &asked, "finish").await;
    assert_eq!(again(stage, &asked, "finish").await, BeginOutcome::InFlight(record.clone()));
    let (answer, now) = (json!({"run_id": "run-1", "n": [1, 2.5, null]}), stage.world.clock.now());
    let done = record.complete(&answer, now, 60).unwrap();
    stage.two.commit(Tx { updates: vec![done], ..Tx::default() }).await.unwrap();
    match again(stage, &asked, "finish").await {
        BeginOutcome::Done(record) => assert_eq!(record.state, RecordState::Done { answer }),
        other => panic!("{other:?}"),
    }
    let other = request("ann", "finish", &json!({"goal": "mess up"}));
    assert!(matches!(again(stage, &other, "finish").await, BeginOutcome::Mismatch(_)));
    let begun = eight(stage, &asked, "finish").await;
    assert!(begun.iter().all(|begun| matches!(begun, BeginOutcome::Done(_))), "{begun:?}");
    assert_eq!(happened(stage, "finish").await, 1, "the change happened once");
}

pub(super) async fn an_expired_record_is_taken_over_once(stage: &LedgerNodes) {
    let slow = first(stage, &request("ann", "expiry", &json!({"old": true})), "expiry").await;
    stage.world.advance_seconds(IDEMPOTENCY_TTL_SECONDS);
    let begun = eight(stage, &request("ann", "expiry", &json!({"goal": "tidy"})), "expiry").await;
    assert_eq!(begun.iter().filter(|begun| matches!(begun, BeginOutcome::First(..))).count(), 1, "{begun:?}");
    assert_eq!(happened(stage, "expiry").await, 2);
    let late = slow.complete(&json!({}), stage.world.clock.now(), 60).unwrap();
    let late = stage.one.commit(Tx { updates: vec![late], ..Tx::default() }).await;
    assert!(matches!(late, Err(CommitError::Conflict(Conflict::Stale(_)))), "{late:?}");
}

pub(super) async fn a_record_and_its_change_stand_or_fall_together(stage: &LedgerNodes) {
    let asked = request("ann", "together", &json!({"goal": "tidy"}));
    let other = first(stage, &request("bob", "together", &json!({})), "bob").await;
    let mut impossible = change(stage, "together");
    impossible.steps = vec![other.abandon(), other.abandon()];
    let failed = begin(&*stage.one, &asked, impossible, stage.world.clock.now()).await;
    assert!(matches!(failed, Err(LedgerError::Commit(CommitError::Conflict(Conflict::Rows { .. })))), "{failed:?}");
    assert_eq!(find(&*stage.two, &asked).await.unwrap(), None, "the key is as free as before");
    assert_eq!(happened(stage, "together").await, 0);
    let record = first(stage, &asked, "together").await;
    stage.two.commit(Tx { steps: vec![record.abandon()], ..Tx::default() }).await.unwrap();
    first(stage, &asked, "together").await;
}

pub(super) async fn owners_do_not_see_each_others_records(stage: &LedgerNodes) {
    first(stage, &request("ann", "owned", &json!({"goal": "tidy"})), "owned").await;
    let bob = request("bob", "owned", &json!({"goal": "other"}));
    assert_eq!(find(&*stage.two, &bob).await.unwrap(), None);
    first(stage, &bob, "owned").await;
}
