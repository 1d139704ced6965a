//! The specification as a whole: one request covers its ten areas, and none of its stubs is left.

use super::access_server::{harmless, porch, porch_with, sent};
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_engine::access::port::Counters;
use chimera_storage::Redis;
use chimera_storage::counter::RedisCounters;
use chimera_testkit::access::settings;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::TENANT;
use chimera_testkit::redis::PrivateRedis;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;

/// CORE-143
#[tokio::test]
async fn one_request_meets_all_ten_areas() {
    let porch = porch().await;
    let body = json!({"steps": [{"tool": "notion.note", "input": {"n": 1}}], "autonomy_level": "L1_Draft",
        "idempotency_key": "k"});
    let known = porch.get("n8n_workflow_1", "/actors/n8n_workflow_1").await.body;
    assert_eq!(known["matched"], "n8n_workflow_*", "actors");
    let draft = porch.act("n8n_workflow_1", body.clone()).await;
    assert_eq!((draft.status, &draft.body["autonomy_level"]), (200, &json!("L1_Draft")), "autonomy: {draft:?}");
    assert_eq!(draft.body["dry_run_results"][0]["status"], "dry_run", "dry run");
    assert_eq!(draft.number("x-ratelimit-remaining"), 59, "rate");
    assert_eq!(porch.act("n8n_workflow_1", body.clone()).await.status, 409, "idempotency");
    let abroad = json!({"steps": [{"tool": "local.forbidden", "input": {}}, {"tool": "notion.search", "input": {}}]});
    assert_eq!(porch.act("user_ann", abroad).await.status, 403, "scopes");
    let unsigned = porch.request("n8n_workflow_1", Method::POST, "/act", &body).header("x-hmac-signature", "00");
    assert_eq!(sent(unsigned).await.status, 401, "security");
    let trace = draft.body["trace_id"].as_str().unwrap();
    assert!(draft.header("traceparent").contains(trace), "tracing: {draft:?}");
    let decide = json!({"decision": "approve"});
    assert_eq!(porch.ask("admin", Method::POST, draft.body["approve_url"].as_str().unwrap(), decide).await.status, 200);
    porch.house.until(&draft.body, "completed").await;
    let undo = porch.ask("admin", Method::POST, &crate::flow::path(&draft.body, "/rollback"), json!({})).await;
    assert_eq!(undo.status, 202, "rollback: {undo:?}");
    porch.house.until(&draft.body, "rolled_back").await;
    let entries = porch.house.stage.rows(&AUDIT_LOG_ENTRIES);
    let told = |event: &str| entries.iter().any(|row| row.text("event_type") == event);
    assert!(told("run.completed") && told("run.rolled_back") && told("access.refused"), "audit");
}

/// CORE-144
#[tokio::test]
async fn none_of_the_document_s_stubs_is_left() {
    let server = PrivateRedis::start();
    let redis: Arc<dyn Counters> = Arc::new(RedisCounters::new(Redis::new(&server.url()).unwrap()));
    let porch = porch_with(settings(TENANT, Vec::new()), Some(redis)).await;
    porch.clock.stand();
    let keyed = json!({"steps": harmless(), "idempotency_key": "k"});
    let first = porch.act("user_123", keyed.clone()).await;
    assert_eq!(server.ask(&["SET", "idempotency:k", "another", "NX"]), "", "the key is claimed once");
    assert_eq!(porch.act("user_123", keyed).await.detail("run_id"), &first.body["run_id"]);
    let score = async |text: &str| {
        let steps = json!([{"tool": "local.summarize", "input": {"text": text}}]);
        porch.act("user_123", json!({"steps": steps})).await.body["risk"]["score"].as_i64().unwrap()
    };
    assert!(score("DROP TABLE users; ann@example.com").await > score("One. Two.").await, "risk is scored");
    let matched = async |id: &str| porch.get("admin", &format!("/actors/{id}")).await.body["matched"].clone();
    assert_eq!((matched("user_9").await, matched("superuser_9").await), (json!("user_*"), Value::Null));
    let start = porch.now().div_euclid(60) * 60;
    assert_eq!(server.ask(&["GET", &format!("rate_limit:user_123:{start}")]), "4", "the window is in Redis");
    let given = porch.sign_in("user_123", "n").await.body;
    let next = porch.post("user_123", "/auth/refresh", &json!({"refresh_token": given["refresh_token"]})).await;
    assert_eq!(next.status, 200, "tokens are refreshed: {next:?}");
    let token = json!({"token": next.body["access_token"]});
    assert_eq!(porch.ask("user_123", Method::POST, "/auth/revoke", token).await.status, 200);
    assert!(server.ask(&["KEYS", "revoked:*"]).starts_with("revoked:"), "revoked tokens are listed");
}
