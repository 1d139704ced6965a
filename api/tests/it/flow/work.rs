//! Workers over HTTP: claim, renew, complete, fail, and the list.

use super::{FlowServer, NOTHING, code, furnished, setup};
use chimera_api::Edge;
use chimera_core::access::ActorEntry;
use chimera_core::limits::RATE_HITS_MAX;
use chimera_core::tool::EffectKind;
use chimera_testkit::access::{everybody, settings};
use chimera_testkit::flow::{ScriptedTool, TENANT, chain};
use reqwest::Method;
use serde_json::{Value, json};

/// The worker, and a service that is none.
const WORKER: &str = "n8n_workflow_1";
const OTHER: &str = "agent_x";

async fn desk() -> FlowServer {
    let tool = ScriptedTool::new("stamp", EffectKind::Write).by_workers("desk", 60).with_declaration(|declared| {
        declared.timeout_ms = 3_600_000;
        declared.output = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    });
    let stage = setup().tool(tool.build()).open().await;
    let plain = |id: &str| ActorEntry { quota_per_minute: RATE_HITS_MAX, ..ActorEntry::default_for(id, TENANT) };
    let worker = ActorEntry { scopes: vec!["work.claim.desk".to_owned()], ..plain(WORKER) };
    let entries = everybody(TENANT).into_iter().chain([worker, plain(OTHER)]).collect();
    let access = super::front(&stage, settings(TENANT, entries)).await;
    let flow = stage.flow.clone();
    let mut server = furnished(setup().unkept(), |edge: Edge| edge.with_flow(flow).with_actions(access)).await;
    server.stage = stage;
    server
}

async fn started(desk: &FlowServer) -> Value {
    desk.apply(&chain("w", &[("a", "stamp")])).await;
    let (status, run) = desk.start("w", json!({})).await;
    assert_eq!(status, 202, "{run}");
    run
}

async fn work(desk: &FlowServer, what: &str, body: Value) -> (u16, Value) {
    desk.ask_as(WORKER, Method::POST, &format!("/work/{what}"), body).await
}

fn report(claimed: &Value, more: Value) -> Value {
    let mut body = json!({"item_id": claimed["id"], "lease_token": claimed["lease_token"]});
    more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
    body
}

async fn claim(desk: &FlowServer) -> Value {
    let (status, answer) = work(desk, "claim", json!({"queue": "desk", "wait_seconds": 10, "worker": "box-7"})).await;
    assert_eq!((status, answer["items"].as_array().map(Vec::len)), (200, Some(1)), "{answer}");
    answer["items"][0].clone()
}

#[tokio::test]
async fn a_worker_claims_renews_and_completes_a_call() {
    let desk = desk().await;
    let run = started(&desk).await;
    desk.wait_for_step(&run, "a", "running").await;
    let (_, queued) = desk.get("/work").await;
    assert_eq!(queued["items"][0]["queue"], "desk", "{queued}");
    let claimed = claim(&desk).await;
    assert_eq!((&claimed["tool"], &claimed["input"]), (&json!("stamp"), &json!({"n": "a"})), "{claimed}");
    let (_, held) = desk.get("/work?state=claimed&queue=desk").await;
    assert_eq!((&held["items"][0]["claimed_by"], &held["items"][0]["worker"]), (&json!(WORKER), &json!("box-7")));
    assert!(!held.to_string().contains(claimed["lease_token"].as_str().unwrap()), "{held}");
    let (_, steps) = desk.get(&super::path(&run, "/steps")).await;
    assert_eq!(steps["steps"][0]["elsewhere"]["item"]["worker"], "box-7", "{steps}");
    let (status, renewed) = work(&desk, "renew", report(&claimed, json!({}))).await;
    assert_eq!((status, &renewed["cancelled"]), (200, &json!(false)), "{renewed}");
    let (status, refused) = work(&desk, "complete", report(&claimed, json!({"output": {"n": "x"}}))).await;
    assert_eq!((status, code(&refused)), (422, "VALIDATION_FAILED"), "{refused}");
    for _ in 0..2 {
        let (status, done) = work(&desk, "complete", report(&claimed, json!({"output": {"n": 7}}))).await;
        assert_eq!((status, &done["recorded"]), (200, &json!(true)), "{done}");
    }
    desk.until(&run, "completed").await;
    let (status, refused) = work(&desk, "renew", report(&claimed, json!({}))).await;
    assert_eq!((status, code(&refused)), (409, "LEASE_LOST"), "{refused}");
}

#[tokio::test]
async fn a_failed_call_comes_back_and_a_wrong_code_is_refused() {
    let desk = desk().await;
    let run = started(&desk).await;
    let claimed = claim(&desk).await;
    let (status, refused) = work(&desk, "fail", report(&claimed, json!({"message": "x", "code": "NOPE"}))).await;
    assert_eq!((status, code(&refused)), (422, "VALIDATION_FAILED"), "{refused}");
    let failed = json!({"message": "no paper", "code": "EXTERNAL_SERVICE_UNAVAILABLE", "sent": "no"});
    assert_eq!(work(&desk, "fail", report(&claimed, failed)).await.0, 200);
    let again = claim(&desk).await;
    assert_eq!((&again["attempt"], &again["idempotency_key"]), (&json!(2), &claimed["idempotency_key"]));
    let unclear = json!({"message": "it hangs"});
    assert_eq!(work(&desk, "fail", report(&again, unclear)).await.0, 200);
    desk.wait_for_step(&run, "a", "outcome_unknown").await;
}

#[tokio::test]
async fn whoever_has_not_the_scope_of_the_queue_gets_nothing() {
    let desk = desk().await;
    started(&desk).await;
    let claimed = claim(&desk).await;
    let (status, refused) = desk.ask_as(OTHER, Method::POST, "/work/claim", json!({"queue": "desk"})).await;
    assert_eq!((status, code(&refused)), (403, "RBAC_FORBIDDEN"));
    assert_eq!(refused["error"]["details"]["required_scope"], "work.claim.desk");
    for (what, more) in [("renew", json!({})), ("complete", json!({"output": {}})), ("fail", json!({"message": "no"}))]
    {
        let body = report(&claimed, more);
        let (status, refused) = desk.ask_as(OTHER, Method::POST, &format!("/work/{what}"), body).await;
        assert_eq!((status, code(&refused)), (403, "RBAC_FORBIDDEN"), "{what}: {refused}");
    }
    let (status, refused) = work(&desk, "claim", json!({"queue": "other"})).await;
    assert_eq!((status, code(&refused)), (403, "RBAC_FORBIDDEN"), "{refused}");
    assert_eq!(desk.ask_as(WORKER, Method::GET, "/work", NOTHING).await.0, 403);
    assert_eq!(work(&desk, "claim", json!({"queue": "desk", "limit": 0})).await.0, 422);
    assert_eq!(work(&desk, "claim", json!({"queue": "desk", "more": 1})).await.0, 400);
}
