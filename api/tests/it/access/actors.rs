//! Managing actors: no caller grants a scope they do not hold, or changes an actor who holds more.

use super::access_server::{AccessServer, entry, harmless, porch_with, sent};
use chimera_core::access::{ActorEntry, Level};
use chimera_testkit::access::settings;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::TENANT;
use reqwest::Method;
use serde_json::{Value, json};

/// A house where bob looks after actors, and may read Notion.
async fn kept() -> AccessServer {
    let bob = entry("user_bob", &["actors.read", "actors.write", "notion.*"]);
    let bob = ActorEntry { level: Some(Level::Draft), quota_per_minute: 30, ..bob };
    porch_with(settings(TENANT, vec![bob]), None).await
}

async fn put(porch: &AccessServer, actor: &str, id: &str, body: Value) -> u16 {
    porch.ask(actor, Method::PUT, &format!("/actors/{id}"), body).await.status
}

/// CORE-079
#[tokio::test]
async fn nobody_makes_a_key_for_somebody_who_may_do_more() {
    let porch = kept().await;
    for (actor, of, status) in [
        ("user_bob", "admin", 403),
        ("user_bob", "n8n_workflow_1", 403),
        ("user_bob", "service_bot", 201),
        ("user_ann", "user_ann", 403),
        ("admin", "n8n_workflow_1", 201),
    ] {
        let made = porch.ask(actor, Method::POST, &format!("/actors/{of}/keys"), json!({})).await;
        assert_eq!(made.status, status, "{actor} for {of}: {made:?}");
    }
}

/// Whoever had a person's key could decide as one: a service neither makes one nor makes people.
#[tokio::test]
async fn a_service_does_not_look_after_people() {
    let keeper = entry("service_chatbot", &["actors.read", "actors.write", "local.*", "notion.*", "github.*"]);
    let free = ActorEntry { quota_per_minute: 30, ..entry("service_free", &["notion.read"]) };
    let free = ActorEntry { level: Some(Level::ExecuteNotify), ..free };
    let bob = ActorEntry { level: Some(Level::Draft), ..entry("user_bob", &["actors.write", "notion.*"]) };
    let porch = porch_with(settings(TENANT, vec![keeper, free, bob]), None).await;
    let key = async |actor: &str, of: &str| {
        porch.ask(actor, Method::POST, &format!("/actors/{of}/keys"), json!({"overlap_seconds": 0})).await.status
    };
    assert_eq!((key("service_chatbot", "user_ann").await, key("service_chatbot", "service_free").await), (403, 201));
    let person = json!({"scopes": ["notion.read"], "quota_per_minute": 10, "autonomy_level": "L0_Ask"});
    assert_eq!(put(&porch, "service_chatbot", "user_new", person.clone()).await, 403);
    assert_eq!(put(&porch, "service_chatbot", "service_new", person).await, 200);
    assert_eq!(key("user_bob", "service_free").await, 403, "it acts more freely than bob");
    assert_eq!(porch.sign_in("user_ann", "still").await.status, 200, "her key still counts");
}

#[tokio::test]
async fn a_token_alone_or_a_narrow_one_makes_no_key() {
    let porch = kept().await;
    let url = porch.house.server.url("/actors/admin/keys");
    let unsigned = sent(porch.house.client.post(&url).bearer_auth(porch.house.token("admin"))).await;
    assert_eq!((unsigned.status, unsigned.code()), (401, "SIGNATURE_INVALID"));
    let narrow = porch.token_with("admin", |claims| claims.scopes = Some(vec!["runs.read".to_owned()]));
    let request = porch.house.client.post(&url).bearer_auth(narrow);
    let narrowed = sent(crate::flow::signed(request, porch.house.stage.world.clock.now(), "admin", &json!({}))).await;
    assert_eq!((narrowed.status, narrowed.code()), (403, "RBAC_FORBIDDEN"));
}

#[tokio::test]
async fn nobody_gives_a_level_a_quota_a_kind_or_a_pattern_that_is_not_theirs_to_give() {
    let porch = kept().await;
    let plain = json!({"scopes": ["notion.*"], "quota_per_minute": 30, "autonomy_level": "L1_Draft"});
    assert_eq!(put(&porch, "user_bob", "service_new", plain.clone()).await, 200);
    let with = |name: &str, value: Value| {
        let mut body = plain.clone();
        body[name] = value;
        body
    };
    for body in [
        with("scopes", json!(["github.*"])),
        with("autonomy_level", json!("L2_ExecuteNotify")),
        with("autonomy_level", Value::Null),
        with("quota_per_minute", json!(31)),
        with("kind", json!("human")),
        with("tenant", json!("other")),
    ] {
        assert_eq!(put(&porch, "user_bob", "service_new", body.clone()).await, 403, "{body}");
    }
    for id in ["admin", "n8n_workflow_1", "service_*", "*"] {
        assert_eq!(put(&porch, "user_bob", id, plain.clone()).await, 403, "{id}");
    }
    for less in [
        json!({"scopes": ["notion.*"]}),
        json!({"scopes": ["*"], "disabled": true}),
        json!({"scopes": ["*"], "kind": "service"}),
        json!({"scopes": ["*"], "quota_per_minute": 0}),
    ] {
        assert_eq!(put(&porch, "admin", "admin", less).await, 422, "nobody else could give it back");
    }
    assert_eq!(porch.get("admin", "/actors/admin").await.body["scopes"], json!(["*"]));
}

#[tokio::test]
async fn the_operator_looks_after_every_tenant() {
    let porch = kept().await;
    let entry = json!({"tenant": "globex", "scopes": ["notion.*"]});
    let told = porch.ask("admin", Method::PUT, "/actors/globex_*", entry.clone()).await;
    assert_eq!((told.status, told.detail("pointer")), (422, &json!("/tenant")), "{told:?}");
    assert!(told.body["detail"].as_str().unwrap().contains("chimera tenant add globex"), "{told:?}");
    assert_eq!(porch.ask("admin", Method::POST, "/tenants", json!({"slug": "globex"})).await.status, 201);
    assert_eq!(put(&porch, "admin", "globex_*", entry).await, 200);
    let made = porch.ask("admin", Method::POST, "/actors/globex_bot/keys", json!({})).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(porch.get("admin", "/actors/globex_bot").await.body["tenant"], "globex");
    assert_eq!(porch.get("user_bob", "/actors/globex_bot").await.status, 404);
}

#[tokio::test]
async fn a_new_name_has_nothing_that_hides_or_looks_like_another_and_an_old_one_goes_on() {
    let old = ActorEntry { id: "user_\u{430}pp".to_owned(), ..entry("user_x", &["notion.*"]) };
    let porch = porch_with(settings(TENANT, vec![old]), None).await;
    for strange in ["user_re%E2%80%8Bq", "user_app%E2%80%AE", "user_%D0%B1ob", "user_%3Cb%3Ex", "-x"] {
        let path = format!("/actors/{strange}");
        let told = porch.ask("admin", Method::PUT, &path, json!({"scopes": ["notion.*"]})).await;
        assert_eq!((told.status, told.detail("pointer")), (422, &json!("/id")), "{strange}: {told:?}");
        let told = porch.ask("admin", Method::POST, &format!("{path}/keys"), json!({})).await;
        assert_eq!(told.status, 422, "{strange}: {told:?}");
        let hidden = told.body["detail"].as_str().unwrap().contains(['\u{200b}', '\u{202e}']);
        assert!(!hidden, "what hides is spelled out: {told:?}");
    }
    assert_eq!(put(&porch, "admin", "user_%D0%B0pp", json!({"disabled": true})).await, 200, "it was there before");
}

#[tokio::test]
async fn admin_keeps_enough_requests_to_give_itself_more() {
    let porch = kept().await;
    for (quota, status) in [(0, 422), (1, 422), (9, 422), (10, 200)] {
        let body = json!({"scopes": ["*"], "quota_per_minute": quota});
        assert_eq!(put(&porch, "admin", "admin", body).await, status, "{quota}");
    }
}

/// CORE-109
#[tokio::test]
async fn a_key_that_the_configuration_holds_ends_when_it_is_replaced() {
    let porch = kept().await;
    assert_eq!(porch.sign_in("user_ann", "before").await.status, 200);
    let made = porch.ask("admin", Method::POST, "/actors/user_ann/keys", json!({"overlap_seconds": 0})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let old = porch.sign_in("user_ann", "after").await;
    assert_eq!((old.status, old.code()), (401, "SIGNATURE_INVALID"));
    assert_eq!(porch.get("admin", "/actors/user_ann").await.body["keys"], 1);
}

#[tokio::test]
async fn who_is_removed_signs_nothing_any_more() {
    let porch = kept().await;
    let own = json!({"scopes": ["notion.read"], "quota_per_minute": 10, "autonomy_level": "L0_Ask"});
    assert_eq!(put(&porch, "admin", "user_ann", own).await, 200);
    let token = porch.sign_in("user_ann", "before").await.body["access_token"].as_str().unwrap().to_owned();
    let as_ann = async || {
        let url = porch.house.server.url("/actors/user_ann");
        sent(porch.house.client.get(url).bearer_auth(&token)).await.status
    };
    assert_eq!(as_ann().await, 200);
    let left = porch.ask("admin", Method::DELETE, "/actors/user_ann", Value::Null).await;
    assert_eq!((left.status, &left.body["matched"], &left.body["keys"]), (200, &Value::Null, &json!(0)), "{left:?}");
    assert_eq!(as_ann().await, 401, "her sign-in has ended");
    assert_eq!(porch.sign_in("user_ann", "after").await.code(), "SIGNATURE_INVALID");
    let again = porch.ask("admin", Method::DELETE, "/actors/user_ann", Value::Null).await;
    assert_eq!((again.status, again.code()), (404, "NOT_FOUND"));
    let told = porch.get("admin", "/audit?event_type=actor.removed").await;
    assert_eq!(
        told.body["items"][0]["data_json"],
        json!({"entry": true, "keys_ended": 1, "signing_keys_ended": 0}),
        "{told:?}"
    );
}

#[tokio::test]
async fn nobody_removes_admin_themselves_or_what_held_somebody_back() {
    let more = entry("n8n_workflow_7", &["github.read"]);
    let bob = entry("user_bob", &["actors.write", "notion.*"]);
    let bob = ActorEntry { level: Some(Level::Draft), quota_per_minute: 30, ..bob };
    let porch = porch_with(settings(TENANT, vec![bob, more]), None).await;
    let remove = async |actor: &str, id: &str| {
        porch.ask(actor, Method::DELETE, &format!("/actors/{id}"), Value::Null).await.status
    };
    assert_eq!((remove("admin", "admin").await, remove("user_bob", "user_bob").await), (422, 422));
    // Beneath this entry the configuration gives more than bob has.
    let held_back = json!({"scopes": ["notion.read"], "quota_per_minute": 10, "autonomy_level": "L0_Ask"});
    assert_eq!(put(&porch, "admin", "n8n_workflow_7", held_back).await, 200);
    assert_eq!((remove("user_bob", "n8n_workflow_7").await, remove("user_bob", "user_*").await), (403, 403));
    assert_eq!(porch.get("admin", "/actors/n8n_workflow_7").await.body["source"], "registry");
    assert_eq!(remove("admin", "n8n_workflow_7").await, 200);
}

#[tokio::test]
async fn a_list_is_not_an_object_whose_members_come_in_order() {
    let porch = kept().await;
    let list = porch.act("n8n_workflow_1", json!([null, null, null, null, null, harmless()])).await;
    assert_eq!((list.status, list.code()), (400, "SCHEMA_INVALID"), "{list:?}");
    let now = porch.now();
    let signed_in = porch.post("admin", "/auth/token", &json!(["admin", now, "n", null])).await;
    assert_eq!((signed_in.status, signed_in.code()), (400, "SCHEMA_INVALID"));
}

/// CORE-120
#[tokio::test]
async fn what_was_tried_dry_stands_before_what_was_done() {
    let porch = kept().await;
    let draft = porch.act("user_ann", json!({"steps": harmless()})).await.body;
    let calls = |steps: Value| -> Vec<bool> {
        let calls = steps["steps"][0]["tool_calls"].as_array().unwrap().iter();
        calls.map(|call| call["dry_run"].as_bool().unwrap()).collect()
    };
    let place = format!("/runs/{}/steps", draft["run_id"].as_str().unwrap());
    assert_eq!(calls(porch.get("user_ann", &place).await.body), [true]);
    let approve = draft["approve_url"].as_str().unwrap();
    let decided = porch.ask("user_ann", Method::POST, approve, json!({"decision": "approve"})).await;
    assert_eq!(decided.status, 200, "{decided:?}");
    porch.house.until(&draft, "completed").await;
    assert_eq!(calls(porch.get("user_ann", &place).await.body), [true, false]);
}

#[tokio::test]
async fn a_tenant_has_a_random_id_and_a_slug_that_people_use() {
    let porch = kept().await;
    let added = porch.ask("admin", Method::POST, "/tenants", json!({"slug": "globex", "name": "Globex Corp"})).await;
    let id = added.body["id"].as_str().unwrap().to_owned();
    assert_eq!((added.status, id.len(), &added.body["name"]), (201, 32, &json!("Globex Corp")), "{added:?}");
    assert_eq!(porch.get("admin", "/tenants/globex").await.body, added.body);
    let slugs = porch.get("admin", "/tenants").await.body["items"].as_array().unwrap().clone();
    assert!(slugs.iter().any(|tenant| tenant["slug"] == "globex"), "{slugs:?}");
    for (body, status) in [
        (json!({"slug": "globex"}), 409),
        (json!({"slug": "Globex"}), 422),
        (json!({"slug": "a.b"}), 422),
        (json!({"slug": "fine", "name": ""}), 422),
        (json!({"slug": "fine", "more": 1}), 400),
    ] {
        let told = porch.ask("admin", Method::POST, "/tenants", body.clone()).await;
        assert_eq!(told.status, status, "{body}: {told:?}");
    }
    assert_eq!(porch.get("admin", "/tenants/absent").await.status, 404);
    // What is done for another tenant stands in both ledgers, and the id alone travels inside.
    assert_eq!(put(&porch, "admin", "globex_*", json!({"tenant": "globex", "scopes": ["notion.*"]})).await, 200);
    assert_eq!(porch.get("admin", "/actors/globex_x").await.body["tenant"], "globex");
    let entries = porch.house.stage.rows(&chimera_core::ledger::tables::AUDIT_LOG_ENTRIES);
    let of = |tenant: &str| entries.iter().filter(|row| row.text("tenant_id") == tenant).count();
    assert_eq!((of(&id), of("globex")), (1, 0));
    let told = entries.iter().find(|row| row.text("tenant_id") == id).unwrap();
    assert_eq!((told.text("actor_id"), told.text("event_type")), ("admin", "actor.changed"));
    assert!(format!("{told:?}").contains("operator_of"), "{told:?}");
}

#[tokio::test]
async fn nobody_of_a_disabled_tenant_is_let_in() {
    let porch = kept().await;
    assert_eq!(porch.ask("admin", Method::POST, "/tenants", json!({"slug": "globex"})).await.status, 201);
    assert_eq!(put(&porch, "admin", "user_cat", json!({"tenant": "globex", "scopes": ["runs.read"]})).await, 200);
    assert_eq!(porch.get("user_cat", "/runs").await.status, 200);
    let set = async |disabled: bool| {
        let told = porch.ask("admin", Method::PATCH, "/tenants/globex", json!({ "disabled": disabled })).await;
        assert_eq!((told.status, &told.body["disabled"]), (200, &json!(disabled)), "{told:?}");
    };
    set(true).await;
    let refused = porch.get("user_cat", "/runs").await;
    assert_eq!((refused.status, refused.code()), (403, "RBAC_FORBIDDEN"), "{refused:?}");
    assert_eq!(porch.get("admin", "/actors/user_cat").await.body["disabled"], false, "its entry stays as it is");
    set(false).await;
    assert_eq!(porch.get("user_cat", "/runs").await.status, 200);
    let told = porch.ask("admin", Method::PATCH, &format!("/tenants/{TENANT}"), json!({"disabled": true})).await;
    assert_eq!(told.status, 422, "no operator would be left: {told:?}");
}

/// A mail may carry a link by which its reader decides: who may do more than the keeper is told where they were told.
#[tokio::test]
async fn nobody_gets_the_mail_of_somebody_who_may_do_more() {
    let porch = kept().await;
    let body = |mail: &str, quota: u32, level: &str| json!({"scopes": ["notion.read"], "quota_per_minute": quota, "autonomy_level": level, "notify": {"email": mail}});
    let (free, own) = ("L2_ExecuteNotify", "L1_Draft");
    assert_eq!(put(&porch, "admin", "user_big", body("big@acme.example", 100, free)).await, 200);
    for (mail, quota, level, status) in [
        ("bob@acme.example", 100, free, 403),
        ("bob@acme.example", 30, own, 403),
        ("big@acme.example", 90, free, 200),
        ("big@acme.example", 30, own, 200),
        ("bob@acme.example", 30, own, 200),
    ] {
        let answered = put(&porch, "user_bob", "user_big", body(mail, quota, level)).await;
        assert_eq!(answered, status, "{mail} {quota} {level}");
    }
}

/// Whoever has a larger quota or a freer level than the keeper may be held back by them, and not be let loose again.
#[tokio::test]
async fn what_is_lowered_or_switched_off_is_given_by_nobody() {
    let porch = kept().await;
    let body = |quota: u32, level: &str, disabled: bool| json!({"scopes": ["notion.read"], "quota_per_minute": quota, "autonomy_level": level, "disabled": disabled});
    let (free, own) = ("L2_ExecuteNotify", "L1_Draft");
    assert_eq!(put(&porch, "admin", "service_big", body(100, free, false)).await, 200);
    for (quota, level, disabled, status) in [
        (101, free, false, 403),
        (90, "L3_ExecuteSilent", false, 403),
        (60, free, false, 200),
        (61, free, false, 403),
        (60, own, false, 200),
        (60, free, false, 403),
        (60, own, true, 200),
        (60, own, false, 403),
        (50, own, true, 200),
        (31, own, false, 403),
        (30, own, false, 200),
    ] {
        let answered = put(&porch, "user_bob", "service_big", body(quota, level, disabled)).await;
        assert_eq!(answered, status, "{quota} {level} {disabled}");
    }
    let key = porch.ask("user_bob", Method::POST, "/actors/service_big/keys", json!({})).await;
    assert_eq!(key.status, 201, "it may do no more than bob now");
}
