//! Who decides: people only; about their own drafts without more, about others' with a scope.

use super::access_server::{AccessServer, entry, harmless, porch_with, sent};
use chimera_core::access::ActorEntry;
use chimera_testkit::access::settings;
use chimera_testkit::flow::{TENANT, workflow};
use reqwest::Method;
use serde_json::{Value, json};

async fn prepared() -> AccessServer {
    let entries = vec![
        entry("user_cat", &["approvals.decide"]),
        entry("n8n_workflow_123", &["notion.*", "approvals.decide"]),
        entry("service_bot", &["notion.*"]),
    ];
    porch_with(settings(TENANT, entries), None).await
}

async fn decides(porch: &AccessServer, actor: &str, run: &Value) -> (u16, String) {
    let url = run["approve_url"].as_str().unwrap();
    let answer = porch.ask(actor, Method::POST, url, json!({"decision": "approve"})).await;
    (answer.status, answer.code().to_owned())
}

/// CORE-019, CORE-075
#[tokio::test]
async fn a_person_decides_about_their_own_drafts_and_others_need_the_scope() {
    let porch = prepared().await;
    let mine = porch.act("user_ann", json!({"steps": harmless()})).await.body;
    for actor in ["user_bob", "n8n_workflow_1", "n8n_workflow_123"] {
        assert_eq!(decides(&porch, actor, &mine).await, (403, "RBAC_FORBIDDEN".to_owned()), "{actor}");
    }
    assert_eq!(porch.effects(), 0);
    assert_eq!(decides(&porch, "user_ann", &mine).await.0, 200);
    porch.house.until(&mine, "completed").await;
    let other = porch.act("user_ann", json!({"steps": harmless()})).await.body;
    assert_eq!(decides(&porch, "user_cat", &other).await.0, 200);
    porch.house.until(&other, "completed").await;
}

#[tokio::test]
async fn a_service_never_decides_not_even_about_its_own() {
    let porch = prepared().await;
    for service in ["n8n_workflow_123", "service_bot"] {
        let page = json!([{"tool": "notion.create_page", "input": {}}]);
        let draft = porch.act(service, json!({"steps": page, "autonomy_level": "L1_Draft"})).await;
        assert_eq!((draft.status, &draft.body["status"]), (200, &json!("awaiting_approval")), "{draft:?}");
        for actor in [service, "user_ann"] {
            assert_eq!(decides(&porch, actor, &draft.body).await, (403, "RBAC_FORBIDDEN".to_owned()), "{actor}");
        }
        assert_eq!(decides(&porch, "user_cat", &draft.body).await.0, 200);
        porch.house.until(&draft.body, "completed").await;
    }
    assert_eq!(porch.asked("notion.create_page").count("execute"), 2);
}

/// A token that is narrower than its actor decides no more than it says.
#[tokio::test]
async fn a_narrow_token_decides_nothing_of_others() {
    let porch = prepared().await;
    let draft = porch.act("user_ann", json!({"steps": harmless()})).await.body;
    let narrow = porch.token_with("user_cat", |claims| claims.scopes = Some(vec!["notion.read".into()]));
    let url = porch.house.server.url(draft["approve_url"].as_str().unwrap());
    let body = json!({"decision": "approve"});
    let request = crate::flow::signed(
        porch.house.client.post(url).bearer_auth(narrow),
        porch.house.stage.world.clock.now(),
        "user_cat",
        &body,
    );
    assert_eq!(request.send().await.unwrap().status(), 403);
}

/// Nor does it let happen what it could not ask for, though the draft is its actor's own.
#[tokio::test]
async fn a_narrow_token_approves_of_its_own_only_what_it_could_ask_for() {
    let porch = prepared().await;
    let draft = porch.act("user_ann", json!({"steps": harmless()})).await.body;
    let url = porch.house.server.url(draft["approve_url"].as_str().unwrap());
    let approve = async |scopes: &[&str]| {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let narrow = porch.token_with("user_ann", |claims| claims.scopes = Some(scopes));
        let body = json!({"decision": "approve"});
        sent(crate::flow::signed(
            porch.house.client.post(&url).bearer_auth(narrow),
            porch.house.stage.world.clock.now(),
            "user_ann",
            &body,
        ))
        .await
    };
    let refused = approve(&["github.read"]).await;
    assert_eq!((refused.status, refused.detail("required_scope")), (403, &json!("local.summarize")), "{refused:?}");
    assert_eq!(approve(&["local.summarize"]).await.status, 200);
}

/// What somebody approved goes out only while they may decide: the registry is asked when it would.
#[tokio::test]
async fn an_approval_counts_no_more_once_its_giver_is_disabled_or_loses_the_scope() {
    for less in [json!({"scopes": ["approvals.decide"], "disabled": true}), json!({"scopes": ["notion.read"]})] {
        let porch = prepared().await;
        let draft = porch.act("user_ann", json!({"steps": harmless()})).await.body;
        let (stage, run) = (&porch.house.stage, chimera_testkit::flow::id_of(&draft["run_id"]));
        let path = |what: &str| format!("/runs/{run}/{what}");
        assert_eq!(porch.ask("user_ann", Method::POST, &path("pause"), json!({})).await.status, 202);
        stage.until(run, |shown| shown["paused"] == true).await;
        assert_eq!(decides(&porch, "user_cat", &draft).await.0, 200);
        stage.until(run, |shown| shown["approvals"] == json!([])).await;
        assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_cat", less.clone()).await.status, 200);
        assert_eq!(porch.ask("user_ann", Method::POST, &path("resume"), json!({})).await.status, 202);
        let asked = stage.asks(run).await.remove(0);
        let reason = asked["action"]["reason"].as_str().unwrap();
        assert!(reason.contains("user_cat approved this and may not decide any more"), "{less}: {reason}");
        let body = json!({"decision": "approve", "digest": asked["digest"]});
        assert_eq!(porch.ask("admin", Method::POST, &path("approve"), body).await.status, 200);
        porch.house.until(&draft, "completed").await;
    }
}

/// Whoever changes what another's run will do must be allowed to do it.
#[tokio::test]
async fn nobody_changes_a_draft_into_what_they_may_not_do() {
    let manager = entry("user_cat", &["runs.manage"]);
    let able = entry("user_bob", &["runs.manage", "local.summarize"]);
    let porch = porch_with(settings(TENANT, vec![manager, able]), None).await;
    let draft = porch.act("user_ann", json!({"steps": harmless()})).await.body;
    let run = draft["run_id"].as_str().unwrap();
    let path = format!("/runs/{run}/steps/s1/edit");
    let body = json!({"input": {"text": "Something else."}});
    let refused = porch.ask("user_cat", Method::POST, &path, body.clone()).await;
    assert_eq!((refused.status, refused.detail("required_scope")), (403, &json!("local.summarize")), "{refused:?}");
    assert_eq!(porch.ask("user_bob", Method::POST, &path, body).await.status, 202);
}

/// What an actor without a level of its own may do goes by the risk of all its calls, also of those that a step
/// brings up later.
#[tokio::test]
async fn a_list_that_becomes_known_is_judged_by_the_risk_that_it_adds() {
    let quiet = ActorEntry { level: None, ..entry("service_bot", &["notion.*"]) };
    let porch = porch_with(settings(TENANT, vec![quiet]), None).await;
    let found = workflow("notes").function("find", "notion.search", json!({"list": "${inputs.list}"}));
    let each = json!({"n": "${item}"});
    let notes =
        found.map("m", json!("${nodes.find.outputs.echo.list}"), "notion.note", each).in_parallel(2).edge("find", "m");
    porch.house.stage.apply(&notes).await;
    for (items, calls, status) in [(1, 1, "completed"), (9, 1, "awaiting_approval")] {
        let list: Vec<usize> = (0..items).collect();
        let ask = json!({"workflow_id": "notes", "inputs": {"list": list}, "wait": 15});
        let run = porch.act("service_bot", ask).await.body;
        porch.house.until(&run, status).await;
        assert_eq!(porch.asked("notion.note").count("execute"), calls, "{items} items: {run}");
    }
}
