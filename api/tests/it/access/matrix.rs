//! Every endpoint without a credential, without the scope, and from another tenant.
//!
//! The operations come from the OpenAPI document, so a new endpoint fails here until its cases are
//! written down.

use super::tenants::AllToolsShared;
use crate::flow::{FlowServer, code, front, furnished, house, path, reviewed, setup, signed};
use crate::support::client;
use chimera_api::{Freshness, RateClass, RouteRules, Signed};
use chimera_core::access::ActorEntry;
use chimera_core::access::token::Claims;
use chimera_core::limits::RATE_HITS_MAX;
use chimera_testkit::access::{everybody, settings, signature, token_key};
use chimera_testkit::flow::TENANT;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The expected response for a valid credential without the right.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ExpectedDenial {
    /// A refusal that names the scope they lack.
    Forbidden,
    /// What they may not know of is not there.
    NotThere,
    /// A list without anything that is not theirs.
    Nothing,
    /// Only what is their own anyway.
    Own,
    /// The envelope in the body is not signed by anybody.
    Unsigned,
}
use ExpectedDenial::{Forbidden, NotThere, Nothing, Own, Unsigned};

/// An operation, a body that its owner could send, what somebody without scopes gets, and what
/// somebody of another tenant gets.
type Case = (&'static str, fn() -> Value, ExpectedDenial, ExpectedDenial);

const fn none() -> Value {
    Value::Null
}

/// An envelope whose signature is of the right form.
pub(super) fn unsigned(workflow: &str) -> Value {
    json!({
        "version": "1.0",
        "intent": {"type": "workflow.start", "args": {"workflow_id": workflow}},
        "actor": {"user_id": "admin", "tenant": TENANT},
        "constraints": {"ttl_sec": 60, "idempotency_key": "k"},
        "sig": format!("ed25519:{}==", "A".repeat(86)),
    })
}

/// The public key of RFC 8037, A.2.
fn signing_key() -> Value {
    json!({"public_key": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})
}

/// The id of a work item that nobody has. Those that exist are in `flow/work.rs`.
const ABSENT: &str = "019f2c1e-7a54-7d31-8c1e-5f0e2b9a6d10";

/// Every guarded operation.
const CASES: &[Case] = &[
    ("POST /auth/revoke", || json!({"token": "x"}), Own, Own),
    ("POST /act", || json!({"workflow_id": "reviewed"}), Forbidden, NotThere),
    ("POST /intents", || unsigned("reviewed"), Unsigned, Unsigned),
    ("POST /intents/validate", || unsigned("reviewed"), Own, Own),
    ("GET /intents/catalog", none, Own, Own),
    ("GET /actors", none, Forbidden, Own),
    ("GET /actors/{id}", none, Forbidden, NotThere),
    ("PUT /actors/{id}", || json!({"scopes": []}), Forbidden, Forbidden),
    ("POST /actors/{id}/keys", || json!({}), Forbidden, NotThere),
    ("DELETE /actors/{id}", none, Forbidden, NotThere),
    ("GET /actors/{id}/signing-keys", none, Forbidden, NotThere),
    ("POST /actors/{id}/signing-keys", signing_key, Forbidden, NotThere),
    // Those that exist are in `signing_keys.rs`.
    ("POST /signing-keys/{kid}/rotate", signing_key, Forbidden, NotThere),
    ("DELETE /signing-keys/{kid}", none, Forbidden, NotThere),
    ("GET /tenants", none, Forbidden, Forbidden),
    ("POST /tenants", || json!({"slug": "acme-two"}), Forbidden, Forbidden),
    ("GET /tenants/{slug}", none, Forbidden, Forbidden),
    ("PATCH /tenants/{slug}", || json!({"disabled": false}), Forbidden, Forbidden),
    ("GET /tools", none, Nothing, Own),
    ("GET /tool-calls", none, Nothing, Nothing),
    ("GET /doubts", none, Nothing, Nothing),
    ("GET /inbox", none, Nothing, Nothing),
    ("GET /audit", none, Forbidden, Own),
    ("GET /workflows", none, Forbidden, Nothing),
    ("GET /workflows/{id}", none, Forbidden, NotThere),
    // Before a workflow of the same name is made next door.
    ("POST /workflows/{id}/call", || json!({}), Forbidden, NotThere),
    ("GET /events", none, Nothing, Nothing),
    ("POST /events", || json!({"name": "paid", "key": "o1"}), Forbidden, Own),
    ("GET /schedules", none, Nothing, Nothing),
    ("POST /schedules", || json!({"name": "x", "workflow_id": "reviewed", "every": "1d"}), Forbidden, NotThere),
    ("GET /schedules/{name}", none, NotThere, NotThere),
    ("PUT /schedules/{name}", || json!({"workflow_id": "reviewed", "every": "1d"}), NotThere, NotThere),
    ("GET /schedules/{name}/next", none, NotThere, NotThere),
    ("POST /schedules/{name}/pause", none, NotThere, NotThere),
    ("POST /schedules/{name}/resume", none, NotThere, NotThere),
    ("POST /schedules/{name}/run", none, NotThere, NotThere),
    ("DELETE /schedules/{name}", none, NotThere, NotThere),
    ("PUT /workflows/{id}", || reviewed().document().clone(), Forbidden, Own),
    ("POST /workflows/{id}/check", || reviewed().document().clone(), Forbidden, Own),
    ("PUT /workflows/{id}/share", none, Forbidden, Forbidden),
    ("GET /tools/problems", none, Nothing, Nothing),
    ("POST /tools/reload", none, Forbidden, Forbidden),
    ("DELETE /workflows/{id}/share", none, Forbidden, Forbidden),
    ("DELETE /workflows/{id}/cache", none, Forbidden, Own),
    ("GET /work", none, Forbidden, Nothing),
    // A person is no worker, whatever their scopes.
    ("POST /work/claim", || json!({"queue": "desk"}), Forbidden, Forbidden),
    ("POST /work/renew", || json!({"item_id": ABSENT, "lease_token": "x"}), NotThere, NotThere),
    ("POST /work/complete", || json!({"item_id": ABSENT, "lease_token": "x", "output": {}}), NotThere, NotThere),
    ("POST /work/fail", || json!({"item_id": ABSENT, "lease_token": "x", "message": "x"}), NotThere, NotThere),
    ("GET /runs", none, Nothing, Nothing),
    ("GET /runs/{id}", none, Forbidden, NotThere),
    ("PATCH /runs/{id}", || json!({"status": "rolled_back"}), Forbidden, NotThere),
    ("GET /runs/{id}/steps", none, Forbidden, NotThere),
    ("GET /runs/{id}/executions", none, Forbidden, NotThere),
    ("POST /runs/{id}/steps/{step}/resolve", || json!({"outcome": "never"}), Forbidden, NotThere),
    ("POST /runs/{id}/steps/{step}/edit", || json!({"input": {}}), Forbidden, NotThere),
    ("GET /runs/{id}/events", none, Forbidden, NotThere),
    ("POST /runs/{id}/approve", || json!({"decision": "approve"}), Forbidden, NotThere),
    ("POST /runs/{id}/reject", || json!({}), Forbidden, NotThere),
    ("POST /runs/{id}/cancel", none, Forbidden, NotThere),
    ("POST /runs/{id}/pause", none, Forbidden, NotThere),
    ("POST /runs/{id}/resume", none, Forbidden, NotThere),
    ("POST /runs/{id}/rollback", || json!({}), Forbidden, NotThere),
    ("POST /runs/{id}/retry", || json!({}), Forbidden, NotThere),
    ("POST /runs/{id}/replay", || json!({"mode": "freeze"}), Forbidden, NotThere),
    ("POST /runs/{id}/patch", || json!({"patch": {}}), Forbidden, NotThere),
    ("DELETE /runs/{id}/patches/{number}", none, Forbidden, NotThere),
];

/// What anybody may ask for, and why.
pub(super) const OPEN: &[(&str, &str)] = &[
    ("GET /healthz", "whether it lives"),
    ("GET /readyz", "whether it is ready"),
    ("GET /metrics", "numbers without names"),
    ("GET /openapi.json", "this document"),
    ("GET /docs", "this document, for people"),
    ("GET /docs/errors/{code}", "what errors mean"),
    ("GET /artifacts/{sha256}", "the link is signed"),
    ("GET /schemas/{name}", "what envelopes look like"),
    ("GET /.well-known/jwks.json", "public keys"),
    ("GET /.well-known/webhooks.json", "public keys"),
    ("GET /.well-known/intent-keys.json", "public keys"),
    ("GET /approvals/{token}", "the link is the credential"),
    ("POST /approvals/{token}", "the link is the credential"),
    ("POST /auth/token", "the signature is the credential"),
    ("POST /auth/refresh", "the signature is the credential"),
];

/// Every operation of the document: `METHOD /path`.
pub(super) fn operations() -> BTreeSet<String> {
    let document = serde_json::to_value(chimera_api::document()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let operation = |path: &str, method: &str| format!("{} {path}", method.to_uppercase());
    paths
        .iter()
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |m| operation(path, m)))
        .collect()
}

/// A house where admin may do everything, bob nothing, and cat everything in another tenant.
async fn divided() -> (FlowServer, Value) {
    let stranger = ActorEntry { quota_per_minute: RATE_HITS_MAX, ..ActorEntry::default_for("user_bob", TENANT) };
    let neighbour = ActorEntry { scopes: vec!["*".to_owned()], ..ActorEntry::default_for("user_cat", "other") };
    let neighbour = ActorEntry { quota_per_minute: RATE_HITS_MAX, ..neighbour };
    let stage = setup().tenancy(Arc::new(AllToolsShared)).open().await;
    let entries = everybody(TENANT).into_iter().chain([stranger, neighbour]).collect();
    let access = front(&stage, settings(TENANT, entries)).await;
    let flow = stage.flow.clone();
    let mut house = furnished(setup().unkept(), |edge| edge.with_flow(flow).with_actions(access)).await;
    house.stage = stage;
    let run = house.run(&reviewed(), json!({})).await;
    let daily = json!({"name": "daily", "workflow_id": "reviewed", "every": "1d", "starts_at": "2999-01-01T00:00:00Z"});
    let (status, made) = house.ask_as("admin", Method::POST, "/schedules", daily).await;
    assert_eq!(status, 201, "{made}");
    (house, run)
}

fn placed(operation: &str, run: &Value) -> (Method, String) {
    let (method, path) = operation.split_once(' ').unwrap();
    let id = match path {
        path if path.starts_with("/runs") => run["run_id"].as_str().unwrap(),
        path if path.starts_with("/actors") => "user_ann",
        _ => "reviewed",
    };
    (
        method.parse().unwrap(),
        path.replace("{id}", id)
            .replace("{step}", "review")
            .replace("{slug}", "other")
            .replace("{number}", "1")
            .replace("{name}", "daily")
            .replace("{kid}", "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"),
    )
}

#[test]
fn every_operation_has_its_cases_or_a_reason_to_be_open() {
    let written: BTreeSet<String> =
        CASES.iter().map(|case| case.0).chain(OPEN.iter().map(|open| open.0)).map(str::to_owned).collect();
    assert_eq!(operations(), written, "an operation without cases, or cases without an operation");
    let document = serde_json::to_value(chimera_api::document()).unwrap();
    for (operation, _, _, _) in CASES {
        let (method, path) = operation.split_once(' ').unwrap();
        let written = &document["paths"][path][method.to_lowercase()];
        assert_ne!(written["security"], json!([{}]), "{operation} is guarded");
        assert!(written["responses"]["401"].is_object() && written["responses"]["429"].is_object(), "{operation}");
    }
}

/// CORE-099, CORE-103
#[tokio::test]
async fn whoever_shows_no_valid_token_is_turned_away_everywhere() {
    let (house, run) = divided().await;
    let say = |exp: i64, iat: i64| {
        let claims = Claims {
            sub: "admin".into(),
            exp,
            iat,
            nbf: None,
            jti: None,
            fam: None,
            aud: None,
            scopes: None,
            key_of: None,
        };
        token_key().sign(&claims).unwrap()
    };
    let now = house.stage.world.clock.now().millis() / 1_000;
    let (expired, valid) = (say(now, now - 3_600), say(now + 60, now));
    let tampered = format!("{}x", &valid[..valid.len() - 1]);
    for (operation, body, _, _) in CASES {
        let (method, path) = placed(operation, &run);
        let request = || {
            signed(
                house.client.request(method.clone(), house.server.url(&path)),
                house.stage.world.clock.now(),
                "admin",
                &body(),
            )
        };
        let twice = request().bearer_auth(&valid).bearer_auth(&valid);
        let basic = request().basic_auth("admin", Some(&valid));
        let (expired, tampered) = (request().bearer_auth(&expired), request().bearer_auth(&tampered));
        for (what, request) in
            [("bare", request()), ("expired", expired), ("tampered", tampered), ("basic", basic), ("twice", twice)]
        {
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 401, "{operation}, {what}");
            assert!(answer.headers()["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
            let problem: Value = answer.json().await.unwrap();
            assert_eq!(code(&problem), "UNAUTHENTICATED", "{operation}, {what}: {problem}");
        }
    }
}

/// What a route demands, by its line in the table.
fn rules(operation: &str) -> &'static RouteRules {
    let (method, path) = operation.split_once(' ').unwrap();
    let line = chimera_api::route_table().iter().find(|route| route.method == method && route.path == path);
    line.unwrap_or_else(|| panic!("{operation} is not in the table")).rules
}

#[test]
fn whatever_changes_something_is_signed_over_what_it_does() {
    for (operation, _, _, _) in CASES {
        let signed = match *operation {
            read if read.starts_with("GET ") => Signed::No,
            "POST /act" => Signed::Body,
            "POST /workflows/{id}/check" | "POST /intents/validate" => Signed::No,
            // The envelope in the body is signed.
            "POST /intents" => Signed::No,
            _ => Signed::Message,
        };
        let rules = rules(operation);
        assert!(rules.token, "{operation}");
        assert_eq!(rules.signed, signed, "{operation}");
        assert_eq!(rules.freshness == Freshness::Always, signed == Signed::Message, "{operation}");
        assert_eq!(rules.limit == RateClass::Reads, operation.starts_with("GET "), "{operation}");
    }
    for (operation, _) in OPEN {
        let signed = if operation.starts_with("POST /auth/") { Signed::Body } else { Signed::No };
        assert_eq!((rules(operation).token, rules(operation).signed), (false, signed), "{operation}");
    }
}

/// CORE-104, CORE-107
#[tokio::test]
async fn what_its_caller_has_not_signed_is_turned_away_everywhere() {
    let (house, run) = divided().await;
    let now = house.stage.world.clock.now();
    for (operation, body, _, _) in CASES.iter().filter(|case| rules(case.0).signed != Signed::No) {
        let (method, path) = placed(operation, &run);
        let text = if body().is_null() { String::new() } else { body().to_string() };
        let send = async |headers: Vec<(&'static str, String)>, text: &str| {
            let request = house.client.request(method.clone(), house.server.url(&path));
            let request = request.bearer_auth(house.token("admin")).header("content-type", "application/json");
            let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
            let answer = request.body(text.to_owned()).send().await.unwrap();
            let (status, problem): (_, Value) = (answer.status(), answer.json().await.unwrap());
            assert_eq!((status.as_u16(), code(&problem)), (401, "SIGNATURE_INVALID"), "{operation}: {problem}");
            problem["error"]["details"].clone()
        };
        let by = |actor: &str, method: &str, path: &str, body: &str| {
            chimera_testkit::access::signed(actor, now, (method, path), body.as_bytes())
        };
        send(Vec::new(), &text).await;
        send(by("user_bob", method.as_str(), &path, &text), &text).await;
        send(by("admin", method.as_str(), &path, &format!("{text} ")), &text).await;
        if rules(operation).signed == Signed::Body {
            continue;
        }
        let body_alone = vec![("x-hmac-signature", signature("admin", text.as_bytes()))];
        assert_eq!(send(body_alone, &text).await["reason"], "missing", "{operation}");
        assert_eq!(send(by("user_bob", method.as_str(), &path, &text), &text).await["reason"], "keyid", "{operation}");
        let other = if method == Method::POST { "PUT" } else { "POST" };
        for (method, path) in [
            (method.as_str(), format!("{path}x")),
            (method.as_str(), format!("{path}?a=1")),
            (method.as_str(), "/runs/019f2c1e-7a54-7d31-8c1e-5f0e2b9a6d10/approve".to_owned()),
            (other, path.clone()),
        ] {
            let details = send(by("admin", method, &path, &text), &text).await;
            let base = details["signature_base"].as_str().unwrap();
            assert_eq!(details["reason"], "mismatch", "{operation}");
            assert!(base.contains("\"@path\": /") && base.contains("keyid=\"admin\""), "{base}");
        }
    }
}

/// A signed request is obeyed once, whether it changed something or not, and only while it is fresh.
#[tokio::test]
async fn a_signed_request_is_obeyed_once_and_only_while_it_is_fresh() {
    let (house, run) = divided().await;
    for (operation, body, _, _) in CASES.iter().filter(|case| rules(case.0).signed == Signed::Message) {
        let (method, path) = placed(operation, &run);
        let text = if body().is_null() { String::new() } else { body().to_string() };
        let send = async |headers: &[(&'static str, String)]| {
            let request = house.client.request(method.clone(), house.server.url(&path));
            let request = request.bearer_auth(house.token("admin")).header("content-type", "application/json");
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
            let answer = request.body(text.clone()).send().await.unwrap();
            let status = answer.status().as_u16();
            (status, answer.json::<Value>().await.unwrap_or_default())
        };
        let asked = (method.as_str(), path.as_str());
        let now = house.stage.world.clock.now();
        // The clock goes on until the request is there: what is early by a second may be in time by then.
        for off in [-61, 120] {
            let stale = chimera_testkit::access::signed("admin", now.plus_seconds(off), asked, text.as_bytes());
            let (status, problem) = send(&stale).await;
            assert_eq!((status, code(&problem)), (401, "EXPIRED_TTL"), "{operation}: {problem}");
            assert_eq!(problem["error"]["details"]["reason"], "stale", "{operation}");
        }
        let fresh = chimera_testkit::access::signed("admin", now, asked, text.as_bytes());
        let (first, answer) = send(&fresh).await;
        assert_ne!(first, 401, "{operation}: {answer}");
        let (second, problem) = send(&fresh).await;
        match first {
            200..300 => {
                assert_eq!((second, code(&problem)), (401, "EXPIRED_TTL"), "{operation}: {problem}");
                assert_eq!(problem["error"]["details"]["reason"], "nonce_used", "{operation}");
            }
            // What was refused changed nothing, and is refused again for the same reason.
            _ => assert_eq!(second, first, "{operation}: {problem}"),
        }
    }
}

#[tokio::test]
async fn whoever_lacks_the_scope_gets_nothing() {
    let (house, run) = divided().await;
    for (operation, body, gets, _) in CASES {
        let (method, path) = placed(operation, &run);
        let (status, answer) = house.ask_as("user_bob", method, &path, body()).await;
        judge(operation, *gets, status, &answer);
    }
    assert_eq!(house.get(&path(&run, "")).await.1["status"], "awaiting_approval");
}

#[tokio::test]
async fn another_tenant_sees_and_changes_nothing() {
    let (house, run) = divided().await;
    for (operation, body, _, gets) in CASES {
        let (method, path) = placed(operation, &run);
        let (status, answer) = house.ask_as("user_cat", method, &path, body()).await;
        judge(operation, *gets, status, &answer);
    }
    let (_, shown) = house.get(&path(&run, "")).await;
    assert_eq!((&shown["status"], &shown["patches"]), (&json!("awaiting_approval"), &json!([])));
    assert_eq!(house.get("/workflows/reviewed").await.1["version"], 1, "another tenant's workflow was changed");
}

fn judge(operation: &str, gets: ExpectedDenial, status: u16, answer: &Value) {
    match gets {
        Forbidden => assert_eq!((status, code(answer)), (403, "RBAC_FORBIDDEN"), "{operation}: {answer}"),
        NotThere => assert_eq!((status, code(answer)), (404, "NOT_FOUND"), "{operation}: {answer}"),
        Nothing => assert_eq!((status, &answer["items"]), (200, &json!([])), "{operation}: {answer}"),
        Own => assert!(status < 300, "{operation}: {status} {answer}"),
        Unsigned => assert_eq!((status, code(answer)), (401, "SIGNATURE_INVALID"), "{operation}: {answer}"),
    }
}

/// Signing in is open, and the signature decides.
#[tokio::test]
async fn only_the_actors_own_signature_signs_in() {
    let house = house().await;
    let now = house.stage.world.clock.now().to_string();
    for (path, body) in [
        ("/auth/token", json!({"actor": "admin", "issued_at": now, "nonce": "n"})),
        ("/auth/refresh", json!({"refresh_token": "x"})),
    ] {
        let request = || house.client.post(house.server.url(path)).json(&body);
        let foreign =
            signed(house.client.post(house.server.url(path)), house.stage.world.clock.now(), "user_bob", &body);
        for request in [request(), foreign] {
            assert_eq!(request.send().await.unwrap().status(), 401, "{path}");
        }
    }
}

#[tokio::test]
async fn a_server_without_a_door_lets_nobody_in() {
    let stage = setup().open().await;
    let server = crate::support::served(crate::support::edge().with_flow(stage.flow.clone())).await;
    let answer = client().get(server.url("/runs")).bearer_auth("x").send().await.unwrap();
    assert_eq!(answer.status(), 401);
}
