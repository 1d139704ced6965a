//! People decide: approve, reject, ask for changes, edit.

use super::{FlowServer, NOTHING, code, house, path, reviewed};
use chimera_testkit::flow::{Air, chain, workflow};
use reqwest::Method;
use serde_json::{Value, json};

async fn approve(house: &FlowServer, actor: &str, run: &Value, body: Value) -> (u16, Value) {
    house.ask_as(actor, Method::POST, &path(run, "/approve"), body).await
}

#[tokio::test]
async fn a_person_approves_the_only_first_approval_without_naming_it() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let (status, decided) = approve(&house, "user_ann", &run, json!({"decision": "approve", "reason": "fine"})).await;
    assert_eq!((status, &decided["approval_status"]), (200, &json!("approved")), "{decided}");
    assert_eq!((&decided["approvals"], &decided["approvals_needed"]), (&json!(1), &json!(1)));
    house.until(&run, "completed").await;
    let (status, problem) = approve(&house, "user_ann", &run, json!({"decision": "approve"})).await;
    assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"));
}

#[tokio::test]
async fn only_people_decide_edit_and_settle() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    for actor in ["service_bot", "n8n_workflow_1", "agent_x"] {
        for (rest, body) in [
            ("/approve", json!({"decision": "approve"})),
            ("/reject", NOTHING),
            ("/steps/review/edit", json!({"input": {}})),
            ("/steps/review/resolve", json!({"outcome": "never"})),
        ] {
            let (status, problem) = house.ask_as(actor, Method::POST, &path(&run, rest), body).await;
            assert_eq!((status, code(&problem)), (403, "RBAC_FORBIDDEN"), "{actor} {rest}");
        }
    }
    assert_eq!(house.get(&path(&run, "")).await.1["status"], "awaiting_approval");
}

#[tokio::test]
async fn a_decision_covers_what_was_looked_at() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let stale = json!({"decision": "approve", "digest": "00".repeat(32)});
    let (status, problem) = approve(&house, "admin", &run, stale).await;
    assert_eq!((status, code(&problem)), (409, "STALE_APPROVAL"));
    for body in [
        json!({"decision": "approve", "digest": "ab"}),
        json!({"decision": "approve", "digest": "zz".repeat(32)}),
        json!({"decision": "perhaps"}),
        json!({"decision": "approve", "approval_id": "x"}),
        json!({"decision": "approve", "more": 1}),
        json!({}),
    ] {
        let (status, problem) = approve(&house, "admin", &run, body.clone()).await;
        assert_eq!((status, code(&problem)), (400, "SCHEMA_INVALID"), "{body}");
    }
    let (status, problem) = approve(&house, "admin", &run, json!({"decision": "approve", "step_id": "nothing"})).await;
    assert_eq!((status, code(&problem)), (404, "NOT_FOUND"));
    let digest = run["approvals"][0]["digest"].clone();
    let named = json!({"decision": "approve", "digest": digest, "step_id": "review"});
    assert_eq!(approve(&house, "admin", &run, named).await.0, 200);
    house.until(&run, "completed").await;
}

/// Two people one behind the other.
fn twice() -> Air {
    workflow("twice")
        .node(json!({"id": "first", "type": "hitl", "prompt": "One?"}))
        .node(json!({"id": "second", "type": "hitl", "prompt": "Two?"}))
        .edge("first", "second")
}

#[tokio::test]
async fn a_second_click_does_not_approve_the_next_step() {
    let house = house().await;
    let run = house.run(&twice(), json!({})).await;
    assert_eq!(approve(&house, "admin", &run, json!({"decision": "approve"})).await.0, 200);
    house.wait_for_step(&run, "second", "awaiting_approval").await;
    let (status, problem) = approve(&house, "admin", &run, json!({"decision": "approve"})).await;
    assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"));
    assert_eq!(approve(&house, "admin", &run, json!({"decision": "approve", "step_id": "second"})).await.0, 200);
    house.until(&run, "completed").await;
}

/// CORE-075, CORE-076
#[tokio::test]
async fn a_bare_post_to_the_approve_url_approves_the_only_first_approval_and_nothing_more() {
    let house = house().await;
    let draft =
        house.run(&workflow("d").function("go", "change", json!({})), json!({"autonomy_level": "L1_Draft"})).await;
    let url = draft["approve_url"].as_str().unwrap();
    let (status, decided) = house.ask_as("user_ann", Method::POST, url, NOTHING).await;
    assert_eq!((status, &decided["decision"]), (200, &json!("approve")), "{decided}");
    house.until(&draft, "completed").await;
    let run = house.run(&twice(), json!({})).await;
    assert_eq!(approve(&house, "admin", &run, NOTHING).await.0, 200);
    house.wait_for_step(&run, "second", "awaiting_approval").await;
    let (status, problem) = approve(&house, "admin", &run, NOTHING).await;
    assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"), "a second click approves nothing");
    assert_eq!(approve(&house, "admin", &run, json!({})).await.0, 400, "a body says what is decided");
}

#[tokio::test]
async fn a_rejected_draft_is_cancelled_with_the_reason_and_a_persons_no_fails_its_node() {
    let house = house().await;
    let run = house.run(&workflow("w").function("go", "change", json!({})), json!({"autonomy_level": "L0_Ask"})).await;
    let (status, decided) = house.post(&path(&run, "/reject"), json!({"reason": "not today"})).await;
    assert_eq!((status, &decided["approval_status"], &decided["decision"]), (200, &json!("denied"), &json!("reject")));
    let ended = house.until(&run, "cancelled").await;
    assert!(ended["error_message"].as_str().unwrap().contains("not today"), "{ended}");
    let run = house.run(&reviewed(), json!({})).await;
    let (_, decided) =
        approve(&house, "user_ann", &run, json!({"decision": "request_changes", "reason": "longer"})).await;
    assert_eq!(decided["approval_status"], "denied");
    let ended = house.until(&run, "failed").await;
    assert_eq!(
        (&ended["error"]["code"], &ended["error"]["details"]["notes"]),
        (&json!("POLICY_DENIED"), &json!("longer")),
        "{ended}"
    );
}

#[tokio::test]
async fn more_than_one_may_have_to_approve_and_each_counts_once() {
    let house = house().await;
    let air = workflow("both").node(json!({
        "id": "ask", "type": "hitl", "prompt": "Both?",
        "approval": {"approvals_needed": 2, "approvers": ["user_*"], "other_than_requester": true},
    }));
    let run = house.run(&air, json!({})).await;
    let yes = json!({"decision": "approve"});
    let (status, problem) = approve(&house, "admin", &run, yes.clone()).await;
    assert_eq!((status, code(&problem)), (403, "RBAC_FORBIDDEN"));
    let (_, first) = approve(&house, "user_ann", &run, yes.clone()).await;
    assert_eq!((&first["approval_status"], &first["approvals"]), (&json!("pending"), &json!(1)), "{first}");
    let (status, problem) = approve(&house, "user_ann", &run, yes.clone()).await;
    assert_eq!((status, code(&problem)), (409, "INVALID_TRANSITION"));
    assert_eq!(approve(&house, "user_bob", &run, yes).await.1["approval_status"], "approved");
    house.until(&run, "completed").await;
}

#[tokio::test]
async fn what_was_edited_waits_anew_under_another_digest() {
    let house = house().await;
    let air = workflow("w").function("go", "change", json!({"n": 1}));
    let run = house.run(&air, json!({"autonomy_level": "L0_Ask"})).await;
    assert_eq!(run["status"], "awaiting_approval", "{run}");
    let (status, told) = house.post(&path(&run, "/steps/go/edit"), json!({"input": {"n": 2}})).await;
    assert_eq!((status, &told["accepted"]), (202, &json!(true)), "{told}");
    let old = run["approvals"][0]["digest"].clone();
    let edited =
        house.sees(&run, |run| run["approvals"][0]["digest"].is_string() && run["approvals"][0]["digest"] != old).await;
    let (status, problem) = approve(&house, "admin", &run, json!({"decision": "approve", "digest": old})).await;
    assert_eq!((status, code(&problem)), (409, "STALE_APPROVAL"), "{problem}");
    let digest = edited["approvals"][0]["digest"].clone();
    assert_eq!(approve(&house, "admin", &run, json!({"decision": "approve", "digest": digest})).await.0, 200);
    let ended = house.until(&run, "completed").await;
    assert_eq!(ended["result"]["go"]["echo"]["n"], 2, "{ended}");
}

#[tokio::test]
async fn a_step_of_a_drafted_plan_is_edited_by_its_node_and_the_old_digest_is_stale() {
    let house = house().await;
    let run = house.run(&chain("w", &[("a", "change")]), json!({"autonomy_level": "L1_Draft"})).await;
    let old = run["approvals"][0]["digest"].clone();
    let edit = json!({"input": {"n": "edited"}});
    assert_eq!(house.post(&path(&run, "/steps/zzz/edit"), edit.clone()).await.0, 404);
    assert_eq!(house.post(&path(&run, "/steps/a/edit"), edit).await.0, 202);
    let (status, problem) = house.post(&path(&run, "/approve"), json!({"decision": "approve", "digest": old})).await;
    assert_eq!((status, code(&problem)), (409, "STALE_APPROVAL"), "{problem}");
    let shown = house.sees(&run, |run| run["approvals"][0]["digest"].is_string()).await;
    assert_ne!(shown["approvals"][0]["digest"], old);
    assert_eq!(shown["plan"]["steps"][0]["input"], json!({"n": "edited"}));
    let new = json!({"decision": "approve", "digest": shown["approvals"][0]["digest"]});
    assert_eq!(house.post(&path(&run, "/approve"), new).await.0, 200);
    assert_eq!(house.until(&run, "completed").await["result"]["a"]["echo"], json!({"n": "edited"}));
}

#[tokio::test]
async fn the_digest_before_an_edit_is_stale_at_once() {
    let house = house().await;
    let run = house.run(&chain("w", &[("a", "change")]), json!({"autonomy_level": "L0_Ask"})).await;
    let old = run["approvals"][0]["digest"].clone();
    assert_eq!(house.post(&path(&run, "/steps/a/edit"), json!({"input": {"n": "edited"}})).await.0, 202);
    let (status, problem) = house.post(&path(&run, "/approve"), json!({"decision": "approve", "digest": old})).await;
    assert_eq!((status, code(&problem)), (409, "STALE_APPROVAL"), "{problem}");
}
