//! A removed name may be given to somebody else, and nothing that was said or asked for under it before is theirs.

use super::porch::{AccessServer, entry, harmless, porch_with};
use chimera_testkit::access::{key_of, settings};
use chimera_testkit::flow::{TENANT, workflow};
use reqwest::Method;
use serde_json::{Value, json};

async fn house() -> AccessServer {
    let people =
        vec![entry("user_ann", &["notion.*"]), entry("user_bob", &["approvals.decide"]), entry("user_eve", &[])];
    porch_with(settings(TENANT, people), None).await
}

/// Registers somebody as `user_zed`, with a key.
async fn registered(porch: &AccessServer, scopes: &[&str]) {
    let put = porch
        .ask("admin", Method::PUT, "/actors/user_zed", json!({"scopes": scopes, "autonomy_level": "L1_Draft"}))
        .await;
    assert_eq!(put.status, 200, "{put:?}");
    let made = porch.ask("admin", Method::POST, "/actors/user_zed/keys", json!({"hmac_key": key_of("user_zed")})).await;
    assert_eq!(made.status, 201, "{made:?}");
}

/// Somebody else is `user_zed` now.
async fn replaced(porch: &AccessServer, scopes: &[&str]) {
    porch.clock.wait(1);
    assert_eq!(porch.ask("admin", Method::DELETE, "/actors/user_zed", Value::Null).await.status, 200);
    registered(porch, scopes).await;
}

async fn asked(porch: &AccessServer, demanded: Value) -> Value {
    let node =
        json!({"id": "a", "type": "function", "fn": "notion.note", "inputs": {"n": 1}, "requires_approval": demanded});
    porch.house.stage.apply_as("user_eve", &workflow("strict").node(node)).await;
    let waiting = porch.act("user_ann", json!({"workflow_id": "strict", "inputs": {}})).await;
    assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
    waiting.body
}

async fn approves(porch: &AccessServer, who: &str, run: &Value) -> (u16, Value) {
    let url = run["approve_url"].as_str().unwrap();
    let answer = porch.ask(who, Method::POST, url, json!({"decision": "approve"})).await;
    (answer.status, answer.body["approval_status"].clone())
}

#[tokio::test]
async fn the_vote_of_an_earlier_holder_of_a_name_does_not_count_for_the_next() {
    let porch = house().await;
    registered(&porch, &["approvals.decide"]).await;
    let run = asked(&porch, json!({"approvals_needed": 2})).await;
    assert_eq!(approves(&porch, "user_zed", &run).await, (200, json!("pending")));
    replaced(&porch, &["approvals.decide"]).await;
    assert_eq!(approves(&porch, "user_bob", &run).await, (200, json!("pending")), "whoever voted as zed is gone");
    assert_eq!(
        approves(&porch, "user_zed", &run).await,
        (200, json!("approved")),
        "the new one has a vote of their own"
    );
    porch.house.until(&run, "completed").await;
}

#[tokio::test]
async fn what_an_earlier_holder_approved_is_asked_about_again_when_it_is_about_to_be_done() {
    let porch = house().await;
    registered(&porch, &["approvals.decide"]).await;
    let run = asked(&porch, json!({})).await;
    let path = |what: &str| crate::flow::path(&run, what);
    assert_eq!(porch.ask("user_ann", Method::POST, &path("/pause"), json!({})).await.status, 202);
    assert_eq!(approves(&porch, "user_zed", &run).await, (200, json!("approved")));
    replaced(&porch, &["approvals.decide"]).await;
    assert_eq!(porch.ask("user_ann", Method::POST, &path("/resume"), json!({})).await.status, 202);
    porch.house.until(&run, "awaiting_approval").await;
    assert_eq!(porch.asked("notion.note").count("execute"), 0);
    let shown = porch.get("user_ann", &path("")).await.body;
    let asked = shown["approvals"][0].to_string();
    assert!(asked.contains("user_zed approved this and may not decide any more"), "{shown}");
    let again = json!({"decision": "approve", "digest": shown["approvals"][0]["digest"]});
    let answer = porch.ask("user_zed", Method::POST, run["approve_url"].as_str().unwrap(), again).await;
    assert_eq!((answer.status, &answer.body["approval_status"]), (200, &json!("approved")), "{answer:?}");
    porch.house.until(&run, "completed").await;
}

/// Registering somebody who had a key already, disabling them and letting them in again makes them nobody else.
#[tokio::test]
async fn who_is_registered_disabled_and_enabled_stays_who_they_were() {
    let porch = house().await;
    let made = porch.ask("admin", Method::POST, "/actors/user_zed/keys", json!({"hmac_key": key_of("user_zed")})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let draft = porch.act("user_zed", json!({"steps": harmless()})).await.body;
    porch.clock.wait(1);
    for disabled in [true, false] {
        let entry = json!({"scopes": ["local.summarize"], "disabled": disabled, "autonomy_level": "L1_Draft"});
        assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_zed", entry).await.status, 200);
    }
    assert_eq!(approves(&porch, "user_zed", &draft).await.0, 200, "their own draft");
}

#[tokio::test]
async fn the_drafts_of_an_earlier_holder_are_not_the_next_ones_to_decide() {
    let porch = house().await;
    registered(&porch, &["local.summarize"]).await;
    let draft = porch.act("user_zed", json!({"steps": harmless()})).await.body;
    assert_eq!(draft["status"], "awaiting_approval", "{draft}");
    replaced(&porch, &["local.summarize"]).await;
    assert_eq!(approves(&porch, "user_zed", &draft).await.0, 403);
    let own = porch.act("user_zed", json!({"steps": harmless()})).await.body;
    assert_eq!(approves(&porch, "user_zed", &own).await.0, 200);
}
