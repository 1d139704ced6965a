//! `POST /events` and `GET /events`, and the runs that wait for them.

use super::{code, house, path};
use chimera_core::limits::EVENT_PAYLOAD_BYTES_MAX;
use chimera_testkit::flow::{Air, workflow};
use serde_json::{Value, json};

fn order() -> Air {
    let event = json!({"name": "payment.received", "key": "${inputs.order}"});
    workflow("order").node(json!({"id": "pay", "type": "wait", "event": event}))
}

fn payment(more: &Value) -> Value {
    let mut body = json!({"name": "payment.received", "key": "17", "payload": {"amount": 12}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn an_event_completes_the_run_that_waits_for_it_and_is_listed() {
    let house = house().await;
    house.apply(&order()).await;
    let (_, run) = house.start("order", json!({"inputs": {"order": "17"}})).await;
    house.wait_for_step(&run, "pay", "waiting").await;
    let (_, shown) = house.get(&path(&run, "/steps")).await;
    assert_eq!((&shown["steps"][0]["node_type"], &shown["steps"][0]["status"]), (&json!("wait"), &json!("waiting")));
    let (status, sent) = house.post("/events", payment(&json!({"event_id": "evt_1"}))).await;
    assert_eq!((status, &sent["event_id"], &sent["runs"]), (201, &json!("evt_1"), &json!(1)), "{sent}");
    assert_eq!(sent.get("payload"), None, "{sent}");
    house.until(&run, "completed").await;
    let (_, shown) = house.get(&path(&run, "/steps")).await;
    let outputs = &shown["steps"][0]["outputs"];
    assert_eq!((&outputs["payload"], &outputs["sent_by"]), (&json!({"amount": 12}), &json!("admin")), "{shown}");
    let (status, again) = house.post("/events", payment(&json!({"event_id": "evt_1"}))).await;
    assert_eq!((status, &again), (200, &sent), "published before");
    let (_, listed) = house.get("/events?name=payment.received&key=17").await;
    assert_eq!((listed["items"].as_array().map(Vec::len), &listed["items"][0]), (Some(1), &sent), "{listed}");
    let (_, none) = house.get("/events?key=18").await;
    assert_eq!(none["items"], json!([]));
}

#[tokio::test]
async fn what_is_no_event_is_refused_with_its_place() {
    let house = house().await;
    house.post("/events", payment(&json!({"event_id": "evt_1"}))).await;
    for (more, status, expected, pointer) in [
        (json!({"name": "a b"}), 422, "VALIDATION_FAILED", "/name"),
        (json!({"key": ""}), 422, "VALIDATION_FAILED", "/key"),
        (json!({"ttl_seconds": 0}), 422, "VALIDATION_FAILED", "/ttl_seconds"),
        (json!({"event_id": ""}), 422, "VALIDATION_FAILED", "/event_id"),
        (json!({"event_id": "evt_1", "payload": 7}), 409, "CONFLICT_IDEMPOTENCY", "/event_id"),
        (json!({"payload": "x".repeat(EVENT_PAYLOAD_BYTES_MAX)}), 413, "PAYLOAD_TOO_LARGE", "/payload"),
        (json!({"colour": 1}), 400, "SCHEMA_INVALID", "/colour"),
    ] {
        let (answered, problem) = house.post("/events", payment(&more)).await;
        assert_eq!((answered, code(&problem)), (status, expected), "{problem}");
        if status != 400 {
            assert_eq!(problem["error"]["details"]["pointer"], pointer, "{problem}");
        }
    }
}

/// A retry, a replay and a call under a key start one run each.
#[tokio::test]
async fn a_repetition_under_a_key_starts_one_run() {
    let house = house().await;
    let run = house.run(&chimera_testkit::flow::chain("w", &[("a", "change")]), json!({})).await;
    for (rest, body) in [("/retry", json!({})), ("/replay", json!({"mode": "freeze"}))] {
        let keyed = |more: Value| {
            let mut body = body.clone();
            body["idempotency_key"] = format!("again {rest}").into();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let (status, first) = house.post(&path(&run, rest), keyed(json!({"wait": 15}))).await;
        assert_eq!(status, 200, "{first}");
        let (status, problem) = house.post(&path(&run, rest), keyed(json!({}))).await;
        assert_eq!((status, code(&problem)), (409, "CONFLICT_IDEMPOTENCY"), "{problem}");
        let details = &problem["error"]["details"];
        assert_eq!((&details["run_id"], &details["request_differs"]), (&first["run_id"], &json!(false)), "{rest}");
        let (status, same) = house.post(&path(&run, rest), keyed(json!({"on_duplicate": "return"}))).await;
        assert_eq!(
            (status, &same["run_id"], &same["request_differs"]),
            (200, &first["run_id"], &json!(false)),
            "{same}"
        );
        let other = keyed(json!({"from": "a", "on_duplicate": "return"}));
        let (_, same) = house.post(&path(&run, rest), other).await;
        assert_eq!((&same["run_id"], &same["request_differs"]), (&first["run_id"], &json!(true)), "{same}");
    }
    let called = "/workflows/w/call?idempotency_key=k";
    let (status, first) = house.post(called, json!({})).await;
    assert_eq!(status, 200, "{first}");
    let (status, problem) = house.post(called, json!({})).await;
    assert_eq!((status, code(&problem)), (409, "CONFLICT_IDEMPOTENCY"), "{problem}");
    let (_, runs) = house.get("/runs").await;
    assert_eq!(runs["items"].as_array().map(Vec::len), Some(4), "{runs}");
}
