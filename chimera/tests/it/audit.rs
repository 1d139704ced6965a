//! The ledger from the command line: listing, exporting, and verifying offline.

use crate::support::{CommandOutput, Workspace};
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::Value;

/// The data of a stopped server whose ledger has `starts` starts and stops.
fn ledger(starts: usize) -> Workspace {
    let place = Workspace::new();
    for _ in 0..starts {
        assert_eq!(place.dev(&[]).stop().0, Some(0));
    }
    place
}

/// Verifies in an empty folder that has only this file.
fn verify_elsewhere(text: &str, args: &[&str]) -> CommandOutput {
    let elsewhere = Workspace::new().file("export.jsonl", text);
    elsewhere.run(&[&["audit", "verify", "export.jsonl"], args].concat())
}

fn export(place: &Workspace, args: &[&str]) -> String {
    let said = place.run(&[&["audit", "export"], args].concat());
    assert_eq!(said.status, 0, "{}", said.stderr);
    said.stdout
}

fn public_key(export: &str) -> String {
    let header: Value = serde_json::from_str(export.lines().next().unwrap()).unwrap();
    header["keys"][0].as_str().unwrap().to_owned()
}

#[test]
fn pages_follow_each_other_by_cursor_and_hold_each_entry_once() {
    let place = ledger(3);
    let mut seen = Vec::new();
    let mut page = place.json(&["audit", "list", "--limit", "2"]);
    loop {
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|entry| entry["seq"].as_i64().unwrap()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        page = place.json(&["audit", "list", "--limit", "2", "--after", cursor]);
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
    let starts = place.json(&["audit", "list", "--event-type", "node.started", "--tenant", "system"]);
    assert_eq!(starts["items"].as_array().unwrap().len(), 3);
    assert_eq!(
        place.json(&["audit", "list", "--event-type", "NodeStarted", "--tenant", "system"]),
        starts,
        "its former name"
    );
    let nobody = place.json(&["audit", "list", "--tenant", "nobody"]);
    assert_eq!((nobody["items"].as_array().unwrap().len(), &nobody["next_cursor"]), (0, &Value::Null));
    let wrong = place.run(&["audit", "list", "--after", "nonsense"]);
    assert_eq!(wrong.status, 1, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("a cursor is only valid for the listing that returned it"), "{}", wrong.stderr);
}

#[test]
fn an_export_to_a_file_or_to_stdout_is_verified_where_only_it_is() {
    let place = ledger(2);
    let told = place.json(&["audit", "export", "--out", "whole.jsonl"]);
    assert_eq!(told, serde_json::json!({"entries": 4, "checkpoints": 2, "newer_than_last_checkpoint": 0}));
    let file = std::fs::read_to_string(place.path("whole.jsonl")).unwrap();
    let piped = export(&place, &[]);
    assert_eq!(file.lines().count(), piped.lines().count());
    for text in [&file, &piped, &export(&place, &["--tenant", "system"]), &export(&place, &["--tenant", "nobody"])] {
        let said = verify_elsewhere(text, &["--json"]);
        assert_eq!(said.status, 0, "{}", said.stderr);
        let found: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!((&found["intact"], &found["report"]["trusted"]), (&true.into(), &false.into()), "{found}");
    }
    let said = verify_elsewhere(&file, &["--key", &public_key(&file)]);
    assert_eq!((said.status, said.stdout.as_str()), (0, ""));
    insta::assert_snapshot!(said.stderr);
}

#[test]
fn a_key_that_did_not_sign_is_refused() {
    let text = export(&ledger(1), &[]);
    let other = public_key(&export(&ledger(1), &[]));
    let said = verify_elsewhere(&text, &["--key", &other]);
    assert_eq!(said.status, 3, "{}", said.stderr);
    assert!(said.stderr.contains("signature is wrong or by an unknown key"), "{}", said.stderr);
    let said = verify_elsewhere(&text, &["--key", "abc"]);
    assert_eq!(said.status, 1);
    assert!(said.stderr.contains("64 hex digits each"), "{}", said.stderr);
}

#[test]
fn a_changed_byte_is_found_and_its_place_is_named() {
    let text = export(&ledger(2), &[]);
    let changed = text.replacen("node.stopped", "node.stepped", 1);
    let line = 1 + text.lines().position(|line| line.contains("node.stopped")).unwrap();
    let said = verify_elsewhere(&changed, &[]);
    assert_eq!(said.status, 3, "{}", said.stderr);
    let place = format!("error[LEDGER_BROKEN]: the ledger is broken: line {line}, lane 1, entry 2, id ");
    assert!(said.stderr.starts_with(&place), "{}", said.stderr);
    let said = verify_elsewhere(&changed, &["--json"]);
    let found: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.status, &found["intact"]), (3, &Value::Bool(false)));
}

#[test]
fn what_is_no_whole_export_is_refused_in_words() {
    let text = export(&ledger(1), &[]);
    let cut = text.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n";
    for (name, text) in [("cut", cut.as_str()), ("half a line", &text[..text.len() - 9]), ("empty", "")] {
        let said = verify_elsewhere(text, &[]);
        assert_eq!(said.status, 3, "{name}: {}", said.stderr);
        assert!(said.stderr.contains("the end is missing or does not match"), "{name}: {}", said.stderr);
    }
    let place = Workspace::new();
    for (path, words) in [(".", "is a directory"), ("none.jsonl", "no such file or directory (ENOENT)")] {
        let said = place.run(&["audit", "verify", path]);
        assert_eq!((said.status, said.stdout.as_str()), (1, ""), "{}", said.stderr);
        assert!(said.stderr.contains(&format!("can't read the export {path}: {words}")), "{}", said.stderr);
    }
    let said = place.run(&["audit", "verify"]);
    assert_eq!(said.status, 1);
    insta::assert_snapshot!(said.stderr);
}

#[test]
fn a_tenants_export_says_what_no_checkpoint_covers_yet() {
    let place = ledger(1);
    let live = place.dev(&[]);
    let told = place.json(&["audit", "export", "--tenant", "system", "--out", "one.jsonl"]);
    assert_eq!(told, serde_json::json!({"entries": 2, "checkpoints": 1, "newer_than_last_checkpoint": 1}));
    let said = place.run(&["audit", "export", "--tenant", "system", "--out", "one.jsonl"]);
    insta::assert_snapshot!(said.stderr);
    let said = place.run(&["audit", "export", "--tenant", "nobody", "--out", "none.jsonl"]);
    assert_eq!(said.stderr, "exported entries: 0, checkpoints: 1\n");
    live.stop();
    let told = place.json(&["audit", "export", "--tenant", "system", "--out", "one.jsonl"]);
    assert_eq!(told, serde_json::json!({"entries": 4, "checkpoints": 1, "newer_than_last_checkpoint": 0}));
}

#[test]
fn without_any_checkpoint_a_tenants_export_asks_for_patience() {
    let place = Workspace::new();
    let _live = place.dev(&[]);
    let said = place.run(&["audit", "export", "--tenant", "system", "--out", "one.jsonl"]);
    assert_eq!(said.status, 3);
    insta::assert_snapshot!(said.stderr);
    assert!(!place.path("one.jsonl").exists() && !place.path("one.jsonl.partial").exists());
}

#[test]
fn the_ledger_of_postgres_is_verified_with_a_key_where_the_folder_is_not() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &url);
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    let key = public_key(&export(&place, &[]));
    let elsewhere = Workspace::new().env("CHIMERA_DATABASE_URL", &url);
    let said = elsewhere.run(&["audit", "verify"]);
    assert_eq!(said.status, 4, "{}", said.stderr);
    insta::assert_snapshot!(said.stderr);
    assert_eq!(elsewhere.json(&["audit", "verify", "--key", &key])["report"]["trusted"], true);
}

#[test]
fn an_export_touches_no_file_but_the_one_it_was_told_to_write() {
    let place = ledger(1).file("x.jsonl.partial", "mine").file("real.jsonl", "old");
    std::os::unix::fs::symlink("real.jsonl", place.path("link.jsonl")).unwrap();
    for target in ["x.jsonl", "link.jsonl"] {
        export(&place, &["--out", target]);
        assert_eq!(place.run(&["audit", "verify", target]).status, 0);
    }
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(read("x.jsonl.partial"), "mine");
    assert_ne!(read("real.jsonl"), "old");
    assert!(place.path("link.jsonl").symlink_metadata().unwrap().is_symlink());
}

#[test]
fn what_was_never_migrated_is_told_and_not_called_broken() {
    let place = Workspace::new();
    std::fs::create_dir(place.path(".chimera")).unwrap();
    std::fs::write(place.path(".chimera/chimera.db"), b"").unwrap();
    let said = place.run(&["audit", "verify"]);
    assert_eq!(said.status, 1, "{}", said.stderr);
    assert!(said.stderr.contains("the data has no schema yet; chimera migrate creates it"), "{}", said.stderr);
}
