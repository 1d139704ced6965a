//! The checks of `/act` run in a fixed order: a request that fails two gets the error of the first, and a
//! refusal leaves an entry in the ledger and nothing else.

use super::access_server::{AccessServer, ApiResponse, by, entry, harmless, porch, porch_with, sent};
use chimera_core::limits::BODY_BYTES_MAX;
use chimera_testkit::access::{settings, token};
use chimera_testkit::flow::{TENANT, workflow};
use reqwest::Method;
use serde_json::{Value, json};

/// What can be wrong with a request, in the order in which it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Violation {
    Size,
    Jwt,
    Revocation,
    Hmac,
    Freshness,
    Rate,
    Nonce,
    Schema,
    Actor,
    Idempotency,
    Plan,
    Scopes,
    Autonomy,
    Policy,
}
use Violation::{
    Actor, Autonomy, Freshness, Hmac, Idempotency, Jwt, Nonce, Plan, Policy, Rate, Revocation, Schema, Scopes, Size,
};

const ORDER: [Violation; 14] =
    [Size, Jwt, Revocation, Hmac, Freshness, Rate, Nonce, Schema, Actor, Idempotency, Plan, Scopes, Autonomy, Policy];

/// What is answered: the status, the code, and a detail that tells it from others with that code.
fn expected_refusal(wrong: Violation) -> (u16, &'static str, &'static str, Value) {
    match wrong {
        Size => (413, "PAYLOAD_TOO_LARGE", "bytes_max", json!(BODY_BYTES_MAX)),
        Jwt => (401, "UNAUTHENTICATED", "reason", json!("expired")),
        Revocation => (401, "UNAUTHENTICATED", "reason", json!("revoked")),
        Hmac => (401, "SIGNATURE_INVALID", "reason", json!("mismatch")),
        Freshness => (401, "EXPIRED_TTL", "reason", json!("stale")),
        Rate => (429, "RATE_LIMITED", "limit", json!(0)),
        Nonce => (401, "EXPIRED_TTL", "reason", json!("nonce_used")),
        Schema => (400, "SCHEMA_INVALID", "pointer", json!("/surprise")),
        Actor => (403, "RBAC_FORBIDDEN", "pointer", json!("/actor")),
        Idempotency => (409, "CONFLICT_IDEMPOTENCY", "request_differs", json!(true)),
        Plan => (422, "VALIDATION_FAILED", "missing_tool", json!("no.such")),
        Scopes => (403, "RBAC_FORBIDDEN", "required_scope", json!("outlook.send")),
        Autonomy => (403, "RBAC_FORBIDDEN", "required_scope", json!("autonomy.override")),
        Policy => (403, "POLICY_DENIED", "rule", json!("never")),
    }
}

/// A house where ann and bob have used a key, a token of each is revoked, and bob may ask no more.
async fn prepared() -> AccessServer {
    let many = vec![entry("user_ann", &["local.summarize"]), entry("user_bob", &["local.summarize"]), {
        chimera_core::access::ActorEntry { quota_per_minute: 100_000, ..entry("anonymous", &[]) }
    }];
    let porch = porch_with(settings(TENANT, many), None).await;
    for actor in ["user_ann", "user_bob"] {
        let used = json!({
            "steps": harmless(), "idempotency_key": "used", "issued_at": porch.now(), "nonce": "used",
        });
        assert_eq!(porch.act(actor, used).await.status, 200);
        let taken = porch.token_with(actor, |claims| claims.jti = Some(format!("taken from {actor}")));
        let body = json!({"token": taken});
        assert_eq!(porch.ask("admin", Method::POST, "/auth/revoke", body).await.status, 200);
    }
    let nothing_more = json!({"scopes": ["local.summarize"], "quota_per_minute": 0, "autonomy_level": "L1_Draft"});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_bob", nothing_more).await.status, 200);
    porch
}

/// A request with which exactly this is wrong.
async fn send(porch: &AccessServer, wrong: &[Violation]) -> ApiResponse {
    let is = |what: Violation| wrong.contains(&what);
    let actor = if is(Rate) { "user_bob" } else { "user_ann" };
    let token = match (is(Jwt), is(Revocation)) {
        (false, false) => token(actor, porch.house.stage.world.clock.now()),
        (late, revoked) => porch.token_with(actor, |claims| {
            claims.jti = Some(if revoked { format!("taken from {actor}") } else { "fine".to_owned() });
            if late {
                (claims.iat, claims.exp) = (claims.iat - 3_600, claims.iat);
            }
        }),
    };
    let mut steps = vec![];
    steps.extend(is(Plan).then(|| json!({"tool": "no.such", "input": {}})));
    steps.extend(is(Scopes).then(|| json!({"tool": "outlook.send", "input": {}})));
    steps.extend(is(Policy).then(|| json!({"tool": "local.forbidden", "input": {}})));
    steps.push(harmless()[0].clone());
    let mut body = json!({"steps": steps, "idempotency_key": if is(Idempotency) { "used" } else { "fresh" }});
    body["issued_at"] = json!(porch.now() - if is(Freshness) { 100 } else { 0 });
    body["nonce"] = if is(Nonce) { "used".into() } else { format!("{wrong:?}").into() };
    if is(Idempotency) {
        body["correlation_id"] = "another request".into();
    }
    if is(Schema) {
        body["surprise"] = true.into();
    }
    if is(Actor) {
        body["actor"] = "admin".into();
    }
    if is(Autonomy) {
        body["autonomy_level"] = "L2_ExecuteNotify".into();
    }
    let mut text = body.to_string();
    if is(Size) {
        text.push_str(&" ".repeat(BODY_BYTES_MAX));
    }
    let signature = by(if is(Hmac) { "admin" } else { actor }, &text);
    porch.raw(&token, Some(&signature), &text).await
}

/// CORE-017, CORE-101, CORE-102
#[tokio::test]
async fn whoever_fails_two_checks_hears_of_the_first_and_only_the_ledger_knows() {
    let porch = prepared().await;
    let before = porch.traces();
    for (at, first) in ORDER.iter().enumerate() {
        for second in ORDER[at..].iter() {
            let (refusals, rejections) = (porch.refusals().len(), porch.rejections());
            let answer = send(&porch, &[*first, *second]).await;
            let (status, code, detail, value) = expected_refusal(*first);
            let what = format!("{first:?} and {second:?}: {:#}", answer.body);
            assert_eq!((answer.status, answer.code()), (status, code), "{what}");
            assert_eq!(answer.detail(detail), &value, "{what}");
            assert!(!answer.body.to_string().contains("L1_Draft") || *first == Autonomy, "{what}");
            assert_eq!(porch.traces(), before, "{what}");
            let entered = porch.refusals();
            // Of refusals over the quota the first of a minute is entered.
            let more = usize::from(*first != Rate || second == first);
            assert_eq!((entered.len(), porch.rejections()), (refusals + more, rejections + more), "{what}");
            let entry = entered.last().unwrap();
            assert_eq!((&entry["code"], &entry["target"]), (&json!(code), &json!("POST /act")), "{what}");
            assert_eq!(entry.get("autonomy_level"), None, "{entry}");
        }
    }
}

/// A key that a refused request named is free: nothing of it is remembered.
#[tokio::test]
async fn the_key_of_a_refused_request_is_still_free() {
    let porch = porch().await;
    for steps in [json!([{"tool": "outlook.send", "input": {}}]), json!([{"tool": "no.such", "input": {}}])] {
        let refused = porch.act("user_ann", json!({"steps": steps, "idempotency_key": "k"})).await;
        assert!(refused.status == 403 || refused.status == 422, "{refused:?}");
    }
    let answer = porch.act("user_ann", json!({"steps": harmless(), "idempotency_key": "k"})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// What can't even be read is counted and entered like anything else that is refused.
#[tokio::test]
async fn headers_that_stand_twice_and_bodies_that_are_no_json_are_entered_too() {
    let porch = porch().await;
    let body = json!({"steps": harmless()});
    let twice = porch.request("user_ann", Method::POST, "/act", &body).bearer_auth("another");
    assert_eq!(sent(twice).await.code(), "UNAUTHENTICATED");
    let twice = porch.request("user_ann", Method::POST, "/act", &body).header("x-hmac-signature", "00");
    assert_eq!(sent(twice).await.code(), "SIGNATURE_INVALID");
    let signed = |path: &str, text: &str| {
        let request = porch.house.client.post(porch.house.server.url(path)).body(text.to_owned());
        request.header("x-hmac-signature", by("user_ann", text))
    };
    let request = signed("/auth/token", "{");
    assert_eq!(sent(request.header("content-type", "application/json")).await.code(), "SCHEMA_INVALID");
    let request = signed("/auth/refresh", "refresh_token=x");
    let answer = sent(request).await;
    assert_eq!(answer.code(), "UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(answer.number("x-ratelimit-remaining"), 6);
    assert_eq!(porch.refusals().len(), 4);
}

/// Elsewhere than at the front door too: what somebody may not do is entered, and what isn't there isn't.
#[tokio::test]
async fn whatever_somebody_may_not_do_is_entered() {
    let porch = prepared().await;
    let nothing = Value::Null;
    let refused = [
        (Method::GET, "/actors", nothing.clone(), 403),
        (Method::PUT, "/actors/user_bob", json!({"scopes": ["*"]}), 403),
        (Method::POST, "/workflows/none/call", json!({}), 404),
        (Method::GET, "/runs/00000000-0000-0000-0000-000000000000", nothing, 404),
    ];
    for (method, path, body, status) in refused {
        assert_eq!(porch.ask("n8n_workflow_1", method, path, body).await.status, status, "{path}");
    }
    let entered: Vec<Value> = porch.refusals().iter().map(|entry| entry["target"].clone()).collect();
    assert_eq!(entered, [json!("GET /actors"), json!("PUT /actors/{id}"), json!("POST /workflows/{id}/call")]);
}

/// What was sent is not repeated: an entry stays for good, and says where a fault is.
#[tokio::test]
async fn an_input_that_is_refused_is_entered_with_the_place_of_its_faults_and_not_with_what_stood_there() {
    let porch = porch().await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false});
    let air = workflow("counted").with("inputs", schema).function("a", "local.summarize", json!({"text": "One."}));
    porch.house.stage.apply(&air).await;
    for size in [1, 10_000] {
        let sent = "hunter2".repeat(size);
        let inputs = json!({"n": sent, (sent.clone()): 1});
        let answer = porch.act("n8n_workflow_1", json!({"workflow_id": "counted", "inputs": inputs})).await;
        assert_eq!((answer.status, answer.code()), (422, "VALIDATION_FAILED"), "{answer:?}");
        let entry = porch.refusals().pop().unwrap();
        assert_eq!(entry["code"], "VALIDATION_FAILED");
        assert!(entry["details"]["faults"].as_array().unwrap().contains(&json!("/n")), "{entry}");
        assert!(!entry.to_string().contains("hunter2"), "{entry}");
        assert!(answer.body.to_string().len() < 10_000);
    }
    assert_eq!(porch.refusals().len(), 2);
}
