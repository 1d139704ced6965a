//! Rate limits: what is counted, what the headers say, and that no caller exceeds its quota.

use super::access_server::{AccessServer, ApiResponse, by, entry, harmless, porch, porch_with, sent};
use chimera_core::access::ActorEntry;
use chimera_core::flow::tables::RUNS;
use chimera_core::limits::STRANGER_ENTRIES_MAX;
use chimera_engine::access::port::Counters;
use chimera_engine::access::{CounterFallback, Settings};
use chimera_storage::Redis;
use chimera_storage::counter::RedisCounters;
use chimera_testkit::access::{settings, token};
use chimera_testkit::flow::TENANT;
use chimera_testkit::redis::PrivateRedis;
use futures::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;

fn shared(server: &PrivateRedis) -> Option<Arc<dyn Counters>> {
    Some(Arc::new(RedisCounters::new(Redis::new(&server.url()).unwrap())))
}

/// A request that counts, is cheap, and always has something wrong with its body.
async fn cheap(porch: &AccessServer, actor: &str) -> ApiResponse {
    porch.act(actor, json!({})).await
}

/// How many of so many requests, many of them at once, were counted.
async fn burst(porch: &AccessServer, beside: &AccessServer, actor: &str, count: usize) -> usize {
    let asks = futures::stream::iter(0..count).map(|at| cheap([porch, beside][at % 2], actor));
    let many: Vec<ApiResponse> = asks.buffer_unordered(40).collect().await;
    assert!(many.iter().all(|answer| answer.status == 400 || answer.status == 429), "{many:?}");
    many.iter().filter(|answer| answer.status != 429).count()
}

fn quota(id: &str, quota_per_minute: u32) -> ActorEntry {
    ActorEntry { quota_per_minute, ..entry(id, &["local.summarize"]) }
}

/// CORE-011, CORE-091, CORE-092
#[tokio::test]
async fn each_kind_of_actor_has_the_quota_of_the_document() {
    let porch = porch().await;
    porch.clock.stand();
    for (actor, limit) in
        [("admin", 300), ("n8n_workflow_1", 60), ("user_123", 30), ("anonymous", 10), ("service_chatbot", 60)]
    {
        assert_eq!(burst(&porch, &porch, actor, limit + 5).await, limit, "{actor}");
        let over = cheap(&porch, actor).await;
        assert_eq!((over.status, over.number("x-ratelimit-limit")), (429, limit as i64), "{actor}");
    }
    assert_eq!(cheap(&porch, "n8n_workflow_abc").await.status, 400, "actors don't share a window");
}

/// CORE-093, CORE-095
#[tokio::test]
async fn every_answer_says_where_its_caller_stands_and_over_the_limit_nothing_runs() {
    let porch = porch_with(settings(TENANT, vec![quota("user_ann", 3)]), None).await;
    porch.clock.stand();
    let ask = || porch.act("user_ann", json!({"steps": harmless()}));
    for left in [2, 1, 0] {
        let answer = ask().await;
        assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (200, left), "{answer:?}");
        assert_eq!(answer.number("x-ratelimit-limit"), 3);
        let reset = answer.number("x-ratelimit-reset");
        assert!(reset >= porch.now() && reset <= porch.now() + 61, "{reset}");
        let seconds = answer.header("ratelimit").split("t=").nth(1).unwrap().parse::<i64>().unwrap();
        assert!((0..=60).contains(&seconds));
        assert!(answer.header("ratelimit").starts_with(&format!("\"requests\";r={left};")));
        assert_eq!(answer.header("ratelimit-policy"), "\"requests\";q=3;w=60");
    }
    let over = ask().await;
    assert_eq!((over.status, over.code(), over.number("x-ratelimit-remaining")), (429, "RATE_LIMITED", 0));
    let wait = over.number("retry-after");
    assert!((1..=120).contains(&wait), "{wait}");
    assert_eq!(over.body["error"]["retry_after_seconds"], wait);
    assert_eq!((porch.house.stage.rows(&RUNS).len(), porch.refusals().len()), (3, 1));
    porch.clock.wait(wait);
    assert_eq!(ask().await.status, 200, "after that time it is taken again");
}

#[tokio::test]
async fn reading_has_a_larger_window_of_its_own() {
    let porch = porch_with(settings(TENANT, vec![quota("user_ann", 2)]), None).await;
    porch.clock.stand();
    for left in (0..20).rev() {
        let read = porch.get("user_ann", "/runs").await;
        assert_eq!((read.status, read.number("x-ratelimit-remaining")), (200, left), "{read:?}");
        assert_eq!(read.header("ratelimit-policy"), "\"reads\";q=20;w=60");
    }
    let over = porch.get("user_ann", "/runs").await;
    assert_eq!((over.status, over.code()), (429, "RATE_LIMITED"));
    assert_eq!(porch.act("user_ann", json!({"steps": harmless()})).await.number("x-ratelimit-remaining"), 1);
}

async fn stranger(porch: &AccessServer, address: &str) -> ApiResponse {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let from = address.parse::<std::net::IpAddr>().unwrap();
    let client = reqwest::Client::builder().no_proxy().local_address(from).tls_certs_only([]).build().unwrap();
    sent(client.post(porch.house.server.url("/act")).bearer_auth("nonsense").body("{}")).await
}

/// However many addresses strangers have, the ledger has so many entries about them, and one for the rest.
#[tokio::test]
async fn strangers_from_many_addresses_are_summed_up() {
    let porch = porch().await;
    porch.clock.stand();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let directory = Arc::clone(&porch.directory);
    let keeping = tokio::spawn(async move { directory.keep(stopped).await });
    for n in 0..STRANGER_ENTRIES_MAX + 7 {
        assert_eq!(stranger(&porch, &format!("127.0.1.{n}")).await.status, 401);
    }
    assert_eq!(porch.refusals().len(), STRANGER_ENTRIES_MAX);
    assert_eq!(porch.get("user_ann", "/runs").await.status, 200);
    stop.send_replace(true);
    keeping.await.unwrap();
    let entered = porch.refusals();
    let sum = entered.iter().find(|entry| entry["repeated"] == 7).unwrap();
    assert_eq!((entered.len(), &sum["target"]), (STRANGER_ENTRIES_MAX + 1, &json!("*")));
}

/// A stranger's requests count by address; somebody with a token is not their neighbour.
#[tokio::test]
async fn strangers_are_counted_by_address() {
    let porch = porch().await;
    porch.clock.stand();
    let stranger = async |address: &str| stranger(&porch, address).await;
    for left in (0..10).rev() {
        let turned = stranger("127.0.0.2").await;
        assert_eq!((turned.status, turned.number("x-ratelimit-remaining")), (401, left), "{turned:?}");
    }
    for _ in 0..5 {
        let over = stranger("127.0.0.2").await;
        assert_eq!((over.status, over.code()), (429, "RATE_LIMITED"), "{over:?}");
        assert!(over.number("retry-after") >= 1);
    }
    assert_eq!(stranger("127.0.0.3").await.status, 401);
    assert_eq!(porch.act("user_ann", json!({"steps": harmless()})).await.status, 200);
    let codes: Vec<Value> = porch.refusals().iter().map(|entry| entry["code"].clone()).collect();
    let floods = codes.iter().filter(|code| *code == "RATE_LIMITED").count();
    assert_eq!((codes.len(), floods), (12, 1), "a flood is entered once");
    assert_eq!(porch.refusals()[0]["peer"], "127.0.0.2");
}

/// CORE-089, CORE-096
#[tokio::test]
async fn a_burst_over_two_nodes_never_gets_more_than_the_limit() {
    let server = PrivateRedis::start();
    let sets = || settings(TENANT, vec![quota("user_ann", 40)]);
    let porch = porch_with(sets(), shared(&server)).await;
    let beside = porch.second_node(sets(), shared(&server)).await;
    porch.clock.stand();
    assert_eq!(burst(&porch, &beside, "user_ann", 100).await, 40);
    porch.clock.wait(75);
    assert_eq!(burst(&porch, &beside, "user_ann", 100).await, 10, "three quarters of the window before still count");
}

/// CORE-004, CORE-090, CORE-094
#[tokio::test]
async fn the_window_lies_in_redis_under_its_actor_and_its_start() {
    let server = PrivateRedis::start();
    let porch = porch_with(settings(TENANT, Vec::new()), shared(&server)).await;
    porch.clock.stand();
    let start = porch.now().div_euclid(60) * 60;
    for _ in 0..3 {
        cheap(&porch, "service_chatbot").await;
    }
    porch.get("service_chatbot", "/runs").await;
    let key = format!("rate_limit:service_chatbot:{start}");
    assert_eq!(server.ask(&["GET", &key]), "3");
    let left: i64 = server.ask(&["TTL", &key]).parse().unwrap();
    assert!((50..=60).contains(&left), "{left}");
    assert_eq!(server.ask(&["GET", &format!("rate_limit_reads:service_chatbot:{start}")]), "1");
    assert_eq!(cheap(&porch, "service_chatbot").await.number("x-ratelimit-limit"), 60, "without an entry: sixty");
}

/// Without Redis requests are refused, or counted here: never let through uncounted.
#[tokio::test]
async fn without_redis_nobody_is_let_through_uncounted_and_with_it_all_is_as_before() {
    let mut server = PrivateRedis::start();
    let sets = |counter_fallback| Settings { counter_fallback, ..settings(TENANT, vec![quota("user_ann", 5)]) };
    let strict = porch_with(sets(CounterFallback::Refuse), shared(&server)).await;
    let lenient = porch_with(sets(CounterFallback::Database), shared(&server)).await;
    strict.clock.stand();
    lenient.clock.stand();
    server.stop();
    let refused = strict.act("user_ann", json!({"steps": harmless()})).await;
    assert_eq!((refused.status, refused.code()), (503, "STORE_UNAVAILABLE"), "{refused:?}");
    assert!(refused.number("retry-after") >= 1);
    let stranger = strict.raw("nonsense", None, "{}").await;
    assert_eq!(stranger.status, 503, "{stranger:?}");
    assert_eq!(strict.traces(), (0, 0, 0));
    assert_eq!(strict.sign_in("user_ann", "n").await.status, 503);
    for _ in 0..8 {
        assert_eq!(strict.act("user_ann", json!({})).await.status, 503);
    }
    let lost: Vec<Value> = strict.refusals().iter().map(|entry| entry["code"].clone()).collect();
    assert_eq!(lost, vec![json!("STORE_UNAVAILABLE"); 6], "five of the actor's, one of the stranger's, no flood");
    let keyed = json!({"steps": harmless(), "idempotency_key": "k"});
    assert_eq!(lenient.act("user_ann", keyed.clone()).await.status, 200);
    assert_eq!(lenient.act("user_ann", keyed).await.status, 409);
    let mut let_in = 2;
    while lenient.act("user_ann", json!({})).await.status != 429 {
        let_in += 1;
    }
    assert_eq!(let_in, 5);
    server.restart();
    assert_eq!(strict.act("user_ann", json!({"steps": harmless()})).await.status, 200);
}

/// Whoever signs in or refreshes too often is refused, and that is entered.
#[tokio::test]
async fn signing_in_counts_and_too_much_of_it_is_entered() {
    let porch = porch_with(settings(TENANT, vec![quota("user_ann", 2)]), None).await;
    let first = porch.sign_in("user_ann", "n1").await;
    assert_eq!((first.status, porch.sign_in("user_ann", "n2").await.status), (200, 200));
    assert_eq!(porch.sign_in("user_ann", "n3").await.status, 429);
    let refresh = json!({"refresh_token": first.body["refresh_token"]});
    assert_eq!(porch.post("user_ann", "/auth/refresh", &refresh).await.status, 429);
    let entered: Vec<_> =
        porch.refusals().iter().map(|entry| (entry["code"].clone(), entry["target"].clone())).collect();
    let over = |target: &str| (json!("RATE_LIMITED"), json!(target));
    assert_eq!(entered, [over("POST /auth/token"), over("POST /auth/refresh")]);
}

/// Whoever asks too often fills no ledger: the first refusal of a window is entered, and then how many more there were.
#[tokio::test]
async fn a_flood_over_the_quota_is_summed_up() {
    let porch = porch_with(settings(TENANT, vec![quota("user_ann", 2)]), None).await;
    porch.clock.stand();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let directory = Arc::clone(&porch.directory);
    let keeping = tokio::spawn(async move { directory.keep(stopped).await });
    let flood = async |more: usize| {
        while cheap(&porch, "user_ann").await.status != 429 {}
        for _ in 0..more {
            assert_eq!(cheap(&porch, "user_ann").await.status, 429);
        }
    };
    let over = |entry: &Value| (entry["code"] == "RATE_LIMITED").then(|| entry["repeated"].clone());
    let entered = || porch.refusals().iter().filter_map(over).collect::<Vec<_>>();
    flood(50).await;
    assert_eq!(entered(), [Value::Null], "one for all of them");
    let mut commits = porch.house.stage.records.commits();
    porch.clock.wait(120);
    while entered().len() < 2 {
        commits.changed().await.unwrap();
    }
    assert_eq!(entered(), [Value::Null, json!(50)], "and one that says how many more");
    flood(1).await;
    stop.send_replace(true);
    keeping.await.unwrap();
    assert_eq!(entered(), [Value::Null, json!(50), Value::Null, json!(1)], "nothing is left behind at the end");
}

/// CORE-092
#[tokio::test]
async fn the_actor_of_the_token_is_counted_whoever_the_body_names() {
    let porch = porch_with(settings(TENANT, vec![quota("user_ann", 2), quota("user_bob", 2)]), None).await;
    let named = json!({"actor": "user_bob", "steps": harmless()}).to_string();
    let token = token("user_ann", porch.house.stage.world.clock.now());
    for status in [403, 403, 429] {
        assert_eq!(porch.raw(&token, Some(&by("user_ann", &named)), &named).await.status, status);
    }
    let bob = porch.ask("user_bob", Method::POST, "/act", json!({"steps": harmless()})).await;
    assert_eq!((bob.status, bob.number("x-ratelimit-remaining")), (200, 1));
}
