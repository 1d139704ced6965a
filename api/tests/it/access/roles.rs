//! Roles: what they grant, who may grant them, and what a deleted one leaves.

use super::access_server::{AccessServer, access_fixture, entry, porch_with};
use chimera_core::access::tables::ACTORS;
use chimera_core::access::{ActorEntry, Level, Role};
use chimera_core::limits::ACTOR_ROLES_MAX;
use chimera_engine::access::{self, Settings};
use chimera_testkit::access::settings;
use chimera_testkit::flow::TENANT;
use reqwest::Method;
use serde_json::{Value, json};

fn role(name: &str, tenant: &str, scopes: &[&str]) -> Role {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    Role { name: name.to_owned(), tenant: tenant.to_owned(), scopes }
}

/// A house with two roles, where bob looks after actors and may read Notion.
fn roles() -> Settings {
    let bob = entry("user_bob", &["actors.read", "actors.write", "notion.*"]);
    let bob = ActorEntry { level: Some(Level::Draft), quota_per_minute: 30, ..bob };
    let roles =
        vec![role("keeper", TENANT, &["actors.read", "outlook.send"]), role("reader", TENANT, &["notion.read"])];
    Settings { roles, ..settings(TENANT, vec![bob]) }
}

async fn put(porch: &AccessServer, actor: &str, id: &str, body: Value) -> super::access_server::ApiResponse {
    porch.ask(actor, Method::PUT, &format!("/actors/{id}"), body).await
}

/// CORE-080
#[tokio::test]
async fn an_actor_may_do_what_its_scopes_and_its_roles_give() {
    let porch = porch_with(roles(), None).await;
    assert_eq!(porch.get("user_cat", "/actors").await.status, 403);
    let told = put(&porch, "admin", "user_cat", json!({"scopes": ["notion.read"], "roles": ["keeper"]})).await;
    assert_eq!(told.status, 200, "{told:?}");
    assert_eq!((&told.body["scopes"], &told.body["roles"]), (&json!(["notion.read"]), &json!(["keeper"])));
    assert_eq!(told.body["effective_scopes"], json!(["notion.read", "actors.read", "outlook.send"]));
    let listed = porch.get("user_cat", "/actors").await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let cat = listed.body["items"].as_array().unwrap().iter().find(|item| item["id"] == "user_cat").unwrap();
    assert_eq!(cat["roles"], json!(["keeper"]));

    let send = json!({"steps": [{"tool": "outlook.send", "input": {}}], "wait": 0});
    assert!(porch.act("user_cat", send.clone()).await.status < 300);
    assert_eq!(porch.act("user_ann", send).await.status, 403);

    let narrow = porch.token_with("user_cat", |claims| claims.scopes = Some(vec!["notion.*".to_owned()]));
    let request = porch.house.client.get(porch.house.server.url("/actors")).bearer_auth(narrow);
    assert_eq!(super::access_server::sent(request).await.status, 403, "a token narrows what roles give");

    assert_eq!(put(&porch, "admin", "user_cat", json!({"scopes": ["notion.read"]})).await.status, 200);
    assert_eq!(porch.get("user_cat", "/actors").await.status, 403, "the role was taken away");
}

#[tokio::test]
async fn a_role_that_the_tenant_lacks_is_refused_with_those_that_it_has() {
    let porch = porch_with(roles(), None).await;
    let told = put(&porch, "admin", "user_cat", json!({"roles": ["reader", "keepr"]})).await;
    assert_eq!((told.status, told.code(), told.detail("pointer")), (422, "VALIDATION_FAILED", &json!("/roles")));
    let text = told.body.to_string();
    assert!(text.contains("there is no role keepr") && text.contains("keeper, reader"), "{text}");
    let many = vec!["reader"; ACTOR_ROLES_MAX + 1];
    let told = put(&porch, "admin", "user_cat", json!({"roles": many})).await;
    assert_eq!((told.status, told.code(), told.detail("pointer")), (422, "VALIDATION_FAILED", &json!("/roles")));
    for strange in [json!("reader"), json!([1]), json!({"reader": true})] {
        assert_eq!(put(&porch, "admin", "user_cat", json!({"roles": strange})).await.status, 400, "{strange}");
    }
    assert!(porch.house.stage.rows(&ACTORS).is_empty(), "nothing was written");
}

/// CORE-079
#[tokio::test]
async fn nobody_gives_a_role_whose_scopes_they_lack_and_nobody_raises_themselves() {
    let porch = porch_with(roles(), None).await;
    let with = |role: &str| json!({"roles": [role], "quota_per_minute": 30, "autonomy_level": "L1_Draft"});
    for of in ["user_bob", "service_new"] {
        let told = put(&porch, "user_bob", of, with("keeper")).await;
        assert_eq!((told.status, told.detail("required_scope")), (403, &json!("outlook.send")), "{of}: {told:?}");
    }
    assert_eq!(put(&porch, "user_bob", "service_new", with("reader")).await.status, 200);
    assert_eq!(put(&porch, "user_ann", "user_ann", with("reader")).await.status, 403, "she may not write at all");
    // Whoever has more by a role is as far out of reach as whoever has it of their own.
    assert_eq!(put(&porch, "admin", "service_new", with("keeper")).await.status, 200);
    for (method, path, body) in [
        (Method::PUT, "/actors/service_new", json!({})),
        (Method::POST, "/actors/service_new/keys", json!({})),
        (Method::DELETE, "/actors/service_new", Value::Null),
    ] {
        assert_eq!(porch.ask("user_bob", method.clone(), path, body).await.status, 403, "{method} {path}");
    }
    // Nor does removing an entry give somebody what a pattern has.
    assert_eq!(put(&porch, "admin", "temp_*", with("keeper")).await.status, 200);
    assert_eq!(put(&porch, "admin", "temp_1", json!({"quota_per_minute": 1})).await.status, 200);
    let removed = porch.ask("user_bob", Method::DELETE, "/actors/temp_1", Value::Null).await;
    assert_eq!((removed.status, &removed.body["effective_scopes"]), (200, &json!([])), "{removed:?}");
}

#[tokio::test]
async fn a_role_that_is_gone_gives_nothing_and_its_actors_can_still_be_disabled() {
    let porch = porch_with(roles(), None).await;
    assert_eq!(put(&porch, "admin", "user_cat", json!({"roles": ["keeper"]})).await.status, 200);
    let (world, records) = (&porch.house.stage.world, &porch.house.stage.records);
    let later = access_fixture(world, records, None).directory(Settings { roles: Vec::new(), ..roles() }).await;
    let operator = chimera_engine::access::local_operator(TENANT);
    let shown = access::show_actor(&later, &operator, "user_cat").unwrap();
    assert_eq!((shown.entry.roles.clone(), shown.effective_scopes.len()), (vec!["keeper".to_owned()], 0));
    assert!(later.snapshot().registry.resolve("user_cat").scopes.is_empty());
    let disabled = ActorEntry { disabled: true, ..shown.entry };
    assert!(access::put_actor(&later, &operator, disabled.clone(), None).await.unwrap().entry.disabled);
    let other = ActorEntry { id: "user_new".to_owned(), ..disabled };
    let refused = access::put_actor(&later, &operator, other, None).await.unwrap_err().body();
    assert_eq!(refused.code.as_str(), "VALIDATION_FAILED", "nobody gets it anew");
}
