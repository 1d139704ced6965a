//! Signing keys: who manages whose, how many there are, what signs a request, and what anybody may know.

use super::access_server::{AccessServer, ApiResponse, entry, porch_with, sent};
use super::schedules;
use chimera_core::access::signature::{RequestParts, Signed};
use chimera_core::access::tables::SIGNING_KEYS;
use chimera_core::access::{ActorEntry, Ed25519PrivateKey, Ed25519PublicKey, Kind};
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::limits::{SIGNING_KEY_ENDED_SECONDS, SIGNING_KEYS_MAX, SIGNING_KEYS_RECENT_MAX};
use chimera_core::secret::Secret;
use chimera_engine::port::Clock;
use chimera_testkit::access::{key_of, settings, signed_with, token};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::TENANT;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// A server with an admin, two people, a clerk who manages actors, and somebody of another tenant.
async fn server() -> AccessServer {
    let person = |id: &str, scopes: &[&str]| ActorEntry { kind: Kind::Human, ..entry(id, scopes) };
    let elsewhere = ActorEntry { tenant: "other".to_owned(), ..person("user_123", &["actors.*"]) };
    let people = vec![
        person("user_ann", &["local.summarize"]),
        person("user_bob", &[]),
        person("user_cat", &["actors.*", "local.summarize"]),
        elsewhere,
    ];
    porch_with(settings(TENANT, people), None).await
}

fn private(seed: u8) -> Ed25519PrivateKey {
    Ed25519PrivateKey::from_seed(&[seed; 32])
}

fn kid(seed: u8) -> String {
    private(seed).public().kid()
}

fn keys_of(actor: &str) -> String {
    format!("/actors/{actor}/signing-keys")
}

async fn add(server: &AccessServer, who: &str, actor: &str, seed: u8) -> ApiResponse {
    let body = json!({"public_key": private(seed).public().x()});
    server.ask(who, Method::POST, &keys_of(actor), body).await
}

async fn revoke(server: &AccessServer, who: &str, seed: u8, query: &str) -> ApiResponse {
    server.ask(who, Method::DELETE, &format!("/signing-keys/{}{query}", kid(seed)), Value::Null).await
}

async fn rotate(server: &AccessServer, who: &str, from: u8, to: u8, overlap: u32) -> ApiResponse {
    let body = json!({"public_key": private(to).public().x(), "overlap_seconds": overlap});
    server.ask(who, Method::POST, &format!("/signing-keys/{}/rotate", kid(from)), body).await
}

async fn statuses(server: &AccessServer, actor: &str) -> Vec<(String, String)> {
    let listed = server.get(actor, &keys_of(actor)).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    listed.body["items"].as_array().unwrap().iter().map(|key| (text(&key["kid"]), text(&key["status"]))).collect()
}

async fn published(server: &AccessServer) -> Vec<Value> {
    let answer = sent(server.house.client.get(server.house.server.url("/.well-known/intent-keys.json"))).await;
    assert_eq!((answer.status, answer.header("cache-control")), (200, "public, max-age=60"));
    answer.body["keys"].as_array().unwrap().clone()
}

/// A request with an actor's token, signed with a signing key.
fn with_key(server: &AccessServer, actor: &str, seed: u8, created: i64, path: &str) -> RequestBuilder {
    with_body(server, (actor, seed), created, path, br#"{"token": "x"}"#)
}

fn with_body(server: &AccessServer, by: (&str, u8), created: i64, path: &str, body: &'static [u8]) -> RequestBuilder {
    static NONCES: AtomicU64 = AtomicU64::new(0);
    let nonce = format!("e{}", NONCES.fetch_add(1, Ordering::Relaxed));
    with_nonce(server, by, (created, &nonce), path, body)
}

fn with_nonce(
    server: &AccessServer,
    (actor, seed): (&str, u8),
    (created, nonce): (i64, &str),
    path: &str,
    body: &'static [u8],
) -> RequestBuilder {
    let (scheme, authority) = ("http", "");
    let parts = RequestParts { method: "POST", scheme, authority, path, prefix: "", query: None, fields: &[], body };
    let signed = Signed::with_private_key(&parts, &private(seed), created, nonce).unwrap();
    let request = server.house.client.post(server.house.server.url(path)).bearer_auth(token(actor, server.clock.now()));
    let request = signed.headers().fold(request, |request, (name, value)| request.header(name, value));
    request.header("content-type", "application/json").body(body)
}

/// A change that anybody may make, signed with a signing key.
async fn change(server: &AccessServer, actor: &str, seed: u8) -> ApiResponse {
    sent(with_key(server, actor, seed, server.now(), "/auth/revoke")).await
}

fn refusal(answer: &ApiResponse) -> (u16, &str, &str) {
    (answer.status, answer.code(), answer.detail("reason").as_str().unwrap_or_default())
}

#[tokio::test]
async fn an_actor_adds_lists_and_revokes_its_own_keys() {
    let server = server().await;
    let body =
        json!({"public_key": private(1).public().to_pem(), "label": "laptop", "expires_at": "2999-01-01T00:00:00Z"});
    let added = server.ask("user_ann", Method::POST, &keys_of("user_ann"), body).await;
    assert_eq!(added.status, 201, "{added:?}");
    let known = [("kid", kid(1)), ("actor", "user_ann".to_owned()), ("tenant", TENANT.to_owned())];
    let known = known.into_iter().chain([("x", private(1).public().x()), ("status", "valid".to_owned())]);
    for (member, value) in known.chain([("label", "laptop".to_owned()), ("created_by", "user_ann".to_owned())]) {
        assert_eq!(added.body[member], value, "{member}");
    }
    // The same again says the same.
    let again = add(&server, "user_ann", "user_ann", 1).await;
    assert_eq!((again.status, &again.body), (200, &added.body));
    assert_eq!(statuses(&server, "user_ann").await, [(kid(1), "valid".to_owned())]);
    let revoked = revoke(&server, "user_ann", 1, "?reason=the%20laptop%20was%20lost").await;
    assert_eq!((revoked.status, &revoked.body["reason"]), (200, &json!("the laptop was lost")), "{revoked:?}");
    assert_eq!((&revoked.body["status"], &revoked.body["revoked_by"]), (&json!("revoked"), &json!("user_ann")));
    let again = revoke(&server, "user_ann", 1, "?reason=another").await;
    assert_eq!((again.status, &again.body["reason"]), (200, &json!("the laptop was lost")), "it stays as it was");
    assert_eq!(refusal(&add(&server, "user_ann", "user_ann", 1).await), (409, "INVALID_TRANSITION", "key_revoked"));
}

#[tokio::test]
async fn every_change_is_in_the_ledger_with_the_key() {
    let server = server().await;
    assert_eq!(add(&server, "user_cat", "user_ann", 1).await.status, 201);
    assert_eq!(add(&server, "user_cat", "user_ann", 1).await.status, 200, "not a change");
    assert_eq!(rotate(&server, "user_ann", 1, 2, 60).await.status, 200);
    assert_eq!(revoke(&server, "user_ann", 2, "?reason=lost").await.status, 200);
    let entries = server.house.stage.rows(&AUDIT_LOG_ENTRIES);
    let of_keys: Vec<_> =
        entries.iter().filter(|row| row.text("event_type").starts_with("actor.signing_key")).collect();
    let data = |at: usize| of_keys[at].get("data_json").as_json().unwrap().value().unwrap();
    let names: Vec<_> = of_keys.iter().map(|row| (row.text("event_type"), row.text("actor_id"))).collect();
    let expected = [
        ("actor.signing_key_created", "user_cat"),
        ("actor.signing_key_rotated", "user_ann"),
        ("actor.signing_key_revoked", "user_ann"),
    ];
    assert_eq!(names, expected);
    // Old signatures can be verified with what the ledger has, also once the key is gone from the store.
    assert_eq!((&data(0)["kid"], &data(0)["x"]), (&json!(kid(1)), &json!(private(1).public().x())));
    assert_eq!((&data(1)["kid"], &data(1)["replaced"]), (&json!(kid(2)), &json!(kid(1))));
    assert_eq!((&data(2)["kid"], &data(2)["reason"]), (&json!(kid(2)), &json!("lost")));
}

#[tokio::test]
async fn whoever_manages_actors_manages_the_keys_of_those_with_no_more_rights() {
    let server = server().await;
    assert_eq!(add(&server, "user_cat", "user_ann", 1).await.status, 201);
    assert_eq!(server.get("user_cat", &keys_of("user_ann")).await.body["items"][0]["created_by"], "user_cat");
    assert_eq!(rotate(&server, "user_cat", 1, 2, 0).await.status, 200);
    assert_eq!(revoke(&server, "user_cat", 2, "").await.status, 200);
    // Whoever adds a key for an actor can act as that actor.
    assert_eq!(add(&server, "admin", "admin", 3).await.status, 201);
    assert_eq!(refusal(&add(&server, "user_cat", "admin", 4).await).1, "RBAC_FORBIDDEN");
    assert_eq!(refusal(&rotate(&server, "user_cat", 3, 4, 0).await).1, "RBAC_FORBIDDEN");
    assert_eq!(refusal(&revoke(&server, "user_cat", 3, "").await).1, "RBAC_FORBIDDEN");
    // Without the scope, only one's own.
    for answer in [
        add(&server, "user_bob", "user_ann", 5).await,
        server.get("user_bob", &keys_of("user_ann")).await,
        rotate(&server, "user_bob", 3, 5, 0).await,
        revoke(&server, "user_bob", 3, "").await,
        revoke(&server, "user_bob", 99, "").await,
    ] {
        assert_eq!((answer.status, answer.code()), (403, "RBAC_FORBIDDEN"), "{answer:?}");
    }
    assert_eq!(statuses(&server, "admin").await, [(kid(3), "valid".to_owned())]);
}

#[tokio::test]
async fn somebody_elses_key_can_not_be_added_and_nobody_is_told_whose_it_is() {
    let server = server().await;
    assert_eq!(add(&server, "user_ann", "user_ann", 1).await.status, 201);
    for who in ["user_bob", "user_123"] {
        let taken = add(&server, who, who, 1).await;
        assert_eq!(refusal(&taken), (409, "INVALID_TRANSITION", "key_taken"));
        assert!(!taken.body.to_string().contains("user_ann"), "{taken:?}");
    }
    assert_eq!(add(&server, "user_bob", "user_bob", 2).await.status, 201);
    assert_eq!(refusal(&rotate(&server, "user_bob", 2, 1, 0).await), (409, "INVALID_TRANSITION", "key_taken"));
    // Of another tenant, there is no such key.
    for answer in [rotate(&server, "user_123", 1, 3, 0).await, revoke(&server, "user_123", 1, "").await] {
        assert_eq!((answer.status, answer.code()), (404, "NOT_FOUND"), "{answer:?}");
    }
    assert_eq!(statuses(&server, "user_ann").await, [(kid(1), "valid".to_owned())]);
}

#[tokio::test]
async fn a_rotated_key_ends_after_the_overlap_and_no_later_than_it_would_have() {
    let server = server().await;
    server.clock.stand();
    assert_eq!(add(&server, "user_ann", "user_ann", 1).await.status, 201);
    let rotated = rotate(&server, "user_ann", 1, 2, 600).await;
    assert_eq!(rotated.status, 200, "{rotated:?}");
    assert_eq!((&rotated.body["added"]["kid"], &rotated.body["replaced"]["kid"]), (&json!(kid(2)), &json!(kid(1))));
    // Sent again, it changes nothing.
    server.clock.wait(10);
    assert_eq!(rotate(&server, "user_ann", 1, 2, 600).await.body, rotated.body);
    assert_eq!((change(&server, "user_ann", 1).await.status, change(&server, "user_ann", 2).await.status), (200, 200));
    server.clock.wait(590);
    assert_eq!(refusal(&change(&server, "user_ann", 1).await), (401, "SIGNATURE_INVALID", "key_expired"));
    assert_eq!(change(&server, "user_ann", 2).await.status, 200);
    assert_eq!(refusal(&rotate(&server, "user_ann", 1, 3, 600).await).2, "key_expired");
    assert_eq!(rotate(&server, "user_ann", 1, 2, 600).await.status, 200, "still the same request");
    // By default, a day; at once if there is no overlap.
    let body = json!({"public_key": private(3).public().x()});
    let by_default = server.ask("user_ann", Method::POST, &format!("/signing-keys/{}/rotate", kid(2)), body).await;
    assert_eq!(by_default.status, 200, "{by_default:?}");
    assert_eq!(
        rotate(&server, "user_ann", 2, 3, 0).await.body["replaced"]["status"],
        "expired",
        "it is brought forward"
    );
    assert_eq!(refusal(&change(&server, "user_ann", 2).await).2, "key_expired");
    assert_eq!(change(&server, "user_ann", 3).await.status, 200);
    assert_eq!(refusal(&rotate(&server, "user_ann", 3, 3, 0).await).1, "VALIDATION_FAILED");
    let long = rotate(&server, "user_ann", 3, 4, 30 * 86_400 + 1).await;
    assert_eq!((long.code(), long.detail("pointer")), ("VALIDATION_FAILED", &json!("/overlap_seconds")));
    assert_eq!(revoke(&server, "user_ann", 3, "").await.status, 200);
    assert_eq!(refusal(&rotate(&server, "user_ann", 3, 4, 0).await).2, "key_revoked");
}

#[tokio::test]
async fn a_request_is_signed_with_a_valid_key_of_its_own_actor() {
    let server = server().await;
    server.clock.stand();
    assert_eq!(add(&server, "user_ann", "user_ann", 1).await.status, 201);
    assert_eq!(add(&server, "user_bob", "user_bob", 2).await.status, 201);
    assert_eq!(change(&server, "user_ann", 1).await.status, 200);
    // Not with the key of somebody else, nor with one that nobody has.
    for seed in [2, 3] {
        assert_eq!(refusal(&change(&server, "user_ann", seed).await), (401, "SIGNATURE_INVALID", "keyid"));
    }
    let over_another_path = with_key(&server, "user_ann", 1, server.now(), "/auth/revoke").build().unwrap();
    let mut over_another_path = over_another_path;
    *over_another_path.url_mut() = server.house.server.url("/tools/reload").parse().unwrap();
    let answer = server.house.client.execute(over_another_path).await.unwrap();
    assert_eq!(answer.status(), 401);
    let early = json!({"public_key": private(4).public().x(), "not_before": "2999-01-01T00:00:00Z"});
    assert_eq!(server.ask("user_ann", Method::POST, &keys_of("user_ann"), early).await.body["status"], "not_yet_valid");
    assert_eq!(refusal(&change(&server, "user_ann", 4).await).2, "key_not_yet_valid");
    assert_eq!(revoke(&server, "user_ann", 1, "").await.status, 200);
    assert_eq!(refusal(&change(&server, "user_ann", 1).await), (401, "SIGNATURE_INVALID", "key_revoked"));
}

/// The same nonce and the same window as with an HMAC key.
#[tokio::test]
async fn a_request_that_is_signed_with_a_signing_key_is_obeyed_once_and_while_it_is_fresh() {
    let server = server().await;
    server.clock.stand();
    assert_eq!(add(&server, "user_ann", "user_ann", 1).await.status, 201);
    let request = with_key(&server, "user_ann", 1, server.now(), "/auth/revoke");
    assert_eq!(sent(request.try_clone().unwrap()).await.status, 200);
    assert_eq!(refusal(&sent(request).await), (401, "EXPIRED_TTL", "nonce_used"));
    for off in [-61, 61] {
        let stale = sent(with_key(&server, "user_ann", 1, server.now() + off, "/auth/revoke")).await;
        assert_eq!(refusal(&stale), (401, "EXPIRED_TTL", "stale"));
    }
    // A nonce of the one kind of key is used for the other too.
    let by_hmac = server.request("user_ann", Method::POST, "/auth/revoke", &json!({"token": "y"})).build().unwrap();
    let input = by_hmac.headers()["signature-input"].to_str().unwrap().to_owned();
    let nonce = input.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert_eq!(server.house.client.execute(by_hmac).await.unwrap().status(), 200);
    let second =
        sent(with_nonce(&server, ("user_ann", 1), (server.now(), &nonce), "/auth/revoke", br#"{"token": "x"}"#)).await;
    assert_eq!(refusal(&second), (401, "EXPIRED_TTL", "nonce_used"));
}

/// INTENT-019
#[tokio::test]
async fn anybody_may_know_the_valid_keys_and_nobody_whose_they_are() {
    let server = server().await;
    server.clock.stand();
    let of = |keys: &[Value]| keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert!(published(&server).await.is_empty());
    for (actor, seed) in [("user_ann", 1), ("user_bob", 2), ("user_123", 3)] {
        assert_eq!(add(&server, actor, actor, seed).await.status, 201);
    }
    let until = json!({"public_key": private(4).public().x(), "expires_at": "2999-01-01T00:00:00Z"});
    assert_eq!(server.ask("user_ann", Method::POST, &keys_of("user_ann"), until).await.status, 201);
    let later = json!({"public_key": private(5).public().x(), "not_before": "2999-01-01T00:00:00Z"});
    assert_eq!(server.ask("user_ann", Method::POST, &keys_of("user_ann"), later).await.status, 201);
    let keys = published(&server).await;
    let mut expected = [1, 2, 3, 4].map(kid);
    expected.sort();
    assert_eq!(of(&keys), expected);
    let own = keys.iter().find(|key| key["kid"] == kid(4)).unwrap();
    let mut shown = json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": kid(4)});
    shown["x"] = private(4).public().x().into();
    (shown["nbf"], shown["exp"]) = (server.now().into(), 32_472_144_000_i64.into());
    assert_eq!(own, &shown);
    let verifier = Ed25519PublicKey::parse(own["x"].as_str().unwrap()).unwrap();
    assert!(verifier.verify_strict(b"signed", &private(4).sign(b"signed")));
    // A revoked key, and those of a disabled actor, are gone at once.
    assert_eq!(revoke(&server, "user_ann", 1, "").await.status, 200);
    let disabled = json!({"disabled": true, "kind": "human", "scopes": []});
    assert_eq!(server.ask("admin", Method::PUT, "/actors/user_bob", disabled).await.status, 200);
    let mut left = [3, 4].map(kid);
    left.sort();
    assert_eq!(of(&published(&server).await), left);
}

#[tokio::test]
async fn an_actor_has_so_many_keys_at_a_time() {
    let server = server().await;
    server.clock.stand();
    let most = u8::try_from(SIGNING_KEYS_MAX).unwrap();
    for seed in 1..=most {
        assert_eq!(add(&server, "user_ann", "user_ann", seed).await.status, 201);
    }
    let refused = add(&server, "user_ann", "user_ann", most + 1).await;
    assert_eq!((refused.status, refused.code()), (422, "VALIDATION_FAILED"), "{refused:?}");
    assert_eq!(refusal(&rotate(&server, "user_ann", 1, most + 1, 60).await).1, "VALIDATION_FAILED", "both would count");
    assert_eq!(rotate(&server, "user_ann", 1, most + 1, 0).await.status, 200);
    assert_eq!(add(&server, "user_bob", "user_bob", 200).await.status, 201, "it is each actor's own limit");
    // However fast they are replaced, so many are remembered.
    let recent = u8::try_from(SIGNING_KEYS_RECENT_MAX).unwrap();
    for seed in most + 1..recent {
        assert_eq!(rotate(&server, "user_ann", seed, seed + 1, 0).await.status, 200, "{seed}");
    }
    assert_eq!(revoke(&server, "user_ann", 2, "").await.status, 200, "a key can always be revoked");
    let refused = add(&server, "user_ann", "user_ann", recent + 1).await;
    assert!(refused.status == 422 && refused.body.to_string().contains("within 30 days"), "{refused:?}");
    server.clock.wait(SIGNING_KEY_ENDED_SECONDS + 1);
    server.directory.refresh().await.unwrap();
    assert_eq!(add(&server, "user_ann", "user_ann", recent + 1).await.status, 201);
}

/// What was revoked can't come back once nobody remembers it; what has expired can.
#[tokio::test]
async fn a_key_that_ended_long_ago_is_not_listed_and_can_not_be_added_again() {
    let server = server().await;
    server.clock.stand();
    for seed in 1..=3 {
        assert_eq!(add(&server, "user_ann", "user_ann", seed).await.status, 201);
    }
    assert_eq!(revoke(&server, "user_ann", 1, "").await.status, 200);
    assert_eq!(rotate(&server, "user_ann", 2, 4, 0).await.status, 200);
    server.clock.wait(SIGNING_KEY_ENDED_SECONDS - 1);
    server.directory.delete_expired_rows().await.unwrap();
    server.directory.refresh().await.unwrap();
    assert_eq!(statuses(&server, "user_ann").await.len(), 4);
    assert_eq!(refusal(&add(&server, "user_ann", "user_ann", 2).await).2, "key_expired");
    server.clock.wait(2);
    server.directory.delete_expired_rows().await.unwrap();
    server.directory.refresh().await.unwrap();
    let mut left = statuses(&server, "user_ann").await;
    left.sort();
    let mut valid = [3, 4].map(|seed| (kid(seed), "valid".to_owned()));
    valid.sort();
    assert_eq!(left, valid);
    assert_eq!(server.house.stage.rows(&SIGNING_KEYS).len(), 4, "what a key has signed must not become new");
    assert_eq!(refusal(&add(&server, "user_ann", "user_ann", 1).await).2, "key_revoked");
    assert_eq!(revoke(&server, "user_ann", 1, "").await.body["status"], "revoked");
    assert_eq!(refusal(&add(&server, "user_ann", "user_ann", 2).await).2, "key_expired");
}

#[tokio::test]
async fn the_keys_of_a_removed_actor_end_with_it() {
    let server = server().await;
    let body = json!({"scopes": [], "kind": "human"});
    assert_eq!(server.ask("admin", Method::PUT, "/actors/user_new", body).await.status, 200);
    assert_eq!(add(&server, "admin", "user_new", 1).await.status, 201);
    assert_eq!(server.ask("admin", Method::DELETE, "/actors/user_new", Value::Null).await.status, 200);
    assert!(published(&server).await.is_empty());
    let row = server.house.stage.rows(&SIGNING_KEYS).remove(0);
    assert_eq!((row.text("revoked_by"), row.text("reason")), ("admin", "the actor was removed"));
    assert_eq!(refusal(&add(&server, "user_bob", "user_bob", 1).await).2, "key_taken");
}

/// A schedule is what its owner asked for with the key that signed the request.
#[tokio::test]
async fn a_schedule_that_was_made_with_a_signing_key_ends_with_it() {
    let server = schedules::server().await;
    assert_eq!(add(&server, "user_ann", "user_ann", 1).await.status, 201);
    let body = br#"{"name": "often", "workflow_id": "summary", "every": "1m"}"#;
    let made = sent(with_body(&server, ("user_ann", 1), server.now(), "/schedules", body)).await;
    assert_eq!(made.status, 201, "{made:?}");
    server.tick().await;
    assert_eq!(server.runs(), 1);
    assert_eq!(revoke(&server, "user_ann", 1, "").await.status, 200);
    server.clock.wait(60);
    server.tick().await;
    let shown = server.shown().await;
    assert_eq!((server.runs(), &shown["status"], &shown["paused_by"]), (1, &json!("paused"), &json!("system")));
    assert!(shown["pause_reason"].as_str().unwrap().contains("no longer valid"), "{shown}");
}

/// Its holders could act under each other's names for good, also once a name has more rights than the pattern.
#[tokio::test]
async fn a_shared_key_can_not_add_a_key_of_ones_own() {
    let mut settings = settings(TENANT, vec![entry("ops_*", &["local.summarize"])]);
    settings.keys.push(("ops_*".to_owned(), Secret::new(key_of("ops_*").as_str())));
    let server = porch_with(settings, None).await;
    let path = keys_of("ops_one");
    let body = json!({"public_key": private(1).public().x()}).to_string();
    let claims = |of: Option<&str>| server.token_with("ops_one", |claims| claims.key_of = of.map(str::to_owned));
    for token in [claims(Some("ops_*")), claims(None)] {
        let (now, asked) = (server.clock.now(), ("POST", path.as_str()));
        let headers = signed_with(&key_of("ops_*"), "ops_one", now, asked, body.as_bytes());
        let request = server.house.client.post(server.house.server.url(&path)).bearer_auth(token);
        let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let refused = sent(request.header("content-type", "application/json").body(body.clone())).await;
        assert_eq!(refusal(&refused), (403, "RBAC_FORBIDDEN", "shared key"));
    }
    assert_eq!(add(&server, "admin", "ops_one", 1).await.status, 201);
    assert_eq!(change(&server, "ops_one", 1).await.status, 200);
}

#[tokio::test]
async fn what_is_no_key_or_no_validity_period_is_refused_with_the_member() {
    let server = server().await;
    let x = private(1).public().x();
    let cases = [
        (json!({"public_key": "AAAA"}), "/public_key"),
        (json!({"public_key": "A".repeat(43)}), "/public_key"),
        (json!({"public_key": *private(1).to_pem()}), "/public_key"),
        (json!({"public_key": x, "label": ""}), "/label"),
        (json!({"public_key": x, "label": "two\nlines"}), "/label"),
        (json!({"public_key": x, "label": "x".repeat(101)}), "/label"),
        (json!({"public_key": x, "not_before": "2001-01-01T00:00:00Z"}), "/not_before"),
        (json!({"public_key": x, "expires_at": "2001-01-01T00:00:00Z"}), "/expires_at"),
        (
            json!({"public_key": x, "not_before": "2999-01-01T00:00:00Z", "expires_at": "2999-01-01T00:00:00Z"}),
            "/expires_at",
        ),
    ];
    for (body, pointer) in cases {
        let refused = server.ask("user_ann", Method::POST, &keys_of("user_ann"), body.clone()).await;
        assert_eq!((refused.status, refused.detail("pointer")), (422, &json!(pointer)), "{body}: {refused:?}");
    }
    let private_key = json!({"public_key": *private(1).to_pem()});
    let told = server.ask("user_ann", Method::POST, &keys_of("user_ann"), private_key).await;
    assert!(told.body["error"]["message"].as_str().unwrap().contains("private key"), "{told:?}");
    for actor in ["anonymous", "user_*"] {
        assert_eq!(refusal(&add(&server, "admin", actor, 1).await).1, "VALIDATION_FAILED", "{actor}");
    }
    assert_eq!(refusal(&revoke(&server, "user_ann", 1, "?reason=").await).0, 403, "there is no such key of theirs");
    assert_eq!(add(&server, "user_ann", "user_ann", 1).await.status, 201);
    assert_eq!(revoke(&server, "user_ann", 1, "?reason=").await.detail("pointer"), "/reason");
}
