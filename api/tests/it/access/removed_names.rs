//! A removed name is retired: nobody gets it again, and whoever had it may do nothing and hears nothing.

use super::access_server::{AccessServer, entry, harmless, porch_with};
use chimera_core::access::ActorEntry;
use chimera_core::flow::tables::NOTIFICATIONS;
use chimera_core::limits::REMOVED_ACTORS_MAX;
use chimera_testkit::access::{key_of, settings};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{TENANT, approval_link, id_of, workflow};
use reqwest::Method;
use serde_json::{Value, json};

async fn house() -> AccessServer {
    let mailed = |id: &str, scopes: &[&str], mail: &str| ActorEntry {
        notify: Some(json!({ "email": mail })),
        ..entry(id, scopes)
    };
    let people = vec![
        entry("user_ann", &["notion.*"]),
        mailed("user_bob", &["approvals.decide"], "bob@acme.example"),
        entry("user_cat", &["actors.write", "local.summarize"]),
    ];
    porch_with(settings(TENANT, people), None).await
}

/// Registers `user_zed`, with a key.
async fn registered(porch: &AccessServer, scopes: &[&str], mail: &str) {
    let body = json!({"scopes": scopes, "autonomy_level": "L1_Draft", "notify": {"email": mail}});
    let put = porch.ask("admin", Method::PUT, "/actors/user_zed", body).await;
    assert_eq!(put.status, 200, "{put:?}");
    let made = porch.ask("admin", Method::POST, "/actors/user_zed/keys", json!({"hmac_key": key_of("user_zed")})).await;
    assert_eq!(made.status, 201, "{made:?}");
}

async fn removed(porch: &AccessServer, id: &str) {
    let answer = porch.ask("admin", Method::DELETE, &format!("/actors/{id}"), Value::Null).await;
    assert_eq!((answer.status, &answer.body["disabled"]), (200, &json!(true)), "{answer:?}");
}

async fn asked(porch: &AccessServer, who: &str, demanded: Value) -> Value {
    let node =
        json!({"id": "a", "type": "function", "fn": "notion.note", "inputs": {"n": 1}, "requires_approval": demanded});
    porch.house.stage.apply_as("user_writer", &workflow("strict").node(node)).await;
    let waiting = porch.act(who, json!({"workflow_id": "strict", "inputs": {}})).await;
    assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
    waiting.body
}

async fn approves(porch: &AccessServer, who: &str, run: &Value) -> (u16, Value) {
    let url = run["approve_url"].as_str().unwrap();
    let answer = porch.ask(who, Method::POST, url, json!({"decision": "approve"})).await;
    (answer.status, answer.body["approval_status"].clone())
}

/// The changes wait for each other, so some of them come up after the removal.
#[tokio::test]
async fn what_a_removed_manager_asked_for_and_waits_is_refused() {
    let porch = house().await;
    registered(&porch, &["actors.write", "local.summarize"], "zed@acme.example").await;
    let put = |_| porch.ask("user_zed", Method::PUT, "/actors/service_x", json!({"scopes": []}));
    let (before, (), after) = tokio::join!(
        futures::future::join_all((0..20).map(put)),
        removed(&porch, "user_zed"),
        futures::future::join_all((20..40).map(put)),
    );
    let statuses: Vec<u16> = before.iter().chain(&after).map(|answer| answer.status).collect();
    assert!(statuses.iter().all(|status| [200, 401, 403].contains(status)), "{statuses:?}");
    assert!(statuses.iter().any(|status| *status != 200), "{statuses:?}");
    let entries = porch.get("admin", "/audit?limit=200").await.body["items"].as_array().unwrap().clone();
    let last = |event: &str, actor: &str| {
        entries.iter().rposition(|entry| entry["event_type"] == event && entry["actor_id"] == actor)
    };
    let (removed_at, last) = (last("actor.removed", "admin").unwrap(), last("actor.changed", "user_zed"));
    assert!(last.is_none_or(|last| last < removed_at), "{last:?} after {removed_at}");
}

#[tokio::test]
async fn nobody_gets_a_removed_name_again() {
    let porch = house().await;
    registered(&porch, &["local.summarize"], "zed@acme.example").await;
    removed(&porch, "user_zed").await;
    let scopes = json!({"scopes": ["local.summarize"]});
    for (who, method, path, body) in [
        ("admin", Method::PUT, "/actors/user_zed", scopes.clone()),
        ("admin", Method::PUT, "/actors/user_zed", json!({"scopes": [], "disabled": true})),
        ("admin", Method::POST, "/actors/user_zed/keys", json!({})),
        ("user_cat", Method::PUT, "/actors/user_zed", scopes),
        ("user_cat", Method::POST, "/actors/user_zed/keys", json!({})),
    ] {
        let refused = porch.ask(who, method.clone(), path, body).await;
        assert_eq!((refused.status, refused.code()), (422, "VALIDATION_FAILED"), "{who} {method}: {refused:?}");
        assert_eq!(refused.detail("reason"), "name_retired");
        let told = refused.body["detail"].as_str().unwrap();
        assert_eq!(told, "`user_zed` was removed and its name is retired; choose another name");
    }
    assert_eq!(porch.get("admin", "/actors/user_zed").await.status, 404);
    assert_eq!(porch.ask("admin", Method::DELETE, "/actors/user_zed", Value::Null).await.status, 404);
    let listed = porch.get("admin", "/actors").await.body;
    assert!(!listed.to_string().contains("user_zed"), "{listed}");
}

#[tokio::test]
async fn whoever_was_removed_signs_nothing_though_a_pattern_fits_the_name() {
    let porch = house().await;
    // Without an entry of its own: a pattern and a key.
    let made = porch.ask("admin", Method::POST, "/actors/user_zed/keys", json!({"hmac_key": key_of("user_zed")})).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(porch.sign_in("user_zed", "n-1").await.status, 200);
    assert_eq!(porch.act("user_zed", json!({"steps": harmless()})).await.status, 200);
    removed(&porch, "user_zed").await;
    assert_eq!(porch.sign_in("user_zed", "n-2").await.status, 401);
    let refused = porch.act("user_zed", json!({"steps": harmless()})).await;
    assert_eq!((refused.status, refused.code()), (401, "UNAUTHENTICATED"), "{refused:?}");
}

#[tokio::test]
async fn a_call_of_whoever_was_removed_is_refused_though_it_was_approved() {
    let porch = house().await;
    registered(&porch, &["notion.*"], "zed@acme.example").await;
    let run = asked(&porch, "user_zed", json!({})).await;
    removed(&porch, "user_zed").await;
    assert_eq!(approves(&porch, "user_bob", &run).await.0, 200);
    porch.house.until(&run, "failed").await;
    assert_eq!(porch.asked("notion.note").count("execute"), 0);
}

#[tokio::test]
async fn what_a_removed_person_approved_is_asked_about_again() {
    let porch = house().await;
    registered(&porch, &["approvals.decide"], "zed@acme.example").await;
    let run = asked(&porch, "user_ann", json!({})).await;
    let path = |what: &str| crate::flow::path(&run, what);
    assert_eq!(porch.ask("user_ann", Method::POST, &path("/pause"), json!({})).await.status, 202);
    assert_eq!(approves(&porch, "user_zed", &run).await, (200, json!("approved")));
    removed(&porch, "user_zed").await;
    assert_eq!(porch.ask("user_ann", Method::POST, &path("/resume"), json!({})).await.status, 202);
    porch.house.until(&run, "awaiting_approval").await;
    let shown = porch.get("user_ann", &path("")).await.body;
    assert!(
        shown["approvals"][0].to_string().contains("user_zed approved this and may not decide any more"),
        "{shown}"
    );
    assert_eq!(porch.asked("notion.note").count("execute"), 0);
}

#[tokio::test]
async fn a_removed_person_gets_no_link_for_what_waits_later() {
    let porch = house().await;
    registered(&porch, &["approvals.decide"], "zed@acme.example").await;
    let mails = |run: &Value| {
        let rows = porch.house.stage.rows_of(&NOTIFICATIONS, id_of(&run["run_id"]));
        let linked = rows.iter().filter(|row| approval_link(row).is_some()).map(|row| row.text("target").to_owned());
        linked.collect::<Vec<_>>()
    };
    let before = asked(&porch, "user_ann", json!({"other_than_requester": true})).await;
    assert_eq!(mails(&before), ["bob@acme.example", "zed@acme.example"]);
    removed(&porch, "user_zed").await;
    let after = asked(&porch, "user_ann", json!({"other_than_requester": true})).await;
    assert_eq!(mails(&after), ["bob@acme.example"]);
}

/// Whoever is registered under another name is still who they were.
#[tokio::test]
async fn a_new_name_is_no_second_pair_of_eyes() {
    for moved in [false, true] {
        let porch = house().await;
        registered(&porch, &["notion.*"], "ren@acme.example").await;
        let run = asked(&porch, "user_zed", json!({"other_than_requester": true})).await;
        if moved {
            registered(&porch, &["notion.*"], "ren.old@acme.example").await;
        }
        removed(&porch, "user_zed").await;
        let married = json!({"scopes": ["approvals.decide"], "notify": {"email": "ren@acme.example"}});
        assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_1", married).await.status, 200);
        let url = run["approve_url"].as_str().unwrap();
        let refused = porch.ask("user_1", Method::POST, url, json!({"decision": "approve"})).await;
        assert_eq!((refused.status, refused.detail("reason")), (403, &json!("same_as_requester")), "{refused:?}");
    }
}

#[tokio::test]
async fn a_person_is_known_by_former_addresses() {
    let porch = house().await;
    registered(&porch, &["notion.*"], "old@acme.example").await;
    let run = asked(&porch, "user_zed", json!({"other_than_requester": true})).await;
    let body = json!({"scopes": ["notion.*"], "notify": {"email": "new@acme.example"}});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_zed", body).await.status, 200);
    let other = json!({"scopes": ["approvals.decide"], "notify": {"email": "Old@acme.example"}});
    let taken = porch.ask("admin", Method::PUT, "/actors/user_1", other).await;
    assert_eq!((taken.status, taken.detail("reason")), (422, &json!("address_taken")), "{taken:?}");
    assert_eq!(approves(&porch, "user_bob", &run).await.0, 200);
}

#[tokio::test]
async fn a_configured_name_stays_the_configurations() {
    let porch = house().await;
    let narrow = json!({"scopes": []});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_bob", narrow.clone()).await.status, 200);
    let gone = porch.ask("admin", Method::DELETE, "/actors/user_bob", Value::Null).await;
    assert_eq!((&gone.body["source"], &gone.body["scopes"]), (&json!("config"), &json!(["approvals.decide"])));
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_bob", narrow).await.status, 200, "not retired");
    // Nor is a pattern anybody's name.
    let pattern = json!({"scopes": ["local.summarize"]});
    for _ in 0..2 {
        assert_eq!(porch.ask("admin", Method::PUT, "/actors/svc_*", pattern.clone()).await.status, 200);
        assert_eq!(porch.ask("admin", Method::DELETE, "/actors/svc_*", Value::Null).await.status, 200);
    }
}

#[tokio::test]
async fn a_tenant_keeps_no_more_removed_names_than_allowed() {
    use chimera_core::access::tables::ACTORS;
    let porch = house().await;
    registered(&porch, &[], "zed@acme.example").await;
    removed(&porch, "user_zed").await;
    porch.house.stage.records.tamper(&ACTORS, |rows| {
        let model = rows[0].clone();
        rows.extend((1..REMOVED_ACTORS_MAX).map(|n| {
            let mut row = model.clone();
            row.cells[ACTORS.position("id").unwrap()] = format!("user_gone_{n:05}").into();
            row
        }));
    });
    porch.directory.refresh().await.unwrap();
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_1", json!({"scopes": []})).await.status, 200);
    let refused = porch.ask("admin", Method::DELETE, "/actors/user_1", Value::Null).await;
    assert_eq!((refused.status, refused.code()), (422, "VALIDATION_FAILED"), "{refused:?}");
    assert!(refused.body["detail"].as_str().unwrap().ends_with("disable it instead"), "{refused:?}");
}
