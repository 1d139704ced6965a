//! `/act`: what each level answers, what is refused, and what a run was allowed at the moment it acts.

use super::access_server::{AccessServer, ApiResponse, by, entry, harmless, porch, porch_with};
use crate::flow::NOTHING;
use chimera_core::access::ActorEntry;
use chimera_core::access::registry::shipped;
use chimera_core::flow::tables::{NOTIFICATIONS, RUNS};
use chimera_core::ledger::SealedEntry;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_engine::access::Settings;
use chimera_testkit::access::settings;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{TENANT, id_of, workflow};
use chimera_testkit::memory::{CommitObserver, RowChange};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// Two steps that change something and need nobody's approval by themselves.
fn notes() -> Value {
    json!([{"tool": "notion.note", "input": {"n": 1}}, {"tool": "notion.note", "input": {"n": 2}}])
}

async fn approve(porch: &AccessServer, actor: &str, run: &Value, body: Value) -> ApiResponse {
    let url = run["approve_url"].as_str().unwrap_or_else(|| panic!("nothing waits: {run:#}"));
    porch.ask(actor, Method::POST, url, body).await
}

async fn until(porch: &AccessServer, run: &Value, status: &str) -> Value {
    porch.house.until(run, status).await
}

fn len(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

/// CORE-001, CORE-002, CORE-003, CORE-012, CORE-113
#[tokio::test]
async fn people_workflows_and_services_act_under_their_own_names() {
    let porch = porch_with(settings(TENANT, vec![entry("service_chatbot", &["local.summarize"])]), None).await;
    for (actor, status, level, scope) in [
        ("user_123", 200, "L1_Draft", "notion.read"),
        ("n8n_workflow_abc", 200, "L2_ExecuteNotify", "google.*"),
        ("service_chatbot", 200, "L2_ExecuteNotify", "local.summarize"),
        ("admin", 202, "L3_ExecuteSilent", "*"),
    ] {
        let answer = porch.act(actor, json!({"actor": actor, "steps": harmless(), "wait": 10})).await;
        assert_eq!((answer.status, &answer.body["autonomy_level"]), (status, &json!(level)), "{answer:?}");
        let shown = porch.get(actor, answer.header("location")).await;
        assert_eq!((shown.status, &shown.body["actor"]), (200, &json!(actor)));
        let known = porch.get(actor, &format!("/actors/{actor}")).await.body;
        assert!(known["scopes"].as_array().unwrap().contains(&json!(scope)), "{known}");
        assert!(known["quota_per_minute"].is_u64() && known["kind"].is_string(), "{known}");
    }
    let refused = porch.act("anonymous", json!({"steps": harmless()})).await;
    assert_eq!((refused.status, refused.detail("required_scope")), (403, &json!("local.summarize")), "{refused:?}");
}

/// CORE-018, CORE-019, CORE-020
#[tokio::test]
async fn at_l0_the_plan_is_shown_and_each_step_waits_for_its_own_approval() {
    let porch = porch().await;
    let ask = json!({"steps": notes(), "autonomy_level": "L0_Ask"});
    let asked = porch.act("n8n_workflow_1", ask).await;
    let run = &asked.body;
    assert_eq!((asked.status, &run["status"]), (200, &json!("awaiting_approval")), "{asked:?}");
    assert_eq!((len(&run["plan"]["steps"]), len(&run["approvals"])), (2, 1), "{run:#}");
    assert_eq!(run["autonomy_level"], "L0_Ask");
    assert_eq!((run["approvals"][0]["node_id"].as_str(), porch.effects()), (Some("s1"), 0));
    let decided = approve(&porch, "admin", run, json!({"decision": "approve"})).await;
    assert_eq!(decided.status, 200, "{decided:?}");
    let next = porch.house.sees(run, |run| run["approvals"][0]["node_id"] == "s2").await;
    assert_eq!((&next["status"], porch.effects()), (&json!("awaiting_approval"), 1), "{next:#}");
    let digest = next["approvals"][0]["digest"].clone();
    let decided = approve(&porch, "admin", run, json!({"decision": "approve", "digest": digest})).await;
    assert_eq!(decided.status, 200, "{decided:?}");
    until(&porch, run, "completed").await;
    assert_eq!(porch.asked("notion.note").of("execute")[1].input, json!({"n": 2}));
}

/// CORE-022, CORE-023, CORE-024, CORE-072, CORE-074
#[tokio::test]
async fn at_l1_everything_is_tried_dry_and_one_approval_runs_it_for_real() {
    let porch = porch().await;
    let ask = json!({"autonomy_level": "L1_Draft", "steps": [
        {"tool": "notion.note", "input": {"n": 1, "dry_run": false}},
        {"tool": "notion.note", "input": {"n": 2}},
    ]});
    let drafted = porch.act("n8n_workflow_1", ask).await;
    let run = &drafted.body;
    assert_eq!((drafted.status, &run["status"]), (200, &json!("awaiting_approval")), "{drafted:?}");
    assert_eq!((len(&run["plan"]["steps"]), len(&run["dry_run_results"]), len(&run["approvals"])), (2, 2, 1));
    assert_eq!(run["approve_url"], format!("/runs/{}/approve", run["run_id"].as_str().unwrap()));
    for (at, result) in run["dry_run_results"].as_array().unwrap().iter().enumerate() {
        assert_eq!(result["status"], "dry_run", "{result}");
        assert_eq!(result["simulated_output"]["echo"]["n"], json!(at + 1), "{result}");
    }
    let asked = porch.asked("notion.note");
    assert_eq!((asked.count("dry"), asked.count("execute")), (2, 0));
    assert_eq!(approve(&porch, "admin", run, json!({"decision": "approve"})).await.status, 200);
    until(&porch, run, "completed").await;
    let how: Vec<&str> = asked.all().iter().map(|made| made.kind).collect();
    assert_eq!(how, ["dry", "dry", "execute", "execute"]);
}

/// CORE-076
#[tokio::test]
async fn a_rejected_draft_is_cancelled() {
    let porch = porch().await;
    let drafted = porch.act("user_ann", json!({"steps": harmless()})).await;
    let rejected = porch.ask("user_ann", Method::POST, &crate::flow::path(&drafted.body, "/reject"), NOTHING).await;
    assert_eq!(rejected.status, 200, "{rejected:?}");
    until(&porch, &drafted.body, "cancelled").await;
    assert_eq!(porch.effects(), 0);
}

/// CORE-028, CORE-065, CORE-117
#[tokio::test]
async fn at_l2_the_result_comes_if_it_is_there_in_time_and_a_place_to_look_otherwise() {
    let porch = porch().await;
    let now = porch.act("n8n_workflow_1", json!({"steps": notes(), "wait": 15})).await;
    assert_eq!((now.status, &now.body["status"]), (200, &json!("completed")), "{now:?}");
    assert_eq!(now.body["result"]["s2"]["echo"], json!({"n": 2}), "{now:?}");
    assert_eq!(porch.asked("notion.note").count("execute"), 2);
    let later = porch.act("n8n_workflow_1", json!({"steps": notes(), "wait": 0})).await;
    assert_eq!((later.status, &later.body["autonomy_level"]), (202, &json!("L2_ExecuteNotify")), "{later:?}");
    let ended = until(&porch, &later.body, "completed").await;
    assert_eq!(ended["result"]["s2"]["echo"], json!({"n": 2}));
    let broken = json!([{"tool": "notion.broken", "input": {}}]);
    let failed = porch.act("n8n_workflow_1", json!({"steps": broken, "wait": 15})).await;
    assert_eq!((failed.status, &failed.body["status"]), (200, &json!("failed")), "{failed:?}");
    assert_eq!(failed.body["error"]["code"], "MALFORMED_ARGS", "{failed:?}");
    let rows = porch.house.stage.rows(&RUNS);
    let mut statuses: Vec<&str> = rows.iter().map(|row| row.text("status")).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, ["completed", "completed", "failed"], "every run is in the table, whatever became of it");
    assert!(rows.iter().all(|row| row.text("actor") == "n8n_workflow_1" && row.text("trace_id").len() == 32));
}

/// CORE-031, CORE-032, CORE-035
#[tokio::test]
async fn at_l3_the_answer_is_only_that_it_was_begun_and_nobody_is_told() {
    let porch = porch().await;
    let begun = porch.act("admin", json!({"steps": notes(), "wait": 15})).await;
    assert_eq!((begun.status, &begun.body["autonomy_level"]), (202, &json!("L3_ExecuteSilent")), "{begun:?}");
    let ended = until(&porch, &begun.body, "completed").await;
    assert_eq!((&ended["messages"], &ended["notify"]), (&json!([]), &Value::Null));
    let broken = json!([{"tool": "notion.broken", "input": {}}]);
    let failed = porch.act("admin", json!({"steps": broken})).await;
    until(&porch, &failed.body, "failed").await;
    let kept: BTreeMap<Uuid, String> =
        porch.house.stage.rows(&RUNS).iter().map(|row| (row.uuid("id"), row.text("status").to_owned())).collect();
    for (run, status) in [(&begun, "completed"), (&failed, "failed")] {
        let id = id_of(&run.body["run_id"]);
        assert_eq!(kept.get(&id).map(String::as_str), Some(status), "every run at L3 is on record");
        let entries = porch.house.stage.rows_of(&AUDIT_LOG_ENTRIES, id);
        for event in ["run.started".to_owned(), format!("run.{status}")] {
            assert!(entries.iter().any(|entry| entry.text("event_type") == event), "{event}");
        }
        assert!(porch.house.stage.rows_of(&NOTIFICATIONS, id).is_empty());
    }
    assert_eq!(kept.len(), 2);
    let notify = json!({"email": "ann@example.com"});
    let registered = ActorEntry { notify: Some(notify.clone()), ..entry("admin", &["*"]) };
    let porch = porch_with(settings(TENANT, vec![registered]), None).await;
    let refused = porch.act("admin", json!({"steps": notes(), "notify": notify})).await;
    assert_eq!((refused.status, refused.detail("pointer")), (422, &json!("/notify")), "{refused:?}");
}

/// The use cases of the document, seen from outside: what waits, what is only tried, and what runs unseen.
///
/// CORE-021, CORE-025, CORE-033
#[tokio::test]
async fn every_use_case_behaves_as_its_level_says() {
    let porch = porch().await;
    let step = |tool: &str, input: Value| json!({"tool": tool, "input": input});
    let delete = step("http.request", json!({"method": "DELETE", "url": "https://api.example/7"}));
    let mail = step("outlook.send", json!({"to": "ana@example.com"}));
    let note = step("notion.note", json!({"n": 1}));
    for plan in [json!([delete, note]), json!([mail, note]), json!([note, note])] {
        let before = porch.effects();
        let waits = porch.act("admin", json!({"steps": plan, "autonomy_level": "L0_Ask"})).await.body;
        assert_eq!((&waits["status"], len(&waits["approvals"])), (&json!("awaiting_approval"), 1), "{waits:#}");
        assert_eq!(approve(&porch, "admin", &waits, NOTHING).await.status, 200);
        let next = porch.house.sees(&waits, |run| run["approvals"][0]["node_id"] == "s2").await;
        assert_eq!((&next["status"], porch.effects()), (&json!("awaiting_approval"), before + 1), "step by step");
    }
    let depends = json!([step("notion.search", json!({})), step("notion.note", json!({"n": "${nodes.s1.outputs.x}"}))]);
    for plan in [depends, Value::from(vec![note.clone(); 11]), json!([note])] {
        let before = porch.effects();
        let drafted = porch.act("n8n_workflow_1", json!({"steps": plan, "autonomy_level": "L1_Draft"})).await;
        assert_eq!(drafted.body["status"], "awaiting_approval", "{drafted:?}");
        assert_eq!(len(&drafted.body["dry_run_results"]), len(&plan), "{drafted:?}");
        assert_eq!(porch.effects(), before, "drafted, not executed");
    }
    let health = step("http.request", json!({"method": "GET", "url": "https://api.example/health"}));
    let tidy = step("notion.note", json!({"cache": "old", "rows": []}));
    for plan in [json!([step("notion.search", json!({}))]), json!([health]), json!([tidy])] {
        let before = porch.effects();
        let begun = porch.act("admin", json!({"steps": plan})).await;
        assert_eq!((begun.status, &begun.body["autonomy_level"]), (202, &json!("L3_ExecuteSilent")), "{begun:?}");
        until(&porch, &begun.body, "completed").await;
        assert_eq!(porch.effects(), before + 1);
        assert!(porch.house.stage.rows_of(&NOTIFICATIONS, id_of(&begun.body["run_id"])).is_empty(), "silently");
    }
}

/// CORE-063
#[tokio::test]
async fn a_dry_run_does_nothing_at_any_level_and_has_the_shape_of_a_draft() {
    let porch = porch().await;
    let members = |body: &Value| body.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let draft = porch.act("n8n_workflow_1", json!({"steps": notes(), "autonomy_level": "L1_Draft"})).await.body;
    for (actor, level) in [
        ("n8n_workflow_1", "L0_Ask"),
        ("n8n_workflow_1", "L1_Draft"),
        ("n8n_workflow_1", "L2_ExecuteNotify"),
        ("admin", "L3_ExecuteSilent"),
    ] {
        let ask = json!({"steps": notes(), "autonomy_level": level, "dry_run": true});
        let answer = porch.act(actor, ask).await;
        assert_eq!((answer.status, members(&answer.body)), (200, members(&draft)), "{level}: {answer:?}");
        assert_eq!((&answer.body["dry_run"], &answer.body["approve_url"]), (&json!(true), &Value::Null), "{level}");
        assert_eq!(len(&answer.body["dry_run_results"]), 2, "{level}: {answer:?}");
        assert_eq!(answer.body["dry_run_results"], draft["dry_run_results"], "{level}");
    }
    assert_eq!(porch.effects(), 0);
}

#[tokio::test]
async fn a_goal_a_workflow_and_steps_all_become_a_plan() {
    let porch = porch().await;
    let goal = porch.act("n8n_workflow_1", json!({"goal": "Summarize \"One. Two.\"", "wait": 15})).await;
    assert_eq!((goal.status, &goal.body["status"]), (200, &json!("completed")), "{goal:?}");
    assert_eq!(goal.body["plan"]["steps"][0]["tool"], "local.summarize");
    let air = workflow("digest").function("sum", "local.summarize", json!({"text": "${inputs.text}"}));
    porch.house.stage.apply(&air).await;
    let ask = json!({"workflow_id": "digest", "inputs": {"text": "One."}, "wait": 15});
    let run = porch.act("n8n_workflow_1", ask).await;
    assert_eq!((run.status, &run.body["result"]["sum"]["echo"]["text"]), (200, &json!("One.")), "{run:?}");
    let chained = json!([harmless()[0], {"tool": "notion.note", "input": {"seen": "${nodes.s1.outputs.echo.text}"}}]);
    let run = porch.act("n8n_workflow_1", json!({"steps": chained, "wait": 15})).await;
    assert_eq!(run.body["result"]["s2"]["echo"]["seen"], "One. Two.", "{run:?}");
}

/// Items of a map and steps of a workflow within are calls like any other: what they are given counts, and
/// so does how many they are.
#[tokio::test]
async fn maps_and_workflows_within_are_looked_through() {
    let anybody = ActorEntry { level: None, ..entry("user_bob", &["notion.*", "local.*"]) };
    let porch = porch_with(settings(TENANT, vec![anybody]), None).await;
    let each = json!({"type": "function", "fn": "notion.note", "inputs": {"text": "${item.text}"}});
    let over = json!({"id": "m", "type": "map", "over": "${inputs.list}", "do": each});
    let within = json!({"id": "c", "type": "workflow", "workflow_id": "each", "inputs": {"list": "${inputs.list}"}});
    porch.house.stage.apply(&workflow("each").node(over)).await;
    porch.house.stage.apply(&workflow("outer").node(within)).await;
    let ask = async |id: &str, texts: &[&str]| {
        let list: Vec<Value> = texts.iter().map(|text| json!({"text": text})).collect();
        porch.act("user_bob", json!({"workflow_id": id, "inputs": {"list": list}, "wait": 15})).await.body
    };
    for (id, name) in [("each", "m[1]"), ("outer", "c/m[1]")] {
        let calm = ask(id, &["One.", "Two."]).await;
        assert_eq!((len(&calm["plan"]["steps"]), &calm["plan"]["steps"][1]["step_id"]), (2, &json!(name)), "{calm:#}");
        assert_eq!((&calm["autonomy_level"], &calm["status"]), (&json!("L2_ExecuteNotify"), &json!("completed")));
        let effects = porch.effects();
        let wild = ask(id, &["One.", "DROP TABLE users; -- ann@example.com"]).await;
        let reasons: Vec<&Value> = wild["risk"]["reasons"].as_array().unwrap().iter().collect();
        for factor in ["destructive_operation", "pii_email"] {
            let found = |reason: &&&Value| reason["factor"] == factor && reason["pointer"] == "/steps/1/input/text";
            assert!(reasons.iter().any(|reason| found(&reason)), "{id} {factor}: {wild:#}");
        }
        assert_eq!((&wild["autonomy_level"], &wild["status"]), (&json!("L0_Ask"), &json!("awaiting_approval")));
        let many = ask(id, &["One."; 11]).await;
        assert_eq!((&many["status"], len(&many["plan"]["steps"])), (&json!("awaiting_approval"), 11), "{many:#}");
        let flood = ask(id, &["One."; 400]).await;
        let opaque = |reason: &Value| reason["factor"] == "unreadable_input";
        assert!(flood["risk"]["reasons"].as_array().unwrap().iter().any(opaque), "{id}: {}", flood["risk"]);
        assert_eq!((&flood["status"], porch.effects()), (&json!("awaiting_approval"), effects));
    }
}

/// Workflows within workflows, ten in each of them, are not followed to their end.
#[tokio::test]
async fn a_tower_of_workflows_is_looked_through_only_so_far() {
    let porch = porch().await;
    porch.house.stage.apply(&workflow("t0").node(json!({"id": "h", "type": "hitl", "prompt": "Well?"}))).await;
    for floor in 1..=7 {
        let below = format!("t{}", floor - 1);
        let node = |at: usize| json!({"id": format!("c{at}"), "type": "workflow", "workflow_id": below, "inputs": {}});
        let air = (0..10).fold(workflow(&format!("t{floor}")), |air, at| air.node(node(at)));
        porch.house.stage.apply(&air).await;
    }
    let asked =
        porch.act("n8n_workflow_1", json!({"workflow_id": "t7", "inputs": {}, "autonomy_level": "L0_Ask"})).await;
    let risk = &asked.body["risk"];
    assert_eq!(
        (risk["score"].as_u64(), &risk["reasons"][0]["factor"]),
        (Some(60), &json!("unreadable_input")),
        "{risk}"
    );
}

/// With `access.cautious` what an actor never had done is drafted first; trying it dry does not count.
#[tokio::test]
async fn what_was_only_tried_dry_was_never_done() {
    let porch = porch_with(Settings { cautious: true, ..settings(TENANT, Vec::new()) }, None).await;
    let ask = async |dry_run: bool| {
        let body = json!({"steps": harmless(), "dry_run": dry_run, "wait": 15});
        porch.act("n8n_workflow_1", body).await.body["autonomy_level"].clone()
    };
    ask(true).await;
    assert_eq!(ask(false).await, "L1_Draft");
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let porch = porch().await;
    let ask = |body: Value| porch.act("n8n_workflow_1", body);
    let unplanned = ask(json!({"goal": "paint the fence"})).await;
    assert_eq!((unplanned.status, unplanned.code()), (422, "VALIDATION_FAILED"), "{unplanned:?}");
    assert!(unplanned.body["detail"].as_str().unwrap().contains("paint"), "{unplanned:?}");
    let open = ask(json!({"goal": "Summarize it"})).await;
    assert_eq!(
        (open.status, open.detail("tool"), open.detail("input")),
        (422, &json!("local.summarize"), &json!("text"))
    );
    let tool = ask(json!({"steps": [harmless()[0], {"tool": "paint", "input": {}}]})).await;
    assert_eq!((tool.status, tool.detail("missing_tool")), (422, &json!("paint")));
    assert_eq!(tool.detail("pointer"), "/steps/1/tool");
    let input = ask(json!({"steps": [{"tool": "local.summarize", "input": {"txt": "x"}}]})).await;
    assert_eq!((input.status, input.detail("pointer")), (422, &json!("/steps/0/input")), "{input:?}");
    assert!(input.detail("faults").to_string().contains("text"), "{input:?}");
    assert_eq!(ask(json!({"workflow_id": "nothing"})).await.status, 404);
}

#[tokio::test]
async fn a_body_that_says_too_much_too_little_or_too_long_is_refused() {
    let porch = porch().await;
    let steps = |count: usize| Value::from(vec![harmless()[0].clone(); count]);
    for (body, status) in [
        (json!({}), 400),
        (json!({"goal": "x", "steps": harmless()}), 400),
        (json!({"steps": harmless(), "inputs": {}}), 400),
        (json!({"steps": harmless(), "version": 1}), 400),
        (json!({"goal": "x", "version": 1}), 400),
        (json!({"steps": harmless(), "more": 1}), 400),
        (json!({"steps": [{"tool": "local.summarize", "inputs": {}}]}), 400),
        (json!({"steps": harmless(), "autonomy_level": "L4"}), 400),
        (json!({"steps": harmless(), "on_duplicate": "perhaps"}), 400),
        (json!({"goal": "x", "inputs": []}), 400),
        (json!({"steps": []}), 422),
        (json!({"steps": steps(33)}), 422),
        (json!({"steps": harmless(), "wait": -1}), 422),
        (json!({"steps": harmless(), "correlation_id": "x".repeat(257)}), 422),
        (json!({"steps": harmless(), "priority": 11}), 422),
    ] {
        let answer = porch.act("admin", body.clone()).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
    }
    assert_eq!(porch.traces(), (0, 0, 0));
}

/// Nobody is shown, and nobody is sent, another number than was asked for.
#[tokio::test]
async fn a_number_that_would_be_rounded_is_refused_wherever_a_body_is_read() {
    let porch = porch().await;
    let token = porch.token_with("admin", |_| {});
    let bodies = ["123456789012345678901234567890", "-9223372036854775809", "1234567890123456.78"]
        .map(|number| format!(r#"{{"steps":[{{"tool":"local.summarize","input":{{"text":"x","n":{number}}}}}]}}"#));
    for body in &bodies {
        let told = porch.raw(&token, Some(&by("admin", body)), body).await;
        assert_eq!((told.status, told.code()), (400, "SCHEMA_INVALID"), "{body}: {told:?}");
        assert_eq!(told.detail("pointer"), "/steps/0/input/n");
    }
    assert_eq!(porch.traces(), (0, 0, 0));
}

/// CORE-015, CORE-037, CORE-046, CORE-088
#[tokio::test]
async fn tools_and_length_hold_a_plan_back_and_only_a_scope_lets_it_loose() {
    let bold = entry("n8n_workflow_123", &["notion.*", "autonomy.override"]);
    let porch = porch_with(settings(TENANT, vec![bold]), None).await;
    let level = async |actor: &str, body: Value| {
        let answer = porch.act(actor, body).await;
        assert!(answer.status == 200 || answer.status == 202, "{answer:?}");
        answer.body["autonomy_level"].as_str().unwrap().to_owned()
    };
    let search = |count: usize| Value::from(vec![json!({"tool": "notion.search", "input": {}}); count]);
    assert_eq!(level("n8n_workflow_1", json!({"steps": search(10), "wait": 0})).await, "L2_ExecuteNotify");
    assert_eq!(level("n8n_workflow_1", json!({"steps": search(11)})).await, "L1_Draft");
    let page = json!([{"tool": "notion.create_page", "input": {}}]);
    assert_eq!(level("n8n_workflow_1", json!({"steps": page})).await, "L1_Draft");
    let mail = json!([{"tool": "outlook.send", "input": {}}]);
    let forced = porch.act("admin", json!({"steps": mail, "autonomy_level": "L3_ExecuteSilent"})).await.body;
    assert_eq!(forced["autonomy_level"], "L1_Draft", "{forced:#}");
    assert_eq!(forced["risk"]["level_because"], "high_risk_tool", "{forced:#}");
    assert_eq!(porch.asked("outlook.send").count("execute") + porch.asked("notion.create_page").count("execute"), 0);

    let free = |level: &str| json!({"steps": search(1), "autonomy_level": level, "wait": 0});
    let refused = porch.act("n8n_workflow_1", free("L3_ExecuteSilent")).await;
    assert_eq!((refused.status, refused.detail("required_scope")), (403, &json!("autonomy.override")), "{refused:?}");
    assert_eq!(refused.detail("granted"), "L2_ExecuteNotify");
    let told = "Bearer error=\"insufficient_scope\", scope=\"autonomy.override\"";
    assert_eq!(refused.header("www-authenticate"), told);
    assert_eq!(level("n8n_workflow_1", free("L0_Ask")).await, "L0_Ask");
    assert_eq!(level("n8n_workflow_123", free("L3_ExecuteSilent")).await, "L3_ExecuteSilent");
}

/// Whoever lost a scope, or was disabled, while a draft waited is refused when the draft would run.
#[tokio::test]
async fn what_was_allowed_yesterday_is_judged_again_today() {
    for less in [
        json!({"scopes": ["github.read"], "autonomy_level": "L1_Draft"}),
        json!({"scopes": ["local.summarize"], "autonomy_level": "L1_Draft", "disabled": true}),
    ] {
        let porch = porch().await;
        let drafted = porch.act("user_ann", json!({"steps": harmless()})).await;
        assert_eq!(drafted.status, 200, "{drafted:?}");
        assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_ann", less.clone()).await.status, 200);
        assert_eq!(approve(&porch, "admin", &drafted.body, json!({"decision": "approve"})).await.status, 200);
        let ended = until(&porch, &drafted.body, "failed").await;
        assert_eq!(ended["error"]["code"], "POLICY_DENIED", "{less}: {ended:#}");
        assert_eq!(porch.effects(), 0);
    }
}

/// Sees every status that each run had.
#[derive(Clone, Default)]
struct StatusObserver(Arc<Mutex<BTreeMap<Uuid, Vec<String>>>>);

impl CommitObserver for StatusObserver {
    fn changed(&mut self, changed: RowChange<'_>) {
        if let (true, Some(row)) = (changed.table.name == "runs", changed.after) {
            let mut runs = self.0.lock().unwrap();
            let (seen, status) = (runs.entry(row.uuid("id")).or_default(), row.text("status").to_owned());
            if seen.last() != Some(&status) {
                seen.push(status);
            }
        }
    }

    fn entered(&mut self, _: &SealedEntry) {}

    fn committed(&mut self) {}
}

/// CORE-119
#[tokio::test]
async fn a_run_has_the_documents_statuses_over_its_life() {
    let porch = porch().await;
    let seen = StatusObserver::default();
    porch.house.stage.records.watch(Box::new(seen.clone()));
    let of = |run: &Value| seen.0.lock().unwrap().remove(&id_of(&run["run_id"])).unwrap();
    let done = porch.act("n8n_workflow_1", json!({"steps": notes(), "wait": 15})).await.body;
    assert_eq!(of(&done), ["running", "completed"]);
    let broken = json!([{"tool": "notion.note", "input": {}}, {"tool": "notion.broken", "input": {}}]);
    let failed = porch.act("n8n_workflow_1", json!({"steps": broken, "wait": 15})).await.body;
    let marked = json!({"status": "rolled_back", "reason": "undone by hand"});
    let answer = porch.ask("admin", Method::PATCH, &crate::flow::path(&failed, ""), marked).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(of(&failed), ["running", "failed", "rolled_back"]);
    let draft = porch.act("user_ann", json!({"steps": harmless()})).await.body;
    approve(&porch, "user_ann", &draft, json!({"decision": "approve"})).await;
    until(&porch, &draft, "completed").await;
    assert_eq!(of(&draft), ["running", "awaiting_approval", "running", "completed"]);
    porch.house.stage.apply(&workflow("leaf").function("go", "notion.note", json!({}))).await;
    let outer = workflow("outer").node(json!({"id": "sub", "type": "workflow", "workflow_id": "leaf"}));
    porch.house.stage.apply(&outer).await;
    let outer = porch.act("n8n_workflow_1", json!({"workflow_id": "outer", "wait": 15})).await.body;
    assert_eq!(of(&outer).last().unwrap(), "completed");
    let (_, leaf) = seen.0.lock().unwrap().pop_first().unwrap();
    assert_eq!(leaf, ["pending", "running", "completed"], "a run that nobody has taken up yet is pending");
}

/// CORE-124, CORE-125, CORE-138, CORE-139, CORE-140
#[tokio::test]
async fn who_did_what_and_what_failed_can_be_asked() {
    let porch = porch().await;
    let broken = json!([{"tool": "notion.note", "input": {"n": 7}}, {"tool": "notion.broken", "input": {}}]);
    let failed = porch.act("n8n_workflow_123", json!({"steps": broken, "wait": 15})).await.body;
    porch.act("n8n_workflow_1", json!({"steps": notes(), "wait": 15})).await;
    let items = async |path: &str| porch.get("admin", path).await.body["items"].as_array().unwrap().clone();
    let found = items("/runs?status=failed").await;
    assert_eq!((found.len(), &found[0]["run_id"]), (1, &failed["run_id"]));
    assert_eq!(found[0]["error_message"], "it never works", "{found:?}");
    assert_eq!(found[0]["trace_id"], failed["trace_id"]);
    assert_eq!(items("/runs?actor=n8n_workflow_123").await.len(), 1);
    let calls = items("/tool-calls?actor=n8n_workflow_123").await;
    let names: Vec<&Value> = calls.iter().map(|call| &call["tool_name"]).collect();
    assert_eq!(names, ["notion.broken", "notion.note"], "the newest first");
    assert_eq!((&calls[0]["run_id"], &calls[0]["run_status"]), (&failed["run_id"], &json!("failed")));
    let day = |day: &str| format!("since=2026-{day}T12:00:00Z");
    assert_eq!(items(&format!("/tool-calls?{}&tool=notion.note", day("01-01"))).await.len(), 3);
    assert_eq!(items(&format!("/runs?status=failed&{}", day("12-31"))).await.len(), 0);
    assert_eq!(items(&format!("/tool-calls?{}", day("12-31"))).await.len(), 0);
    let steps = porch.get("admin", &crate::flow::path(&failed, "/steps")).await.body["steps"].clone();
    let call = |at: usize| steps[at]["tool_calls"][0].clone();
    assert_eq!((&call(0)["tool_name"], &call(0)["tool_output"]["echo"]), (&json!("notion.note"), &json!({"n": 7})));
    assert_eq!((&call(0)["error"], call(1)["error"].is_null()), (&Value::Null, false), "{steps:#}");
    let undone = porch.ask("admin", Method::POST, &crate::flow::path(&failed, "/rollback"), json!({})).await;
    assert_eq!(undone.status, 202, "{undone:?}");
    until(&porch, &failed, "rolled_back").await;
    assert_eq!(porch.asked("notion.note").of("rollback")[0].input, json!({"n": 7}));
}

/// CORE-005, CORE-006, CORE-007, CORE-008, CORE-009, CORE-010
#[tokio::test]
async fn the_registry_shows_the_document_s_entries_and_takes_others_over_them() {
    let porch = porch().await;
    let listed = porch.get("admin", "/actors").await.body["items"].clone();
    let entries = listed.as_array().unwrap();
    let is_shipped = |shown: &&Value| shown["source"] == "shipped" && shown["matched"] == shown["id"];
    assert_eq!(entries.iter().filter(is_shipped).count(), 4, "{listed}");
    for entry in shipped(TENANT) {
        let shown = entries.iter().find(|shown| shown["id"] == entry.id.as_str()).unwrap();
        assert_eq!((&shown["scopes"], &shown["source"]), (&json!(entry.scopes), &json!("shipped")));
        assert_eq!(shown["quota_per_minute"], entry.quota_per_minute);
        assert_eq!(shown["autonomy_level"], json!(entry.level.unwrap().as_str()));
    }
    let put = |id: &str, body: Value| {
        let path = format!("/actors/{id}");
        let porch = &porch;
        async move { porch.ask("admin", Method::PUT, &path, body).await }
    };
    let new = put("user_ann", json!({"scopes": ["notion.*"], "quota_per_minute": 5})).await;
    assert_eq!((new.status, &new.body["source"], &new.body["matched"]), (200, &json!("registry"), &json!("user_ann")));
    assert_eq!(porch.get("user_ann", "/actors/user_ann").await.body["scopes"], json!(["notion.*"]));
    assert_eq!(porch.get("admin", "/actors/user_bob").await.body["matched"], "user_*");
    for (id, body) in [
        ("user_bob", json!({"scopes": ["*"]})),
        ("user_bob", json!({"scopes": ["a b"]})),
        ("user_bob", json!({"autonomy_level": "L3_ExecuteSilent"})),
        ("user_bob", json!({"quota_per_minute": 1_000_001})),
    ] {
        let refused = put(id, body.clone()).await;
        assert_eq!((refused.status, refused.code()), (422, "VALIDATION_FAILED"), "{body}");
    }
}

/// A plan is its requester's: nobody else starts it, by its name or inside a workflow of theirs.
#[tokio::test]
async fn a_plan_is_started_by_asking_for_it_and_not_by_its_name() {
    let porch = porch().await;
    let asked = porch.act("admin", json!({"steps": harmless(), "wait": 10})).await;
    let shown = porch.get("admin", asked.header("location")).await.body;
    let plan = shown["workflow_id"].as_str().unwrap_or_else(|| panic!("{shown:#}"));
    assert!(plan.starts_with("act."), "{plan}");
    let by_name = porch.act("admin", json!({"workflow_id": plan, "inputs": {"s1": {}}})).await;
    assert_eq!((by_name.status, by_name.code()), (404, "NOT_FOUND"), "{by_name:?}");
    let called = porch.ask("admin", Method::POST, &format!("/workflows/{plan}/call"), json!({"inputs": {}})).await;
    assert_eq!((called.status, called.code()), (404, "NOT_FOUND"), "{called:?}");
    let nest = workflow("outer").node(json!({"id": "in", "type": "workflow", "workflow_id": plan}));
    let applied = porch.ask("admin", Method::PUT, "/workflows/outer", nest.document().clone()).await;
    assert_eq!((applied.status, applied.code()), (422, "VALIDATION_FAILED"), "{applied:?}");
}
