//! What a schedule may do is what its owner asked for, with what the owner asked for it with: not what somebody else has
//! made of the workflow, the key, the level or the tenant since.

use super::access_server::{AccessServer, ApiResponse, entry, sent};
use super::schedules::{server, server_of};
use chimera_core::access::{ActorEntry, Kind, Level};
use chimera_core::flow::tables::RUNS;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::record::Row;
use chimera_core::secret::Secret;
use chimera_engine::port::Clock;
use chimera_testkit::access::{key_of, settings, signed_with};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{TENANT, workflow};
use reqwest::Method;
use serde_json::{Value, json};

/// The schedule of somebody else than `user_ann`.
async fn made(server: &AccessServer, owner: &str, path: &str, terms: Value) -> Value {
    let mut body = json!({"name": "often", "workflow_id": "summary", "every": "1m"});
    body.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
    let made = server.ask(owner, Method::POST, path, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.body
}

fn last_run(server: &AccessServer) -> Row {
    server.house.stage.rows(&RUNS).pop().expect("a run")
}

/// A request with the token and key of a narrowed sign-in.
async fn narrowed(server: &AccessServer, actor: &str, scopes: &[&str], path: &str) -> ApiResponse {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    let token = server.token_with(actor, |claims| claims.scopes = Some(scopes));
    let request = server.house.client.post(server.house.server.url(path)).bearer_auth(token);
    sent(crate::flow::signed(request, server.clock.now(), actor, &Value::Null)).await
}

#[tokio::test]
async fn whoever_wrote_the_inputs_can_not_approve_a_run_that_somebody_else_starts_with_them() {
    let people = vec![
        entry("user_ann", &["local.*", "approvals.decide"]),
        entry("user_bob", &["local.*", "runs.manage", "approvals.decide"]),
        entry("user_cat", &["approvals.decide"]),
    ];
    let server = server_of(settings(TENANT, people)).await;
    let node = json!({
        "id": "a", "type": "function", "fn": "local.summarize", "inputs": {"text": "${inputs.text}"},
        "requires_approval": {"other_than_requester": true},
    });
    server.house.stage.apply_as("admin", &workflow("strict").node(node)).await;
    let terms = json!({"workflow_id": "strict", "inputs": {"text": "Pay Ann."}, "cron": "0 0 1 1 *", "every": null});
    made(&server, "user_ann", "/schedules", terms).await;
    let run = server.ask("user_bob", Method::POST, "/schedules/often/run", json!({"wait": 5})).await.body;
    let path = format!("/runs/{}", run["run_id"].as_str().unwrap());
    let review = server.get("user_cat", &path).await.body["approvals"][0]["review"].clone();
    assert_eq!((&review["requested_by"], &review["changed_by"]), (&json!("user_bob"), &json!(["user_ann", "admin"])));
    assert_eq!(review["schedule"]["name"], "often", "{review}");
    let approve = format!("{path}/approve");
    for (who, status) in [("user_bob", 403), ("user_ann", 403), ("user_cat", 200)] {
        let told = server.ask(who, Method::POST, &approve, json!({"decision": "approve"})).await;
        assert_eq!(told.status, status, "{who}: {told:?}");
    }
    let run = server.get("user_cat", &path).await.body;
    let cause = &run["schedule"];
    assert_eq!((&cause["name"], &cause["tick_at"]), (&json!("often"), &Value::Null), "{run}");
}

#[tokio::test]
async fn a_narrowed_token_resumes_only_what_it_could_start() {
    let server = server().await;
    server.schedule(json!({})).await;
    assert_eq!(server.ask("user_ann", Method::POST, "/schedules/often/pause", json!({})).await.status, 200);
    for action in ["resume", "run"] {
        let told = narrowed(&server, "user_ann", &["notion.search"], &format!("/schedules/often/{action}")).await;
        assert_eq!((told.status, told.code()), (403, "RBAC_FORBIDDEN"), "{action}: {told:?}");
    }
    let told = narrowed(&server, "user_ann", &["local.summarize"], "/schedules/often/resume").await;
    assert_eq!((told.status, &told.body["status"]), (200, &json!("active")), "{told:?}");
}

#[tokio::test]
async fn what_a_person_says_enters_neither_row_nor_ledger_with_a_credential() {
    let server = server().await;
    server.schedule(json!({})).await;
    let reason = json!({"reason": "leaked ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8 and password=hunter2hunter2"});
    let paused = server.ask("user_ann", Method::POST, "/schedules/often/pause", reason).await;
    assert_eq!(paused.body["pause_reason"], "leaked [redacted] and password=[redacted]", "{paused:?}");
    let entries = format!("{:?}", server.house.stage.rows(&AUDIT_LOG_ENTRIES));
    assert!(entries.contains("leaked [redacted]") && !entries.contains("hunter2") && !entries.contains("ghp_"));
}

#[tokio::test]
async fn a_schedule_ends_with_the_key_that_made_it_and_says_so() {
    let server = server().await;
    server.schedule(json!({})).await;
    server.tick().await;
    assert_eq!(server.runs(), 1);
    let (new, path) = ("another key of user_ann, long enough", "/actors/user_ann/keys");
    let rotated = server.ask("admin", Method::POST, path, json!({"hmac_key": new, "overlap_seconds": 90})).await;
    assert_eq!(rotated.status, 201, "{rotated:?}");
    server.clock.wait(60);
    server.tick().await;
    assert_eq!(server.runs(), 2, "both keys are valid for a while");
    server.clock.wait(60);
    server.tick().await;
    let shown = server.get("user_bob", "/schedules/often").await.body;
    assert_eq!((server.runs(), &shown["status"], &shown["paused_by"]), (2, &json!("paused"), &json!("system")));
    assert!(shown["pause_reason"].as_str().unwrap().contains("no longer valid"), "{shown}");
    assert_eq!(server.events().last().unwrap(), "schedule.paused");
    // A manager can't confirm it for the owner, and the owner can, with the new key.
    let path = "/schedules/often/resume";
    assert_eq!(server.ask("user_bob", Method::POST, path, json!(null)).await.status, 200);
    server.clock.wait(60);
    server.tick().await;
    assert_eq!(server.get("user_bob", "/schedules/often").await.body["status"], "paused");
    let request = server.house.client.post(server.house.server.url(path));
    let token = server.token_with("user_ann", |_| ());
    let headers = signed_with(new, "user_ann", server.clock.now(), ("POST", path), b"");
    let request =
        headers.into_iter().fold(request.bearer_auth(token), |request, (name, value)| request.header(name, value));
    assert_eq!(sent(request).await.status, 200);
    server.clock.wait(60);
    server.tick().await;
    assert_eq!(server.runs(), 3);
}

#[tokio::test]
async fn what_a_shared_key_scheduled_ends_when_its_name_is_a_persons() {
    let pattern = ActorEntry { kind: Kind::Service, ..entry("ops_*", &["local.*"]) };
    let mut config = settings(TENANT, vec![pattern, entry("user_bob", &["runs.manage"])]);
    config.keys.push(("ops_*".to_owned(), Secret::new(key_of("ops_*").as_str())));
    let server = server_of(config).await;
    let body = json!({"name": "often", "workflow_id": "summary", "every": "1m"}).to_string();
    let token = server.token_with("ops_ann", |claims| claims.key_of = Some("ops_*".to_owned()));
    let request = server.house.client.post(server.house.server.url("/schedules")).bearer_auth(token);
    let headers = signed_with(&key_of("ops_*"), "ops_ann", server.clock.now(), ("POST", "/schedules"), body.as_bytes());
    let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
    let made = sent(request.header("content-type", "application/json").body(body)).await;
    assert_eq!(made.status, 201, "{made:?}");
    server.tick().await;
    assert_eq!(server.runs(), 1);
    let person = json!({"kind": "human", "scopes": ["local.*"], "autonomy_level": "L3_ExecuteSilent"});
    assert_eq!(server.ask("admin", Method::PUT, "/actors/ops_ann", person).await.status, 200);
    server.clock.wait(60);
    server.tick().await;
    let shown = server.get("user_bob", "/schedules/often").await.body;
    assert_eq!((server.runs(), &shown["paused_by"]), (1, &json!("system")), "{shown}");
}

#[tokio::test]
async fn a_schedule_acts_no_more_freely_than_when_it_was_made() {
    let bot = ActorEntry { level: Some(Level::Draft), ..entry("service_bot", &["local.*"]) };
    let server = server_of(settings(TENANT, vec![bot])).await;
    let shown = made(&server, "service_bot", "/schedules", json!({"overlap": "allow"})).await;
    assert_eq!(shown["autonomy_level_max"], "L1_Draft");
    let raised = json!({"kind": "service", "scopes": ["local.*"], "autonomy_level": "L3_ExecuteSilent"});
    assert_eq!(server.ask("admin", Method::PUT, "/actors/service_bot", raised).await.status, 200);
    server.tick().await;
    let run = last_run(&server);
    assert_eq!(run.text("autonomy_level"), "L1_Draft", "{run:?}");
    assert_eq!(run.get("risk").as_json().unwrap().value().unwrap()["level_because"], "schedule");
}

#[tokio::test]
async fn nobody_acts_for_a_disabled_tenant_not_even_an_operator_or_a_schedule_of_theirs() {
    let server = server().await;
    assert_eq!(server.ask("admin", Method::POST, "/tenants", json!({"slug": "globex"})).await.status, 201);
    let waits = workflow("theirs").node(json!({"id": "review", "type": "hitl", "prompt": "May it?"}));
    let applied = server.ask("admin", Method::PUT, "/workflows/theirs?for_tenant=globex", waits.document().clone());
    assert_eq!(applied.await.status, 200);
    let terms = json!({"workflow_id": "theirs", "overlap": "allow"});
    made(&server, "admin", "/schedules?for_tenant=globex", terms).await;
    server.tick().await;
    assert_eq!(server.runs(), 1);
    let disabled = server.ask("admin", Method::PATCH, "/tenants/globex", json!({"disabled": true})).await;
    assert_eq!(disabled.status, 200);
    server.clock.wait(60);
    server.tick().await;
    let shown = server.get("admin", "/schedules/often?for_tenant=globex").await.body;
    assert_eq!((server.runs(), &shown["last_tick"]["outcome"]), (1, &json!("refused")), "{shown}");
    assert_eq!(shown["last_tick"]["error"]["details"]["reason"], "tenant_disabled", "{shown}");
    for (path, body) in [
        ("/workflows/theirs/call?for_tenant=globex", json!({})),
        ("/schedules/often/run?for_tenant=globex", json!(null)),
    ] {
        let told = server.ask("admin", Method::POST, path, body).await;
        assert_eq!((told.status, told.detail("reason")), (403, &json!("tenant_disabled")), "{path}: {told:?}");
    }
    assert_eq!(server.runs(), 1);
}

#[tokio::test]
async fn a_tick_starts_the_version_that_its_owner_scheduled() {
    let server = server().await;
    let shown = server.schedule(json!({})).await;
    assert_eq!((&shown["version"], &shown["follow_latest"]), (&json!(1), &json!(false)));
    let changed = workflow("summary").function("a", "notion.note", json!({"n": 1}));
    assert_eq!(server.house.stage.apply_as("user_bob", &changed).await, 2);
    server.tick().await;
    assert_eq!((server.runs(), last_run(&server).get("workflow_version").as_int()), (1, Some(1)));
    assert_eq!(last_run(&server).text("autonomy_level"), "L2_ExecuteNotify");
}

#[tokio::test]
async fn a_version_that_somebody_else_wrote_waits_for_approval_until_the_owner_confirms_it() {
    let server = server().await;
    let latest = json!({"workflow_id": "summary", "every": "1m", "overlap": "allow", "follow_latest": true});
    server.schedule(latest.clone()).await;
    server.tick().await;
    assert_eq!(last_run(&server).text("autonomy_level"), "L2_ExecuteNotify");
    let changed = |text: &str| workflow("summary").function("a", "local.summarize", json!({"text": text}));
    server.house.stage.apply_as("user_bob", &changed("Bob's.")).await;
    server.tick_after(60).await;
    let run = last_run(&server);
    assert_eq!((run.text("autonomy_level"), run.get("workflow_version").as_int()), ("L1_Draft", Some(2)));
    assert_eq!(run.get("risk").as_json().unwrap().value().unwrap()["level_because"], "unconfirmed_workflow");
    assert_eq!(server.ask("user_ann", Method::PUT, "/schedules/often", latest).await.status, 200);
    server.tick_after(60).await;
    assert_eq!(last_run(&server).text("autonomy_level"), "L2_ExecuteNotify", "confirmed");
    server.house.stage.apply_as("user_ann", &changed("Ann's.")).await;
    server.tick_after(60).await;
    assert_eq!(last_run(&server).text("autonomy_level"), "L2_ExecuteNotify", "the owner's own");
}

#[tokio::test]
async fn a_child_workflow_that_somebody_else_changed_waits_for_approval_too() {
    let server = server().await;
    let child = |text: &str| workflow("child").function("a", "local.summarize", json!({"text": text}));
    server.house.stage.apply_as("user_ann", &child("Ann's.")).await;
    let node = json!({"id": "sub", "type": "workflow", "workflow_id": "child", "inputs": {}});
    server.house.stage.apply_as("user_ann", &workflow("parent").node(node)).await;
    server.schedule(json!({"workflow_id": "parent", "overlap": "allow"})).await;
    server.house.stage.apply_as("user_bob", &child("Bob's.")).await;
    server.tick().await;
    let run = server.house.stage.rows(&RUNS).into_iter().find(|run| run.text("workflow_id") == "parent").unwrap();
    assert_eq!(run.text("autonomy_level"), "L1_Draft", "{run:?}");
}
