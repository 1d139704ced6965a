//! Patches of running graphs by intent.

use super::given::{IntentServer, run_of, server};
use chimera_core::flow::tables::RUN_PATCHES;
use chimera_core::intent::IntentCatalog;
use chimera_testkit::flow::workflow;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

/// The patch of the specification.
fn example() -> Value {
    let catalog = IntentCatalog::built_in().unwrap();
    catalog.get("graph.patch").unwrap().example().unwrap()["patch"].clone()
}

/// A run of ann's that waits at its only current node.
async fn waiting_run(server: &IntentServer) -> Uuid {
    server.apply(&workflow("upload_flow").node(json!({"id": "review", "type": "hitl", "prompt": "Good?"}))).await;
    let run = run_of(&server.submit("user_ann", "workflow.start", json!({"workflow_id": "upload_flow"})).await);
    server.porch.house.stage.step(run, "review", "awaiting_approval").await;
    run
}

/// The request to approve a patch.
fn of_patch(shown: &Value) -> Option<Value> {
    let all = shown["approvals"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|asked| asked["action_type"] == "graph.patch")
}

/// INTENT-032, INTENT-033, INTENT-034, INTENT-035, INTENT-036
#[tokio::test]
async fn the_patch_of_the_specification_is_applied_and_run() {
    let server = server().await;
    let run = waiting_run(&server).await;
    let answer = server.submit("user_ann", "graph.patch", json!({"run_id": run, "patch": example()})).await;
    assert_eq!((answer.status, &answer.body["result"]["patch"]), (200, &json!(1)), "{answer:?}");
    let applied = |shown: &Value| shown["patches"][0]["status"] == "applied";
    let shown = server.porch.house.stage.until(run, applied).await;
    assert_eq!(shown["patches"].as_array().unwrap().len(), 1);
    let approve = json!({"run_id": run, "node_id": "review", "decision": "approve"});
    assert_eq!(server.submit("user_ann", "hitl.approve", approve).await.status, 200);
    assert_eq!(server.porch.house.stage.ended(run).await["status"], "completed");
    let called = |tool: &str| server.porch.asked(tool).of("execute");
    assert_eq!(called("s3_upload")[0].input, json!({"bucket": "acme", "key_template": format!("uploads/{run}.bin")}));
    assert_eq!(called("email_send")[0].input["subject"], format!("Upload OK {run}"));
    assert!(called("slack_post").is_empty(), "the upload succeeded");
}

/// INTENT-031, INTENT-036
#[tokio::test]
async fn a_patch_that_does_not_fit_its_tools_is_refused_whole() {
    let server = server().await;
    let run = waiting_run(&server).await;
    let mut unknown = example();
    unknown["add_nodes"][0]["fn"] = json!("no_such_tool");
    let mut inputs = example();
    inputs["add_nodes"][0]["inputs"] = json!({"bucket": 7});
    let mut cycle = example();
    cycle["add_edges"].as_array_mut().unwrap().push(json!({"from": "notify_email", "to": "upload_to_s3"}));
    for patch in [unknown, inputs, cycle] {
        let answer = server.submit("user_ann", "graph.patch", json!({"run_id": run, "patch": patch})).await;
        assert_eq!((answer.status, answer.code()), (422, "MALFORMED_ARGS"), "{answer:?}");
    }
    assert!(server.porch.house.stage.rows(&RUN_PATCHES).is_empty());
    let absent = json!({"run_id": "019f2c1e-7a54-7d31-8c1e-5f0e2b9a6d10", "patch": example()});
    assert_eq!(server.submit("user_ann", "graph.patch", absent).await.code(), "MALFORMED_ARGS");
}

/// INTENT-036
#[tokio::test]
async fn a_patch_that_its_author_could_not_run_freely_waits_for_a_person() {
    let server = server().await;
    let run = waiting_run(&server).await;
    let answer = server.submit("user_bob", "graph.patch", json!({"run_id": run, "patch": example()})).await;
    assert_eq!((answer.status, &answer.body["result"]["waits_for_approval"]), (200, &json!(true)), "{answer:?}");
    let shown = server.porch.house.stage.until(run, |shown| of_patch(shown).is_some()).await;
    assert_eq!(shown["patches"][0]["status"], "proposed");
    let again = server.submit("user_bob", "graph.patch", json!({"run_id": run, "patch": example()})).await;
    assert_eq!(again.code(), "OCC_CONFLICT", "the same nodes are proposed already: {again:?}");
    let approve = json!({"run_id": run, "decision": "approve", "digest": of_patch(&shown).unwrap()["digest"]});
    let approved = server.submit("user_ann", "hitl.approve", approve).await;
    assert_eq!(approved.status, 200, "{approved:?}");
    let shown = server.porch.house.stage.until(run, |shown| shown["patches"][0]["status"] == "applied").await;
    assert_eq!(shown["autonomy_level"], "L2_ExecuteNotify", "the run goes on as before");
    let review = json!({"run_id": run, "node_id": "review", "decision": "approve"});
    assert_eq!(server.submit("user_ann", "hitl.approve", review).await.status, 200);
    assert_eq!(server.porch.house.stage.ended(run).await["status"], "completed");
    assert_eq!(server.porch.asked("email_send").count("execute"), 1);
}

/// The run is at L2, where approvals are otherwise not looked at again.
#[tokio::test]
async fn what_a_patch_adds_is_asked_again_once_its_approver_has_left() {
    let server = server().await;
    let run = waiting_run(&server).await;
    let answer = server.submit("user_bob", "graph.patch", json!({"run_id": run, "patch": example()})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let stage = &server.porch.house.stage;
    let shown = stage.until(run, |shown| of_patch(shown).is_some()).await;
    let approve = json!({"run_id": run, "decision": "approve", "digest": of_patch(&shown).unwrap()["digest"]});
    assert_eq!(server.submit("user_dan", "hitl.approve", approve).await.status, 200);
    stage.until(run, |shown| shown["patches"][0]["status"] == "applied").await;
    let disabled = json!({"scopes": ["runs.read"], "disabled": true});
    assert_eq!(server.porch.ask("admin", Method::PUT, "/actors/user_dan", disabled).await.status, 200);
    let review = json!({"run_id": run, "node_id": "review", "decision": "approve"});
    assert_eq!(server.submit("user_ann", "hitl.approve", review).await.status, 200);
    stage.step(run, "upload_to_s3", "awaiting_approval").await;
    assert_eq!(server.porch.asked("s3_upload").count("execute"), 0);
}
