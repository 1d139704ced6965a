//! Nobody gets in without the token, and nobody sees another tenant's things.

use super::{House, NOTHING, TOKEN, code, furnished, house, path, reviewed, setup};
use crate::support::client;
use chimera_engine::access::Doorkeeper;
use reqwest::Method;
use serde_json::{Value, json};

/// Every operation of the flow room: method and path.
fn operations() -> Vec<(Method, String)> {
    let document = serde_json::to_value(chimera_api::document()).unwrap();
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            if operation["tags"][0] == "flow" {
                found.push((method.to_uppercase().parse().unwrap(), path.clone()));
            }
        }
    }
    assert!(found.len() >= 24, "{found:?}");
    found
}

#[tokio::test]
async fn every_endpoint_asks_for_the_token_before_anything_else() {
    let house = house().await;
    for (method, path) in operations() {
        let url = house.server.url(&path.replace("{id}", "x").replace("{step}", "x").replace("{number}", "1"));
        let bare = house.client.request(method.clone(), &url);
        let wrong = house.client.request(method.clone(), &url).bearer_auth("open sesam");
        let basic = house.client.request(method.clone(), &url).basic_auth("admin", Some(TOKEN));
        let twice = house.client.request(method.clone(), &url).bearer_auth(TOKEN).bearer_auth(TOKEN);
        for request in [bare, wrong, basic, twice] {
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 401, "{method} {path}");
            assert_eq!(answer.headers()["www-authenticate"], "Bearer");
            let problem: Value = answer.json().await.unwrap();
            assert_eq!(code(&problem), "UNAUTHENTICATED");
            assert!(!problem.to_string().contains("sesam"), "{problem}");
        }
    }
}

#[tokio::test]
async fn an_actor_with_a_strange_name_is_refused_everywhere() {
    let house = house().await;
    let long = "x".repeat(300);
    for (method, path) in operations() {
        let url = house.server.url(&path.replace("{id}", "x").replace("{step}", "x").replace("{number}", "1"));
        for name in ["", "user ann", "user_ann\tx", "user_\u{e9}", long.as_str()] {
            let request = house.client.request(method.clone(), &url).bearer_auth(TOKEN);
            let name = reqwest::header::HeaderValue::from_bytes(name.as_bytes()).unwrap();
            let answer = request.header("x-chimera-actor", name.clone()).send().await.unwrap();
            assert_eq!(answer.status(), 400, "{method} {path} {name:?}");
            let problem: Value = answer.json().await.unwrap();
            let header = &problem["error"]["details"]["header"];
            assert_eq!((code(&problem), header), ("SCHEMA_INVALID", &json!("x-chimera-actor")), "{problem}");
        }
    }
}

#[tokio::test]
async fn a_server_without_a_token_lets_nobody_in() {
    let stage = setup().open().await;
    let server = crate::support::served(crate::support::edge().with_flow(stage.flow.clone())).await;
    let answer = client().get(server.url("/runs")).bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(answer.status(), 401);
}

/// The same store behind the door of another tenant.
async fn neighbour(house: &House) -> House {
    let other =
        |edge: chimera_api::Edge| edge.with_flow(house.stage.flow.clone()).with_door(Doorkeeper::new("other", TOKEN));
    furnished(setup().unkept(), other).await
}

#[tokio::test]
async fn another_tenant_sees_and_changes_nothing() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let stranger = neighbour(&house).await;
    let run_id = run["run_id"].as_str().unwrap();
    for (method, path) in operations().into_iter().filter(|(_, path)| path.starts_with("/runs/{id}")) {
        let body = match path.rsplit('/').next().unwrap() {
            "approve" => json!({"decision": "approve"}),
            "resolve" => json!({"outcome": "never"}),
            "edit" => json!({"input": {}}),
            "replay" => json!({"mode": "freeze"}),
            "patch" => json!({"patch": {}}),
            "{id}" if method == Method::PATCH => json!({"status": "rolled_back"}),
            _ => NOTHING,
        };
        let path = path.replace("{id}", run_id).replace("{step}", "review").replace("{number}", "1");
        let (status, problem) = stranger.ask(method.clone(), &path, body).await;
        assert_eq!((status, code(&problem)), (404, "NOT_FOUND"), "{method} {path}: {problem}");
    }
    assert_eq!(stranger.get("/runs").await.1["items"], json!([]));
    assert_eq!(stranger.get("/workflows").await.1["items"], json!([]));
    assert_eq!(stranger.get("/workflows/reviewed").await.0, 404);
    assert_eq!(stranger.post("/workflows/reviewed/runs", NOTHING).await.0, 404);
    assert_eq!(house.get(&path(&run, "")).await.1["status"], "awaiting_approval");
}
