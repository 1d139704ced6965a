//! Sign-in, refresh and revocation; token keys and actor keys.

use super::access_server::{AccessServer, ApiResponse, by, entry, harmless, porch, porch_with, sent};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chimera_core::access::tables::{ACTOR_KEYS, NONCES, REFRESH_TOKENS, REVOKED_TOKENS, TOKEN_FAMILIES};
use chimera_core::access::token::{Audience, Claims, TokenKey};
use chimera_core::access::{ActorEntry, mac};
use chimera_core::limits::{REFRESH_SECONDS, REVOKED_CACHED_MAX, TOKEN_SECONDS};
use chimera_core::record::{Insert, Tx, Value as Cell};
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use chimera_engine::access::Settings;
use chimera_engine::access::port::Counters;
use chimera_engine::port::{Clock, Records};
use chimera_storage::Redis;
use chimera_storage::counter::RedisCounters;
use chimera_testkit::access::{settings, token, token_key};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::TENANT;
use chimera_testkit::redis::PrivateRedis;
use ed25519_dalek::{Signature, VerifyingKey};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A part of a token.
fn part(token: &str, at: usize) -> Value {
    let bytes = URL_SAFE_NO_PAD.decode(token.split('.').nth(at).unwrap()).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn text(answer: &ApiResponse, member: &str) -> String {
    answer.body[member].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// Asks for something harmless with a token.
async fn with(porch: &AccessServer, actor: &str, token: &str) -> ApiResponse {
    let body = json!({"steps": harmless(), "wait": 0}).to_string();
    porch.raw(token, Some(&by(actor, &body)), &body).await
}

async fn refresh(porch: &AccessServer, actor: &str, refresh_token: &str) -> ApiResponse {
    porch.post(actor, "/auth/refresh", &json!({"refresh_token": refresh_token})).await
}

/// CORE-098, CORE-100, CORE-111
#[tokio::test]
async fn a_token_counts_for_an_hour_and_not_a_second_longer() {
    let porch = porch().await;
    let given = porch.sign_in("user_ann", "n1").await;
    assert_eq!((given.status, given.header("cache-control")), (200, "no-store"), "{given:?}");
    assert_eq!((&given.body["token_type"], &given.body["expires_in"]), (&json!("Bearer"), &json!(3_600)));
    let token = text(&given, "access_token");
    let claims = part(&token, 1);
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3_600);
    assert_eq!((&claims["sub"], &claims["scopes"]), (&json!("user_ann"), &Value::Null));
    assert_eq!(with(&porch, "user_ann", &token).await.status, 200);
    porch.clock.wait(3_600 - 5);
    assert_eq!(with(&porch, "user_ann", &token).await.status, 200);
    porch.clock.wait(5);
    let late = with(&porch, "user_ann", &token).await;
    assert_eq!((late.status, late.detail("reason")), (401, &json!("expired")), "{late:?}");
}

/// CORE-114
#[tokio::test]
async fn what_is_wrong_with_a_token_is_told_in_one_word() {
    let porch = porch_with(settings(TENANT, vec![entry("anonymous", &[])]), None).await;
    let valid = porch.token_with("admin", |_| {});
    let (head, rest) = valid.split_once('.').unwrap();
    let forged = |header: Value| format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header.to_string()));
    let of = |key: TokenKey| {
        let claims: Claims = serde_json::from_value(part(&valid, 1)).unwrap();
        key.sign(&claims).unwrap()
    };
    let public = URL_SAFE_NO_PAD.decode(token_key().jwk().unwrap().x).unwrap();
    let cases = [
        ("garbage".to_owned(), "malformed"),
        (format!("{head}.{rest}.{rest}"), "malformed"),
        ("x".repeat(9_000), "malformed"),
        (forged(json!({"alg": "none"})), "wrong algorithm"),
        (forged(json!({"alg": "EdDSA", "crit": ["exp"]})), "wrong algorithm"),
        (of(TokenKey::Hs256 { secret: Secret::new(public), restricted_to: None }), "wrong algorithm"),
        (of(TokenKey::from_seed(&[8; 32])), "wrong signature"),
        (porch.token_with("admin", |claims| claims.exp = claims.iat), "expired"),
        (porch.token_with("admin", |claims| claims.iat += 100), "not yet valid"),
        (porch.token_with("admin", |claims| claims.aud = Some(Audience::One("elsewhere".into()))), "wrong audience"),
        (porch.token_with("user_*", |_| {}), "bad claims"),
        (porch.token_with("admin", |claims| claims.scopes = Some(vec!["a b".into()])), "bad claims"),
    ];
    for (token, why) in cases {
        let answer = with(&porch, "admin", &token).await;
        assert_eq!((answer.status, answer.code()), (401, "UNAUTHENTICATED"), "{why}: {answer:?}");
        assert_eq!(answer.body["detail"], format!("Invalid JWT: {why}"));
        assert!(answer.header("www-authenticate").starts_with("Bearer error=\"invalid_token\""));
    }
    let several = Audience::Several(vec!["elsewhere".into(), "chimera".into()]);
    let aimed = porch.token_with("admin", |claims| claims.aud = Some(several));
    assert_eq!(with(&porch, "admin", &aimed).await.status, 202);
}

#[tokio::test]
async fn a_sign_in_is_made_now_and_used_once_on_all_nodes() {
    let porch = porch().await;
    let sign_in = async |porch: &AccessServer, issued_at: Value, nonce: &str| {
        let body = json!({"actor": "user_ann", "issued_at": issued_at, "nonce": nonce});
        porch.post("user_ann", "/auth/token", &body).await
    };
    assert_eq!(sign_in(&porch, json!(porch.now()), "once").await.status, 200);
    let beside = porch.second_node(settings(TENANT, Vec::new()), None).await;
    for node in [&porch, &beside] {
        let again = sign_in(node, json!(porch.now()), "once").await;
        assert_eq!((again.status, again.code()), (401, "EXPIRED_TTL"), "{again:?}");
        assert_eq!(again.detail("reason"), "nonce_used");
    }
    let text = chimera_core::time::Timestamp::from_micros(porch.now() * 1_000_000).to_string();
    assert_eq!(sign_in(&porch, json!(text), "twice").await.status, 200);
    for off in [-65, 65] {
        let stale = sign_in(&porch, json!(porch.now() + off), "stale").await;
        assert_eq!((stale.code(), stale.detail("reason")), ("EXPIRED_TTL", &json!("stale")), "{stale:?}");
    }
    for (issued_at, nonce) in [(json!("yesterday"), "a"), (json!(null), "b"), (json!(porch.now()), "")] {
        let bad = sign_in(&beside, issued_at, nonce).await;
        assert_eq!((bad.status, bad.code()), (400, "SCHEMA_INVALID"), "{bad:?}");
    }
    assert_eq!(porch.sign_in("user_bob", "once").await.status, 200, "a nonce is an actor's own");
}

/// A clock that jumps ahead and back must not make what was used once usable again.
#[tokio::test]
async fn a_nonce_and_a_revocation_outlast_a_jump_of_the_clock_in_either_direction() {
    let porch = porch().await;
    let body = json!({"actor": "user_ann", "issued_at": porch.now(), "nonce": "once"});
    let signed_in = porch.post("user_ann", "/auth/token", &body).await;
    let bearer = text(&signed_in, "access_token");
    assert_eq!(porch.raw(&bearer, None, "").await.code(), "SIGNATURE_INVALID", "the token itself is taken");
    let revoke = json!({"token": bearer});
    assert_eq!(porch.ask("user_ann", Method::POST, "/auth/revoke", revoke).await.status, 200);
    porch.clock.jump(86_400);
    porch.directory.delete_expired_rows().await.unwrap();
    porch.directory.refresh().await.unwrap();
    let ahead = json!({"actor": "user_ann", "issued_at": porch.now(), "nonce": "ahead"});
    assert_eq!(porch.post("user_ann", "/auth/token", &ahead).await.status, 200);
    porch.clock.jump(0);
    let again = porch.post("user_ann", "/auth/token", &body).await;
    assert_eq!(again.detail("reason"), "nonce_used", "{again:?}");
    assert_eq!(porch.raw(&bearer, None, "").await.code(), "UNAUTHENTICATED", "it was revoked");
    porch.clock.wait(86_400);
    porch.directory.delete_expired_rows().await.unwrap();
    let again = porch.post("user_ann", "/auth/token", &ahead).await;
    assert_eq!(again.detail("reason"), "nonce_used", "{again:?}");
}

#[tokio::test]
async fn a_nonce_is_remembered_for_as_long_as_its_request_counts_as_made_now() {
    let porch = porch().await;
    porch.clock.stand();
    // Signed by a clock that is as far ahead of ours as it may be, so it counts for longest.
    let body = json!({"actor": "user_ann", "issued_at": porch.now() + 60, "nonce": "once"});
    assert_eq!(porch.post("user_ann", "/auth/token", &body).await.status, 200);
    for (wait, after) in [(30, 30), (29, 59), (2, 61), (58, 119), (1, 120)] {
        porch.clock.wait(wait);
        porch.directory.delete_expired_rows().await.unwrap();
        let again = porch.post("user_ann", "/auth/token", &body).await;
        assert_eq!((again.status, again.detail("reason")), (401, &json!("nonce_used")), "{after} s later: {again:?}");
    }
    porch.clock.wait(10);
    porch.directory.delete_expired_rows().await.unwrap();
    let late = porch.post("user_ann", "/auth/token", &body).await;
    assert_eq!((late.status, late.detail("reason")), (401, &json!("stale")), "{late:?}");
    assert!(porch.house.stage.rows(&NONCES).is_empty(), "nobody needs it any more");
}

#[tokio::test]
async fn a_request_that_is_a_part_of_a_second_too_old_or_too_new_is_refused() {
    let porch = porch().await;
    porch.clock.stand();
    for (off, status) in [(-1e300, 401), (-60.5, 401), (-60.0, 200), (60.0, 200), (60.5, 401), (1e300, 401)] {
        let nonce = format!("n{off}");
        let body = json!({"actor": "user_ann", "issued_at": porch.now() as f64 + off, "nonce": nonce});
        assert_eq!(porch.post("user_ann", "/auth/token", &body).await.status, status, "{off}");
    }
}

#[tokio::test]
async fn nobody_signs_in_without_a_key_of_their_own() {
    let porch = porch().await;
    let stranger = porch.sign_in("user_unknown", "n").await;
    assert_eq!((stranger.status, stranger.code()), (401, "SIGNATURE_INVALID"), "{stranger:?}");
    let body = json!({"actor": "admin", "issued_at": porch.now(), "nonce": "n"});
    let foreign = porch.post("user_bob", "/auth/token", &body).await;
    assert_eq!((foreign.status, foreign.code()), (401, "SIGNATURE_INVALID"), "{foreign:?}");
    let pattern = porch.sign_in("user_*", "n").await;
    assert_eq!((pattern.status, pattern.detail("pointer")), (400, &json!("/actor")), "{pattern:?}");
    let tried: Vec<Value> = porch.refusals().iter().map(|entry| entry["details"]["actor"].clone()).collect();
    assert_eq!(tried, ["user_unknown", "admin", "user_*"], "the ledger knows as whom they tried to come in");
}

#[tokio::test]
async fn a_scope_that_no_token_could_carry_is_refused_at_sign_in() {
    let porch = porch().await;
    for (n, scope) in ["runs.read ", " runs.read", "runs read", "runs..read", "r\u{fc}ns.read", ""].iter().enumerate() {
        let nonce = format!("narrow-{n}");
        let body = json!({"actor": "admin", "issued_at": porch.now(), "nonce": nonce, "scopes": ["runs.read", scope]});
        let refused = porch.post("admin", "/auth/token", &body).await;
        assert_eq!((refused.status, refused.code()), (422, "VALIDATION_FAILED"), "{scope:?}: {refused:?}");
        assert_eq!(refused.detail("pointer"), "/scopes");
    }
}

#[tokio::test]
async fn a_token_can_be_narrower_than_its_actor_and_never_wider() {
    let porch = porch().await;
    let body = json!({"actor": "user_ann", "issued_at": porch.now(), "nonce": "n",
        "scopes": ["github.read", "outlook.send", "notion.*"]});
    let given = porch.post("user_ann", "/auth/token", &body).await;
    assert_eq!(given.body["scopes"], json!(["github.read", "notion.read"]), "{given:?}");
    let next = refresh(&porch, "user_ann", &text(&given, "refresh_token")).await;
    assert_eq!(next.body["scopes"], json!(["github.read", "notion.read"]), "{next:?}");
    for answer in [given, next] {
        let token = text(&answer, "access_token");
        assert_eq!(part(&token, 1)["scopes"], json!(["github.read", "notion.read"]));
        let refused = with(&porch, "user_ann", &token).await;
        assert_eq!((refused.status, refused.detail("required_scope")), (403, &json!("local.summarize")));
    }
    let wider = porch.token_with("user_ann", |claims| claims.scopes = Some(vec!["*".into()]));
    let body = json!({"steps": [{"tool": "outlook.send", "input": {}}]}).to_string();
    let refused = porch.raw(&wider, Some(&by("user_ann", &body)), &body).await;
    assert_eq!((refused.status, refused.detail("required_scope")), (403, &json!("outlook.send")));
}

/// CORE-115
#[tokio::test]
async fn a_refresh_token_gives_the_next_and_may_be_shared_for_a_moment() {
    let porch = porch().await;
    let first = porch.sign_in("user_ann", "n").await;
    porch.clock.wait(100);
    let refresh_token = text(&first, "refresh_token");
    let many = futures::future::join_all((0..5).map(|_| refresh(&porch, "user_ann", &refresh_token))).await;
    let mut seen = std::collections::BTreeSet::from([refresh_token.clone()]);
    for next in &many {
        assert_eq!(next.status, 200, "{next:?}");
        assert!(seen.insert(text(next, "refresh_token")), "a refresh token is given out once");
        let (old, new) = (part(&text(&first, "access_token"), 1), part(&text(next, "access_token"), 1));
        assert!(new["exp"].as_i64() > old["exp"].as_i64(), "{new}");
        assert_eq!((&new["fam"], &new["sub"]), (&old["fam"], &old["sub"]));
        assert_eq!(with(&porch, "user_ann", &text(next, "access_token")).await.status, 200);
    }
    let foreign = refresh(&porch, "user_bob", &text(&many[0], "refresh_token")).await;
    assert_eq!((foreign.status, foreign.code()), (401, "SIGNATURE_INVALID"));
    assert_eq!(refresh(&porch, "user_ann", &text(&many[0], "refresh_token")).await.status, 200);
    assert_eq!(refresh(&porch, "user_ann", "unknown").await.code(), "UNAUTHENTICATED");
}

/// CORE-115, CORE-116
#[tokio::test]
async fn a_refresh_token_that_comes_back_later_ends_the_whole_sign_in() {
    let porch = porch().await;
    let first = porch.sign_in("user_ann", "n").await;
    let other = porch.sign_in("user_ann", "m").await;
    let old = text(&first, "refresh_token");
    let next = refresh(&porch, "user_ann", &old).await;
    porch.clock.wait(25);
    assert_eq!(refresh(&porch, "user_ann", &old).await.status, 200, "within the grace");
    assert_eq!(with(&porch, "user_ann", &text(&next, "access_token")).await.status, 200);
    porch.clock.wait(10);
    assert_eq!(refresh(&porch, "user_ann", &old).await.status, 401);
    for answer in [&first, &next] {
        let refused = with(&porch, "user_ann", &text(answer, "access_token")).await;
        assert_eq!((refused.status, refused.detail("reason")), (401, &json!("revoked")), "{refused:?}");
    }
    assert_eq!(refresh(&porch, "user_ann", &text(&next, "refresh_token")).await.status, 401);
    assert_eq!(with(&porch, "user_ann", &text(&other, "access_token")).await.status, 200, "another sign-in");
}

fn redis(server: &PrivateRedis) -> Option<Arc<dyn Counters>> {
    Some(Arc::new(RedisCounters::new(Redis::new(&server.url()).unwrap())))
}

async fn revoke(porch: &AccessServer, actor: &str, token: &str, body: &Value) -> ApiResponse {
    let request = porch.house.client.post(porch.house.server.url("/auth/revoke")).bearer_auth(token);
    sent(crate::flow::signed(request, porch.clock.now(), actor, body)).await
}

/// CORE-116
#[tokio::test]
async fn a_revoked_token_is_refused_at_once_on_every_node_that_shares_redis() {
    let server = PrivateRedis::start();
    let porch = porch_with(settings(TENANT, Vec::new()), redis(&server)).await;
    let beside = porch.second_node(settings(TENANT, Vec::new()), redis(&server)).await;
    let given = porch.sign_in("user_ann", "n").await;
    let token = text(&given, "access_token");
    assert_eq!(with(&beside, "user_ann", &token).await.status, 200);
    let done = revoke(&porch, "user_ann", &token, &json!({"token": token})).await;
    assert_eq!((done.status, &done.body), (200, &json!({"revoked": true})), "{done:?}");
    for node in [&porch, &beside] {
        let refused = with(node, "user_ann", &token).await;
        assert_eq!((refused.status, &refused.body["detail"]), (401, &json!("Invalid JWT: revoked")), "{refused:?}");
    }
    let jti = part(&token, 1)["jti"].as_str().unwrap().to_owned();
    let left: i64 = server.ask(&["TTL", &format!("revoked:{jti}")]).parse().unwrap();
    assert!((3_500..=3_600).contains(&left), "{left}");
    let rows = porch.house.stage.rows(&REVOKED_TOKENS);
    assert_eq!((rows.len(), rows[0].text("token_id")), (1, jti.as_str()));
    assert_eq!(refresh(&porch, "user_ann", &text(&given, "refresh_token")).await.status, 200, "the sign-in goes on");
}

/// Whoever hands in a leaked token must not be told that it is dead while it lives.
#[tokio::test]
async fn a_token_of_somebody_else_is_refused_and_an_unknown_one_is_said_not_to_be_there() {
    let porch = porch().await;
    let ann = porch.sign_in("user_ann", "n").await;
    let bob = text(&porch.sign_in("user_bob", "n").await, "access_token");
    for token in ["access_token", "refresh_token"] {
        let told = revoke(&porch, "user_bob", &bob, &json!({"token": text(&ann, token)})).await;
        assert_eq!((told.status, told.code()), (403, "RBAC_FORBIDDEN"), "{token}: {told:?}");
    }
    assert_eq!(with(&porch, "user_ann", &text(&ann, "access_token")).await.status, 200);
    let told = revoke(&porch, "user_bob", &bob, &json!({"token": "nobody knows it"})).await;
    assert_eq!((told.status, &told.body), (200, &json!({"revoked": false})), "{told:?}");
    let own = revoke(&porch, "user_bob", &bob, &json!({"token": bob})).await;
    assert_eq!((own.status, &own.body), (200, &json!({"revoked": true})), "{own:?}");
    let body = json!({"token": text(&ann, "refresh_token")});
    let told = porch.ask("admin", Method::POST, "/auth/revoke", body).await;
    assert_eq!((told.status, &told.body), (200, &json!({"revoked": true})), "{told:?}");
    assert_eq!(with(&porch, "user_ann", &text(&ann, "access_token")).await.detail("reason"), "revoked");
    let entries = porch.get("admin", "/audit?event_type=token.family_revoked").await;
    let last = entries.body["items"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["actor_id"], &last["data_json"]["actor"]), (&json!("admin"), &json!("user_ann")), "who did it");
}

#[tokio::test]
async fn a_revocation_counts_without_redis_and_without_a_body_for_the_whole_sign_in() {
    let mut server = PrivateRedis::start();
    let sets = Settings {
        counter_fallback: chimera_engine::access::CounterFallback::Database,
        ..settings(TENANT, Vec::new())
    };
    let porch = porch_with(sets.clone(), redis(&server)).await;
    let beside = porch.second_node(sets, redis(&server)).await;
    let given = porch.sign_in("user_ann", "n").await;
    let token = text(&given, "access_token");
    server.stop();
    assert_eq!(revoke(&porch, "user_ann", &token, &Value::Null).await.status, 200);
    for node in [&porch, &beside] {
        let refused = with(node, "user_ann", &token).await;
        assert_eq!((refused.status, refused.detail("reason")), (401, &json!("revoked")), "{refused:?}");
    }
    assert_eq!(refresh(&porch, "user_ann", &text(&given, "refresh_token")).await.status, 401);
}

/// However much somebody revokes, nothing that was revoked before counts again.
#[tokio::test]
async fn a_revoked_token_is_refused_when_more_was_revoked_than_anybody_holds() {
    let porch = porch().await;
    let token = text(&porch.sign_in("user_ann", "n").await, "access_token");
    let good = text(&porch.sign_in("user_ann", "m").await, "access_token");
    assert_eq!(revoke(&porch, "user_ann", &token, &json!({"token": token})).await.status, 200);
    let until = porch.clock.now().plus_seconds(3_600);
    for part in 0..10 {
        let row = |at: usize| {
            let id = format!("!{part}-{at}");
            let cells = vec![
                ("token_id", id.into()),
                ("actor_id", "user_bob".into()),
                ("tenant_id", TENANT.into()),
                ("expires_at", until.into()),
            ];
            Insert::new(&REVOKED_TOKENS, cells).unwrap()
        };
        let inserts = (0..REVOKED_CACHED_MAX / 10).map(row).collect();
        porch.house.stage.records.commit(Tx { inserts, ..Tx::default() }).await.unwrap();
    }
    let beside = porch.second_node(settings(TENANT, Vec::new()), None).await;
    let refused = with(&beside, "user_ann", &token).await;
    assert_eq!((refused.status, refused.detail("reason")), (401, &json!("revoked")), "{refused:?}");
    assert_eq!(with(&beside, "user_ann", &good).await.status, 200);
}

#[tokio::test]
async fn a_sign_in_ends_after_its_time_however_often_its_token_was_exchanged() {
    let porch = porch().await;
    let first = porch.sign_in("user_ann", "n").await;
    porch.clock.wait(REFRESH_SECONDS - 60);
    let next = refresh(&porch, "user_ann", &text(&first, "refresh_token")).await;
    assert_eq!(next.status, 200, "{next:?}");
    porch.clock.wait(60);
    let late = refresh(&porch, "user_ann", &text(&next, "refresh_token")).await;
    assert_eq!((late.status, late.code()), (401, "UNAUTHENTICATED"), "a fresh token of an old sign-in: {late:?}");
}

#[tokio::test]
async fn what_was_revoked_stays_so_until_its_time_is_over_and_is_then_forgotten() {
    let porch = porch().await;
    let given = porch.sign_in("user_ann", "n").await;
    let token = text(&given, "access_token");
    assert_eq!(revoke(&porch, "user_ann", &token, &json!({"token": token})).await.status, 200);
    porch.clock.wait(TOKEN_SECONDS - 60);
    porch.directory.delete_expired_rows().await.unwrap();
    assert_eq!(with(&porch, "user_ann", &token).await.detail("reason"), "revoked", "it would count without that");
    porch.clock.wait(REFRESH_SECONDS + TOKEN_SECONDS);
    porch.directory.delete_expired_rows().await.unwrap();
    for table in [&NONCES, &REVOKED_TOKENS, &REFRESH_TOKENS, &TOKEN_FAMILIES] {
        assert!(porch.house.stage.rows(table).is_empty(), "{} grows for ever", table.name);
    }
}

#[tokio::test]
async fn nobody_takes_back_a_token_of_another_tenant() {
    let foreign = ActorEntry { tenant: "other".to_owned(), ..entry("user_cat", &["*"]) };
    let porch = porch_with(settings(TENANT, vec![foreign]), None).await;
    let cat = porch.sign_in("user_cat", "n").await;
    for token in [text(&cat, "access_token"), text(&cat, "refresh_token")] {
        let told = porch.ask("admin", Method::POST, "/auth/revoke", json!({"token": token})).await;
        assert_eq!((told.status, &told.body["revoked"]), (200, &json!(false)), "as an unknown one: {told:?}");
    }
    assert_eq!(with(&porch, "user_cat", &text(&cat, "access_token")).await.status, 200);
    assert_eq!(refresh(&porch, "user_cat", &text(&cat, "refresh_token")).await.status, 200);
}

/// CORE-110
#[tokio::test]
async fn anybody_can_check_a_token_by_the_published_keys() {
    let before = TokenKey::from_seed(&[5; 32]);
    let mut sets = settings(TENANT, Vec::new());
    let x = before.jwk().unwrap().x;
    let public: [u8; 32] = URL_SAFE_NO_PAD.decode(x).unwrap().try_into().unwrap();
    sets.token_keys.push(TokenKey::from_public(&public).unwrap());
    let porch = porch_with(sets, None).await;
    let given = text(&porch.sign_in("user_ann", "n").await, "access_token");
    let url = porch.house.server.url("/.well-known/jwks.json");
    let keys = sent(porch.house.client.get(url)).await.body["keys"].as_array().unwrap().clone();
    assert_eq!(keys.len(), 2);
    let header = part(&given, 0);
    assert_eq!(header["alg"], "EdDSA");
    let key = keys.iter().find(|key| key["kid"] == header["kid"]).unwrap();
    assert_eq!((&key["kty"], &key["crv"], key.get("d")), (&json!("OKP"), &json!("Ed25519"), None));
    let bytes: [u8; 32] = URL_SAFE_NO_PAD.decode(key["x"].as_str().unwrap()).unwrap().try_into().unwrap();
    let (message, signature) = given.rsplit_once('.').unwrap();
    let signature = Signature::from_slice(&URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    VerifyingKey::from_bytes(&bytes).unwrap().verify_strict(message.as_bytes(), &signature).unwrap();
    let iat = porch.now();
    let claims = Claims {
        sub: "user_ann".into(),
        exp: iat + 60,
        iat,
        nbf: None,
        jti: None,
        fam: None,
        aud: None,
        scopes: None,
        key_of: None,
    };
    assert_eq!(with(&porch, "user_ann", &before.sign(&claims).unwrap()).await.status, 200, "keys overlap");
}

#[tokio::test]
async fn the_single_key_set_up_mints_for_its_one_actor_alone() {
    let secret = || Secret::new("a shared secret of one actor");
    let mut sets = settings(TENANT, Vec::new());
    let restricted_to = Some("n8n_workflow_abc".to_owned());
    sets.token_keys = vec![TokenKey::Hs256 { secret: secret(), restricted_to }];
    let porch = porch_with(sets, None).await;
    let given = porch.sign_in("n8n_workflow_abc", "n").await;
    let own = text(&given, "access_token");
    assert_eq!(part(&own, 0), json!({"alg": "HS256", "typ": "JWT"}));
    assert_eq!(with(&porch, "n8n_workflow_abc", &own).await.status, 202);
    let mut claims: Claims = serde_json::from_value(part(&own, 1)).unwrap();
    claims.sub = "admin".into();
    let minted = TokenKey::Hs256 { secret: secret(), restricted_to: None }.sign(&claims).unwrap();
    let refused = with(&porch, "admin", &minted).await;
    assert_eq!((refused.status, &refused.body["detail"]), (401, &json!("Invalid JWT: wrong signature")));
    let confused = with(&porch, "admin", &porch.token_with("admin", |_| {})).await;
    assert_eq!(confused.body["detail"], "Invalid JWT: wrong algorithm");
    let url = porch.house.server.url("/.well-known/jwks.json");
    assert_eq!(sent(porch.house.client.get(url)).await.body, json!({"keys": []}), "a secret is not published");
}

/// A server that can't open an actor's key can't tell whether a signature is right: that is not the caller's fault.
#[tokio::test]
async fn a_key_that_can_not_be_opened_is_not_blamed_on_the_caller() {
    let porch = porch().await;
    let now = porch.house.stage.world.clock.now();
    let row = vec![
        ("id", uuid::Uuid::from_u128(9).into()),
        ("actor_id", "user_ann".into()),
        ("tenant_id", "acme".into()),
        ("sealed_key", Cell::Bytes(vec![7; 60])),
        ("not_before", Timestamp::from_micros(0).into()),
    ];
    let tx = Tx { inserts: vec![Insert::new(&ACTOR_KEYS, row).unwrap()], ..Tx::default() };
    porch.house.stage.records.commit(tx).await.unwrap();
    porch.directory.refresh().await.unwrap();
    let (token, body) = (token("user_ann", now), json!({"steps": harmless()}).to_string());
    let refused = porch.raw(&token, Some(&by("user_bob", &body)), &body).await;
    assert_eq!(
        (refused.status, refused.code(), refused.detail("reason")),
        (503, "NOT_READY", &json!("key_unreadable"))
    );
    assert_ne!(
        porch.raw(&token, Some(&by("user_ann", &body)), &body).await.status,
        503,
        "another key of theirs counts"
    );
}

/// CORE-105, CORE-107
#[tokio::test]
async fn whoever_changes_the_bytes_on_the_way_learns_which_ones_arrived() {
    let porch = porch().await;
    let token = token("user_ann", porch.house.stage.world.clock.now());
    let sent = json!({"steps": harmless()}).to_string();
    let arrived = format!("{sent}\n");
    let answer = porch.raw(&token, Some(&by("user_ann", &sent)), &arrived).await;
    assert_eq!((answer.status, &answer.body["detail"]), (401, &json!("Invalid HMAC signature")));
    assert_eq!(answer.detail("bytes_received"), &json!(arrived.len()));
    assert_eq!(answer.detail("sha256"), &json!(hex(&Sha256::digest(arrived.as_bytes()))));
    assert_eq!(answer.detail("reason"), "mismatch");
    let missing = porch.raw(&token, None, &sent).await;
    assert_eq!((missing.status, missing.detail("reason")), (401, &json!("missing")));
    for wrong in ["", "00", &by("user_ann", &sent).to_uppercase(), &"0".repeat(100_000)[..10_000]] {
        assert_eq!(porch.raw(&token, Some(wrong), &sent).await.code(), "SIGNATURE_INVALID");
    }
    assert_eq!(porch.raw(&token, Some(&by("user_ann", &arrived)), &arrived).await.status, 200);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// CORE-109
#[tokio::test]
async fn an_old_key_counts_beside_the_new_one_for_as_long_as_was_said() {
    let porch = porch().await;
    let make = async |overlap: u32| {
        let answer =
            porch.ask("admin", Method::POST, "/actors/user_new/keys", json!({"overlap_seconds": overlap})).await;
        assert_eq!((answer.status, answer.header("cache-control")), (201, "no-store"), "{answer:?}");
        text(&answer, "hmac_key")
    };
    let signs = async |key: &str| {
        let body = json!({"steps": harmless()}).to_string();
        let token = token("user_new", porch.house.stage.world.clock.now());
        let signature = mac::sign(&Secret::new(key), body.as_bytes());
        porch.raw(&token, Some(&signature), &body).await.status
    };
    let old = make(0).await;
    assert_eq!(signs(&old).await, 200);
    let new = make(60).await;
    assert_eq!((signs(&old).await, signs(&new).await), (200, 200));
    porch.clock.wait(61);
    assert_eq!((signs(&old).await, signs(&new).await), (401, 200));
    let newest = make(0).await;
    assert_eq!((signs(&new).await, signs(&newest).await), (401, 200), "without an overlap the change is at once");
    let shown = porch.get("admin", "/actors/user_new").await;
    assert_eq!(shown.body["keys"], 1);
    assert!(!shown.body.to_string().contains(&newest), "a key is told once");
    let foreign = porch.ask("user_ann", Method::POST, "/actors/user_new/keys", json!({})).await;
    assert_eq!((foreign.status, foreign.detail("required_scope")), (403, &json!("actors.write")));
}

/// CORE-099, CORE-100: one secret for many workflows, as an n8n set-up has it.
#[tokio::test]
async fn a_key_that_a_pattern_shares_counts_for_every_name_the_pattern_stands_for() {
    let own = super::access_server::entry("n8n_workflow_special", &["local.summarize"]);
    let mut settings = chimera_testkit::access::settings(chimera_testkit::flow::TENANT, vec![own]);
    let shared = chimera_testkit::access::key_of("n8n_workflow_*");
    settings.keys.push(("n8n_workflow_*".to_owned(), chimera_core::secret::Secret::new(shared.as_str())));
    let porch = super::access_server::porch_with(settings, None).await;
    let sign_in = async |actor: &str, nonce: &str| {
        let body = json!({"actor": actor, "issued_at": porch.now(), "nonce": nonce});
        let now = chimera_core::time::Timestamp::from_micros(porch.now() * 1_000_000);
        let target = ("POST", "/auth/token");
        let text = body.to_string();
        let headers = chimera_testkit::access::signed_with(&shared, actor, now, target, text.as_bytes());
        let request =
            porch.house.client.post(porch.house.server.url("/auth/token")).header("content-type", "application/json");
        let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        super::access_server::sent(request.body(text)).await.status
    };
    assert_eq!(sign_in("n8n_workflow_orders", "1").await, 200);
    assert_eq!(sign_in("n8n_workflow_mails", "2").await, 200);
    assert_eq!(sign_in("n8n_workflow_special", "3").await, 401, "an entry of its own has keys of its own");
    assert_eq!(sign_in("service_bot", "4").await, 401);
    assert_eq!(sign_in("n8n_workflow_*", "5").await, 400, "a pattern is nobody");
    let entries = porch.house.stage.rows(&chimera_core::ledger::tables::AUDIT_LOG_ENTRIES);
    let issued = entries.iter().filter(|row| row.text("event_type") == "token.issued");
    let told: Vec<(String, Value)> = issued
        .map(|row| {
            let data = row.get("data_json").as_json().unwrap().value().unwrap();
            (row.text("actor_id").to_owned(), data["key_of"].clone())
        })
        .collect();
    let expected =
        ["n8n_workflow_orders", "n8n_workflow_mails"].map(|actor| (actor.to_owned(), json!("n8n_workflow_*")));
    assert_eq!(told, expected);
}
