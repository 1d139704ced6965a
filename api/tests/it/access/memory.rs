//! Nothing large is read or parsed before the request has its share of memory.

use crate::flow::{FlowServer, NOTHING, furnished, setup};
use chimera_api::{Route, route_table};
use chimera_core::access::Claimant;
use chimera_core::limits::{BODY_BYTES_MAX, LARGE_WORK_BYTES_MAX};
use chimera_engine::flow::SizeBudget;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// How long a request waits here.
const SHORT: Duration = Duration::from_secs(2);

/// A server whose memory for large work is taken by somebody else.
async fn busy() -> (FlowServer, SizeBudget) {
    let house = furnished(setup(), |edge| edge.with_request_timeout(SHORT)).await;
    let other = Claimant::new("other", "loud");
    let all = house.stage.flow.reserve_memory(&other, LARGE_WORK_BYTES_MAX).await.unwrap();
    (house, all)
}

/// The status and the error code of a request to each route.
async fn answers(house: &FlowServer, routes: &[&Route], body: &Value) -> Vec<(u16, String)> {
    let ask = async |route: &&Route| {
        let path = route.path.replace(['{', '}'], "x");
        let (status, answer) = house.ask(route.method.clone(), &path, body.clone()).await;
        (status, answer["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    join_all(routes.iter().map(ask)).await
}

async fn assert_all_wait(house: &FlowServer, routes: &[&Route], body: &Value) {
    for (route, answer) in routes.iter().zip(answers(house, routes, body).await) {
        assert_eq!(answer, (503, "REQUEST_TIMEOUT".to_owned()), "{} {}", route.method, route.path);
    }
}

async fn assert_none_waits(house: &FlowServer, routes: &[&Route], body: &Value) {
    for (route, answer) in routes.iter().zip(answers(house, routes, body).await) {
        assert_ne!(answer.0, 503, "{} {}: {}", route.method, route.path, answer.1);
    }
}

#[tokio::test]
async fn a_read_waits_for_memory_on_every_route() {
    let (house, all) = busy().await;
    let reads: Vec<&Route> =
        route_table().iter().filter(|route| route.rules.token && route.method == Method::GET).collect();
    assert!(reads.len() > 10, "{}", reads.len());
    assert_all_wait(&house, &reads, &NOTHING).await;
    drop(all);
    assert_none_waits(&house, &reads, &NOTHING).await;
}

#[tokio::test]
async fn a_large_body_waits_for_memory_on_every_route_and_a_small_one_on_none() {
    let (house, all) = busy().await;
    let changes: Vec<&Route> =
        route_table().iter().filter(|route| route.rules.body_bytes_max == BODY_BYTES_MAX).collect();
    assert!(changes.len() > 10, "{}", changes.len());
    let (large, small) = (json!({"unknown": vec![json!({"a": 1}); 2_000]}), json!({"unknown": 1}));
    assert_all_wait(&house, &changes, &large).await;
    assert_none_waits(&house, &changes, &small).await;
    drop(all);
    assert_none_waits(&house, &changes, &large).await;
}
