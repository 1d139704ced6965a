//! What intents do to runs, approvals and cached outputs.

use super::given::{run_of, server};
use chimera_core::flow::tables::{CACHE_ENTRIES, RUNS};
use chimera_testkit::flow::workflow;
use serde_json::{Value, json};

/// INTENT-003, INTENT-023
#[tokio::test]
async fn a_risky_start_stops_for_approval_exactly_as_by_act() {
    let server = server().await;
    server.apply_single("mailing", "outlook.send", json!({"to": "ada@example.com"})).await;
    let answer = server.submit("user_bob", "workflow.start", json!({"workflow_id": "mailing"})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let run = run_of(&answer);
    let by_intent = server.porch.house.stage.status(run, "awaiting_approval").await;
    let acted = server.porch.act("user_bob", json!({"workflow_id": "mailing"})).await;
    let by_act = acted.body["run_id"].as_str().unwrap().parse().unwrap();
    let by_act = server.porch.house.stage.status(by_act, "awaiting_approval").await;
    for member in ["autonomy_level", "risk", "status"] {
        assert_eq!(by_intent[member], by_act[member], "{member}");
    }
    assert_eq!(by_intent["autonomy_level"], "L1_Draft");
    assert_eq!(server.porch.effects(), 0);
}

/// INTENT-027, INTENT-028
#[tokio::test]
async fn a_person_decides_by_intent_and_a_service_does_not() {
    let server = server().await;
    let review = workflow("review_flow")
        .node(json!({"id": "review", "type": "hitl", "prompt": "Good?"}))
        .function("after", "change", json!({"n": 1}))
        .edge("review", "after");
    server.apply(&review).await;
    let started = server.submit("user_ann", "workflow.start", json!({"workflow_id": "review_flow"})).await;
    let run = run_of(&started);
    server.porch.house.stage.step(run, "review", "awaiting_approval").await;
    let args = |decision: &str| json!({"run_id": run, "node_id": "review", "decision": decision, "reason": "LGTM"});
    let refused = server.submit("service_bot", "hitl.approve", args("approve")).await;
    assert_eq!((refused.status, refused.code()), (403, "RBAC_FORBIDDEN"), "{refused:?}");
    let mut absent = args("approve");
    absent["node_id"] = json!("other");
    assert_eq!(server.submit("user_ann", "hitl.approve", absent).await.code(), "MALFORMED_ARGS");
    let envelope = server.envelope("user_ann", "hitl.approve", args("approve"));
    let approved = server.send(&envelope).await;
    assert_eq!(approved.status, 200, "{approved:?}");
    assert_eq!(
        (&approved.body["result"]["decision"], &approved.body["result"]["node_id"]),
        (&json!("approve"), &json!("review"))
    );
    assert_eq!(server.porch.house.stage.ended(run).await["status"], "completed");
    assert_eq!(server.send(&envelope).await.detail("prior"), &approved.body);
    let late = server.submit("user_ann", "hitl.approve", args("approve")).await;
    assert_eq!((late.status, late.code()), (409, "INVALID_TRANSITION"));

    let second = run_of(&server.submit("user_ann", "workflow.start", json!({"workflow_id": "review_flow"})).await);
    server.porch.house.stage.step(second, "review", "awaiting_approval").await;
    let changes = json!({"run_id": second, "node_id": "review", "decision": "request_changes", "reason": "shorter"});
    let answer = server.submit("user_ann", "hitl.approve", changes).await;
    assert_eq!((answer.status, &answer.body["result"]["decision"]), (200, &json!("request_changes")), "{answer:?}");
    let unknown = json!({"run_id": "019f2c1e-7a54-7d31-8c1e-5f0e2b9a6d10", "decision": "approve"});
    assert_eq!(server.submit("user_ann", "hitl.approve", unknown).await.code(), "MALFORMED_ARGS");
}

/// INTENT-027
#[tokio::test]
async fn a_plan_is_approved_without_a_node_and_what_was_unknown_then_by_its_node() {
    let server = server().await;
    let each = workflow("each_flow")
        .function("list", "fetch", json!({"items": [1, 2]}))
        .map("each", json!("${nodes.list.outputs.echo.items}"), "outlook.send", json!({"n": "${item}"}))
        .edge("list", "each");
    server.apply(&each).await;
    let run = run_of(&server.submit("user_bob", "workflow.start", json!({"workflow_id": "each_flow"})).await);
    server.porch.house.stage.status(run, "awaiting_approval").await;
    let plan = server.submit("user_ann", "hitl.approve", json!({"run_id": run, "decision": "approve"})).await;
    assert_eq!((plan.status, &plan.body["result"]["node_id"]), (200, &Value::Null), "{plan:?}");
    server.porch.house.stage.step(run, "each", "awaiting_approval").await;
    let bare = server.submit("user_ann", "hitl.approve", json!({"run_id": run, "decision": "approve"})).await;
    assert_eq!((bare.status, bare.code()), (409, "INVALID_TRANSITION"), "it is not the first one: {bare:?}");
    let args = json!({"run_id": run, "node_id": "each", "decision": "approve"});
    assert_eq!(server.submit("user_ann", "hitl.approve", args).await.status, 200);
    assert_eq!(server.porch.house.stage.ended(run).await["status"], "completed");
    assert_eq!(server.porch.asked("outlook.send").count("execute"), 2);
}

/// INTENT-025, INTENT-026
#[tokio::test]
async fn a_replay_repeats_what_was_recorded_and_touches_nothing() {
    let server = server().await;
    let flow = workflow("two_steps")
        .function("parse", "fetch", json!({"q": "x"}))
        .function("write", "change", json!({"n": "${nodes.parse.outputs.echo.q}"}))
        .edge("parse", "write");
    server.apply(&flow).await;
    let run = run_of(&server.submit("user_ann", "workflow.start", json!({"workflow_id": "two_steps"})).await);
    let original = server.porch.house.stage.ended(run).await;
    assert_eq!((&original["status"], server.porch.effects()), (&json!("completed"), 2));
    let freeze = json!({"run_id": run, "from_node": "parse", "mode": "freeze"});
    let frozen = server.submit("user_ann", "run.replay", freeze).await;
    assert_eq!(frozen.status, 200, "{frozen:?}");
    assert_eq!(server.porch.house.stage.ended(run_of(&frozen)).await["status"], "completed");
    assert_eq!(server.porch.effects(), 2, "recorded outputs, no calls");
    let shadow = json!({"run_id": run, "from_node": "parse", "mode": "shadow"});
    let shadowed = server.submit("user_ann", "run.replay", shadow).await;
    assert_eq!(server.porch.house.stage.ended(run_of(&shadowed)).await["status"], "completed");
    assert_eq!(server.porch.asked("change").count("execute"), 1, "a shadow has no side effects");
    let absent = json!({"run_id": run, "from_node": "absent", "mode": "freeze"});
    assert_eq!(server.submit("user_ann", "run.replay", absent).await.code(), "MALFORMED_ARGS");
    assert_eq!(server.porch.house.stage.rows(&RUNS).len(), 3);
}

/// INTENT-042, INTENT-043, INTENT-044
#[tokio::test]
async fn cached_outputs_are_deleted_within_the_tenant_and_counted() {
    let server = server().await;
    for id in ["w1", "w2"] {
        let air = workflow(id).function("enrich_A", "fetch", json!({"q": "${inputs.q}"}));
        server.apply(&air.with_node_member("cache", json!({}))).await;
    }
    let start = async |workflow: &str, q: &str| {
        let args = json!({"workflow_id": workflow, "inputs": {"q": q}});
        let run = run_of(&server.submit("user_ann", "workflow.start", args).await);
        server.porch.house.stage.ended(run).await;
    };
    for q in ["x", "y"] {
        start("w1", q).await;
        start("w2", q).await;
    }
    let cached = || server.porch.house.stage.rows(&CACHE_ENTRIES);
    assert_eq!(cached().len(), 4);
    let key = chimera_testkit::cells::Cells::text(&cached()[0], "cache_key").to_owned();
    let count = async |actor: &str, args: Value| {
        let answer = server.submit(actor, "cache.invalidate", args).await;
        answer.body["result"]["invalidated"].as_u64().unwrap_or_else(|| panic!("{answer:?}"))
    };
    assert_eq!(count("user_cat", json!({"scope": "workflow", "key": key})).await, 0, "another tenant's");
    assert_eq!(count("user_cat", json!({"scope": "tenant"})).await, 0);
    assert_eq!(cached().len(), 4);
    assert_eq!(count("user_ann", json!({"scope": "workflow", "key": key})).await, 2, "of both workflows");
    assert_eq!(count("user_ann", json!({"scope": "workflow", "key": key})).await, 0);
    assert_eq!(count("user_ann", json!({"scope": "workflow", "prefix": "enrich_A:", "workflow_id": "w1"})).await, 1);
    assert_eq!(count("user_ann", json!({"scope": "tenant", "prefix": "enrich_B"})).await, 0);
    assert_eq!(count("user_ann", json!({"scope": "tenant"})).await, 1);
    assert!(cached().is_empty());
    let absent = json!({"scope": "workflow", "workflow_id": "absent"});
    assert_eq!(server.submit("user_ann", "cache.invalidate", absent).await.code(), "MALFORMED_ARGS");
    assert_eq!(server.entries("cache.invalidated").len(), 7);
}
