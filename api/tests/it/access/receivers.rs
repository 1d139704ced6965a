//! Who gets a link, and what is sent once the registry has changed.

use super::access_server::{AccessServer, entry, harmless, porch_with};
use chimera_core::access::{ActorEntry, TenantSettings};
use chimera_core::flow::tables::NOTIFICATIONS;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_engine::flow;
use chimera_testkit::access::settings;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{TENANT, approval_link, id_of};
use reqwest::Method;
use serde_json::{Value, json};

async fn house(bot: &[&str]) -> AccessServer {
    let mailed = |id: &str, scopes: &[&str], mail: &str| ActorEntry {
        notify: Some(json!({ "email": mail })),
        ..entry(id, scopes)
    };
    let scopes: Vec<&str> = ["local.summarize", "notion.*"].iter().chain(bot).copied().collect();
    let people = vec![
        entry("service_bot", &scopes),
        mailed("user_ann", &["approvals.decide"], "ann@acme.example"),
        mailed("user_bob", &["notion.*", "local.summarize", "email.send"], "bob@acme.example"),
        mailed("user_cat", &["local.summarize"], "cat@acme.example"),
    ];
    let mut settings = settings(TENANT, people);
    let domains = vec!["acme.example".to_owned()];
    settings.tenants.insert(TENANT.to_owned(), TenantSettings { domains, ..TenantSettings::default() });
    porch_with(settings, None).await
}

fn note() -> Value {
    json!([{"tool": "notion.note", "input": {"n": "word-kept-inside"}}])
}

/// What was queued for an address about a run, and whether it carries a link.
fn queued(porch: &AccessServer, run: &Value, target: &str) -> (Value, bool) {
    let rows = porch.house.stage.rows_of(&NOTIFICATIONS, id_of(&run["run_id"]));
    let row = rows.iter().find(|row| row.text("target") == target).expect("somebody is told");
    (row.get("payload").as_json().unwrap().value().unwrap()["data"].clone(), approval_link(row).is_some())
}

#[tokio::test]
async fn only_a_plain_mail_address_is_registered_or_told() {
    let porch = house(&["email.send"]).await;
    for invalid_entry in [
        "ann\u{200b}@acme.example",
        "ann@acme\u{3002}example",
        "ann@\u{ff41}cme.example",
        "ann@b\u{fc}cher.example",
        "Ann <ann@acme.example>",
        "ann@acme.example, eve@evil.test",
        "mailto:eve@evil.test",
    ] {
        let body = json!({"scopes": [], "notify": {"email": invalid_entry}});
        let put = porch.ask("admin", Method::PUT, "/actors/user_new", body).await;
        let act = porch.act("service_bot", json!({"steps": harmless(), "notify": {"email": invalid_entry}})).await;
        for refused in [put, act] {
            assert_eq!((refused.status, refused.code()), (422, "VALIDATION_FAILED"), "{invalid_entry}: {refused:?}");
            assert_eq!(refused.detail("pointer"), "/notify/email", "{invalid_entry}");
        }
    }
    let body = json!({"scopes": [], "notify": {"email": "ann@xn--bcher-kva.example"}});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_new", body).await.status, 200);
}

#[tokio::test]
async fn an_address_that_only_a_person_names_gets_no_link() {
    let porch = house(&[]).await;
    for (target, withheld) in [("mallory@evil.test", json!(true)), ("team@acme.example", Value::Null)] {
        let ask = json!({"steps": note(), "autonomy_level": "L0_Ask", "notify": {"email": target}});
        let waiting = porch.act("user_bob", ask).await;
        assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
        let (told, linked) = queued(&porch, &waiting.body, target);
        assert!(!linked && told["withheld"] == withheld, "{target}: {told}");
        assert_eq!(told.to_string().contains("word-kept-inside"), withheld.is_null(), "{target}: {told}");
    }
    let ask = json!({"steps": note(), "autonomy_level": "L0_Ask", "notify": {"email": "Bob@acme.example"}});
    let own = porch.act("user_bob", ask).await;
    assert!(queued(&porch, &own.body, "bob@acme.example").1, "the registered spelling of their own address");
}

#[tokio::test]
async fn somebody_named_who_may_not_decide_gets_no_link() {
    let porch = house(&[]).await;
    let ask = json!({"steps": note(), "autonomy_level": "L0_Ask", "notify": {"email": "cat@acme.example"}});
    let waiting = porch.act("service_bot", ask).await;
    let (told, linked) = queued(&porch, &waiting.body, "cat@acme.example");
    assert!(!linked && told["not_decider"] == "lacks_scope", "{told}");
    assert!(queued(&porch, &waiting.body, "ann@acme.example").1);
}

/// Whether the message to an address was sent, with the code of its error.
async fn sent(porch: &AccessServer, run: &Value, target: &str) -> (String, Value) {
    flow::deliver_due(&porch.house.stage.flow).await.unwrap();
    let shown = porch.get("admin", &crate::flow::path(run, "")).await.body;
    let messages = shown["messages"].as_array().unwrap();
    let message = messages.iter().find(|message| message["target"] == target).expect("somebody is told");
    (message["status"].as_str().unwrap().to_owned(), message["error"]["code"].clone())
}

#[tokio::test]
async fn a_message_to_a_stranger_goes_out_only_while_its_actor_may_send_it() {
    let keep = json!({"scopes": ["local.summarize", "email.send"]});
    let changes = [
        (Method::PUT, keep.clone(), "sent"),
        (Method::PUT, json!({"scopes": ["local.summarize"]}), "failed"),
        (Method::PUT, json!({"scopes": ["local.summarize", "email.send"], "disabled": true}), "failed"),
        (Method::DELETE, Value::Null, "failed"),
    ];
    for (method, body, status) in changes {
        let porch = house(&[]).await;
        assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_1", keep.clone()).await.status, 200);
        let ask = json!({"steps": harmless(), "notify": {"email": "mallory@evil.test"}});
        let waiting = porch.act("user_1", ask).await;
        assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
        let changed = porch.ask("admin", method.clone(), "/actors/user_1", body.clone()).await;
        assert_eq!(changed.status, 200, "{changed:?}");
        let told = sent(&porch, &waiting.body, "mallory@evil.test").await;
        let code = if status == "sent" { Value::Null } else { json!("RBAC_FORBIDDEN") };
        assert_eq!(told, (status.to_owned(), code), "{method} {body}");
        let entries = porch.house.stage.rows_of(&AUDIT_LOG_ENTRIES, id_of(&waiting.body["run_id"]));
        let event = format!("notification.{status}");
        assert!(entries.iter().any(|row| row.text("event_type") == event), "{method} {body}");
    }
}

#[tokio::test]
async fn whoever_is_registered_is_told_whatever_became_of_the_actor() {
    let porch = house(&[]).await;
    let scopes = json!({"scopes": ["local.summarize", "notion.*"]});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_1", scopes).await.status, 200);
    let ask = json!({"steps": note(), "autonomy_level": "L0_Ask", "notify": {"email": "ann@acme.example"}});
    let waiting = porch.act("user_1", ask).await;
    assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
    assert_eq!(porch.ask("admin", Method::DELETE, "/actors/user_1", Value::Null).await.status, 200);
    assert_eq!(sent(&porch, &waiting.body, "ann@acme.example").await, ("sent".to_owned(), Value::Null));
}
