//! Tool files that change while real nodes run: new runs use the new definition, and runs that began keep theirs.

use crate::support::{Server, Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// A vendor whose path tells its definitions apart.
const VENDOR: &str = r#"
vendor = "desk"
base_url = "http://ADDRESS"
auth = { kind = "bearer", secret = "secret://desk" }

[[tool]]
name = "NAME"
version = "1"
description = "Opens a ticket."
effect = "write"
response = { ok = "/ok" }

[tool.request]
method = "POST"
path = "/PATH"
query = { from = "quiet-query" }
body = { node = "ticket" }

[tool.metadata]
requires_approval = false
capabilities = ["desk.write"]

[tool.input]
type = "object"

[tool.output]
type = "object"
"#;

const TOKEN: &str = "desk-token-of-the-first-tenant";

/// The request lines and credentials that a vendor got.
type Requests = Arc<Mutex<Vec<String>>>;

fn vendor() -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, requests) = (listener.local_addr().unwrap().to_string(), Requests::default());
    let kept = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut seen, mut piece) = (stream.unwrap(), Vec::new(), [0; 4_096]);
            while !String::from_utf8_lossy(&seen).contains("\"ticket\"") {
                let read = stream.read(&mut piece).unwrap();
                seen.extend_from_slice(&piece[..read]);
            }
            let text = String::from_utf8_lossy(&seen).into_owned();
            let path = text.split(' ').nth(1).unwrap().split('?').next().unwrap().to_owned();
            let token = text.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap_or("none");
            kept.lock().unwrap().push(format!("{path} {token}"));
            let body = r#"{"ok": true}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
        }
    });
    (address, requests)
}

fn paths(requests: &Requests) -> Vec<String> {
    requests.lock().unwrap().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Waits for an approval, then opens a ticket.
fn workflow(tool: &str) -> String {
    let nodes = json!([
        {"id": "ask", "type": "hitl", "prompt": "now?"},
        {"id": "ticket", "type": "function", "fn": tool, "inputs": {}}
    ]);
    json!({"air_version": "1.0", "workflow_id": "ticket", "nodes": nodes, "edges": [{"from": "ask", "to": "ticket"}]})
        .to_string()
}

/// Replaces a tool file, as a deployment does: at once.
fn write(place: &Workspace, file: &str, text: &str) {
    let path = place.path(&format!("tools/{file}"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path.with_extension("new"), text).unwrap();
    std::fs::rename(path.with_extension("new"), path).unwrap();
}

fn declared(address: &str, name: &str, path: &str) -> String {
    VENDOR.replace("ADDRESS", address).replace("NAME", name).replace("PATH", path)
}

fn place(address: &str) -> Workspace {
    let place = Workspace::new()
        .with_actors()
        .env("CHIMERA_LISTEN", "127.0.0.1:9")
        .env("CHIMERA_EGRESS_ALLOW", address)
        .env("CHIMERA_FLOW__TOOLS_DIR", "tools")
        .env("CHIMERA_SECRET_DESK", TOKEN)
        .file("ticket.json", &workflow("desk.open"));
    write(&place, "desk.toml", &declared(address, "desk.open", "first"));
    place
}

/// The version of a tool at a server.
fn version(place: &Workspace, name: &str) -> String {
    let tools = place.json(&["tools", "list"]);
    let tool = tools["items"].as_array().unwrap().iter().find(|tool| tool["name"] == name);
    tool.map_or_else(String::new, |tool| tool["version"].as_str().unwrap().to_owned())
}

fn begin(place: &Workspace) -> String {
    let run = place.json(&["act", "--workflow", "ticket"])["run_id"].as_str().unwrap().to_owned();
    until(place, &run, "awaiting_approval");
    run
}

fn until(place: &Workspace, run: &str, status: &str) {
    wait_until(status, || {
        let shown = place.json(&["runs", "show", run]);
        (shown["status"] != status).then(|| shown.to_string())
    });
}

fn finish(place: &Workspace, run: &str) {
    place.json(&["runs", "approve", run]);
    until(place, run, "completed");
}

fn entries(place: &Workspace, name: &str) -> Vec<String> {
    let found = place.json(&["audit", "list", "--subject-id", name, "--limit", "50"]);
    let mut found: Vec<String> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["event_type"].as_str().unwrap().to_owned())
        .collect();
    found.sort();
    found
}

fn note(server: &Server) -> Value {
    let (status, ready) = server.readiness();
    assert_eq!(status, 200, "{ready}");
    ready["checks"].as_array().unwrap().iter().find(|check| check["name"] == "tools").unwrap()["note"].clone()
}

fn kill(server: Server) {
    server.signal("KILL");
    server.wait();
}

#[test]
fn a_changed_file_is_used_by_new_runs_and_a_kill_changes_nothing_for_those_that_began() {
    let (address, requests) = vendor();
    let place = place(&address);
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "ticket.json"]);
    let first = version(&place, "desk.open");
    let (one, two) = (begin(&place), begin(&place));
    write(&place, "desk.toml", &declared(&address, "desk.open", "second"));
    // Without a command: the server notices it by itself.
    wait_until("the new definition", || (version(&place, "desk.open") == first).then(|| first.clone()));
    let three = begin(&place);
    finish(&place, &one);
    assert_eq!(paths(&requests), ["/first"]);
    kill(server);
    let server = place.dev(&[]);
    finish(&place, &two);
    finish(&place, &three);
    assert_eq!(paths(&requests), ["/first", "/first", "/second"]);
    assert_eq!(requests.lock().unwrap()[0], format!("/first {TOKEN}"));
    assert_eq!(entries(&place, "desk.open"), ["tool.added", "tool.changed"]);
    server.stop();
}

#[test]
fn a_broken_file_leaves_its_tools_in_use_and_is_named_to_operators() {
    let (address, requests) = vendor();
    let place = place(&address);
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "ticket.json"]);
    let before = version(&place, "desk.open");
    assert_eq!(note(&server), Value::Null);
    write(&place, "desk.toml", "vendor = ");
    let reloaded = place.json(&["tools", "reload"]);
    assert_eq!((&reloaded["changed"], &reloaded["declared"]), (&json!(false), &json!(1)), "{reloaded}");
    assert_eq!(reloaded["problems"][0]["file"], "desk.toml");
    // What a check found last is answered for a moment.
    let broken = json!("broken tool files: 1; chimera tools list names them");
    wait_until("the note", || (note(&server) != broken).then(|| note(&server).to_string()));
    assert_eq!(version(&place, "desk.open"), before);
    let listed = place.run(&["tools", "list"]);
    assert!(listed.stderr.contains("desk.toml") && listed.stderr.contains("in use"), "{}", listed.stderr);
    let run = begin(&place);
    finish(&place, &run);
    // Repaired, and read at a signal.
    write(&place, "desk.toml", &declared(&address, "desk.open", "repaired"));
    server.signal("HUP");
    wait_until("the repaired file", || (version(&place, "desk.open") == before).then(|| before.clone()));
    wait_until("no note", || (note(&server) != Value::Null).then(|| note(&server).to_string()));
    // Disabled: nobody calls it, not even a run that began with it.
    let run = begin(&place);
    write(&place, "disabled.toml", "\"desk.open\" = \"it opens tickets in the wrong queue\"");
    place.json(&["tools", "reload"]);
    place.json(&["runs", "approve", &run]);
    until(&place, &run, "failed");
    assert_eq!(place.json(&["runs", "show", &run])["error"]["code"], "TOOL_UNAVAILABLE");
    assert_eq!(paths(&requests), ["/first"]);
    let refused = place.run(&["act", "--workflow", "ticket"]);
    assert!(refused.stderr.contains("wrong queue"), "{}", refused.stderr);
    server.stop();
}

#[test]
fn a_file_that_no_store_can_hold_is_named_and_holds_up_no_other() {
    let (address, _) = vendor();
    let place = place(&address);
    let server = place.dev(&[]);
    let unstorable = declared(&address, "desk.nul", "nul").replace("Opens a ticket.", "Opens a ticket.\\u0000");
    write(&place, "a.toml", &unstorable);
    write(&place, "b.toml", &declared(&address, "desk.more", "more"));
    write(&place, "long.toml", &format!("a = {}", "[".repeat(100_000)));
    let reloaded = place.json(&["tools", "reload"]);
    let problems = reloaded["problems"].as_array().unwrap();
    let files: Vec<&str> = problems.iter().map(|problem| problem["file"].as_str().unwrap()).collect();
    assert_eq!((&reloaded["changed"], files), (&json!(true), vec!["a.toml", "long.toml"]), "{reloaded}");
    assert!(problems[0]["reason"].as_str().unwrap().contains("U+0000"), "{reloaded}");
    assert!(problems[1]["reason"].as_str().unwrap().starts_with("file: line 1, column "), "{reloaded}");
    assert!(reloaded.to_string().len() < 2_000, "a reason does not repeat the file: {reloaded}");
    assert_ne!(version(&place, "desk.more"), "");
    assert_eq!(entries(&place, "desk.more"), ["tool.added"]);
    server.stop();
    let refused = place.run(&["dev", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status, 4, "{}", refused.stderr);
    assert!(refused.stderr.contains("a.toml") && refused.stderr.contains("U+0000"), "{}", refused.stderr);
}

#[test]
fn a_replaced_file_is_noticed_whatever_its_size_and_time_are() {
    let (address, _) = vendor();
    let place = place(&address);
    let archived = |path: &str| {
        let text = declared(&address, "desk.open", path);
        std::fs::write(place.path("tools/new"), text).unwrap();
        let file = std::fs::File::options().write(true).open(place.path("tools/new")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        std::fs::rename(place.path("tools/new"), place.path("tools/desk.toml")).unwrap();
    };
    archived("first");
    let server = place.dev(&[]);
    let mut before = version(&place, "desk.open");
    archived("other");
    assert_eq!(place.json(&["tools", "reload"])["changed"], true);
    assert_ne!(std::mem::replace(&mut before, version(&place, "desk.open")), version(&place, "desk.open"));
    archived("third");
    wait_until("the third file", || (version(&place, "desk.open") == before).then(|| before.clone()));
    server.stop();
}

#[test]
fn two_nodes_that_reload_at_different_moments_write_one_entry_and_keep_what_runs_began_with() {
    let (address, requests) = vendor();
    let database = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let node = || {
        place(&address)
            .env("CHIMERA_LISTEN", "127.0.0.1:0")
            .env("CHIMERA_DATABASE_URL", &database)
            .env("CHIMERA_ACCESS__HMAC_ACTOR", "admin")
            .env("HMAC_SECRET_KEY", "a-key-for-both-nodes")
            .env("CHIMERA_HMAC_KEY", "a-key-for-both-nodes")
            .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
            .env("CHIMERA_SECRET_LEDGER", &"ab".repeat(32))
    };
    let (one, two) = (node(), node());
    let (first, second) = (one.serve(&[]), two.serve(&[]));
    one.json(&["workflow", "apply", "ticket.json"]);
    let old = begin(&one);
    write(&one, "desk.toml", &declared(&address, "desk.open", "second"));
    one.json(&["tools", "reload"]);
    // The second node still has the first definition for new runs.
    assert_ne!(version(&one, "desk.open"), version(&two, "desk.open"));
    let new = begin(&one);
    let late = begin(&two);
    // The first node is gone; the other one has never read the definition that its run began with.
    kill(first);
    finish(&two, &new);
    finish(&two, &old);
    finish(&two, &late);
    assert_eq!(paths(&requests), ["/second", "/first", "/first"]);
    write(&two, "desk.toml", &declared(&address, "desk.open", "second"));
    two.json(&["tools", "reload"]);
    assert_eq!(entries(&two, "desk.open"), ["tool.added", "tool.changed"]);
    assert_eq!(two.json(&["audit", "verify"])["intact"], true);
    assert_eq!(second.stop().0, Some(0));
}

/// What is shared with the second tenant: nothing.
const ACTORS: &str = r#"
[[actor]]
id = "admin"
scopes = ["*"]
quota_per_minute = 10000
autonomy_level = "L2_ExecuteNotify"
"#;

#[test]
fn a_tenants_tool_is_its_own_with_its_own_secret() {
    let (address, requests) = vendor();
    let place = place(&address)
        .file("actors.toml", ACTORS)
        .env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml")
        .env("CHIMERA_SECRET_TENANTS_GLOBEX_DESK", "token-of-globex-alone");
    write(&place, "tenants/globex/desk.toml", &declared(&address, "tenant.desk.open", "globex"));
    write(&place, "tenants/globex/fake.toml", &declared(&address, "desk.open", "fake"));
    let server = place.dev(&[]);
    place.json(&["tenant", "add", "globex", "--name", "Globex"]);
    let scopes = "desk.write,local.*,runs.*,workflows.*";
    let add = ["actor", "add", "globex_bot", "--tenant", "globex", "--scopes", scopes, "--level", "L2"];
    let key = place.json(&[&add[..], &["--quota", "1000"]].concat());
    let there = Workspace::new()
        .env("CHIMERA_SERVER", server.ready["url"].as_str().unwrap())
        .env("CHIMERA_ACTOR", "globex_bot")
        .env("CHIMERA_HMAC_KEY", key["hmac_key"].as_str().unwrap());
    let reloaded = place.json(&["tools", "reload"]);
    let problems = reloaded["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{reloaded}");
    assert!(problems[0]["reason"].as_str().unwrap().contains("must begin with `tenant.`"), "{reloaded}");
    assert_eq!((version(&place, "tenant.desk.open").as_str(), version(&there, "desk.open").as_str()), ("", ""));
    assert!(!there.run(&["tools", "list"]).stderr.contains("fake.toml"));
    let made = there.json(&["act", "--step", "tenant.desk.open={}"]);
    assert_eq!(made["status"], "completed", "{made}");
    assert!(place.run(&["act", "--step", "tenant.desk.open={}"]).status != 0);
    assert_eq!(*requests.lock().unwrap(), ["/globex token-of-globex-alone"]);
    assert!(there.run(&["tools", "reload"]).stderr.contains("operator"));
    server.stop();
}

#[test]
fn the_log_of_a_call_tells_the_exchange_and_no_secret() {
    let (address, requests) = vendor();
    let place = place(&address).env("CHIMERA_LOG__LEVEL", "debug").env("CHIMERA_LOG__FORMAT", "json");
    let server = place.dev(&[]);
    let made = place.json(&["act", "--step", "desk.open={}"]);
    assert_eq!(made["status"], "completed", "{made}");
    assert_eq!(requests.lock().unwrap().len(), 1);
    let (_, log) = server.stop();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line =
        lines.into_iter().find(|line| line.to_string().contains("\"exchange\"")).unwrap_or_else(|| panic!("{log}"));
    let text = line.to_string();
    for part in ["/first", "127.0.0.1", "status=200", made["run_id"].as_str().unwrap(), "desk.open", "default"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!log.contains(TOKEN) && !text.contains("quiet-query"), "{text}");
}
