//! Signed intents on the command line, and intents that files define.

use crate::support::{Workspace, wait_until};
use serde_json::{Value, json};

fn workspace() -> Workspace {
    let node =
        json!({"id": "echo", "type": "function", "fn": "local.echo", "inputs": {"message": "${inputs.company}"}});
    let air = json!({"air_version": "1.0", "workflow_id": "lead_flow", "nodes": [node], "edges": []});
    let start = json!({"type": "workflow.start", "args": {"workflow_id": "lead_flow", "inputs": {"company": "Acme"}}});
    let place = Workspace::new()
        .env("CHIMERA_FLOW__INTENTS_DIR", "intents")
        .file("lead_flow.json", &air.to_string())
        .file("start.json", &start.to_string())
        .file("broken.json", r#"{"type": "workflow.start", "args": {"workflow_id": 7}}"#);
    std::fs::create_dir(place.path("intents")).unwrap();
    place
}

/// INTENT-007, INTENT-013, INTENT-017, INTENT-080
#[test]
fn an_intent_is_signed_checked_and_sent_and_a_file_defines_another_one() {
    let place = workspace();
    let server = place.dev(&[]);
    for step in
        [&["workflow", "apply", "lead_flow.json"][..], &["key", "generate", "own.pem"], &["key", "add", "own.pem"]]
    {
        let done = place.run(step);
        assert_eq!(done.status, 0, "{step:?}: {}", done.stderr);
    }
    let unsigned = place.run(&["intent", "send", "start.json"]);
    assert!(unsigned.status == 1 && unsigned.stderr.contains("the envelope is not signed"), "{}", unsigned.stderr);
    let offline = place.run(&["intent", "lint", "broken.json", "--offline"]);
    assert_eq!((offline.status, offline.stdout.starts_with("SCHEMA_INVALID  /intent/args/workflow_id")), (3, true));
    let with_key = |command: &str, file: &str| place.run(&["intent", command, file, "--private-key", "own.pem"]);
    assert_eq!(with_key("lint", "start.json").status, 0);
    let signed = with_key("sign", "start.json");
    let envelope: Value = serde_json::from_str(&signed.stdout).unwrap();
    assert!(envelope["sig"].as_str().unwrap().starts_with("ed25519:"), "{envelope}");
    assert_eq!(envelope["constraints"]["idempotency_key"].as_str().unwrap().len(), 64);
    std::fs::write(place.path("signed.json"), &signed.stdout).unwrap();
    let sent = place.run(&["intent", "send", "signed.json"]);
    assert_eq!(sent.status, 0, "{}", sent.stderr);
    let result: Value = serde_json::from_str(&sent.stdout).unwrap();
    let run = result["run_id"].as_str().unwrap();
    wait_until("the end of the run", || {
        let shown = place.json(&["runs", "show", run]);
        (shown["status"] != "completed").then(|| shown.to_string())
    });
    let again = place.run(&["intent", "send", "signed.json"]);
    assert!(again.status == 1 && again.stderr.contains("CONFLICT_IDEMPOTENCY"), "{}", again.stderr);
    let checked = place.run(&["intent", "lint", "signed.json"]);
    assert_eq!((checked.status, checked.stdout.starts_with("CONFLICT_IDEMPOTENCY")), (3, true), "{}", checked.stdout);

    let definition = json!({
        "type": "lead.enrich",
        "schema": {"type": "object", "required": ["company"], "properties": {"company": {"type": "string"}}},
        "capability": "leads:enrich",
        "resource": {"kind": "company", "argument": "company"},
        "dispatch": {"workflow": "lead_flow"},
    });
    std::fs::write(place.path("intents/lead.json"), definition.to_string()).unwrap();
    wait_until("the new intent", || {
        let listed = place.run(&["intent", "list"]).stdout;
        (!listed.contains("lead.enrich")).then_some(listed)
    });
    std::fs::write(place.path("enrich.json"), r#"{"type": "lead.enrich", "args": {"company": "Acme"}}"#).unwrap();
    let sent = with_key("send", "enrich.json");
    assert_eq!(sent.status, 0, "{}", sent.stderr);
    let result: Value = serde_json::from_str(&sent.stdout).unwrap();
    assert_eq!(result["workflow_id"], "lead_flow");
    drop(server);
}
