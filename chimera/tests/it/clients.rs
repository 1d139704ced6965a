//! Runs the client examples exactly as documented: curl, Python, Node, n8n.

use crate::support::{Server, Workspace};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

fn example(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples").join(path)
}

/// A program that an example needs. Fails with the name of its package if it is missing.
fn program(name: &str, package: &str) -> Command {
    let version = if name == "openssl" { "version" } else { "--version" };
    let there = Command::new(name).arg(version).output().is_ok_and(|said| said.status.success());
    assert!(there, "this test needs the program `{name}`; ./test installs it (Debian's package {package})");
    Command::new(name)
}

/// The output of a client, which must succeed.
fn said(command: &mut Command, server: &Server) -> String {
    let url = format!("http://{}", server.address);
    command.env("CHIMERA_SERVER", url).env("CHIMERA_ACTOR", "n8n_workflow_demo");
    command.env("CHIMERA_HMAC_KEY", server.key("n8n_workflow_demo"));
    command.env("SERVICE_KEY", server.key("n8n_workflow_demo")).env("PERSON_KEY", server.key("user_ada"));
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// CORE-097
#[test]
fn every_example_client_acts_and_approves() {
    program("openssl", "openssl");
    program("curl", "curl");
    let place = Workspace::new();
    let server = place.dev(&[]);
    let clients = [("bash", "bash", "act.sh"), ("python3", "python3", "act.py"), ("node", "nodejs", "act.mjs")];
    for (name, package, file) in clients {
        let text = said(program(name, package).arg(example("clients").join(file)), &server);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("L2:") && lines[0].contains("completed"), "{file}: {text}");
        assert!(lines[2].starts_with("L1: awaiting_approval "), "{file}: {text}");
        assert_eq!(
            [lines[1], lines[3], lines[4]],
            ["again: completed", "approve: approved", "then: completed"],
            "{file}"
        );
    }
    let runs = place.json(&["runs", "list"]);
    let items = runs["items"].as_array().unwrap();
    assert_eq!(items.len(), 6, "what was sent again ran again: {runs}");
    assert!(items.iter().all(|run| run["status"] == "completed"), "{runs}");
}

#[test]
fn the_n8n_workflow_signs_what_it_sends_and_its_retries_start_nothing() {
    let workflow: Value = serde_json::from_str(&std::fs::read_to_string(example("n8n/act.json")).unwrap()).unwrap();
    assert!(workflow["nodes"].as_array().unwrap().iter().any(|node| node["type"] == "n8n-nodes-base.code"));
    let harness = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients/n8n.mjs");
    let place = Workspace::new();
    let server = place.dev(&[]);
    let execute = |execution: &str| -> Value {
        let mut node = program("node", "nodejs");
        serde_json::from_str(&said(node.arg(&harness).arg(example("n8n/act.json")).arg(execution), &server)).unwrap()
    };
    let told = execute("41");
    assert_eq!((&told["retries"], &told["first"]), (&true.into(), &told["again"]), "{told}");
    let runs = told["first"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "{told}");
    assert!(runs.iter().all(|run| run["status"] == "completed"), "{told}");
    assert!(runs[1]["result"].to_string().contains("Grüße"), "bytes beyond ASCII are signed as they are sent: {told}");
    let next = execute("42");
    assert_ne!(next["first"][0]["run_id"], told["first"][0]["run_id"], "another execution is another request");
    assert_eq!(place.json(&["runs", "list"])["items"].as_array().unwrap().len(), 4);
}
