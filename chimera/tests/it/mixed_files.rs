//! Data folders whose files do not belong together, were removed under a running server, or are missing.

use crate::restore::contents;
use crate::support::{Server, Workspace, wait_until};
use serde_json::Value;
use std::path::Path;

const STEP: &str = r#"local.echo={"message":"hi"}"#;

fn entries(place: &Workspace) -> u64 {
    place.json(&["audit", "verify"])["report"]["entries"].as_u64().unwrap()
}

/// The data file and its write-ahead log.
fn files(place: &Workspace) -> Vec<(String, Vec<u8>)> {
    let names = ["chimera.db", "chimera.db-wal"];
    contents(&place.path(".chimera")).into_iter().filter(|(name, _)| names.contains(&name.as_str())).collect()
}

fn act(place: &Workspace, times: usize) {
    (0..times).for_each(|_| drop(place.json(&["act", "--step", STEP])));
}

fn finding(place: &Workspace, name: &str) -> Value {
    let said = place.run(&["doctor", "--json"]);
    let told: Value = serde_json::from_str(&said.stdout).unwrap();
    told["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).cloned().unwrap_or_default()
}

#[test]
fn an_older_data_file_beside_a_newer_log_is_refused_by_every_start_and_command_and_both_stay() {
    let place = Workspace::new();
    let data = place.path(".chimera/chimera.db");
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    std::fs::copy(&data, place.path("older.db")).unwrap();
    let server = place.dev(&[]);
    act(&place, 2);
    assert_eq!(server.stop().0, Some(0));
    let server = place.dev(&[]);
    act(&place, 2);
    let acknowledged = entries(&place);
    drop(server);
    std::fs::copy(&data, place.path("right.db")).unwrap();
    std::fs::copy(place.path("older.db"), &data).unwrap();
    let before = files(&place);
    let commands: [&[&str]; 11] = [
        &["doctor"],
        &["doctor", "--deep"],
        &["audit", "verify"],
        &["backup", "--out", "b"],
        &["resume", "--after-restore"],
        &["resume", "--after-restore", "--yes"],
        &["resume", "--accept-clock"],
        &["migrate"],
        &["actor", "add", "somebody"],
        &["dev", "--listen", "127.0.0.1:0"],
        &["serve", "--listen", "127.0.0.1:0"],
    ];
    for args in commands {
        let said = place.run(args);
        let told = said.stdout + &said.stderr;
        let words = told.contains("chimera.db is not the data file") && told.contains("chimera.db-wal");
        assert!(said.status != 0 && words, "{args:?}: {told}");
        assert!(files(&place) == before, "{args:?} changed a file");
    }
    std::fs::copy(place.path("right.db"), &data).unwrap();
    assert_eq!(entries(&place), acknowledged);
    let server = place.dev(&[]);
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
}

/// A server whose data file was removed is stopped as `/readyz` advises.
fn stopped_without_its_file(take: impl FnOnce(&Path, &Path)) {
    let place = Workspace::new();
    let (data, aside) = (place.path(".chimera/chimera.db"), place.path(".chimera/aside"));
    let server = place.dev(&[]);
    act(&place, 3);
    let acknowledged = entries(&place);
    take(&data, &aside);
    server.wait_until_not_ready("records", "the data file was removed or replaced");
    let log = std::fs::read(place.path(".chimera/chimera.db-wal")).unwrap();
    assert_eq!(server.stop().0, Some(0));
    assert!(std::fs::read(place.path(".chimera/chimera.db-wal")).unwrap() == log && !log.is_empty(), "the log stays");
    if aside.exists() {
        std::fs::rename(&aside, &data).unwrap();
    }
    assert!(entries(&place) >= acknowledged);
    let server = place.dev(&[]);
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_data_file_that_is_moved_away_under_a_server_finds_its_log_again() {
    stopped_without_its_file(|data, aside| std::fs::rename(data, aside).unwrap());
}

#[test]
fn a_data_file_that_is_replaced_by_its_copy_under_a_server_finds_its_log_again() {
    stopped_without_its_file(|data, aside| {
        std::fs::copy(data, aside).unwrap();
        std::fs::rename(aside, data).unwrap();
    });
}

/// The note about the records in `/readyz` of a ready server.
fn noted(server: &Server) -> String {
    server.wait_until_ready();
    let (_, document) = server.readiness();
    let checks = document["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"] == "records").unwrap();
    found["note"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_mark_that_a_used_store_lacks_is_told_by_the_log_the_doctor_and_readiness() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    assert_eq!(noted(&server), "", "the first start misses no file");
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(finding(&place, "ledger_mark"), Value::Null);
    let mark = place.path(".chimera/ledger.mark");
    for (content, words) in [(None, "is missing"), (Some(""), "is empty"), (Some("not a mark"), "can't be read")] {
        std::fs::remove_file(&mark).unwrap();
        content.iter().for_each(|content| std::fs::write(&mark, content).unwrap());
        let found = finding(&place, "ledger_mark");
        let told = found["message"].as_str().unwrap_or_default();
        assert!(found["verdict"] == "warn" && told.contains("ledger.mark") && told.contains(words), "{found}");
        let server = place.dev(&[]);
        let note = noted(&server);
        assert!(note.contains("ledger.mark") && note.contains(words) && !note.contains('/'), "{note}");
        let (status, log) = server.stop();
        let told = log.lines().any(|line| line.contains("WARNING") && line.contains(words));
        assert!(status == Some(0) && told, "{words}: {log}");
        assert_eq!(finding(&place, "ledger_mark"), Value::Null, "a new one was begun");
    }
}

#[test]
fn a_mark_on_a_disk_that_is_not_there_is_not_begun_anew_in_silence() {
    let place = Workspace::new().env("CHIMERA_LEDGER__MARK_FILE", "marks/kept/mark");
    let server = place.dev(&[]);
    assert_eq!(noted(&server), "");
    assert_eq!(server.stop().0, Some(0));
    std::fs::rename(place.path("marks"), place.path("unmounted")).unwrap();
    let found = finding(&place, "ledger_mark");
    assert!(found["verdict"] == "warn" && found["message"].as_str().unwrap().contains("marks/kept/mark"), "{found}");
    assert!(!place.path("marks").exists(), "a look makes nothing");
    let server = place.dev(&[]);
    assert!(noted(&server).contains("is missing"));
    let (_, log) = server.stop();
    let told = |line: &str| line.contains("WARNING") && line.contains("marks/kept/mark");
    assert!(log.lines().any(told), "{log}");
}

#[test]
fn a_ledger_that_is_held_is_not_simply_called_intact() {
    let place = Workspace::new();
    let data = place.path(".chimera/chimera.db");
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    std::fs::copy(&data, place.path("older.db")).unwrap();
    let server = place.dev(&[]);
    act(&place, 1);
    assert_eq!(server.stop().0, Some(0));
    std::fs::copy(place.path("older.db"), &data).unwrap();
    let said = place.run(&["audit", "verify"]);
    assert_eq!(said.status, 3, "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains("The store is held") && said.stderr.contains("older than"), "{}", said.stderr);
    let told: Value = serde_json::from_str(&place.run(&["audit", "verify", "--json"]).stdout).unwrap();
    assert!(told["held"].as_str().unwrap().contains("older than"), "{told}");
    std::fs::write(&data, "").unwrap();
    let said = place.run(&["audit", "verify"]);
    assert!(said.status == 3 && said.stderr.contains("LEDGER_BROKEN"), "{}", said.stderr);
}

#[test]
fn the_doctor_says_that_the_log_was_removed_under_a_server() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    act(&place, 2);
    let acknowledged = entries(&place);
    std::fs::remove_file(place.path(".chimera/chimera.db-wal")).unwrap();
    server.wait_until_not_ready("records", "the write-ahead log was removed or replaced");
    // The doctor's own read succeeds if everything was copied into the data file; then the server tells.
    wait_until("the reason", || {
        let found = [finding(&place, "store"), finding(&place, "server")];
        let says =
            |check: &Value| check["message"].as_str().unwrap_or_default().contains("write-ahead log was removed");
        (!found.iter().any(says)).then(|| format!("{found:?}"))
    });
    assert_eq!(server.stop().0, Some(0));
    assert!(entries(&place) >= acknowledged);
}
