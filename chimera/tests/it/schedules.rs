//! Schedules on real nodes: whatever is killed and whenever, a tick starts one run.

use crate::support::{Server, Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const ECHO: &str = r#"{
  "air_version": "1.0",
  "workflow_id": "echo",
  "nodes": [{"id": "say", "type": "function", "fn": "local.echo", "inputs": {"message": "hi"}}],
  "edges": []
}"#;

/// Every second, without a gap after a downtime.
fn schedule(place: &Workspace) -> String {
    place.json(&["workflow", "apply", "echo.json"]);
    let add = ["schedule", "add", "often", "--workflow", "echo", "--every", "1s"];
    let made = place.json(&[&add[..], &["--overlap", "allow", "--catch-up", "all"]].concat());
    assert_eq!((&made["status"], &made["owner"]), (&json!("active"), &json!("admin")), "{made}");
    made["schedule_id"].as_str().unwrap().to_owned()
}

/// The ledger entries about ticks that started a run.
fn started(place: &Workspace, schedule: &str) -> Vec<Value> {
    let list = ["audit", "list", "--subject-id", schedule, "--event-type", "schedule.tick_started", "--limit", "200"];
    place.json(&list)["items"].as_array().unwrap().clone()
}

fn wait_for_ticks(place: &Workspace, schedule: &str, more: usize) {
    let before = started(place, schedule).len();
    wait_until("ticks", || {
        let found = started(place, schedule).len();
        (found < before + more).then(|| format!("{found} ticks, {before} before"))
    });
}

/// One run per tick, no tick twice, and none left out.
fn check(place: &Workspace, schedule: &str) {
    let entries = started(place, schedule);
    let seconds = |entry: &Value| {
        let tick = entry["data_json"]["tick_at"].as_str().unwrap_or_else(|| panic!("{entry}"));
        tick.parse::<chimera_core::time::Timestamp>().unwrap().micros() / 1_000_000
    };
    let ticks: BTreeSet<i64> = entries.iter().map(seconds).collect();
    assert_eq!(ticks.len(), entries.len(), "a tick started two runs");
    let (first, last) = (ticks.first().unwrap(), ticks.last().unwrap());
    assert_eq!(usize::try_from(last - first + 1).unwrap(), ticks.len(), "a tick was left out");
    let runs: BTreeSet<String> = entries.iter().map(|entry| entry["run_id"].as_str().unwrap().to_owned()).collect();
    let stored = place.json(&["runs", "list", "--limit", "200"])["items"].as_array().unwrap().clone();
    let stored: BTreeSet<String> = stored.iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(runs, stored, "a run without its tick, or a tick without its run");
    assert_eq!(place.json(&["audit", "verify"])["intact"], true);
}

fn kill(server: Server) {
    server.signal("KILL");
    server.wait();
}

#[test]
fn a_killed_server_starts_every_tick_once_when_it_is_back() {
    let place = Workspace::new().with_actors().env("CHIMERA_LISTEN", "127.0.0.1:9").file("echo.json", ECHO);
    let mut server = place.dev(&[]);
    let id = schedule(&place);
    for more in [1, 2, 1] {
        wait_for_ticks(&place, &id, more);
        kill(server);
        server = place.dev(&[]);
    }
    wait_for_ticks(&place, &id, 2);
    let paused = place.json(&["schedule", "pause", "often", "--reason", "enough"]);
    assert_eq!((&paused["status"], &paused["pause_reason"]), (&json!("paused"), &json!("enough")));
    check(&place, &id);
    let shown = place.run(&["schedule", "show", "often"]);
    assert!(shown.stdout.contains("every 1s") && shown.stdout.contains("by admin: enough"), "{}", shown.stdout);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn of_two_nodes_each_tick_has_one_and_a_killed_one_leaves_its_ticks_to_the_other() {
    let database = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let node = || {
        Workspace::new()
            .with_actors()
            .file("echo.json", ECHO)
            .env("CHIMERA_DATABASE_URL", &database)
            .env("CHIMERA_ACCESS__HMAC_ACTOR", "admin")
            .env("HMAC_SECRET_KEY", "a-key-for-both-nodes")
            .env("CHIMERA_HMAC_KEY", "a-key-for-both-nodes")
            .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
            .env("CHIMERA_SECRET_LEDGER", &"ab".repeat(32))
    };
    let (one, two) = (node(), node());
    let (first, second) = (one.serve(&[]), two.serve(&[]));
    let id = schedule(&one);
    wait_for_ticks(&two, &id, 4);
    kill(first);
    wait_for_ticks(&two, &id, 3);
    let first = one.serve(&[]);
    wait_for_ticks(&two, &id, 2);
    kill(second);
    wait_for_ticks(&one, &id, 2);
    one.json(&["schedule", "remove", "often"]);
    check(&one, &id);
    assert_eq!(first.stop().0, Some(0));
}
