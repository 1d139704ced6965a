//! Idempotency keys: one run per key, on any number of nodes.

use super::access_server::{AccessServer, entry, harmless, porch, porch_with, sent};
use chimera_core::access::ActorEntry;
use chimera_core::flow::tables::RUNS;
use chimera_engine::access::port::{ClaimOutcome, Counters};
use chimera_engine::port::Clock;
use chimera_storage::Redis;
use chimera_storage::counter::{LocalCounters, RedisCounters};
use chimera_testkit::access::settings;
use chimera_testkit::flow::TENANT;
use chimera_testkit::redis::PrivateRedis;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn keyed(key: &str) -> Value {
    json!({"steps": harmless(), "idempotency_key": key, "wait": 15})
}

fn shared(server: &PrivateRedis) -> Option<Arc<dyn Counters>> {
    Some(Arc::new(RedisCounters::new(Redis::new(&server.url()).unwrap())))
}

fn runs(porch: &AccessServer) -> usize {
    porch.house.stage.rows(&RUNS).len()
}

/// CORE-047, CORE-048, CORE-049, CORE-050
#[tokio::test]
async fn a_key_is_any_text_of_up_to_256_characters() {
    let porch = porch().await;
    let (longest, wide) = ("k".repeat(256), "ü".repeat(256));
    let keys = [
        "n8n_exec_{{$execution.id}}",
        "n8n_exec_4711",
        "client_req_550e8400-e29b-41d4-a716-446655440000",
        "cron_daily_report_2025-11-01",
        "550e8400-e29b-41d4-a716-446655440000",
        "weekly-digest",
        "shop_1699123456_9f3c",
        "any other text: ✓ / \\ \" *",
        &longest,
        &wide,
    ];
    for key in keys {
        let answer = porch.act("n8n_workflow_1", keyed(key)).await;
        assert_eq!(answer.status, 200, "{key}: {answer:?}");
    }
    assert_eq!(runs(&porch), keys.len(), "another key is another operation");
    for key in ["", &"k".repeat(257), "ü".repeat(257).as_str()] {
        let answer = porch.act("n8n_workflow_1", keyed(key)).await;
        assert_eq!((answer.status, answer.detail("pointer")), (422, &json!("/idempotency_key")), "{answer:?}");
    }
    let nul = porch.act("n8n_workflow_1", keyed("a\0b")).await;
    assert_eq!(nul.status, 422, "{nul:?}");
}

/// CORE-051, CORE-054
#[tokio::test]
async fn the_second_request_under_a_key_starts_nothing_and_learns_of_the_first() {
    let porch = porch().await;
    let first = porch.act("n8n_workflow_1", keyed("k")).await;
    assert_eq!(first.status, 200, "{first:?}");
    let again = porch.act("n8n_workflow_1", keyed("k")).await;
    assert_eq!((again.status, again.code()), (409, "CONFLICT_IDEMPOTENCY"), "{again:?}");
    assert_eq!(again.detail("run_id"), &first.body["run_id"]);
    assert_eq!((again.detail("status"), again.detail("request_differs")), (&json!("completed"), &json!(false)));
    let mut passing = keyed("k");
    passing["wait"] = 3.into();
    passing["issued_at"] = porch.now().into();
    passing["nonce"] = "n".into();
    assert_eq!(porch.act("n8n_workflow_1", passing).await.detail("request_differs"), &json!(false));
    let mut other = keyed("k");
    other["steps"][0]["input"]["text"] = "Three.".into();
    assert_eq!(porch.act("n8n_workflow_1", other.clone()).await.detail("request_differs"), &json!(true));
    other["on_duplicate"] = "return".into();
    let returned = porch.act("n8n_workflow_1", other).await;
    assert_eq!((returned.status, &returned.body["run_id"]), (200, &first.body["run_id"]), "{returned:?}");
    assert_eq!((&returned.body["status"], returned.body["result"].is_object()), (&json!("completed"), true));
    assert_eq!(returned.body["request_differs"], true, "it is not what was asked for now");
    assert_eq!((runs(&porch), porch.effects()), (1, 1));
}

/// What is masked is kept nowhere, and yet two requests that differ only there are different ones.
#[tokio::test]
async fn requests_that_differ_only_where_they_are_masked_differ() {
    let porch = porch().await;
    let secret = |letter: &str| format!("Use ghp_16C7e42F292c6912E7710c838347Ae178B4{letter} for it. Done.");
    let with = |letter: &str| {
        let mut body = keyed("k");
        body["steps"][0]["input"]["text"] = secret(letter).into();
        body
    };
    let first = porch.act("n8n_workflow_1", with("a")).await;
    assert_eq!(first.status, 200, "{first:?}");
    let kept = porch.house.stage.rows(&RUNS)[0].get("request_payload").as_json().unwrap().as_str().to_owned();
    assert!(!kept.contains("16C7e42F292c6912E7710c838347Ae178B4"), "it is masked: {kept}");
    for (letter, differs) in [("a", false), ("b", true)] {
        let again = porch.act("n8n_workflow_1", with(letter)).await;
        assert_eq!(again.detail("request_differs"), &json!(differs), "{letter}: {again:?}");
    }
}

/// A process that doesn't remember a key, because another used it or because it was started since, is
/// told by the store: nothing is written twice, and no tool that reaches outside is called again.
#[tokio::test]
async fn a_key_that_only_the_store_knows_starts_nothing() {
    let porch = porch().await;
    for (key, tool, input) in
        [("pure", "local.summarize", json!({"text": "One."})), ("writes", "notion.note", json!({}))]
    {
        let body = json!({"steps": [{"tool": tool, "input": input}], "idempotency_key": key, "wait": 15});
        let first = porch.act("n8n_workflow_1", body.clone()).await;
        assert_eq!((first.status, &first.body["status"]), (200, &json!("completed")), "{first:?}");
        let before = (porch.asked("notion.note").count("execute"), runs(&porch));
        let stranger = porch.second_node(settings(TENANT, Vec::new()), None).await;
        let again = stranger.act("n8n_workflow_1", body.clone()).await;
        assert_eq!((again.status, again.code()), (409, "CONFLICT_IDEMPOTENCY"), "{again:?}");
        assert_eq!(again.detail("run_id"), &first.body["run_id"]);
        let mut wrong = body;
        wrong["steps"][0]["tool"] = "there.is_none".into();
        let stranger = porch.second_node(settings(TENANT, Vec::new()), None).await;
        let again = stranger.act("n8n_workflow_1", wrong).await;
        assert_eq!((again.status, again.detail("run_id")), (409, &first.body["run_id"]), "a used key comes first");
        assert_eq!((porch.asked("notion.note").count("execute"), runs(&porch)), before);
    }
}

#[tokio::test]
async fn a_header_counts_only_beside_the_same_signed_key() {
    let porch = porch().await;
    let ask = async |body: Value, header: &str| {
        sent(porch.request("n8n_workflow_1", Method::POST, "/act", &body).header("idempotency-key", header)).await
    };
    assert_eq!(ask(keyed("k"), "k").await.status, 200);
    for (body, header) in [(keyed("l"), "k"), (json!({"steps": harmless()}), "k")] {
        let refused = ask(body, header).await;
        assert_eq!((refused.status, refused.detail("pointer")), (422, &json!("/idempotency_key")), "{refused:?}");
    }
    assert_eq!(runs(&porch), 1);
}

/// One actor's key never meets another's: no conflict, and nothing of the other is shown.
#[tokio::test]
async fn the_same_key_of_another_actor_is_another_key() {
    let server = PrivateRedis::start();
    let alone = porch().await;
    let together = porch_with(settings(TENANT, Vec::new()), shared(&server)).await;
    for porch in [alone, together] {
        let mut ids = Vec::new();
        for actor in ["n8n_workflow_1", "n8n_workflow_abc", "n8n_workflow_123"] {
            let first = porch.act(actor, keyed("same")).await;
            assert_eq!(first.status, 200, "{actor}: {first:?}");
            let again = porch.act(actor, keyed("same")).await;
            assert_eq!((again.status, again.detail("run_id")), (409, &first.body["run_id"]), "{actor}");
            ids.push(first.body["run_id"].as_str().unwrap().to_owned());
        }
        ids.dedup();
        assert_eq!((ids.len(), runs(&porch)), (3, 3));
    }
}

/// CORE-052, CORE-053, CORE-055
#[tokio::test]
async fn redis_holds_the_run_under_its_key_for_a_day() {
    let server = PrivateRedis::start();
    let porch = porch_with(settings(TENANT, Vec::new()), shared(&server)).await;
    let first = porch.act("n8n_workflow_1", keyed("daily")).await;
    assert_eq!(server.ask(&["GET", "idempotency:daily"]), first.body["run_id"].as_str().unwrap());
    let left: i64 = server.ask(&["TTL", "idempotency:daily"]).parse().unwrap();
    assert!((86_390..=86_400).contains(&left), "{left}");
    let mut sets = settings(TENANT, Vec::new());
    sets.idempotency_ttl = std::time::Duration::from_secs(120);
    let brief = porch.second_node(sets, shared(&server)).await;
    assert_eq!(brief.act("n8n_workflow_1", keyed("brief")).await.status, 200);
    let left: i64 = server.ask(&["TTL", "idempotency:brief"]).parse().unwrap();
    assert!((110..=120).contains(&left), "{left}");
}

/// CORE-056, CORE-057
#[tokio::test]
async fn of_many_at_once_one_runs_and_all_others_get_its_id() {
    let server = PrivateRedis::start();
    let many = vec![super::access_server::entry("n8n_workflow_1", &["local.summarize"])];
    let porch = porch_with(settings(TENANT, many.clone()), shared(&server)).await;
    let beside = porch.second_node(settings(TENANT, many), shared(&server)).await;
    let answers = (0..60).map(|at| [&porch, &beside][at % 2].act("n8n_workflow_1", keyed("race")));
    let answers = futures::future::join_all(answers).await;
    let won: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    assert_eq!((won.len(), runs(&porch), porch.effects()), (1, 1, 1));
    for lost in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!((lost.status, lost.detail("run_id")), (409, &won[0].body["run_id"]), "{lost:?}");
    }
}

/// Within one process they take turns: nothing is computed for those who come second, without Redis too.
#[tokio::test]
async fn of_many_at_once_in_one_process_one_is_worked_on() {
    let many = vec![super::access_server::entry("n8n_workflow_1", &["local.summarize"])];
    let porch = porch_with(settings(TENANT, many), None).await;
    let answers = futures::future::join_all((0..60).map(|_| porch.act("n8n_workflow_1", keyed("race")))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    assert_eq!((runs(&porch), porch.effects()), (1, 1));
}

/// The database is the truth: a claim without a run is taken over, and a lost claim changes nothing.
#[tokio::test]
async fn what_redis_says_never_stands_against_the_store() {
    let server = PrivateRedis::start();
    let porch = porch_with(settings(TENANT, Vec::new()), shared(&server)).await;
    let gone = uuid_of_nobody();
    assert_eq!(server.ask(&["SET", "idempotency:left", &gone]), "OK");
    let answer = porch.act("n8n_workflow_1", keyed("left")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(server.ask(&["GET", "idempotency:left"]), answer.body["run_id"].as_str().unwrap());
    assert_eq!(server.ask(&["FLUSHALL"]), "OK");
    let again = porch.act("n8n_workflow_1", keyed("left")).await;
    assert_eq!((again.status, again.detail("run_id")), (409, &answer.body["run_id"]), "{again:?}");
}

fn uuid_of_nobody() -> String {
    "00000000-0000-7000-8000-000000000000".to_owned()
}

/// The counters that nodes share hold keys of every tenant: a claim of one tenant holds up nobody else.
#[tokio::test]
async fn a_claim_of_another_tenant_is_neither_waited_for_nor_taken() {
    let shared: Arc<dyn Counters> = Arc::new(LocalCounters::new());
    let cat = ActorEntry { tenant: "other".to_owned(), ..entry("user_cat", &["local.*"]) };
    let porch = porch_with(settings(TENANT, vec![cat]), Some(Arc::clone(&shared))).await;
    let now = porch.clock.steady();
    let ttl = Duration::from_secs(3_600);
    // Somebody of the default tenant has claimed the key, and has no run yet.
    assert_eq!(shared.claim("idempotency:k", "somebody", ttl, now).await.unwrap(), ClaimOutcome::Claimed);
    let acted = tokio::time::timeout(Duration::from_secs(3), porch.act("user_cat", keyed("k"))).await;
    let acted = acted.expect("it waits for another tenant");
    assert!(acted.status < 300, "{acted:?}");
    let held = shared.claim("idempotency:k", "else", ttl, now).await.unwrap();
    assert_eq!(held, ClaimOutcome::Held("somebody".to_owned()), "another tenant took the claim");
}
