//! Where two people must look, one with two entries is one: people with one mail address are the same person.

use super::access_server::{AccessServer, ApiResponse, entry, porch_with};
use chimera_core::access::ActorEntry;
use chimera_testkit::access::settings;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{TENANT, approval_link, id_of, workflow};
use reqwest::Method;
use serde_json::{Value, json};

fn reached(id: &str, scopes: &[&str], mail: &str) -> ActorEntry {
    ActorEntry { notify: Some(json!({"email": mail})), ..entry(id, scopes) }
}

/// A registry from before that holds people with one address.
async fn house() -> AccessServer {
    let people = vec![
        reached("user_ann", &["notion.*", "approvals.decide"], "ann@acme.example"),
        reached("user_1", &["approvals.decide"], "Ann A. <ANN@acme.example>"),
        reached("user_123", &["approvals.decide"], "ann+x@acme.example"),
        reached("user_bob", &["approvals.decide"], "bob@acme.example"),
        entry("user_eve", &["workflows.write"]),
    ];
    porch_with(settings(TENANT, people), None).await
}

async fn waits(porch: &AccessServer, demanded: Value) -> Value {
    let node =
        json!({"id": "a", "type": "function", "fn": "notion.note", "inputs": {"n": 1}, "requires_approval": demanded});
    porch.house.stage.apply_as("user_eve", &workflow("strict").node(node)).await;
    let waiting = porch
        .act("user_ann", json!({"workflow_id": "strict", "inputs": {}, "notify": {"email": "ann@acme.example"}}))
        .await;
    assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
    waiting.body
}

async fn decides(porch: &AccessServer, who: &str, run: &Value, decision: &str) -> ApiResponse {
    let url = run["approve_url"].as_str().unwrap();
    porch.ask(who, Method::POST, url, json!({"decision": decision})).await
}

#[tokio::test]
async fn whoever_has_the_address_of_the_requester_is_no_second_pair_of_eyes() {
    let porch = house().await;
    let run = waits(&porch, json!({"other_than_requester": true})).await;
    for decision in ["approve", "reject", "request_changes"] {
        let told = decides(&porch, "user_1", &run, decision).await;
        assert_eq!((told.status, told.code()), (403, "RBAC_FORBIDDEN"), "{told:?}");
        assert_eq!(told.detail("reason"), "same_as_requester");
    }
    let sent = porch.house.stage.rows_of(&chimera_core::flow::tables::NOTIFICATIONS, id_of(&run["run_id"]));
    let linked: Vec<&str> =
        sent.iter().filter(|row| approval_link(row).is_some()).map(|row| row.text("target")).collect();
    assert_eq!(linked, ["ann+x@acme.example", "bob@acme.example"], "who may decide has a link");
    assert_eq!(decides(&porch, "user_123", &run, "approve").await.status, 200, "another address is another person");
    porch.house.until(&run, "completed").await;
}

/// Whoever asked reads that they can't decide, and who can.
#[tokio::test]
async fn the_requester_is_told_that_somebody_else_decides() {
    let porch = house().await;
    let run = waits(&porch, json!({"other_than_requester": true})).await;
    let sent = porch.house.stage.rows_of(&chimera_core::flow::tables::NOTIFICATIONS, id_of(&run["run_id"]));
    let told = |to: &str| {
        let row = sent.iter().find(|row| row.text("target") == to).expect("they are told");
        row.get("payload").as_json().unwrap().value().unwrap()["data"].clone()
    };
    let (own, other) = (told("ann@acme.example"), told("bob@acme.example"));
    assert_eq!((&own["not_decider"], &own["link"]), (&json!("requester"), &Value::Null), "{own}");
    assert_eq!(own["decided_by"], "a person with the scope approvals.decide other than user_ann, user_eve");
    assert_eq!((&other["not_decider"], &other["decided_by"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn two_votes_of_one_address_are_one() {
    let porch = house().await;
    let run = waits(&porch, json!({"approvals_needed": 2})).await;
    let first = decides(&porch, "user_1", &run, "approve").await;
    assert_eq!((first.status, &first.body["approval_status"]), (200, &json!("pending")), "{first:?}");
    let again = decides(&porch, "user_ann", &run, "approve").await;
    assert_eq!((again.status, again.code()), (409, "INVALID_TRANSITION"), "{again:?}");
    assert_eq!(porch.asked("notion.note").count("execute"), 0);
    let other = decides(&porch, "user_bob", &run, "approve").await;
    assert_eq!((other.status, &other.body["approval_status"]), (200, &json!("approved")), "{other:?}");
    porch.house.until(&run, "completed").await;
}

#[tokio::test]
async fn nobody_is_registered_with_the_address_of_another() {
    let porch = house().await;
    let put = async |id: &str, mail: &str| {
        let body = json!({"scopes": ["approvals.decide"], "notify": {"email": mail}});
        porch.ask("admin", Method::PUT, &format!("/actors/{id}"), body).await
    };
    for taken in ["bob@acme.example", "BOB@acme.example"] {
        let told = put("user_new", taken).await;
        assert_eq!((told.status, told.code()), (422, "VALIDATION_FAILED"), "{taken}: {told:?}");
        assert_eq!((told.detail("pointer"), told.detail("reason")), (&json!("/notify/email"), &json!("address_taken")));
    }
    assert_eq!(put("user_new", "bob+new@acme.example").await.status, 200);
    assert_eq!(put("user_new", "bob@acme.example").await.status, 422, "nor is one given it later");
    assert_eq!(put("user_1", "ann@acme.example").await.status, 200, "who shared it before is changed in other ways");
    assert_eq!(put("service_new", "bob@acme.example").await.status, 200, "a service is told where its owner is");
}
