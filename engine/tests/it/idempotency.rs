//! Requests under an idempotency key, against a store.

use crate::memory::Memory;
use crate::world::{World, event};
use chimera_core::ledger::idempotency::{Owner, Record, Request, State};
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, IDEMPOTENCY_RECORDS};
use chimera_core::record::{Conflict, Tx};
use chimera_engine::ledger::LedgerError;
use chimera_engine::ledger::idempotency::{Begun, begin, find};
use chimera_engine::port::{Clock as _, CommitError, Records};
use futures::future::join_all;
use serde_json::json;

fn request(user: &str, body: &serde_json::Value) -> Request {
    let owner = Owner::User { tenant: "acme".into(), user: user.into() };
    Request::new(&owner, "key-1", body).unwrap().making("run-1")
}

/// The change that the request asks for: it leaves one entry.
fn change(world: &World) -> Tx {
    let mut tx = Tx::default();
    world.writer().event(&mut tx, event("acme")).unwrap();
    tx
}

async fn first(store: &dyn Records, world: &World, request: &Request) -> Record {
    match begin(store, request, change(world), world.clock.now()).await.unwrap() {
        Begun::First(_, record) => record,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_duplicate_gets_the_stored_answer_and_changes_nothing() {
    let (world, store) = (World::new(), Memory::new());
    let asked = request("ann", &json!({"goal": "tidy"}));
    let record = first(&store, &world, &asked).await;
    let duplicate = begin(&store, &asked, change(&world), world.clock.now()).await.unwrap();
    assert_eq!(duplicate, Begun::InFlight(record.clone()));
    let done = record.finish(&json!({"run_id": "run-1"}), world.clock.now(), 60).unwrap();
    store.commit(Tx { updates: vec![done], ..Tx::default() }).await.unwrap();
    match begin(&store, &asked, change(&world), world.clock.now()).await.unwrap() {
        Begun::Done(record) => assert_eq!(record.state, State::Done { answer: json!({"run_id": "run-1"}) }),
        other => panic!("{other:?}"),
    }
    let other = request("ann", &json!({"goal": "mess up"}));
    assert!(matches!(begin(&store, &other, change(&world), world.clock.now()).await, Ok(Begun::Mismatch(_))));
    assert_eq!(store.rows(&AUDIT_LOG_ENTRIES).len(), 1, "the change happened once");
}

#[tokio::test]
async fn of_many_that_begin_at_once_one_changes_something() {
    let (world, store) = (World::new(), Memory::new());
    let asked = request("ann", &json!({"goal": "tidy"}));
    let now = world.clock.now();
    let attempts = (0..20).map(|_| begin(&store, &asked, change(&world), now));
    let results: Vec<Begun> = join_all(attempts).await.into_iter().map(Result::unwrap).collect();
    let firsts = results.iter().filter(|begun| matches!(begun, Begun::First(..))).count();
    let waiting = results.iter().filter(|begun| matches!(begun, Begun::InFlight(_))).count();
    assert_eq!((firsts, waiting), (1, 19));
    assert_eq!(store.rows(&AUDIT_LOG_ENTRIES).len(), 1);
}

#[tokio::test]
async fn of_many_that_take_over_an_expired_record_one_wins() {
    let (world, store) = (World::new(), Memory::new());
    first(&store, &world, &request("ann", &json!({"old": true}))).await;
    world.clock.advance(86_400);
    let (asked, now) = (request("ann", &json!({"goal": "tidy"})), world.clock.now());
    let attempts = (0..20).map(|_| begin(&store, &asked, change(&world), now));
    let results: Vec<Begun> = join_all(attempts).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(results.iter().filter(|begun| matches!(begun, Begun::First(..))).count(), 1);
    assert_eq!(store.rows(&IDEMPOTENCY_RECORDS).len(), 1);
    assert_eq!(store.rows(&AUDIT_LOG_ENTRIES).len(), 2);
}

#[tokio::test]
async fn one_who_was_taken_over_can_not_answer_any_more() {
    let (world, store) = (World::new(), Memory::new());
    let slow = first(&store, &world, &request("ann", &json!({"goal": "tidy"}))).await;
    world.clock.advance(86_400);
    first(&store, &world, &request("ann", &json!({"goal": "tidy"}))).await;
    let late = slow.finish(&json!({}), world.clock.now(), 60).unwrap();
    let result = store.commit(Tx { updates: vec![late], ..Tx::default() }).await;
    assert!(matches!(result, Err(CommitError::Conflict(Conflict::Stale(_)))));
}

#[tokio::test]
async fn owners_do_not_see_each_others_records() {
    let (world, store) = (World::new(), Memory::new());
    first(&store, &world, &request("ann", &json!({"goal": "tidy"}))).await;
    let bob = request("bob", &json!({"goal": "other"}));
    assert_eq!(find(&store, &bob).await.unwrap(), None);
    first(&store, &world, &bob).await;
}

/// CONTENT-123
#[tokio::test]
async fn the_record_and_its_change_are_there_together_or_not_at_all() {
    let (world, store) = (World::new(), Memory::new());
    let asked = request("ann", &json!({"goal": "tidy"}));
    store.set_broken(true);
    let failed = begin(&store, &asked, change(&world), world.clock.now()).await;
    assert!(matches!(failed, Err(LedgerError::Commit(CommitError::Unavailable(_)))));
    store.set_broken(false);
    assert_eq!(find(&store, &asked).await.unwrap(), None);
    let mut impossible = change(&world);
    impossible.steps.push(first(&store, &world, &request("bob", &json!({}))).await.abandon());
    let mut twice = impossible.clone();
    twice.steps.extend(impossible.steps.clone());
    let failed = begin(&store, &asked, twice, world.clock.now()).await;
    assert!(matches!(failed, Err(LedgerError::Commit(CommitError::Conflict(Conflict::Rows { .. })))));
    assert_eq!(find(&store, &asked).await.unwrap(), None, "the key is as free as before");
}

#[tokio::test]
async fn an_abandoned_request_may_be_tried_again() {
    let (world, store) = (World::new(), Memory::new());
    let asked = request("ann", &json!({"goal": "tidy"}));
    let record = first(&store, &world, &asked).await;
    store.commit(Tx { steps: vec![record.abandon()], ..Tx::default() }).await.unwrap();
    first(&store, &world, &asked).await;
}
