//! Outcomes of requests under an idempotency key.

use chimera_core::ledger::idempotency::{
    FinishError, IdempotencyRecord, InvalidIdempotencyKey, KeyDecision, KeyOwner, KeyedRequest, RecordState, decide,
};
use chimera_core::ledger::tables::IDEMPOTENCY_RECORDS;
use chimera_core::record::{Insert, Row, Value};
use chimera_core::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

fn ann() -> KeyOwner {
    KeyOwner::User { tenant: "acme".into(), user: "ann".into() }
}

fn request(body: serde_json::Value) -> KeyedRequest {
    KeyedRequest::new(&ann(), "key-1", &body).unwrap().with_resource("run-1")
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(0).plus_seconds(seconds)
}

fn row(insert: &Insert) -> Row {
    let cells = IDEMPOTENCY_RECORDS.columns.iter().map(|column| insert.value(column.name).clone()).collect();
    Row { table: &IDEMPOTENCY_RECORDS, cells }
}

fn begun() -> IdempotencyRecord {
    match decide(None, &request(json!({"a": 1, "b": 2})), at(100)).unwrap() {
        KeyDecision::Fresh(insert, record) => {
            assert_eq!(IdempotencyRecord::from_row(row(&insert)).as_ref(), Ok(&record));
            record
        }
        other => panic!("{other:?}"),
    }
}

fn done() -> IdempotencyRecord {
    IdempotencyRecord { state: RecordState::Done { answer: json!({"run_id": "run-1"}) }, state_version: 2, ..begun() }
}

#[test]
fn the_same_request_is_under_way_until_it_is_answered() {
    let same = request(json!({"b": 2, "a": 1}));
    assert_eq!(decide(Some(begun()), &same, at(200)).unwrap(), KeyDecision::InFlight(begun()));
    assert_eq!(decide(Some(done()), &same, at(200)).unwrap(), KeyDecision::Done(done()));
    assert_eq!(begun().resource_id.as_deref(), Some("run-1"));
}

#[test]
fn another_request_under_the_same_key_is_a_mismatch() {
    for record in [begun(), done()] {
        let other = request(json!({"a": 1, "b": 3}));
        assert_eq!(decide(Some(record.clone()), &other, at(200)).unwrap(), KeyDecision::Mismatch(record));
    }
}

#[test]
fn after_a_day_the_key_is_free_again() {
    let anew = request(json!({"a": "other"}));
    let last = at(100 + 86_400 - 1);
    assert!(matches!(decide(Some(done()), &anew, last), Ok(KeyDecision::Mismatch(_))));
    let Ok(KeyDecision::TakeOver(update, record)) = decide(Some(done()), &anew, at(100 + 86_400)) else { panic!() };
    let version = IDEMPOTENCY_RECORDS.position("state_version").unwrap();
    assert_eq!(update.expect, [(version, Value::Int(2))], "only one of many may take it over");
    assert_eq!((record.state, record.state_version), (RecordState::InFlight, 3));
}

#[test]
fn a_request_may_be_remembered_longer_or_shorter() {
    let short = request(json!({})).with_ttl(10);
    let Ok(KeyDecision::Fresh(_, record)) = decide(None, &short, at(0)) else { panic!() };
    assert_eq!(record.expires_at, at(10));
    assert!(matches!(decide(Some(record), &short, at(10)), Ok(KeyDecision::TakeOver(..))));
}

/// CORE-048
#[test]
fn a_key_has_one_to_256_characters() {
    let with = |key: &str| KeyedRequest::new(&ann(), key, &json!({})).map(|_| ());
    assert_eq!(with(&"ü".repeat(256)), Ok(()));
    for key in [String::new(), "x".repeat(257), "a\0".into()] {
        assert_eq!(with(&key), Err(InvalidIdempotencyKey));
    }
}

#[test]
fn owners_never_share_a_key() {
    let user = |tenant: &str, user: &str| KeyOwner::User { tenant: tenant.into(), user: user.into() }.to_string();
    assert_ne!(user("a:b", "c"), user("a", "b:c"));
    assert_ne!(user("a", "b"), KeyOwner::Effect { tenant: "a:b".into() }.to_string());
    assert_ne!(KeyOwner::Agent(Uuid::from_u128(1)).to_string(), KeyOwner::Agent(Uuid::from_u128(2)).to_string());
}

#[test]
fn an_answer_is_stored_once_and_only_by_the_one_who_holds_the_record() {
    let update = begun().complete(&json!({"ok": true}), at(150), 60).unwrap();
    let version = IDEMPOTENCY_RECORDS.position("state_version").unwrap();
    assert_eq!(update.expect, [(version, Value::Int(1))]);
    assert!(matches!(done().complete(&json!({}), at(150), 60), Err(FinishError::Done)));
}

/// INTENT-069
#[test]
fn a_request_whose_answer_is_known_before_is_done_from_the_start() {
    let answer = json!({"status": "accepted", "result": {"run_id": "run-1"}});
    let answered = request(json!({"a": 1})).with_answer(answer.clone());
    let KeyDecision::Fresh(insert, record) = decide(None, &answered, at(0)).unwrap() else { panic!() };
    assert_eq!(record.state, RecordState::Done { answer: answer.clone() });
    assert_eq!(IdempotencyRecord::from_row(row(&insert)).as_ref(), Ok(&record));
    assert_eq!(decide(Some(record.clone()), &answered, at(1)).unwrap(), KeyDecision::Done(record.clone()));
    let KeyDecision::TakeOver(update, again) = decide(Some(record), &answered, at(200_000)).unwrap() else { panic!() };
    assert_eq!(again.state, RecordState::Done { answer });
    assert!(update.set.iter().any(|(at, _)| IDEMPOTENCY_RECORDS.columns[*at].name == "answer"));
}
