//! Two nodes with one PostgreSQL and one Redis: an idempotency key starts one run, a revocation
//! applies everywhere, and without Redis no request passes uncounted.

use crate::support::{Server, Workspace};
use chimera_core::time::Timestamp;
use chimera_testkit::access::{signed_with, unix_seconds};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::redis::PrivateRedis;
use futures::StreamExt;
use serde_json::{Value, json};

const ACTOR: &str = "n8n_workflow_demo";
const KEY: &str = "a-key-for-both-nodes";

/// Two nodes, what they share, and a client.
struct NodePair {
    redis: PrivateRedis,
    nodes: [(Workspace, Server); 2],
    client: reqwest::Client,
}

/// Starts both nodes with a quota and extra variables.
fn pair(quota: u32, env: &[(&str, &str)]) -> NodePair {
    let database = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let redis = PrivateRedis::start();
    let node = || {
        let actors = format!(
            "[[actor]]\nid = \"{ACTOR}\"\nscopes = [\"local.*\"]\nquota_per_minute = {quota}\nautonomy_level = \"L2_ExecuteNotify\"\n"
        );
        let place = Workspace::new()
            .file("actors.toml", &actors)
            .env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml")
            .env("CHIMERA_DATABASE_URL", &database)
            .env("CHIMERA_REDIS_URL", &redis.url())
            .env("CHIMERA_ACCESS__HMAC_ACTOR", ACTOR)
            .env("HMAC_SECRET_KEY", KEY)
            .env("JWT_ALGORITHM", "HS256")
            .env("JWT_SECRET_KEY", "a-secret-of-tokens-for-both-nodes")
            .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
            .env("CHIMERA_SECRET_LEDGER", &"ab".repeat(32));
        let place = env.iter().fold(place, |place, (name, value)| place.env(name, value));
        let server = place.serve(&[]);
        (place, server)
    };
    let nodes = [node(), node()];
    let _ = rustls::crypto::ring::default_provider().install_default();
    NodePair { redis, nodes, client: reqwest::Client::builder().no_proxy().build().unwrap() }
}

impl NodePair {
    async fn post(&self, node: usize, path: &str, token: Option<&str>, body: &Value) -> (u16, Value) {
        let text = body.to_string();
        let url = format!("http://{}{path}", self.nodes[node].1.address);
        let request = self.client.post(url).header("content-type", "application/json");
        let now = Timestamp::from_micros(i64::try_from(unix_seconds()).unwrap() * 1_000_000);
        let signed = signed_with(KEY, ACTOR, now, ("POST", path), text.as_bytes());
        let request = signed.into_iter().fold(request, |request, (name, value)| request.header(name, value)).body(text);
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn token(&self, node: usize, nonce: &str) -> String {
        let body = json!({"actor": ACTOR, "issued_at": unix_seconds(), "nonce": nonce});
        let (status, answer) = self.post(node, "/auth/token", None, &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["access_token"].as_str().unwrap().to_owned()
    }

    async fn act(&self, node: usize, token: &str, key: Option<&str>) -> (u16, Value) {
        let steps = json!([{"tool": "local.echo", "input": {"message": "hi"}}]);
        self.post(node, "/act", Some(token), &json!({"steps": steps, "idempotency_key": key, "wait": 20})).await
    }

    async fn runs(&self, token: &str) -> Vec<Value> {
        let url = format!("http://{}/runs", self.nodes[0].1.address);
        let answer: Value = self.client.get(url).bearer_auth(token).send().await.unwrap().json().await.unwrap();
        answer["items"].as_array().unwrap().clone()
    }
}

fn detail<'a>(answer: &'a Value, name: &str) -> &'a Value {
    &answer["error"]["details"][name]
}

/// CORE-052, CORE-053, CORE-056, CORE-057
#[tokio::test]
async fn a_thousand_duplicates_over_two_nodes_start_one_run() {
    let pair = pair(10_000, &[]);
    let token = pair.token(0, "one").await;
    let asks = futures::stream::iter(0..1_000).map(|at| pair.act(at % 2, &token, Some("the-key")));
    let answers: Vec<(u16, Value)> = asks.buffer_unordered(1_000).collect().await;
    let won: Vec<&Value> = answers.iter().filter(|(status, _)| *status == 200).map(|(_, answer)| answer).collect();
    assert_eq!(won.len(), 1);
    let run = &won[0]["run_id"];
    for (status, answer) in answers.iter().filter(|(status, _)| *status != 200) {
        assert_eq!((*status, detail(answer, "run_id")), (409, run), "{answer}");
    }
    let runs = pair.runs(&token).await;
    assert_eq!((runs.len(), &runs[0]["run_id"]), (1, run));
    assert_eq!(pair.redis.ask(&["GET", "idempotency:the-key"]), run.as_str().unwrap());
    let left: i64 = pair.redis.ask(&["TTL", "idempotency:the-key"]).parse().unwrap();
    assert!((86_000..=86_400).contains(&left), "{left}");
}

/// A node killed between its claim of a key and its run leaves the claim behind.
#[tokio::test]
async fn a_claim_without_a_run_gives_way_to_clients_who_never_wait_long() {
    let pair = pair(100, &[]);
    let token = pair.token(0, "one").await;
    let run = "01a1e592-d8cf-7a35-910b-4adb39991afc";
    assert_eq!(pair.redis.ask(&["SET", "idempotency:left", run]), "OK");
    let mut answered = None;
    for _ in 0..20 {
        let patience = std::time::Duration::from_secs(1);
        if let Ok((status, _)) = tokio::time::timeout(patience, pair.act(0, &token, Some("left"))).await {
            answered = Some(status);
            break;
        }
    }
    assert_eq!(answered, Some(200));
}

/// CORE-053
#[tokio::test]
async fn how_long_redis_remembers_a_key_can_be_set() {
    let pair = pair(100, &[("REDIS_IDEMPOTENCY_TTL", "600")]);
    let token = pair.token(0, "one").await;
    let (status, answer) = pair.act(0, &token, Some("brief")).await;
    assert_eq!(status, 200, "{answer}");
    let left: i64 = pair.redis.ask(&["TTL", "idempotency:brief"]).parse().unwrap();
    assert!((500..=600).contains(&left), "{left}");
}

/// CORE-116
#[tokio::test]
async fn a_token_that_was_revoked_on_one_node_is_refused_by_the_other_at_once() {
    let pair = pair(100, &[]);
    let (token, other) = (pair.token(0, "one").await, pair.token(1, "two").await);
    assert_eq!(pair.act(1, &token, None).await.0, 200);
    assert_eq!(pair.post(0, "/auth/revoke", Some(&token), &json!({"token": token})).await.0, 200);
    for node in [1, 0] {
        let (status, answer) = pair.act(node, &token, None).await;
        assert_eq!((status, &answer["detail"]), (401, &json!("Invalid JWT: revoked")));
        assert_eq!(pair.act(node, &other, None).await.0, 200);
    }
}

#[tokio::test]
async fn without_redis_requests_are_refused_until_it_is_back() {
    let mut pair = pair(100, &[("CHIMERA_ACCESS__WITHOUT_REDIS", "refuse")]);
    let token = pair.token(0, "one").await;
    assert_eq!(pair.act(0, &token, None).await.0, 200);
    pair.redis.stop();
    for node in [0, 1, 0, 1] {
        let (status, answer) = pair.act(node, &token, Some("k")).await;
        assert_eq!((status, &answer["error"]["code"]), (503, &json!("STORE_UNAVAILABLE")), "{answer}");
        assert_eq!(pair.nodes[node].1.readiness().0, 503, "a node that refuses everything is not ready");
    }
    pair.redis.restart();
    let mut last = (0, Value::Null);
    for node in [0, 1] {
        last = pair.act(node, &token, Some("k")).await;
    }
    assert_eq!(last.0, 409, "the first node began it, the second knows: {}", last.1);
    assert_eq!(pair.runs(&token).await.len(), 2);
}

/// After a timeout, requests skip Redis for a moment, and readiness does not recover before they do.
#[tokio::test]
async fn a_node_is_ready_again_when_its_requests_are_counted_again_and_not_before() {
    let pair = pair(10_000, &[("CHIMERA_ACCESS__WITHOUT_REDIS", "refuse")]);
    let token = pair.token(0, "one").await;
    for pause in ["4300", "4600"] {
        assert_eq!(pair.redis.ask(&["CLIENT", "PAUSE", pause, "ALL"]), "OK");
        while pair.nodes[0].1.readiness().0 == 200 {}
        loop {
            pair.act(0, &token, None).await;
            if pair.nodes[0].1.readiness().0 == 200 {
                break;
            }
        }
        let (status, answer) = pair.act(0, &token, None).await;
        assert_eq!(status, 200, "paused for {pause} ms: {answer}");
    }
}

#[tokio::test]
async fn without_redis_the_database_decides_about_keys_and_nodes_still_count() {
    let mut pair = pair(20, &[("CHIMERA_ACCESS__WITHOUT_REDIS", "database")]);
    let token = pair.token(0, "one").await;
    pair.redis.stop();
    let mut answers = Vec::new();
    for at in 0..10 {
        answers.push(pair.act(at % 2, &token, Some("k")).await);
    }
    let run = answers[0].1["run_id"].clone();
    assert_eq!(answers[0].0, 200, "{}", answers[0].1);
    for (status, answer) in &answers[1..] {
        assert_eq!((*status, detail(answer, "run_id")), (409, &run), "{answer}");
    }
    let (ready, parts) = pair.nodes[0].1.readiness();
    assert_eq!(ready, 200, "a node that works without Redis is ready: {parts}");
    let mut let_in = [5, 5];
    for (node, count) in let_in.iter_mut().enumerate() {
        while pair.act(node, &token, Some("k")).await.0 != 429 {
            *count += 1;
            assert!(*count <= 40, "node {node} counts nobody");
        }
    }
    // A node may enter the next minute meanwhile and then allow some more, but never all.
    assert!(let_in.iter().all(|count| (20..=40).contains(count)), "{let_in:?}");
    pair.redis.restart();
    for _ in 0..2 {
        pair.act(0, &token, Some("k")).await;
    }
    assert!(!pair.redis.ask(&["KEYS", &format!("rate_limit:{ACTOR}:*")]).is_empty(), "Redis counts again");
}
