//! Commands that exit by themselves.

use crate::support::Workspace;

#[test]
fn help_lists_every_command() {
    let said = Workspace::new().run(&["--help"]);
    assert_eq!(said.status, 0);
    insta::assert_snapshot!(said.stdout);
}

#[test]
fn every_command_explains_itself() {
    for command in [
        "dev",
        "serve",
        "migrate",
        "doctor",
        "config print",
        "audit list",
        "audit verify",
        "audit export",
        "bench store",
        "act",
        "token",
        "sign",
        "actor list",
        "actor show",
        "actor add",
        "actor secret",
        "actor edit",
        "actor disable",
        "actor remove",
        "tenant list",
        "tenant show",
        "tenant add",
        "tenant disable",
        "tenant enable",
        "bench act",
        "workflow apply",
        "workflow check",
        "runs list",
        "runs watch",
        "runs approve",
        "runs doubts",
        "runs resolve",
        "runs replay",
        "runs patch",
    ] {
        let args: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let said = Workspace::new().run(&args);
        assert_eq!(said.status, 0, "{command}");
        insta::assert_snapshot!(format!("help_{}", command.replace(' ', "_")), said.stdout);
    }
}

#[test]
fn wrong_usage_ends_with_status_two() {
    let said = Workspace::new().run(&["audit", "lst"]);
    assert_eq!((said.status, said.stdout.as_str()), (2, ""));
    insta::assert_snapshot!(said.stderr);
    for args in [["audit", "list", "--limit", "0"], ["bench", "store", "--transactions", "0"]] {
        let said = Workspace::new().run(&args);
        assert_eq!(said.status, 2, "{args:?}");
        assert!(said.stderr.contains("at least 1"), "{}", said.stderr);
    }
}

#[test]
fn the_doctor_gives_a_verdict_and_a_hint_for_each_part() {
    let place = Workspace::new();
    let said = place.run(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let verdict = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap()["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict("data_folder"), "warn");
    assert_eq!(verdict("signing_key"), "warn");
    assert_eq!(said.status == 0, report["ok"] == true);
    for check in report["checks"].as_array().unwrap() {
        assert_eq!(check["verdict"] != "ok", check["hint"].is_string(), "{check}");
    }
    assert!(!place.path(".chimera").exists(), "the doctor changed something");
}

#[test]
fn the_doctor_sees_a_key_that_others_may_read() {
    use std::os::unix::fs::PermissionsExt;
    let place = Workspace::new();
    place.dev(&[]).stop();
    let key = place.path(".chimera/keys/ledger.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = place.run(&["doctor"]);
    assert!(said.stdout.contains("warn  signing_key  other users can read it"), "{}", said.stdout);
    assert!(said.stdout.contains("ok    data_folder"), "{}", said.stdout);
}

#[test]
fn the_doctor_sees_a_data_folder_that_others_may_look_into() {
    use std::os::unix::fs::PermissionsExt;
    let place = Workspace::new();
    place.dev(&[]).stop();
    std::fs::set_permissions(place.path(".chimera"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = place.run(&["doctor"]);
    assert!(said.stdout.contains("warn  data_folder") && said.stdout.contains("chmod 700"), "{}", said.stdout);
}

/// The verdict of the doctor on each part.
fn verdicts(place: &Workspace) -> std::collections::BTreeMap<String, String> {
    let said = place.run(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(said.status == 0, report["ok"] == true);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    report["checks"].as_array().unwrap().iter().map(|check| (text(&check["name"]), text(&check["verdict"]))).collect()
}

#[test]
fn the_doctor_does_not_call_a_data_folder_fine_that_is_a_file() {
    let found = verdicts(&Workspace::new().file(".chimera", ""));
    assert_eq!((found["data_folder"].as_str(), found["store"].as_str()), ("fail", "fail"));
}

#[test]
fn the_doctor_looks_for_the_secrets_that_are_named() {
    let missing = Workspace::new()
        .env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger")
        .env("CHIMERA_SECRETS__FILE", "none.toml")
        .env("CHIMERA_SECRETS__DIR", "none");
    let found = verdicts(&missing);
    assert_eq!(["signing_key", "secrets.file", "secrets.dir"].map(|name| found[name].as_str()), ["fail"; 3]);
    let present = missing.file("none.toml", &format!("ledger = \"{}\"\n", "ab".repeat(32)));
    std::fs::create_dir(present.path("none")).unwrap();
    let found = verdicts(&present);
    assert_eq!(["signing_key", "secrets.file", "secrets.dir"].map(|name| found[name].as_str()), ["ok"; 3]);
}

#[test]
fn the_doctor_says_that_an_empty_data_file_has_no_schema() {
    let place = Workspace::new();
    std::fs::create_dir(place.path(".chimera")).unwrap();
    std::fs::write(place.path(".chimera/chimera.db"), "").unwrap();
    let said = place.run(&["doctor"]);
    assert!(said.stdout.contains("warn  schema       there is none yet"), "{}", said.stdout);
}
