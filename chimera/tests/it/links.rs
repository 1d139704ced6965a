//! Approval links do not appear in anything stored on disk.

use crate::support::{Workspace, mode, wait_until};
use chimera_testkit::smtp::PrivateSmtp;
use serde_json::{Value, json};
use std::path::Path;

/// The requester may decide, and gets mail.
const ACTORS: &str = r#"
[[actor]]
id = "admin"
scopes = ["*"]
quota_per_minute = 10000
notify = { email = "ada@acme.example" }
"#;

/// Links in the files below a folder, with the file.
fn links_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(links_below(&path));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let begins = |part: &[u8]| part == b"/approvals/";
        found.extend(bytes.windows(11).filter(|part| begins(part)).map(|_| path.display().to_string()));
    }
    found
}

#[test]
fn a_link_lies_nowhere_in_the_clear_neither_before_nor_after_it_is_sent() {
    let smtp = PrivateSmtp::start();
    let air = json!({
        "air_version": "1.0", "workflow_id": "ask", "edges": [],
        "nodes": [{"id": "ask", "type": "hitl", "prompt": "May it?", "show": {"long": "x".repeat(6_000)}}],
    });
    let place = Workspace::new()
        .env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml")
        .env("CHIMERA_MAIL__SERVER", "localhost")
        .env("CHIMERA_MAIL__PORT", &smtp.port().to_string())
        .env("CHIMERA_MAIL__TLS", "none")
        .env("CHIMERA_MAIL__FROM", "chimera@acme.example")
        .file("actors.toml", ACTORS)
        .file("ask.json", &air.to_string());
    std::fs::create_dir(place.path(".chimera")).unwrap();
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "ask.json"]);
    let ask = |more: &[&str]| {
        let said = place.run(&[&["act", "--workflow", "ask", "--json"], more].concat());
        let run: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
        assert_eq!(run["status"], "awaiting_approval", "{run}");
        run["run_id"].as_str().unwrap().to_owned()
    };
    let waits = ask(&["--notify-email", "later@acme.example"]);
    for sent in 1..=5 {
        ask(&[]);
        wait_until("the mail", || (smtp.accepted().len() < sent).then(|| format!("{}", smtp.accepted().len())));
    }
    let mail = smtp.accepted()[0]["content"].as_str().unwrap().replace("=\r\n", "");
    assert!(mail.contains("/approvals/"), "ada has a link: {mail}");
    let message = place.json(&["runs", "show", &waits])["messages"][0].clone();
    assert_eq!((&message["status"], &message["target"]), (&json!("pending"), &json!("later@acme.example")));
    assert_eq!(links_below(&place.path(".chimera")), [""; 0], "one waits to be sent, the other was sent");
    place.json(&["backup", "--out", "copy"]);
    assert_eq!(links_below(&place.path("copy")), [""; 0]);
    for file in ["chimera.db", "chimera.db-wal", "chimera.db-shm", "lock", "ledger.mark"] {
        assert_eq!(mode(&place.path(".chimera").join(file)), 0o600, "{file}");
    }
    assert_eq!(mode(&place.path("copy/records.db")), 0o600);
    drop(server);
}
