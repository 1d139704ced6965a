//! The order of the checks: whatever is wrong with an envelope, the earliest check decides, and a refusal leaves nothing
//! but its record.

use super::given::{key_of, server};
use chimera_core::intent::sign;
use chimera_core::intent::tables::INTENT_SIGHTINGS;
use chimera_testkit::cells::Cells;
use serde_json::{Value, json};

fn set(envelope: &mut Value, pointer: &str, to: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    envelope.pointer_mut(parent).unwrap()[name] = to;
}

/// INTENT-020, INTENT-021, INTENT-056, INTENT-065, INTENT-066, INTENT-067, INTENT-068, INTENT-069, INTENT-070, INTENT-071
#[tokio::test]
async fn the_earliest_check_decides_and_a_refusal_leaves_only_its_record() {
    let server = server().await;
    server.apply_single("lead_flow", "local.summarize", json!({"text": "One. Two."})).await;
    let mut used = server.unsigned("user_ann", "workflow.start", json!({"workflow_id": "lead_flow"}));
    set(&mut used, "/constraints/idempotency_key", json!("used"));
    assert_eq!(server.send(&sign(used, &key_of("user_ann")).unwrap()).await.status, 200);
    let before = server.porch.traces();

    // Everything is wrong with this one, and one thing after the other is put right.
    let args = json!({"workflow_id": 7, "tenant": "other"});
    let mut envelope = server.unsigned("user_ann", "workflow.start", args);
    set(&mut envelope, "/constraints/ttl_sec", json!("soon"));
    set(&mut envelope, "/constraints/idempotency_key", json!("used"));
    set(&mut envelope, "/constraints/capabilities", json!(["logs:read"]));
    set(&mut envelope, "/issued_at", json!("2020-01-01T00:00:00Z"));
    let repairs: [(&str, Value, u16, &str, &str); 7] = [
        ("/version", json!("1.0"), 400, "SCHEMA_INVALID", "shape"),
        ("/constraints/ttl_sec", json!(60), 401, "EXPIRED_TTL", "age"),
        ("/issued_at", json!(server.now()), 409, "CONFLICT_IDEMPOTENCY", "idempotency"),
        ("/constraints/idempotency_key", json!("fresh"), 400, "SCHEMA_INVALID", "arguments"),
        ("/intent/args/workflow_id", json!("absent_flow"), 403, "RBAC_FORBIDDEN", "rights"),
        ("/constraints/capabilities", json!(["runs:start"]), 403, "POLICY_DENIED", "policy"),
        ("/intent/args/tenant", json!("acme"), 422, "MALFORMED_ARGS", "dispatch"),
    ];
    let mut refused = 0;
    for (pointer, to, status, code, stage) in repairs {
        set(&mut envelope, pointer, to);
        let signed = sign(envelope.clone(), &key_of("user_ann")).unwrap();
        if stage != "shape" {
            let forged = sign(envelope.clone(), &key_of("user_bob")).unwrap();
            let answer = server.send(&forged).await;
            assert_eq!((answer.status, answer.code()), (401, "SIGNATURE_INVALID"), "before {stage}: {answer:?}");
            refused += 1;
        }
        let answer = server.send(&signed).await;
        assert_eq!((answer.status, answer.code()), (status, code), "{stage}: {answer:?}");
        refused += 1;
        assert_eq!(server.porch.traces(), before, "{stage}");
        let log = server.log();
        let row = log.last().unwrap();
        assert_eq!((row.text("result"), row.text("error_code")), ("rejected", code), "{stage}");
        assert_eq!((row.text("tenant_id"), row.text("actor")), ("acme", "user_ann"));
        let expected_trace = if stage == "shape" { row.text("trace_id") } else { "abcd-1234" };
        assert_eq!(row.text("trace_id"), expected_trace);
        if stage != "shape" {
            assert_eq!(row.text("intent_type"), "workflow.start");
        }
        let entries = server.entries("intent.rejected");
        assert_eq!((entries.len(), log.len()), (refused, refused + 1), "{stage}");
        let entry = entries.iter().find(|entry| entry["stage"] == stage).unwrap();
        assert_eq!((&entry["code"], &entry["result"]), (&json!(code), &json!("rejected")));
    }
    assert_eq!(server.porch.refusals().len(), 0, "the gate does not record them again");
    set(&mut envelope, "/intent/args/workflow_id", json!("lead_flow"));
    let answer = server.send(&sign(envelope, &key_of("user_ann")).unwrap()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body["trace_id"], "abcd-1234");
    assert!(server.porch.house.stage.rows(&INTENT_SIGHTINGS).is_empty(), "issued_at needs no sighting");
}

/// INTENT-065, INTENT-066, INTENT-067, INTENT-056
#[tokio::test]
async fn a_refusal_says_where_and_by_which_policy() {
    let server = server().await;
    let path = async |envelope: &Value| server.send(envelope).await.detail("path").clone();
    let mut twice = server.envelope("user_ann", "workflow.start", json!({"workflow_id": "a"})).to_string();
    twice = twice.replacen("\"ttl_sec\":120", "\"ttl_sec\":120,\"ttl_sec\":121", 1);
    let answer = server.send_as("user_ann", "/intents", twice).await;
    assert_eq!((answer.code(), answer.detail("path")), ("SCHEMA_INVALID", &json!("/constraints/ttl_sec")));
    assert!(answer.detail("reason").as_str().unwrap().contains("duplicate"));
    let args = json!({"run_id": "7f", "filter": "warn"});
    assert_eq!(path(&server.envelope("user_ann", "logs.stream", args)).await, "/intent/args/filter");
    assert_eq!(path(&server.envelope("user_ann", "shell.run", json!({}))).await, "/intent/type");
    let huge = server.envelope("user_ann", "workflow.start", json!({"workflow_id": "a"})).to_string();
    let huge = huge.replacen("\"args\":{", "\"args\":{\"n\":9007199254740993,", 1);
    let answer = server.send_as("user_ann", "/intents", huge).await;
    assert_eq!((answer.code(), answer.detail("path")), ("SCHEMA_INVALID", &json!("/intent/args/n")));
    let search = json!({"q": "S3 403 upload", "k": 5, "filters": {"tenant": "globex"}, "hybrid": true});
    let answer = server.submit("user_ann", "kb.search", search).await;
    assert_eq!((answer.code(), answer.detail("policy_id")), ("POLICY_DENIED", &json!("intent.tenant")));
    assert_eq!(server.log().last().unwrap().text("policy_id"), "intent.tenant");
    assert!(!server.log().last().unwrap().get("policy_input_digest").is_null());
    server.apply_single("denied", "local.forbidden", json!({"text": "x"})).await;
    let answer = server.submit("user_ann", "workflow.start", json!({"workflow_id": "denied"})).await;
    assert_eq!((answer.code(), answer.detail("policy_id")), ("POLICY_DENIED", &json!("never")));
    let mut narrow = server.unsigned("user_ann", "workflow.start", json!({"workflow_id": "denied"}));
    narrow["constraints"]["capabilities"] = json!(["runs:start@workflow/other"]);
    let answer = server.send(&sign(narrow, &key_of("user_ann")).unwrap()).await;
    let capability = answer.detail("capability").clone();
    assert_eq!((answer.code(), capability), ("RBAC_FORBIDDEN", json!("runs:start@workflow/denied")));
}
