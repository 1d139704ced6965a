//! What an accepted intent leaves behind, and what its duplicates get.

use super::given::{free, key_of, run_of, server};
use chimera_core::flow::tables::RUNS;
use chimera_core::intent::sign;
use chimera_core::intent::tables::INTENT_SIGHTINGS;
use chimera_core::ledger::tables::IDEMPOTENCY_RECORDS;
use chimera_testkit::cells::Cells;
use futures::future::join_all;
use serde_json::json;

/// INTENT-006, INTENT-022, INTENT-023, INTENT-024, INTENT-071
#[tokio::test]
async fn an_accepted_start_runs_the_workflow_and_is_recorded_with_it() {
    let server = server().await;
    let text = json!({"text": "${inputs.priority}: ${inputs.file}"});
    server.apply_single("lead_flow", "local.summarize", text).await;
    let inputs = json!({"file": "cas://sha256:ab", "priority": "high"});
    let answer =
        server.submit("user_ann", "workflow.start", json!({"workflow_id": "lead_flow", "inputs": inputs})).await;
    assert_eq!((answer.status, &answer.body["status"]), (200, &json!("accepted")), "{answer:?}");
    assert_eq!(answer.body["trace_id"], "abcd-1234");
    let run = run_of(&answer);
    let shown = server.porch.house.stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["workflow_id"]), (&json!("completed"), &json!("lead_flow")));
    assert_eq!(server.porch.asked("local.summarize").of("execute")[0].input, json!({"text": "high: cas://sha256:ab"}));
    let log = server.log();
    let row = &log[0];
    assert_eq!((log.len(), row.text("result"), row.text("intent_type")), (1, "accepted", "workflow.start"));
    assert_eq!((row.text("actor"), row.text("trace_id")), ("user_ann", "abcd-1234"));
    assert_eq!((row.get("run_id").as_uuid(), row.text("kid")), (Some(run), key_of("user_ann").public().kid().as_str()));
    let entries = server.entries("intent.accepted");
    assert_eq!((entries.len(), &entries[0]["type"]), (1, &json!("workflow.start")));
}

/// INTENT-005, INTENT-069
#[tokio::test]
async fn a_duplicate_gets_the_prior_answer_and_starts_nothing() {
    let server = server().await;
    server.apply_single("lead_flow", "local.summarize", json!({"text": "x"})).await;
    let envelope = server.unsigned("user_ann", "workflow.start", json!({"workflow_id": "lead_flow"}));
    let signed = sign(envelope.clone(), &key_of("user_ann")).unwrap();
    let first = server.send(&signed).await;
    let mut again = envelope.clone();
    again["trace_id"] = json!("another");
    for duplicate in [signed, sign(again, &key_of("user_ann")).unwrap()] {
        let answer = server.send(&duplicate).await;
        assert_eq!((answer.status, answer.code()), (409, "CONFLICT_IDEMPOTENCY"));
        assert_eq!(answer.detail("prior"), &first.body, "the prior answer as it was");
        assert_eq!(answer.detail("request_differs"), &json!(false));
    }
    let mut other = envelope;
    other["intent"]["args"]["inputs"] = json!({"n": 1});
    let answer = server.send(&sign(other, &key_of("user_ann")).unwrap()).await;
    assert_eq!((answer.code(), answer.detail("request_differs")), ("CONFLICT_IDEMPOTENCY", &json!(true)));
    assert_eq!(server.porch.house.stage.rows(&RUNS).len(), 1);
}

/// INTENT-069
#[tokio::test]
async fn one_of_many_at_once_is_accepted_and_the_others_name_its_run() {
    let server = server().await;
    server.apply_single("lead_flow", "local.summarize", json!({"text": "x"})).await;
    let mut envelope = server.unsigned("user_ann", "workflow.start", json!({"workflow_id": "lead_flow"}));
    envelope.as_object_mut().unwrap().remove("issued_at");
    let envelope = sign(envelope, &key_of("user_ann")).unwrap();
    let answers = join_all((0..12).map(|_| server.send(&envelope))).await;
    let accepted: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    assert_eq!(accepted.len(), 1, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.code(), "CONFLICT_IDEMPOTENCY", "{answer:?}");
        assert_eq!(answer.detail("prior")["result"]["run_id"], run_of(accepted[0]).to_string());
    }
    let rows = |table| server.porch.house.stage.rows(table).len();
    assert_eq!((rows(&RUNS), rows(&IDEMPOTENCY_RECORDS), rows(&INTENT_SIGHTINGS)), (1, 1, 1));
    assert_eq!(server.log().len(), 12);
}

/// INTENT-069
#[tokio::test]
async fn a_key_is_its_users_alone() {
    let server = server().await;
    server.apply_single("lead_flow", "local.summarize", json!({"text": "x"})).await;
    for actor in ["user_ann", "user_bob"] {
        let mut envelope = server.unsigned(actor, "workflow.start", json!({"workflow_id": "lead_flow"}));
        envelope["constraints"]["idempotency_key"] = json!("shared");
        let answer = server.send(&sign(envelope, &key_of(actor)).unwrap()).await;
        assert_eq!(answer.status, 200, "{actor}: {answer:?}");
    }
    assert_eq!(server.porch.house.stage.rows(&RUNS).len(), 2);
}

/// INTENT-068
#[tokio::test]
async fn without_an_issue_time_the_age_counts_from_the_first_sight_even_of_a_refusal() {
    let server = server().await;
    let mut envelope = server.unsigned("user_ann", "workflow.start", json!({"workflow_id": "late_flow"}));
    envelope.as_object_mut().unwrap().remove("issued_at");
    envelope.as_object_mut().unwrap().remove("kid");
    let envelope = sign(envelope, &key_of("user_ann")).unwrap();
    assert_eq!(server.send(&envelope).await.code(), "MALFORMED_ARGS", "the workflow does not exist yet");
    server.apply_single("late_flow", "local.summarize", json!({"text": "x"})).await;
    server.porch.clock.wait(119);
    let mut respelled = serde_json::to_string_pretty(&envelope).unwrap();
    respelled.push('\n');
    server.porch.clock.wait(2);
    let router = chimera_engine::intent::IntentRouter::new(server.porch.schedules.shared_actions()).unwrap();
    chimera_engine::intent::delete_expired(&router).await.unwrap();
    assert_eq!(server.porch.house.stage.rows(&INTENT_SIGHTINGS).len(), 1, "its key is still valid");
    let answer = server.send_as("user_ann", "/intents", respelled).await;
    assert_eq!((answer.status, answer.code(), answer.detail("reason")), (401, "EXPIRED_TTL", &json!("expired")));
    let mut future = server.unsigned("user_ann", "workflow.start", json!({"workflow_id": "late_flow"}));
    future["issued_at"] = json!("2100-01-01T00:00:00Z");
    let answer = server.send(&sign(future, &key_of("user_ann")).unwrap()).await;
    assert_eq!((answer.code(), answer.detail("reason")), ("EXPIRED_TTL", &json!("issued_in_future")));
}

/// INTENT-024, INTENT-067
#[tokio::test]
async fn rights_are_those_of_the_registry_on_the_resource() {
    let server = server().await;
    server.apply_single("lead_flow", "local.summarize", json!({"text": "x"})).await;
    server.apply_single("other_flow", "local.summarize", json!({"text": "x"})).await;
    let entries = vec![free("user_ann", &["local.*", "runs:start@workflow/lead_flow"])];
    let settings = chimera_testkit::access::settings(chimera_testkit::flow::TENANT, entries);
    let narrow = super::given::IntentServer::second(&server, settings).await;
    let start =
        async |workflow: &str| narrow.submit("user_ann", "workflow.start", json!({"workflow_id": workflow})).await;
    assert_eq!(start("lead_flow").await.status, 200);
    let refused = start("other_flow").await;
    assert_eq!((refused.status, refused.code()), (403, "RBAC_FORBIDDEN"));
    assert_eq!(refused.detail("required_scope"), "runs:start@workflow/other_flow");
    assert!(refused.header("www-authenticate").contains("insufficient_scope"));
}

/// INTENT-037, INTENT-040, INTENT-045
#[tokio::test]
async fn what_nothing_serves_is_checked_and_leaves_no_record() {
    let server = server().await;
    let artifact = format!("cas://sha256:{}", "ab".repeat(32));
    for (intent, args) in [
        ("logs.stream", json!({"run_id": "7f", "filter": "all", "node_id": "triage"})),
        ("artifact.get", json!({"artifact": artifact})),
        ("kb.search", json!({"q": "S3 403 upload", "k": 5, "filters": {"tenant": "acme"}, "hybrid": true})),
    ] {
        let envelope = server.envelope("user_ann", intent, args);
        for _ in 0..2 {
            let answer = server.send(&envelope).await;
            assert_eq!((answer.status, answer.code()), (503, "TOOL_UNAVAILABLE"), "{intent}: {answer:?}");
        }
    }
    assert!(server.porch.house.stage.rows(&IDEMPOTENCY_RECORDS).is_empty());
    assert_eq!(server.log().len(), 6);
    let mut unnamed = server.unsigned("user_ann", "logs.stream", json!({"run_id": "7f"}));
    unnamed["constraints"]["capabilities"] = json!(["kb:search"]);
    assert_eq!(server.send(&sign(unnamed, &key_of("user_ann")).unwrap()).await.code(), "RBAC_FORBIDDEN");
}
