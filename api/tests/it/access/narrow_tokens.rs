//! A narrowed token can't bypass its scopes indirectly, and access ends when an actor loses it.

use super::access_server::{AccessServer, ApiResponse, entry, porch, porch_with, sent};
use crate::flow::{NOTHING, path};
use chimera_core::access::{ActorEntry, Level};
use chimera_core::limits::ACTOR_SCOPES_MAX;
use chimera_testkit::access::settings;
use chimera_testkit::flow::{TENANT, workflow};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::time::Duration;

/// A request of an actor with a token that is narrower than they are.
async fn narrow(porch: &AccessServer, actor: &str, scopes: &[&str], path: &str, body: Value) -> ApiResponse {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    let token = porch.token_with(actor, |claims| claims.scopes = Some(scopes));
    let request = porch.house.client.post(porch.house.server.url(path)).bearer_auth(token);
    sent(crate::flow::signed(request, porch.house.stage.world.clock.now(), actor, &body)).await
}

#[tokio::test]
async fn a_token_that_no_request_would_accept_for_its_many_scopes_is_not_issued() {
    let porch = porch().await;
    let many = |name: fn(usize) -> String| (0..=ACTOR_SCOPES_MAX).map(name).collect::<Vec<_>>();
    let ask = |nonce, scopes| json!({"actor": "admin", "issued_at": porch.now(), "nonce": nonce, "scopes": scopes});
    let refused = porch.post("admin", "/auth/token", &ask("n", many(|n| format!("a.b{n}")))).await;
    assert_eq!((refused.status, refused.code()), (422, "VALIDATION_FAILED"), "{refused:?}");
    assert_eq!(refused.detail("pointer"), "/scopes");
    let given = porch.post("admin", "/auth/token", &ask("m", many(|_| "runs.read".to_owned()))).await;
    assert_eq!(given.body["scopes"], json!(["runs.read"]), "the same scope counts once: {given:?}");
}

/// A tool's name as a scope grants no more than the wildcard that it was taken from, in a token or for somebody else.
#[tokio::test]
async fn nobody_gets_more_from_the_name_of_a_tool_than_from_the_wildcard_over_it() {
    let manager = entry("user_bob", &["desk.*", "actors.write"]);
    let bob = ActorEntry { level: Some(Level::Draft), quota_per_minute: 30, ..manager };
    let porch = porch_with(settings(TENANT, vec![bob]), None).await;
    let refund = json!({"steps": [{"tool": "desk.refund", "input": {"n": 1}}]});
    let robot = json!({"scopes": ["desk.refund"], "quota_per_minute": 10, "autonomy_level": "L0_Ask"});
    let made = porch.ask("user_bob", Method::PUT, "/actors/service_bot", robot).await;
    assert_eq!(made.status, 200, "{made:?}");
    for refused in [
        porch.act("user_bob", refund.clone()).await,
        narrow(&porch, "user_bob", &["desk.refund"], "/act", refund.clone()).await,
        porch.act("service_bot", refund.clone()).await,
    ] {
        assert_eq!((refused.status, refused.code()), (403, "RBAC_FORBIDDEN"), "{refused:?}");
        assert_eq!(refused.detail("required_scope"), "billing.refunds.create");
    }
}

/// Undoing a call is a call.
#[tokio::test]
async fn a_rollback_takes_the_scopes_of_the_tools_that_it_calls() {
    let manager = entry("user_bob", &["runs.manage"]);
    let porch = porch_with(settings(TENANT, vec![manager]), None).await;
    let steps = json!([{"tool": "notion.note", "input": {"n": 1}}]);
    let done = porch.act("n8n_workflow_1", json!({"steps": steps, "wait": 15})).await.body;
    porch.house.until(&done, "completed").await;
    let undo = path(&done, "/rollback");
    let own = narrow(&porch, "n8n_workflow_1", &["local.summarize"], &undo, json!({})).await;
    let manages = porch.ask("user_bob", Method::POST, &undo, json!({})).await;
    let steps = porch.get("admin", &path(&done, "/steps")).await.body;
    let one = json!({"step_ids": [steps["steps"][0]["step_id"]]});
    let part = narrow(&porch, "n8n_workflow_1", &["local.summarize"], &undo, one).await;
    for refused in [own, manages, part] {
        assert_eq!((refused.status, refused.code()), (403, "RBAC_FORBIDDEN"), "{refused:?}");
        assert_eq!(refused.detail("tool"), "notion.note");
    }
    assert_eq!(porch.asked("notion.note").count("rollback"), 0);
    assert_eq!(porch.ask("n8n_workflow_1", Method::POST, &undo, json!({})).await.status, 202);
    porch.house.until(&done, "rolled_back").await;
}

#[tokio::test]
async fn a_rollback_takes_the_scopes_of_the_runs_inside() {
    let manager = entry("user_bob", &["runs.manage"]);
    let porch = porch_with(settings(TENANT, vec![manager]), None).await;
    porch.house.stage.apply(&workflow("writes").function("w", "notion.note", json!({"n": 1}))).await;
    porch.house.stage.apply(&workflow("outer").child("c", "writes", json!({}))).await;
    let ask = json!({"workflow_id": "outer", "inputs": {}, "wait": 15});
    let done = porch.act("n8n_workflow_1", ask).await.body;
    porch.house.until(&done, "completed").await;
    let refused = porch.ask("user_bob", Method::POST, &path(&done, "/rollback"), json!({})).await;
    assert_eq!((refused.status, refused.detail("tool")), (403, &json!("notion.note")), "{refused:?}");
}

/// `scopes.strict` switches off what a scope grants beyond its own words, in lists too.
#[tokio::test]
async fn a_strict_registry_lists_and_lets_through_the_same_tools() {
    for (strict, tools, status) in [(false, 1, 200), (true, 0, 403)] {
        let by_name = entry("user_bob", &["notion.note"]);
        let settings = chimera_engine::access::Settings { strict_scopes: strict, ..settings(TENANT, vec![by_name]) };
        let porch = porch_with(settings, None).await;
        let listed = porch.get("user_bob", "/tools").await.body;
        assert_eq!(listed["items"].as_array().unwrap().len(), tools, "strict {strict}: {listed}");
        let ask = json!({"steps": [{"tool": "notion.note", "input": {"n": 1}}], "dry_run": true});
        assert_eq!(porch.act("user_bob", ask).await.status, status, "strict {strict}");
    }
}

/// Who changes or allows another's call is judged as strictly as who asks for it.
#[tokio::test]
async fn a_strict_registry_counts_for_edits_patches_and_approvals() {
    for (strict, edited, patched, approved) in [(false, 202, 202, 200), (true, 403, 403, 403)] {
        let bob = entry("user_bob", &["runs.manage", "runs.read", "notion.note"]);
        let bob = ActorEntry { level: Some(Level::ExecuteNotify), ..bob };
        let entries = vec![bob, entry("user_ann", &["notion.*"])];
        let settings = chimera_engine::access::Settings { strict_scopes: strict, ..settings(TENANT, entries) };
        let porch = porch_with(settings, None).await;
        let draft = async |actor: &str| {
            let steps = json!([{"tool": "notion.note", "input": {"n": 1}}]);
            porch.act(actor, json!({"steps": steps, "autonomy_level": "L1_Draft"})).await.body
        };
        let run = draft("n8n_workflow_1").await;
        let edit = json!({"input": {"n": 2}});
        let edit = porch.ask("user_bob", Method::POST, &path(&run, "/steps/s1/edit"), edit).await;
        assert_eq!(edit.status, edited, "strict {strict}: {edit:?}");
        let patch = json!({
            "patch_version": "0.1", "justification": "one more note",
            "add_nodes": [{"id": "extra", "type": "function", "fn": "notion.note", "inputs": {"n": 9}}],
            "add_edges": [{"from": "review", "to": "extra"}],
        });
        let run = waiting(&porch).await;
        let patch = porch.ask("user_bob", Method::POST, &path(&run, "/patch"), json!({"patch": patch})).await;
        assert_eq!(patch.status, patched, "strict {strict}: {patch:?}");
        let decision = json!({"decision": "approve"});
        let own = path(&draft("user_ann").await, "/approve");
        let approve = narrow(&porch, "user_ann", &["notion.note"], &own, decision).await;
        assert_eq!(approve.status, approved, "strict {strict}: {approve:?}");
    }
}

/// Answering a question, or letting a paused run go on, lets what comes behind happen.
#[tokio::test]
async fn a_narrow_token_lets_no_run_go_on_that_it_could_not_ask_for() {
    let porch = porch_with(settings(TENANT, vec![entry("user_ann", &["notion.*", "local.*"])]), None).await;
    let review = workflow("asked").node(json!({"id": "review", "type": "hitl"}));
    let asked = review.function("w", "notion.note", json!({"n": 1})).edge("review", "w");
    porch.house.stage.apply(&asked).await;
    let ask = json!({"workflow_id": "asked", "inputs": {}, "autonomy_level": "L1_Draft", "wait": 15});
    let run = porch.act("user_ann", ask).await.body;
    let decision = json!({"decision": "approve"});
    assert_eq!(porch.ask("user_ann", Method::POST, &path(&run, "/approve"), decision).await.status, 200);
    let shown = async || porch.get("user_ann", &path(&run, "")).await.body;
    let asked = loop {
        let asked = shown().await["approvals"][0].clone();
        if asked["node_id"] == "review" {
            break json!({"decision": "approve", "digest": asked["digest"]});
        }
        tokio::task::yield_now().await;
    };
    let narrowed = async |what: &str, body: Value| {
        let answer = narrow(&porch, "user_ann", &["local.summarize"], &path(&run, what), body).await;
        (answer.status, answer.code().to_owned())
    };
    let forbidden = || (403, "RBAC_FORBIDDEN".to_owned());
    assert_eq!(narrowed("/approve", asked.clone()).await, forbidden());
    assert_eq!(porch.ask("user_ann", Method::POST, &path(&run, "/pause"), NOTHING).await.status, 202);
    while shown().await["paused"] != true {
        tokio::task::yield_now().await;
    }
    assert_eq!(narrowed("/resume", NOTHING).await, forbidden());
    assert_eq!(porch.ask("user_ann", Method::POST, &path(&run, "/resume"), NOTHING).await.status, 202);
    assert_eq!(porch.asked("notion.note").count("execute"), 0);
    assert_eq!(porch.ask("user_ann", Method::POST, &path(&run, "/approve"), asked).await.status, 200);
    porch.house.until(&run, "completed").await;
}

/// A run that waits for a person.
async fn waiting(porch: &AccessServer) -> Value {
    porch.house.stage.apply(&workflow("reviewed").node(json!({"id": "review", "type": "hitl"}))).await;
    porch.act("n8n_workflow_1", json!({"workflow_id": "reviewed", "inputs": {}, "wait": 15})).await.body
}

async fn followed(porch: &AccessServer, run: &Value, token: &str) -> Response {
    let url = porch.house.server.url(&path(run, "/events"));
    let mut stream = porch.house.client.get(url).bearer_auth(token).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    stream.chunk().await.unwrap().unwrap();
    stream
}

/// Reads to the end of a stream, which comes within two seconds.
async fn ends(mut stream: Response) {
    let over = async { while stream.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(Duration::from_secs(2), over).await.unwrap();
}

#[tokio::test]
async fn a_stream_ends_when_its_actor_loses_the_scope_or_is_disabled_or_its_token_is_revoked_or_over() {
    let reader = entry("user_bob", &["runs.read"]);
    let porch = porch_with(settings(TENANT, vec![reader]), None).await;
    let run = waiting(&porch).await;

    let token = porch.sign_in("user_bob", "one").await.body["access_token"].as_str().unwrap().to_owned();
    let stream = followed(&porch, &run, &token).await;
    let revoke = porch.house.client.post(porch.house.server.url("/auth/revoke")).bearer_auth(&token);
    let revoke = crate::flow::signed(revoke, porch.house.stage.world.clock.now(), "user_bob", &NOTHING);
    assert_eq!(sent(revoke).await.status, 200);
    ends(stream).await;

    let stream = followed(&porch, &run, &porch.token_with("user_bob", |_| {})).await;
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_bob", json!({"scopes": []})).await.status, 200);
    ends(stream).await;
    let again = json!({"scopes": ["runs.read"]});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_bob", again).await.status, 200);

    let stream = followed(&porch, &run, &porch.token_with("user_bob", |_| {})).await;
    let disabled = json!({"scopes": ["runs.read"], "disabled": true});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_bob", disabled).await.status, 200);
    ends(stream).await;

    let stream = followed(&porch, &run, &porch.token_with("admin", |_| {})).await;
    porch.clock.wait(4_000);
    ends(stream).await;
}

/// A name of a member may be written with escapes.
#[tokio::test]
async fn a_nonce_without_a_time_is_refused_however_it_is_written() {
    let porch = porch_with(settings(TENANT, Vec::new()), None).await;
    let steps = super::access_server::harmless();
    let now = porch.now();
    let token = porch.token_with("n8n_workflow_1", |_| {});
    for member in [
        r#""nonce": "n1""#.to_owned(),
        r#""nonc\u0065": "n2""#.to_owned(),
        format!(r#""issued_at": {now}"#),
        format!(r#""issued\u005fat": {now}"#),
        r#""nonce": "n3", "issued_at": null"#.to_owned(),
    ] {
        let body = format!(r#"{{"steps": {steps}, {member}}}"#);
        let refused = porch.raw(&token, Some(&super::access_server::by("n8n_workflow_1", &body)), &body).await;
        assert_eq!((refused.status, refused.code()), (400, "SCHEMA_INVALID"), "{member}: {refused:?}");
    }
    let both = format!(r#"{{"steps": {steps}, "nonc\u0065": "n4", "issued_at": {now}}}"#);
    let signature = super::access_server::by("n8n_workflow_1", &both);
    assert_eq!(porch.raw(&token, Some(&signature), &both).await.status / 100, 2);
    let again = porch.raw(&token, Some(&signature), &both).await;
    assert_eq!((again.status, again.detail("reason")), (401, &json!("nonce_used")), "{again:?}");
}

/// Whoever stands for everybody, and whoever stands above everybody, is the operator's alone; and the operator
/// stays one.
#[tokio::test]
async fn anonymous_the_quotas_and_the_operator_are_not_for_everybody_to_change() {
    let keeper = ActorEntry { quota_per_minute: 30, ..entry("user_bob", &["actors.write", "actors.read"]) };
    let porch = porch_with(settings(TENANT, vec![keeper]), None).await;
    let put = async |actor: &str, id: &str, body: Value| {
        let answer = porch.ask(actor, Method::PUT, &format!("/actors/{id}"), body).await;
        (answer.status, answer.code().to_owned())
    };
    let forbidden = || (403, "RBAC_FORBIDDEN".to_owned());
    for body in [json!({"quota_per_minute": 1}), json!({"disabled": true, "quota_per_minute": 10})] {
        assert_eq!(put("user_bob", "anonymous", body).await, forbidden());
    }
    assert_eq!(put("user_bob", "service_new", json!({"quota_per_minute": 31})).await, forbidden());
    assert_eq!(put("user_bob", "service_new", json!({"quota_per_minute": 30})).await.0, 200);
    let moved = json!({"scopes": ["*"], "quota_per_minute": 300, "tenant": "elsewhere"});
    assert_eq!(put("admin", "admin", moved).await, (422, "VALIDATION_FAILED".to_owned()));
    assert_eq!(porch.get("admin", "/actors/admin").await.body["tenant"], TENANT);
    for tenant in ["", " ", "a b", "../x", "a/b", "t\t", "ä", &"t".repeat(500)] {
        let refused = put("admin", "service_other", json!({"tenant": tenant})).await;
        assert_eq!(refused, (400, "SCHEMA_INVALID".to_owned()), "{tenant:?}");
    }
    assert_eq!(porch.ask("admin", Method::POST, "/tenants", json!({"slug": "acme-2"})).await.status, 201);
    assert_eq!(put("admin", "service_other", json!({"tenant": "acme-2"})).await.0, 200);
}
