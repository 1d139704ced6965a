//! Stopping, holding, undoing, repeating and patching runs.

use super::{NOTHING, code, furnished, house, path, reviewed, setup};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::{Sent, ToolError};
use chimera_testkit::flow::{ScriptedTool, chain, workflow};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::test]
async fn a_run_is_stopped_once() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let (status, told) = house.post(&path(&run, "/cancel"), json!({"reason": "enough"})).await;
    assert_eq!((status, &told["accepted"]), (202, &json!(true)));
    house.until(&run, "cancelled").await;
    for rest in ["/cancel", "/pause", "/resume"] {
        let (status, problem) = house.post(&path(&run, rest), NOTHING).await;
        assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"), "{rest}");
    }
    let (status, problem) = house.post(&path(&run, "/cancel"), json!({"reason": "x".repeat(9_000)})).await;
    assert_eq!((status, code(&problem)), (413, "PAYLOAD_TOO_LARGE"));
}

#[tokio::test]
async fn a_paused_run_waits_until_it_is_resumed() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let (status, problem) = house.post(&path(&run, "/resume"), NOTHING).await;
    assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"));
    assert_eq!(house.post(&path(&run, "/pause"), NOTHING).await.0, 202);
    house.sees(&run, |run| run["paused"] == true).await;
    assert_eq!(house.post(&path(&run, "/approve"), json!({"decision": "approve"})).await.0, 200);
    house.wait_for_step(&run, "review", "completed").await;
    assert_eq!(house.get(&path(&run, "")).await.1["status"], "running");
    assert_eq!(house.post(&path(&run, "/resume"), NOTHING).await.0, 202);
    house.until(&run, "completed").await;
}

#[tokio::test]
async fn what_was_done_is_undone_and_told() {
    let house = house().await;
    let run = house.run(&chain("w", &[("a", "change"), ("b", "change")]), json!({})).await;
    let (status, problem) = house.post(&path(&run, "/rollback"), json!({"step_ids": []})).await;
    assert_eq!((status, code(&problem)), (422, "VALIDATION_FAILED"));
    assert_eq!(house.post(&path(&run, "/rollback"), json!({"step_ids": ["zzz"]})).await.0, 404);
    assert_eq!(house.post(&path(&run, "/rollback"), json!({"reason": "a mistake"})).await.0, 202);
    let undone = house.until(&run, "rolled_back").await;
    assert_eq!(undone["rollback"]["undone"].as_array().unwrap().len(), 2, "{undone}");
    let (status, problem) = house.post(&path(&run, "/rollback"), NOTHING).await;
    assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"));
}

/// CORE-141
#[tokio::test]
async fn a_run_that_has_failed_can_be_marked_as_undone_by_hand_and_set_to_nothing_else() {
    let puppet = ScriptedTool::new("push", EffectKind::Write);
    let asked = puppet.asked();
    let house = furnished(setup().tool(puppet.build()), |edge| edge).await;
    let waits = house.run(&reviewed(), json!({})).await;
    let mark = |run: &Value, status: &str| {
        let (path, body) = (path(run, ""), json!({"status": status}));
        let house = &house;
        async move { house.ask(Method::PATCH, &path, body).await }
    };
    let (status, problem) = mark(&waits, "rolled_back").await;
    assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"));
    let good = house.run(&chain("good", &[("a", "push")]), json!({})).await;
    assert_eq!(good["status"], "completed", "{good}");
    let (status, problem) = mark(&good, "rolled_back").await;
    assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"), "what did not fail is undone by calls");
    let bad = house.run(&chain("bad", &[("a", "push"), ("b", "broken")]), json!({})).await;
    assert_eq!(bad["status"], "failed", "{bad}");
    for word in ["completed", "pending", "cancelled", ""] {
        let (status, problem) = mark(&bad, word).await;
        assert_eq!((status, code(&problem)), (422, "VALIDATION_FAILED"), "{word}");
    }
    let body = json!({"status": "rolled_back", "reason": "by hand"});
    let (status, problem) = house.ask_as("service_chatbot", Method::PATCH, &path(&bad, ""), body.clone()).await;
    assert_eq!((status, code(&problem)), (403, "RBAC_FORBIDDEN"));
    let (status, told) = house.ask(Method::PATCH, &path(&bad, ""), body).await;
    assert_eq!((status, &told["status"]), (200, &json!("rolled_back")), "{told}");
    assert_eq!(house.get(&path(&bad, "")).await.1["status"], "rolled_back");
    assert_eq!(asked.count("rollback"), 0, "nothing is called");
    assert_eq!(mark(&bad, "rolled_back").await.0, 409);
}

#[tokio::test]
async fn a_frozen_replay_calls_nobody_and_a_retry_does() {
    let puppet = ScriptedTool::new("push", EffectKind::Write);
    let asked = puppet.asked();
    let house = furnished(setup().tool(puppet.build()), |edge| edge).await;
    let run = house.run(&chain("w", &[("a", "think"), ("b", "push")]), json!({})).await;
    assert_eq!((&run["status"], asked.count("execute")), (&json!("completed"), 1), "{run}");
    let (status, frozen) = house.post(&path(&run, "/replay"), json!({"mode": "freeze", "wait": 15})).await;
    assert_eq!(
        (status, &frozen["status"], &frozen["replay_of"]),
        (200, &json!("completed"), &run["run_id"]),
        "{frozen}"
    );
    assert_eq!(asked.count("execute"), 1);
    let (status, again) = house.post(&path(&run, "/retry"), json!({"from": "b", "wait": 15})).await;
    assert_eq!(
        (status, &again["replay_mode"], &again["status"]),
        (200, &json!("retry"), &json!("completed")),
        "{again}"
    );
    assert_eq!(asked.count("execute"), 2);
    let (status, problem) = house.post(&path(&run, "/retry"), json!({"from": "zzz"})).await;
    assert_eq!((status, code(&problem)), (422, "MALFORMED_ARGS"));
    let (status, problem) = house.post(&path(&run, "/replay"), json!({"mode": "guess"})).await;
    assert_eq!((status, code(&problem)), (400, "SCHEMA_INVALID"));
}

fn patch() -> Value {
    json!({
        "patch_version": "0.1", "justification": "one more look",
        "add_nodes": [{"id": "extra", "type": "function", "fn": "think", "inputs": {"n": 9}}],
        "add_edges": [{"from": "review", "to": "extra"}],
    })
}

#[tokio::test]
async fn a_patch_shows_its_difference_and_is_taken_out_again() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let (status, shown) = house.post(&path(&run, "/patch"), json!({"patch": patch(), "dry_run": true})).await;
    assert_eq!((status, &shown["number"]), (200, &Value::Null), "{shown}");
    assert!(shown["preview"].to_string().contains("extra"), "{shown}");
    let stale = json!({"patch": patch(), "state_version": run["state_version"].as_i64().unwrap() + 1});
    let (status, problem) = house.post(&path(&run, "/patch"), stale).await;
    assert_eq!((status, code(&problem)), (409, "OCC_CONFLICT"));
    let broken = json!({"patch": {"patch_version": "0.1", "justification": "x", "add_nodes": [{"id": "review"}]}});
    let (status, problem) = house.post(&path(&run, "/patch"), broken).await;
    assert_eq!((status, code(&problem)), (422, "VALIDATION_FAILED"));
    let (status, proposed) = house.post(&path(&run, "/patch"), json!({"patch": patch()})).await;
    assert_eq!((status, &proposed["number"]), (202, &json!(1)), "{proposed}");
    house.wait_for_step(&run, "extra", "pending").await;
    let patched = house.get(&path(&run, "")).await.1["state_version"].as_i64();
    assert_eq!(house.ask(Method::DELETE, &path(&run, "/patches/x"), NOTHING).await.0, 404);
    assert_eq!(house.ask(Method::DELETE, &path(&run, "/patches/1"), NOTHING).await.0, 202);
    house.sees(&run, |run| run["state_version"].as_i64() > patched).await;
    assert_eq!(house.post(&path(&run, "/approve"), json!({"decision": "approve", "step_id": "review"})).await.0, 200);
    house.until(&run, "completed").await;
    let (_, steps) = house.get(&path(&run, "/steps")).await;
    assert!(!steps.to_string().contains("extra"), "{steps}");
}

#[tokio::test]
async fn a_person_settles_what_nobody_can_tell() {
    let lost = ScriptedTool::new("lost", EffectKind::Write)
        .answers(|_, _| Err(ToolError::maybe_sent(Code::ExternalServiceError, "the line broke")));
    let house = furnished(setup().tool(lost.build()), |edge| edge).await;
    let air = workflow("w").function("push", "lost", json!({}));
    house.apply(&air).await;
    let (_, run) = house.start("w", NOTHING).await;
    let step = house.wait_for_step(&run, "push", "outcome_unknown").await;
    let doubts = house.get(&path(&run, "")).await.1["doubts"].clone();
    assert_eq!((&doubts[0]["node_id"], &doubts[0]["tool"]), (&json!("push"), &json!("lost")), "{doubts}");
    assert_eq!(doubts[0]["step_id"], step["step_id"]);
    let resolve = path(&run, "/steps/push/resolve");
    for body in [json!({"outcome": "perhaps"}), json!({"output": {}})] {
        assert_eq!(house.post(&resolve, body).await.0, 400);
    }
    let (status, problem) = house.post(&resolve, json!({"outcome": "never", "outputs": {}})).await;
    assert_eq!((status, code(&problem)), (422, "VALIDATION_FAILED"));
    assert_eq!(house.post(&path(&run, "/steps/zzz/resolve"), json!({"outcome": "never"})).await.0, 404);
    let found = json!({"outcome": "happened", "outputs": {"id": 7}, "notes": "it is in their list"});
    assert_eq!(house.post(&resolve, found).await.0, 202);
    let ended = house.until(&run, "completed").await;
    assert_eq!((&ended["result"]["push"]["id"], &ended["doubts"]), (&json!(7), &json!([])));
}

#[tokio::test]
async fn calls_in_doubt_are_listed_with_their_reason_and_what_settles_them_until_they_are_settled() {
    let lost = ScriptedTool::new("lost", EffectKind::Write)
        .answers(|_, _| Err(ToolError::maybe_sent(Code::ExternalServiceError, "the line broke")));
    let house = furnished(setup().tool(lost.build()), |edge| edge).await;
    house.apply(&workflow("w").function("push", "lost", json!({}))).await;
    house.apply(&workflow("fine").function("push", "change", json!({}))).await;
    let (_, fine) = house.start("fine", NOTHING).await;
    house.until(&fine, "completed").await;
    assert_eq!(house.get("/doubts").await.1, json!({"items": [], "next_cursor": null}));
    let mut runs = Vec::new();
    for _ in 0..3 {
        let (_, run) = house.start("w", NOTHING).await;
        house.wait_for_step(&run, "push", "outcome_unknown").await;
        runs.push(run);
    }
    let (_, listed) = house.get("/runs?in_doubt=true").await;
    let ids: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|run| &run["run_id"]).collect();
    assert_eq!(ids, [&runs[2]["run_id"], &runs[1]["run_id"], &runs[0]["run_id"]], "the newest first, and no other");
    assert!(listed["items"][0]["in_doubt_since"].is_string(), "{listed}");
    assert_eq!(house.get("/runs").await.1["items"].as_array().unwrap().len(), 4);

    let (_, page) = house.get("/doubts?limit=2").await;
    let doubt = &page["items"][0];
    let (run, step) = (doubt["run_id"].as_str().unwrap(), doubt["step_id"].as_str().unwrap());
    assert_eq!((&doubt["run_id"], &doubt["node_id"]), (&runs[0]["run_id"], &json!("push")), "the oldest first");
    assert_eq!((&doubt["tool"], &doubt["call"]), (&json!("lost"), &json!("execute")));
    assert_eq!((&doubt["reason"], &doubt["run_status"]), (&json!("the line broke"), &json!("running")));
    assert!(doubt["since"].is_string(), "{doubt}");
    assert_eq!(doubt["resolve_commands"][1], format!("chimera runs resolve {run} {step} --never"));
    let cursor = page["next_cursor"].as_str().unwrap();
    let (_, rest) = house.get(&format!("/doubts?limit=2&cursor={cursor}")).await;
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next_cursor"]), (1, &Value::Null));

    assert_eq!(house.get("/doubts?tool=lost&actor=admin").await.1["items"].as_array().unwrap().len(), 3);
    assert_eq!(house.get("/doubts?tool=change").await.1["items"], json!([]));
    assert_eq!(house.get("/doubts?actor=user_ann").await.1["items"], json!([]));
    let settled = house.post(doubt["resolve_url"].as_str().unwrap(), json!({"outcome": "happened"})).await;
    assert_eq!(settled.0, 202, "{}", settled.1);
    house.until(&runs[0], "completed").await;
    assert_eq!(house.get("/doubts").await.1["items"].as_array().unwrap().len(), 2);
    assert_eq!(house.get("/runs?in_doubt=true").await.1["items"].as_array().unwrap().len(), 2);
    assert_eq!(house.get("/runs?in_doubt=perhaps").await.0, 400);
}

#[tokio::test]
async fn an_undo_in_doubt_is_listed_until_it_is_undone_again_or_by_hand() {
    let tries = Arc::new(AtomicU32::new(0));
    let kept = ScriptedTool::new("kept", EffectKind::Write).on_rollback(move |_, _| {
        match tries.fetch_add(1, Ordering::Relaxed) {
            0 | 2 => Err(ToolError { body: Box::new(lasting("no answer")), sent: Sent::Maybe }),
            _ => Ok(json!({})),
        }
    });
    let house = furnished(setup().tool(kept.build()), |edge| edge).await;
    house.apply(&workflow("w").function("push", "kept", json!({}))).await;
    for by_hand in [false, true] {
        let (_, run) = house.start("w", NOTHING).await;
        house.until(&run, "completed").await;
        assert_eq!(house.post(&path(&run, "/rollback"), json!({})).await.0, 202);
        house.sees(&run, |run| run["in_doubt_since"].is_string()).await;
        let (_, listed) = house.get("/doubts").await;
        let doubt = &listed["items"][0];
        assert_eq!((&doubt["run_id"], &doubt["call"]), (&run["run_id"], &json!("undo")), "{listed}");
        assert_eq!((&doubt["reason"], &doubt["run_status"]), (&json!("no answer"), &json!("completed")));
        let id = run["run_id"].as_str().unwrap();
        assert_eq!(doubt["resolve_commands"][1], format!("chimera runs rollback {id} --by-hand"));
        let settled = if by_hand {
            house.ask(Method::PATCH, &path(&run, ""), json!({"status": "rolled_back"})).await
        } else {
            let resolve_url = doubt["resolve_url"].as_str().unwrap();
            house.post(resolve_url, json!({"step_ids": [doubt["step_id"]]})).await
        };
        assert!((200..300).contains(&settled.0), "{}", settled.1);
        let shown = house.sees(&run, |run| run["in_doubt_since"].is_null()).await;
        assert_eq!(shown["doubts"], json!([]));
        assert_eq!(house.get("/doubts").await.1["items"], json!([]));
    }
}

/// An error that trying again does not change.
fn lasting(message: &str) -> ErrorBody {
    ErrorBody { retryable: false, ..ErrorBody::new(Code::ExternalServiceError, message) }
}

/// How the character U+0000 is written in JSON.
const NUL: &str = "a\u{0}b";

#[tokio::test]
async fn a_text_that_no_store_can_hold_is_refused_in_words_that_say_so() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let mut with_nul = patch();
    with_nul["justification"] = json!(NUL);
    let described = reviewed().with("description", json!(NUL));
    let refusals = [
        house.ask(Method::PUT, "/workflows/reviewed", described.document().clone()).await,
        house.post(&path(&run, "/cancel"), json!({"reason": NUL})).await,
        house.post(&path(&run, "/patch"), json!({"patch": with_nul})).await,
        house.post(&path(&run, "/approve"), json!({"decision": "approve", "reason": NUL})).await,
        house.start("reviewed", json!({"idempotency_key": NUL})).await,
        house.start("reviewed", json!({"inputs": {"text": NUL}})).await,
        house.post("/workflows/reviewed/call", json!({(NUL): 1})).await,
        house.ask(Method::PATCH, &path(&run, ""), json!({"status": "rolled_back", "reason": NUL})).await,
    ];
    for (at, (status, problem)) in refusals.iter().enumerate() {
        assert_eq!((*status, code(problem)), (422, "VALIDATION_FAILED"), "{at}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains("U+0000"), "{at}: {problem}");
    }
    assert_eq!(house.get(&path(&run, "")).await.1["status"], "awaiting_approval");
}

#[tokio::test]
async fn only_a_run_that_has_ended_is_repeated() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    for mode in ["freeze", "shadow", "retry"] {
        let (status, problem) = house.post(&path(&run, "/replay"), json!({ "mode": mode })).await;
        assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"), "{mode}");
    }
}

#[tokio::test]
async fn a_pause_that_a_person_made_is_ended_by_people_alone() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let ask = async |who: &str, rest: &str| house.ask_as(who, Method::POST, &path(&run, rest), NOTHING).await;
    assert_eq!(ask("user_ann", "/pause").await.0, 202);
    house.sees(&run, |run| run["paused"] == true).await;
    let (status, problem) = ask("service_chatbot", "/resume").await;
    assert_eq!((status, code(&problem)), (403, "RBAC_FORBIDDEN"));
    assert_eq!(ask("user_bob", "/resume").await.0, 202);
    house.sees(&run, |run| run["paused"] == false).await;
    assert_eq!(ask("service_chatbot", "/pause").await.0, 202);
    house.sees(&run, |run| run["paused"] == true).await;
    assert_eq!(ask("service_chatbot", "/resume").await.0, 202);
    house.sees(&run, |run| run["paused"] == false).await;
}

#[tokio::test]
async fn a_patch_that_is_not_there_or_not_applied_can_not_be_taken_out() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    assert_eq!(house.ask(Method::DELETE, &path(&run, "/patches/3"), NOTHING).await.0, 404);
    assert_eq!(house.post(&path(&run, "/patch"), json!({"patch": patch()})).await.0, 202);
    let applied = |run: &Value| run["patches"][0]["status"] == "applied";
    house.sees(&run, applied).await;
    assert_eq!(house.ask(Method::DELETE, &path(&run, "/patches/1"), NOTHING).await.0, 202);
    house.sees(&run, |run| run["patches"][0]["status"] == "reverted").await;
    let (status, problem) = house.ask(Method::DELETE, &path(&run, "/patches/1"), NOTHING).await;
    assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"));
}
