//! Two nodes on one store, of which one has not read yet what the other has changed: what they promise together holds.

use super::access_server::{AccessServer, ApiResponse, entry, porch_with};
use chimera_core::access::ActorEntry;
use chimera_core::access::tables::{ACTOR_KEYS, ACTORS};
use chimera_core::flow::tables::NOTIFICATIONS;
use chimera_core::limits::ACTOR_KEYS_MAX;
use chimera_testkit::access::settings;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{TENANT, approval_link, id_of, workflow};
use reqwest::Method;
use serde_json::{Value, json};

fn people() -> Vec<ActorEntry> {
    let bob = entry("user_bob", &["approvals.decide"]);
    vec![
        ActorEntry { notify: Some(json!({"email": "bob@acme.example"})), ..bob },
        entry("user_ann", &["notion.*"]),
        entry("user_eve", &["workflows.write"]),
    ]
}

/// Two nodes that do not tell each other about changes.
async fn nodes() -> (AccessServer, AccessServer) {
    let one = porch_with(settings(TENANT, people()), None).await;
    let other = one.second_node(settings(TENANT, people()), None).await;
    (one, other)
}

async fn put(node: &AccessServer, id: &str, mail: &str) -> ApiResponse {
    let body = json!({"scopes": ["approvals.decide"], "notify": {"email": mail}});
    node.ask("admin", Method::PUT, &format!("/actors/{id}"), body).await
}

/// A run of user_ann that somebody else has to approve.
async fn waits(node: &AccessServer) -> Value {
    let demanded = json!({"other_than_requester": true});
    let call =
        json!({"id": "a", "type": "function", "fn": "notion.note", "inputs": {"n": 1}, "requires_approval": demanded});
    node.house.stage.apply_as("user_eve", &workflow("strict").node(call)).await;
    let waiting = node.act("user_ann", json!({"workflow_id": "strict", "inputs": {}})).await;
    assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
    waiting.body
}

/// The path of the link that was mailed to an address.
fn link(node: &AccessServer, run: &Value, mail: &str) -> String {
    let sent = node.house.stage.rows_of(&NOTIFICATIONS, id_of(&run["run_id"]));
    let row = sent.iter().find(|row| row.text("target") == mail).expect("they are told");
    let link = approval_link(row).expect("a link");
    node.house.server.url(&link[link.find("/approvals/").unwrap()..])
}

/// Opens a link and approves with it.
async fn open_and_approve(node: &AccessServer, link: &str, run: &Value) -> [u16; 2] {
    let client = &node.house.client;
    let opened = client.get(link).send().await.unwrap().status().as_u16();
    let form = format!("decision=approve&digest={}", run["approvals"][0]["digest"].as_str().unwrap());
    let request = client.post(link).header("content-type", "application/x-www-form-urlencoded");
    [opened, request.body(form).send().await.unwrap().status().as_u16()]
}

#[tokio::test]
async fn a_link_that_is_written_while_the_address_changes_ends_with_the_address() {
    let (one, other) = nodes().await;
    assert_eq!(put(&other, "user_bob", "bob@new.example").await.status, 200);
    let run = waits(&one).await;
    let old = link(&one, &run, "bob@acme.example");
    assert_eq!(open_and_approve(&one, &old, &run).await, [410, 410], "the old address decides nothing");
    assert_eq!(one.effects(), 0);
    one.directory.refresh().await.unwrap();
    let again = waits(&one).await;
    let new = link(&one, &again, "bob@new.example");
    assert_eq!(open_and_approve(&one, &new, &again).await, [200, 200]);
    one.house.until(&again, "completed").await;
    assert_eq!(open_and_approve(&one, &old, &run).await, [410, 410]);
}

#[tokio::test]
async fn a_link_stays_when_its_address_is_only_spelled_differently() {
    let (one, other) = nodes().await;
    let run = waits(&one).await;
    let link = link(&one, &run, "bob@acme.example");
    assert_eq!(put(&other, "user_bob", "Bob@acme.example").await.status, 200);
    assert_eq!(open_and_approve(&one, &link, &run).await, [200, 200]);
}

#[tokio::test]
async fn of_two_people_who_are_registered_with_one_address_at_once_one_is_refused() {
    let (one, other) = nodes().await;
    assert_eq!(put(&one, "user_x", "x@acme.example").await.status, 200);
    let told = put(&other, "user_y", "x@acme.example").await;
    assert_eq!((told.status, told.detail("reason")), (422, &json!("address_taken")), "{told:?}");
    let (a, b, c, d) = tokio::join!(
        put(&one, "user_a", "same@acme.example"),
        put(&other, "user_b", "same@acme.example"),
        put(&one, "user_c", "same@acme.example"),
        put(&other, "user_d", "same@acme.example"),
    );
    let mut statuses = [a.status, b.status, c.status, d.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 422, 422, 422]);
    assert_eq!(one.house.stage.rows(&ACTORS).len(), 2);
}

#[tokio::test]
async fn an_actor_never_has_more_keys_than_the_limit() {
    let (one, other) = nodes().await;
    let add =
        async |node: &AccessServer| node.ask("admin", Method::POST, "/actors/user_ann/keys", json!({})).await.status;
    let before = one.get("admin", "/actors/user_ann").await.body["keys"].as_u64().unwrap();
    for _ in before..ACTOR_KEYS_MAX as u64 {
        assert_eq!(add(&one).await, 201);
    }
    assert_eq!(add(&other).await, 422, "the other node had not read them yet");
    assert_eq!(one.house.stage.rows(&ACTOR_KEYS).len(), ACTOR_KEYS_MAX);
}
