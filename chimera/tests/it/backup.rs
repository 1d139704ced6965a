//! Backups, restores, and stores that were rolled back or changed, with the real binary.

use crate::soak::effect_server::EffectServer;
use crate::support::{Server, Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::{Value, json};
use std::sync::Arc;

/// Waits for an approval, then for a delay, then sends a request.
fn workflow(outside: &EffectServer) -> String {
    let send = |id: &str, delay: u32| {
        json!({"id": id, "type": "function", "fn": "http.request", "delay_seconds": delay, "inputs": {
            "method": "POST", "url": format!("http://{}/{id}", outside.address),
            "json": {"run": "${run_id}", "node": id},
        }})
    };
    json!({
        "air_version": "1.0", "workflow_id": "send", "description": "Sends once somebody agrees.",
        "inputs": {"type": "object"}, "outputs": {},
        "nodes": [{"id": "review", "type": "hitl", "prompt": "Send?"}, send("first", 0), send("later", 2)],
        "edges": [{"from": "review", "to": "first"}, {"from": "first", "to": "later"}],
    })
    .to_string()
}

fn place(outside: &EffectServer) -> Workspace {
    Workspace::new()
        .with_actors()
        .env("CHIMERA_EGRESS_ALLOW", &outside.address.to_string())
        .env("CHIMERA_SECRET_BACKUP", "correct horse battery staple")
        .env("CHIMERA_SECRET_WRONG", "incorrect horse")
        .file("send.json", &workflow(outside))
}

fn started(place: &Workspace) -> String {
    place.json(&["act", "--workflow", "send"])["run_id"].as_str().unwrap().to_owned()
}

fn until_status(place: &Workspace, run: &str, status: &str) -> Value {
    let mut shown = Value::Null;
    wait_until(status, || {
        shown = place.json(&["runs", "show", run]);
        (shown["status"] != status).then(|| shown.to_string())
    });
    shown
}

fn approve(place: &Workspace, run: &str) {
    until_status(place, run, "awaiting_approval");
    place.json(&["runs", "approve", run, "--as", "user_ada"]);
}

/// Waits until the outcome of a node is unknown. Returns the step id.
fn in_doubt(place: &Workspace, run: &str, node: &str) -> String {
    let mut step = None;
    wait_until("doubt", || {
        let steps = place.json(&["runs", "steps", run]);
        let found = steps["steps"].as_array().unwrap().iter().find(|step| step["node_id"] == node).cloned();
        step = found.filter(|step| step["status"] == "outcome_unknown");
        step.is_none().then(|| steps.to_string())
    });
    step.unwrap()["step_id"].as_str().unwrap().to_owned()
}

/// Reads work, changes are refused, and readiness and the doctor give the reason.
fn is_held(place: &Workspace, server: &Server, because: &str) {
    server.wait_until_not_ready("records", "held: ");
    let (_, document) = server.readiness();
    assert!(document.to_string().contains(because), "{document}");
    let refused = place.run(&["act", "--workflow", "send", "--json"]);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("STORE_HELD"), "{}", refused.stderr);
    assert_eq!(place.run(&["runs", "list"]).status, 0);
    let doctor = place.run(&["doctor", "--json"]);
    assert_eq!(doctor.status, 3, "{}", doctor.stdout);
    assert!(doctor.stdout.contains(because), "{}", doctor.stdout);
}

#[test]
fn an_older_file_is_noticed_after_a_kill_and_nothing_is_done_twice() {
    let outside = EffectServer::start();
    let place = place(&outside);
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "send.json"]);
    let waits = started(&place);
    until_status(&place, &waits, "awaiting_approval");
    assert_eq!(server.stop().0, Some(0));
    let data = place.path(".chimera/chimera.db");
    std::fs::copy(&data, place.path("older.db")).unwrap();
    let server = place.dev(&[]);
    (0..5).for_each(|_| drop(started(&place)));
    approve(&place, &waits);
    until_status(&place, &waits, "completed");
    assert_eq!(outside.count(), 2);
    drop(server);
    std::fs::remove_file(place.path(".chimera/chimera.db-wal")).unwrap();
    std::fs::copy(place.path("older.db"), &data).unwrap();
    let server = place.dev(&[]);
    is_held(&place, &server, "older than its mark");
    let refused = place.run(&["resume", "--after-restore", "--yes"]);
    assert!(refused.stderr.contains("DATA_DIR_LOCKED"), "{}", refused.stderr);
    assert_eq!(server.stop().0, Some(0));
    let count = outside.count();
    let listed = place.run(&["resume", "--after-restore"]);
    assert_eq!(listed.status, 3, "{}", listed.stderr);
    assert!(listed.stdout.contains(&waits) && listed.stdout.contains("first (http.request)"), "{}", listed.stdout);
    let resumed = place.json(&["resume", "--after-restore", "--yes"]);
    assert_eq!((&resumed["resumed"], resumed["runs"].as_array().unwrap().len()), (&json!(true), 1), "{resumed}");
    let server = place.dev(&[]);
    server.wait_until_ready();
    approve(&place, &waits);
    let step = in_doubt(&place, &waits, "first");
    assert_eq!(outside.count(), count, "nothing was sent");
    place.json(&["runs", "resolve", &waits, &step, "--happened"]);
    let step = in_doubt(&place, &waits, "later");
    place.json(&["runs", "resolve", &waits, &step, "--happened"]);
    until_status(&place, &waits, "completed");
    assert_eq!(outside.count(), count, "each was sent once, before the restore");
    let run = started(&place);
    approve(&place, &run);
    until_status(&place, &run, "completed");
    assert_eq!(outside.count(), count + 2, "a new run is as ever");
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(place.json(&["audit", "verify"])["intact"], true);
}

#[test]
fn a_backup_is_made_beside_a_server_verified_and_restored_held() {
    let outside = EffectServer::start();
    let place = place(&outside);
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "send.json"]);
    let run = started(&place);
    until_status(&place, &run, "awaiting_approval");
    let made = place.json(&["backup", "--out", "b1", "--with-blobs", "--key", "secret://backup"]);
    assert_eq!((&made["keys_sealed"], &made["blobs"]), (&json!(true), &json!("whole")), "{made}");
    let plain = place.run(&["backup", "--out", "b2"]);
    assert!(plain.stderr.contains("data folder's keys are NOT included"), "{}", plain.stderr);
    let twice = place.run(&["backup", "--out", "b2"]);
    assert!(twice.stderr.contains("b2 exists already"), "{}", twice.stderr);
    approve(&place, &run);
    until_status(&place, &run, "completed");
    assert_eq!(outside.count(), 2);
    assert_eq!(server.stop().0, Some(0));
    let verified = place.json(&["backup", "verify", "b1"]);
    assert_eq!((&verified["intact"], &verified["trusted"]), (&json!(true), &json!(true)), "{verified}");

    let refused = place.run(&["restore", "--from", "b1"]);
    assert!(refused.stderr.contains(".chimera already contains data"), "{}", refused.stderr);
    let restored = place.json(&["restore", "--from", "b1", "--force", "--key", "secret://backup"]);
    assert_eq!(restored["held"], true, "{restored}");
    assert!(place.path(restored["put_aside"].as_str().unwrap()).join("chimera.db").is_file());
    let server = place.dev(&[]);
    is_held(&place, &server, "restored from a backup");
    assert_eq!(server.stop().0, Some(0));
    place.json(&["resume", "--after-restore", "--yes"]);
    let server = place.dev(&[]);
    approve(&place, &run);
    in_doubt(&place, &run, "first");
    assert_eq!(outside.count(), 2, "nothing was sent a second time");
    assert_eq!(server.stop().0, Some(0));

    std::fs::write(place.path("b2/records.db"), "something else").unwrap();
    let broken = place.run(&["backup", "verify", "b2"]);
    assert_eq!(broken.status, 3, "{}", broken.stderr);
    assert!(broken.stderr.contains("records.db has another digest"), "{}", broken.stderr);
    let empty = place.run(&["restore", "--from", "b2", "--data", "elsewhere"]);
    assert_eq!(empty.status, 3, "a broken backup is not restored");
    assert!(!place.path("elsewhere/chimera.db").exists());
}

#[test]
fn two_nodes_of_a_restored_database_are_held_and_go_on_together() {
    let (outside, postgres) = (EffectServer::start(), PrivatePostgres::start().unwrap());
    let node = |outside: &Arc<EffectServer>| {
        place(outside)
            .env("CHIMERA_DATABASE_URL", &postgres.url())
            .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
            .env("CHIMERA_SECRET_LEDGER", &"ab".repeat(32))
    };
    let (one, two) = (node(&outside), node(&outside));
    let servers = [one.dev(&[]), two.dev(&[])];
    one.json(&["workflow", "apply", "send.json"]);
    let run = started(&one);
    until_status(&one, &run, "awaiting_approval");
    one.json(&["backup", "--out", "b"]);
    assert_eq!(one.json(&["backup", "verify", "b"])["intact"], true);
    approve(&one, &run);
    until_status(&one, &run, "completed");
    assert_eq!(outside.count(), 2);
    let [first, second] = servers;
    assert_eq!(first.stop().0, Some(0));
    // The other node keeps running while the database is restored.
    let restored = one.json(&["restore", "--from", "b", "--force"]);
    assert!(restored["put_aside"].as_str().unwrap().starts_with("schema before_restore_"), "{restored}");
    second.wait_until_not_ready("records", "held: ");
    let first = one.dev(&[]);
    is_held(&one, &first, "restored from a backup");
    let resumed = one.json(&["resume", "--after-restore", "--yes"]);
    assert_eq!(resumed["runs"][0]["run_id"], run.as_str(), "{resumed}");
    first.wait_until_ready();
    second.wait_until_ready();
    approve(&one, &run);
    in_doubt(&one, &run, "first");
    assert_eq!(outside.count(), 2, "nothing was sent a second time");
    assert_eq!(first.stop().0, Some(0));
    assert_eq!(second.stop().0, Some(0));
    assert_eq!(one.json(&["audit", "verify"])["intact"], true);
}

#[test]
fn a_restore_that_can_not_succeed_touches_nothing() {
    let outside = EffectServer::start();
    let place = place(&outside);
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    place.json(&["backup", "--out", "kept", "--key", "secret://backup"]);
    let before = std::fs::read(place.path(".chimera/chimera.db")).unwrap();
    let untouched = |said: &crate::support::CommandOutput, status: i32, words: &str| {
        assert_eq!(said.status, status, "{}", said.stderr);
        assert!(said.stderr.contains(words), "{}", said.stderr);
        assert_eq!(std::fs::read(place.path(".chimera/chimera.db")).unwrap(), before, "{words}");
        assert!(place.path(".chimera/keys/ledger.key").is_file(), "{words}");
        let names = std::fs::read_dir(place.path(".chimera")).unwrap().map(|file| file.unwrap().file_name());
        assert!(!names.into_iter().any(|name| name.to_string_lossy().starts_with("before-restore")), "{words}");
    };
    let restore = ["restore", "--from", "kept", "--force", "--key"];
    untouched(&place.run(&[&restore[..], &["secret://ledger"]].concat()), 4, "ledger");
    let wrong = place.run(&[&restore[..], &["secret://wrong"]].concat());
    untouched(&wrong, 4, "be decrypted with this secret");
    std::fs::remove_file(place.path("kept/manifest.sig")).unwrap();
    untouched(&place.run(&[&restore[..], &["secret://backup"]].concat()), 3, "it is not signed");
    let verified = place.run(&["backup", "verify", "kept"]);
    untouched(&verified, 3, "it is not signed");
}

#[test]
fn what_only_reads_is_not_in_doubt_and_an_answer_that_is_piped_in_is_said_not_to_count() {
    let outside = EffectServer::start();
    let ask = |id: &str, method: &str| {
        let inputs = json!({"method": method, "url": format!("http://{}/{id}", outside.address)});
        json!({"id": id, "type": "function", "fn": "http.request", "inputs": inputs})
    };
    let air = json!({
        "air_version": "1.0", "workflow_id": "send", "description": "Looks, then sends, once somebody agrees.",
        "inputs": {"type": "object"}, "outputs": {},
        "nodes": [{"id": "review", "type": "hitl", "prompt": "Send?"}, ask("look", "GET"), ask("tell", "POST")],
        "edges": [{"from": "review", "to": "look"}, {"from": "look", "to": "tell"}],
    });
    let place = place(&outside).file("send.json", &air.to_string());
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "send.json"]);
    let run = started(&place);
    until_status(&place, &run, "awaiting_approval");
    place.json(&["backup", "--out", "kept", "--key", "secret://backup"]);
    assert_eq!(server.stop().0, Some(0));
    place.json(&["restore", "--from", "kept", "--force", "--key", "secret://backup"]);
    let asked = place.run(&["resume", "--after-restore", "--json"]);
    let told: Value = serde_json::from_str(&asked.stdout).unwrap();
    let doubts: Vec<_> = told["runs"][0]["in_doubt"].as_array().unwrap().iter().map(|step| &step["node"]).collect();
    assert_eq!(doubts, ["tell"], "{told}");
    let asked = place.run(&["resume", "--after-restore"]);
    assert_eq!(asked.status, 3);
    assert!(asked.stderr.contains("not a terminal") && asked.stderr.contains("--yes"), "{}", asked.stderr);
}

#[test]
fn a_ledger_of_which_only_the_mark_is_left_is_not_called_intact() {
    let place = Workspace::new();
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    let entries = place.json(&["audit", "verify"])["report"]["entries"].as_u64().unwrap();
    let words = format!("{entries} entries");
    for name in ["chimera.db", "chimera.db-wal", "chimera.db-shm"] {
        let _ = std::fs::remove_file(place.path(".chimera").join(name));
    }
    let is_gone = || {
        let said = place.run(&["audit", "verify"]);
        assert_eq!(said.status, 3, "{}", said.stderr);
        assert!(said.stderr.contains("LEDGER_BROKEN") && said.stderr.contains(&words), "{}", said.stderr);
    };
    is_gone();
    assert_eq!(place.dev(&[]).stop().0, Some(0), "an empty store is created, and held");
    is_gone();
    let deep = place.run(&["doctor", "--deep"]);
    assert!(deep.status == 3 && deep.stdout.contains(&words), "{}", deep.stdout);
}

#[test]
fn a_mark_that_is_empty_or_can_not_be_read_is_told() {
    let place = Workspace::new();
    let (status, log) = place.dev(&[]).stop();
    assert!(status == Some(0) && !log.contains("mark"), "{log}");
    for (content, words) in [("", "is empty"), ("not a mark", "can't be read")] {
        std::fs::write(place.path(".chimera/ledger.mark"), content).unwrap();
        let (status, log) = place.dev(&[]).stop();
        let told = log.lines().any(|line| line.contains("WARNING") && line.contains(words));
        assert!(status == Some(0) && told, "{words}: {log}");
    }
}

#[test]
fn a_backup_of_damaged_data_is_refused_and_leaves_nothing() {
    let place = Workspace::new();
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    chimera_testkit::sqlite_damage::damage_root(&place.path(".chimera/chimera.db"), "tool_calls");
    let refused = place.run(&["backup", "--out", "kept"]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("STORE_DAMAGED"), "{}", refused.stderr);
    assert!(!place.path("kept").exists());
}
