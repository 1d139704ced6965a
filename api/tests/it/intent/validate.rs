//! Checking without doing: every finding, and nothing written.

use super::given::{key_of, server};
use crate::access::access_server::ApiResponse;
use chimera_core::catalog;
use chimera_core::intent::sign;
use serde_json::{Value, json};

fn stages(answer: &ApiResponse) -> Vec<String> {
    let findings = answer.body["findings"].as_array().unwrap_or_else(|| panic!("{answer:?}"));
    findings
        .iter()
        .map(|finding| format!("{} {}", finding["stage"].as_str().unwrap(), finding["error"]["code"].as_str().unwrap()))
        .collect()
}

/// INTENT-080
#[tokio::test]
async fn a_dry_run_reports_every_finding_and_writes_nothing() {
    let server = server().await;
    server.apply_single("lead_flow", "local.summarize", json!({"text": "x"})).await;
    let used = server.envelope("user_ann", "workflow.start", json!({"workflow_id": "lead_flow"}));
    assert_eq!(server.send(&used).await.status, 200);
    let rows = || catalog().into_iter().map(|table| server.porch.house.stage.rows(table)).collect::<Vec<_>>();
    let before = rows();
    let check = async |envelope: &Value| {
        let answer = server.send_as("user_ann", "/intents/validate", envelope.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    };
    let good = server.envelope("user_ann", "workflow.start", json!({"workflow_id": "lead_flow"}));
    let answer = check(&good).await;
    assert_eq!((stages(&answer).len(), &answer.body["valid"]), (0, &json!(true)), "{answer:?}");
    assert_eq!(stages(&check(&used).await), ["idempotency CONFLICT_IDEMPOTENCY"]);

    let mut bad = server.unsigned("user_ann", "workflow.start", json!({"workflow_id": 7, "tenant": "globex"}));
    bad["constraints"]["idempotency_key"] = used["constraints"]["idempotency_key"].clone();
    bad["issued_at"] = json!("2020-01-01T00:00:00Z");
    let bad = sign(bad, &key_of("user_bob")).unwrap();
    let found = stages(&check(&bad).await);
    assert_eq!(
        found,
        [
            "signature SIGNATURE_INVALID",
            "age EXPIRED_TTL",
            "idempotency CONFLICT_IDEMPOTENCY",
            "arguments SCHEMA_INVALID",
            "policy POLICY_DENIED"
        ]
    );
    let absent = server.envelope("user_ann", "workflow.start", json!({"workflow_id": "absent"}));
    assert_eq!(stages(&check(&absent).await), ["dispatch MALFORMED_ARGS"]);
    let mut shape = good.clone();
    shape["version"] = json!("9");
    shape["issued_at"] = json!("noon");
    let answer = check(&shape).await;
    assert_eq!(stages(&answer), ["shape SCHEMA_INVALID"]);
    assert_eq!(answer.body["findings"][0]["error"]["details"]["faults"].as_array().unwrap().len(), 2);
    let mut bare = server.unsigned("user_ann", "workflow.start", json!({"workflow_id": "lead_flow"}));
    bare.as_object_mut().unwrap().remove("issued_at");
    assert!(stages(&check(&sign(bare, &key_of("user_ann")).unwrap()).await).is_empty());
    assert_eq!(rows(), before, "not even a sighting");
    assert_eq!(server.send(&good).await.status, 200, "it is as good as before");
}
