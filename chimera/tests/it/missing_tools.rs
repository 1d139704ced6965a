//! A restart without the tools that runs were started with, and the doctor's report on overdue signals.

use crate::support::{Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::{Value, json};

/// A vendor with one tool, which is never called.
const ACME: &str = r#"
vendor = "acme"
base_url = "https://acme.example"

[[tool]]
name = "acme.pay"
version = "1"
description = "Pays."
effect = "write"
response = { ok = "/ok" }

[tool.request]
method = "POST"
path = "/pay"
body = { node = "pay" }

[tool.metadata]
requires_approval = false
capabilities = ["acme.write"]

[tool.input]
type = "object"

[tool.output]
type = "object"
"#;

/// Waits for an approval, then pays.
const PAY: &str = r#"{
  "air_version": "1.0", "workflow_id": "pay",
  "nodes": [{"id": "ask", "type": "hitl", "prompt": "now?"}, {"id": "pay", "type": "function", "fn": "acme.pay", "inputs": {}}],
  "edges": [{"from": "ask", "to": "pay"}]
}"#;

/// The doctor's finding about runs.
fn runs(place: &Workspace) -> Value {
    let report: Value = serde_json::from_str(&place.run(&["doctor", "--json"]).stdout).unwrap();
    report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "runs").unwrap().clone()
}

#[test]
fn a_run_can_be_seen_and_cancelled_after_a_restart_without_its_tool() {
    let place = Workspace::new().with_actors().env("CHIMERA_LISTEN", "127.0.0.1:9").file("pay.json", PAY);
    let place = place.env("CHIMERA_FLOW__TOOLS_DIR", "tools");
    std::fs::create_dir(place.path("tools")).unwrap();
    std::fs::write(place.path("tools/acme.toml"), ACME).unwrap();
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "pay.json"]);
    let run = place.json(&["act", "--workflow", "pay"])["run_id"].as_str().unwrap().to_owned();
    wait_until("it asks", || {
        let shown = place.json(&["runs", "show", &run]);
        (shown["status"] != "awaiting_approval").then(|| shown.to_string())
    });
    server.stop();
    std::fs::remove_file(place.path("tools/acme.toml")).unwrap();
    let server = place.dev(&[]);
    let shown = place.json(&["runs", "show", &run]);
    assert_eq!(
        (&shown["status"], &shown["plan"]["steps"][0]["tool"]),
        (&json!("awaiting_approval"), &json!("acme.pay"))
    );
    let refused = place.run(&["act", "--workflow", "pay"]);
    assert!(refused.stderr.contains("VALIDATION_FAILED"), "{}", refused.stderr);
    place.json(&["runs", "cancel", &run]);
    wait_until("it is cancelled", || {
        let shown = place.json(&["runs", "show", &run]);
        (shown["status"] != "cancelled").then(|| shown.to_string())
    });
    server.stop();
}

#[test]
fn the_doctor_counts_signals_that_have_waited_for_more_than_a_minute() {
    let postgres = PrivatePostgres::shared().unwrap();
    let url = postgres.fresh_database().unwrap();
    let insert = |id: &str, ago: &str| {
        format!(
            "INSERT INTO run_signals (run_id, id, tenant_id, kind, payload, created_at) VALUES ({id}, {id}, 'acme', 'cancel', '{{}}', {ago})"
        )
    };
    let file = Workspace::new().with_actors();
    let shared = Workspace::new().with_actors().env("CHIMERA_DATABASE_URL", &url);
    for place in [&file, &shared] {
        assert_eq!(place.run(&["migrate"]).status, 0);
        assert_eq!(runs(place)["verdict"], "ok");
    }
    let data = file.path(".chimera/chimera.db");
    let (blob, id) = ("randomblob(16)", "gen_random_uuid()");
    for (minutes, verdict, counted) in [(0, "ok", 0), (2, "warn", 1)] {
        let ago = format!("(unixepoch() - {minutes} * 60) * 1000000");
        chimera_testkit::sqlite_exec::execute(&data, &insert(blob, &ago)).unwrap();
        postgres.execute(&url, &insert(id, &format!("now() - interval '{minutes} minutes'"))).unwrap();
        for place in [&file, &shared] {
            let said = runs(place);
            assert_eq!(said["verdict"], verdict, "{said}");
            let message = said["message"].as_str().unwrap();
            assert!(message.contains(&format!("overdue signals: {counted},")), "{said}");
        }
    }
}
