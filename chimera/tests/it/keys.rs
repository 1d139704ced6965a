//! Keys that a store depends on: which key signs the ledger, and what happens when keys are lost or swapped.

use crate::support::{CommandOutput, Workspace};
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::Value;

fn public_keys(place: &Workspace) -> Vec<String> {
    let text = place.run(&["audit", "export"]).stdout;
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    header["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()).collect()
}

/// Starts a server that must refuse to start.
fn refused(place: &Workspace) -> CommandOutput {
    let said = place.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(said.status, 4, "{}", said.stderr);
    assert!(said.stderr.contains("CONFIG_INVALID") && said.stderr.contains("ledger.trusted_keys"), "{}", said.stderr);
    said
}

fn assert_intact(place: &Workspace, checkpoints: u64) {
    let found = place.json(&["audit", "verify"]);
    assert_eq!((&found["intact"], &found["report"]["checkpoints"]), (&true.into(), &checkpoints.into()), "{found}");
}

fn checkpoint_key(place: &Workspace) -> String {
    let text = place.run(&["audit", "export"]).stdout;
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ids: Vec<String> = lines.filter(|l| l["kind"] == "checkpoint").map(|l| l["key_id"].to_string()).collect();
    ids.last().unwrap().trim_matches('"').to_owned()
}

#[test]
fn a_node_with_another_key_is_refused_until_it_trusts_the_key_that_signed() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let node = || Workspace::new().env("CHIMERA_DATABASE_URL", &url);
    let (one, two) = (node(), node());
    assert_eq!(one.serve(&[]).stop().0, Some(0));
    let said = refused(&two);
    assert!(said.stderr.contains(&checkpoint_key(&one)), "{}", said.stderr);
    assert_intact(&one, 1);
    let two = two.env("CHIMERA_LEDGER__TRUSTED_KEYS", &public_keys(&one)[0]);
    assert_eq!(two.serve(&[]).stop().0, Some(0));
    assert_intact(&two, 2);
    let unknown = one.run(&["audit", "verify"]);
    assert_eq!(unknown.status, 3);
    assert!(unknown.stderr.contains("checkpoint 2, signature is wrong or by an unknown key"), "{}", unknown.stderr);
    refused(&one);
    let one = one.env("CHIMERA_LEDGER__TRUSTED_KEYS", &public_keys(&two).join(","));
    assert_eq!(one.serve(&[]).stop().0, Some(0));
    assert_intact(&one, 3);
}

#[test]
fn of_nodes_with_different_keys_on_a_fresh_database_only_one_signs() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let (one, two) = (Workspace::new(), Workspace::new());
    let [one, two] = [one, two].map(|place| place.env("CHIMERA_DATABASE_URL", &url));
    let (first, second) = (one.serve(&[]), two.serve(&[]));
    assert_eq!(first.stop().0, Some(0));
    let (status, log) = second.stop();
    assert_eq!(status, Some(0));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().filter(|line| line["level"] == "CRITICAL").collect();
    assert_eq!(told.len(), 1, "{log}");
    assert!(told[0]["message"].as_str().unwrap().contains("signed by an unknown key"), "{log}");
    assert_intact(&one, 1);
}

#[test]
fn a_lost_or_exchanged_key_file_is_refused_until_the_earlier_key_is_trusted() {
    let place = Workspace::new();
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    let earlier = public_keys(&place).remove(0);
    let file = place.path(".chimera/keys/ledger.key");
    std::fs::remove_file(&file).unwrap();
    refused(&place);
    std::fs::write(&file, "08".repeat(32)).unwrap();
    refused(&place);
    let place = place.env("CHIMERA_LEDGER__TRUSTED_KEYS", &earlier);
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    assert_intact(&place, 2);
    let text = place.run(&["audit", "export"]).stdout;
    assert_eq!(public_keys(&place)[1], earlier, "an export names both keys");
    let elsewhere = Workspace::new().file("export.jsonl", &text);
    assert_eq!(elsewhere.run(&["audit", "verify", "export.jsonl"]).status, 0);
}

#[test]
fn a_trusted_key_that_is_no_key_is_refused() {
    let said = Workspace::new().env("CHIMERA_LEDGER__TRUSTED_KEYS", "abc").run(&["config", "print"]);
    assert_eq!(said.status, 4);
    assert!(said.stderr.contains("`ledger.trusted_keys` must be a list of Ed25519 public keys"), "{}", said.stderr);
}

/// The doctor's finding about a part.
fn verdict(place: &Workspace, part: &str) -> (String, String) {
    let found: Value = serde_json::from_str(&place.run(&["doctor", "--json"]).stdout).unwrap();
    let check = found["checks"].as_array().unwrap().iter().find(|check| check["name"] == part).unwrap();
    (check["verdict"].as_str().unwrap().to_owned(), check["message"].as_str().unwrap().to_owned())
}

#[test]
fn a_lost_or_exchanged_seal_key_is_refused_and_never_made_anew() {
    let place = Workspace::new();
    assert_eq!(place.run(&["actor", "add", "admin"]).status, 0);
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    assert_eq!(verdict(&place, "seal_key").0, "ok");
    let file = place.path(".chimera/keys/seal.key");
    let right = std::fs::read_to_string(&file).unwrap();
    for (wrong, words) in [(None, "is missing"), (Some("08".repeat(32)), "is not the key that sealed them")] {
        match &wrong {
            None => std::fs::remove_file(&file).unwrap(),
            Some(text) => std::fs::write(&file, text).unwrap(),
        }
        for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["actor", "add", "user_bob"]] {
            let said = place.run(args);
            assert_eq!(said.status, 4, "{}", said.stderr);
            for part in ["CONFIG_INVALID", "keys/seal.key", words, "backup", "--accept-lost-keys"] {
                assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
            }
        }
        assert_eq!(file.exists(), wrong.is_some(), "no new key is created");
        let (verdict, message) = verdict(&place, "seal_key");
        assert!(verdict == "fail" && message.contains(words), "{verdict} {message}");
    }
    std::fs::write(&file, right).unwrap();
    assert_eq!(place.serve(&[]).stop().0, Some(0));
}

#[test]
fn what_a_seal_key_sealed_that_is_lost_for_good_is_revoked_by_an_operator() {
    let place = Workspace::new();
    assert_eq!(place.run(&["actor", "add", "admin"]).status, 0);
    assert_eq!(place.json(&["resume", "--accept-lost-keys"])["revoked"], serde_json::json!([]));
    std::fs::remove_file(place.path(".chimera/keys/seal.key")).unwrap();
    assert_eq!(place.json(&["resume", "--accept-lost-keys"])["revoked"], serde_json::json!(["admin"]));
    assert_eq!(place.run(&["actor", "secret", "admin"]).status, 0);
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    assert_eq!(verdict(&place, "seal_key").0, "ok");
}

#[test]
fn two_nodes_that_start_at_once_on_a_fresh_database_both_begin_and_one_that_opens_nothing_later_does_not() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let node = || {
        let place = Workspace::new().env("CHIMERA_DATABASE_URL", &url);
        place.env("CHIMERA_LEDGER__SIGNING_KEY", "secret://ledger").env("CHIMERA_SECRET_LEDGER", &"ab".repeat(32))
    };
    let (one, two) = (node(), node());
    let [first, second] = [&one, &two].map(|place| place.serve(&[]));
    assert_eq!((first.stop().0, second.stop().0), (Some(0), Some(0)));
    assert_eq!(one.run(&["actor", "add", "admin"]).status, 0);
    let refused = two.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(refused.status == 4 && refused.stderr.contains("access.seal_key"), "{}", refused.stderr);
    assert_eq!(one.serve(&[]).stop().0, Some(0));
}

#[test]
fn the_doctor_sees_a_ledger_key_that_was_lost_or_exchanged() {
    let place = Workspace::new();
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    assert_eq!(verdict(&place, "signing_key").0, "ok");
    let file = place.path(".chimera/keys/ledger.key");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(verdict(&place, "signing_key").0, "fail");
    refused(&place);
    assert!(!file.exists(), "no new key is created");
    std::fs::write(&file, "08".repeat(32)).unwrap();
    assert_eq!(verdict(&place, "signing_key").0, "fail");
}

/// Nothing is signed yet, but the ledger already records the key that will sign.
#[test]
fn a_ledger_key_that_is_lost_or_exchanged_before_the_first_checkpoint_is_refused() {
    let place = Workspace::new();
    let server = place.serve(&[]);
    server.wait_until_ready();
    server.signal("KILL");
    assert_eq!(server.wait().0, None);
    let file = place.path(".chimera/keys/ledger.key");
    let right = std::fs::read_to_string(&file).unwrap();
    for wrong in [None, Some("08".repeat(32))] {
        match &wrong {
            None => std::fs::remove_file(&file).unwrap(),
            Some(text) => std::fs::write(&file, text).unwrap(),
        }
        refused(&place);
        assert_eq!(file.exists(), wrong.is_some(), "no new key is created");
        assert_eq!(verdict(&place, "signing_key").0, "fail");
    }
    std::fs::write(&file, right).unwrap();
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    assert_intact(&place, 1);
}

#[test]
fn keys_that_only_sign_what_was_given_out_are_made_anew_with_a_warning() {
    let place = Workspace::new();
    let told = |log: &str| log.lines().filter(|line| line.contains("created a missing key")).count();
    let (status, log) = place.serve(&[]).stop();
    assert_eq!((status, told(&log)), (Some(0), 0), "the first start is no loss: {log}");
    for name in ["token.key", "webhook.key", "links.key"] {
        std::fs::remove_file(place.path(".chimera/keys").join(name)).unwrap();
    }
    let (status, log) = place.serve(&[]).stop();
    assert_eq!((status, told(&log)), (Some(0), 3), "{log}");
    let (status, log) = place.dev_with_examples(&[]).stop();
    assert_eq!(
        (status, told(&log)),
        (Some(0), 0),
        "a folder of `serve` never had the keys of the example actors: {log}"
    );
    std::fs::remove_file(place.path(".chimera/keys/actors/user_ada.key")).unwrap();
    let (status, log) = place.dev_with_examples(&[]).stop();
    assert_eq!((status, told(&log)), (Some(0), 1), "{log}");
}

#[test]
fn a_key_that_is_cut_short_or_empty_is_told_by_its_name_by_the_doctor_and_by_the_start() {
    let place = Workspace::new();
    assert_eq!(place.dev_with_examples(&[]).stop().0, Some(0));
    let key = |name: &str| place.path(".chimera/keys").join(name);
    for (name, part) in [
        ("ledger.key", "signing_key"),
        ("seal.key", "keys"),
        ("token.key", "keys"),
        ("webhook.key", "keys"),
        ("links.key", "keys"),
        ("actors/admin.key", "keys"),
    ] {
        let whole = std::fs::read(key(name)).unwrap();
        for cut in [&whole[..20], b""] {
            std::fs::write(key(name), cut).unwrap();
            let (word, message) = verdict(&place, part);
            assert!(word == "fail" && message.contains(name), "{name}: {message}");
            let refused = place.run(&["dev", "--listen", "127.0.0.1:0"]);
            assert!(refused.status == 4 && refused.stderr.contains(name), "{name}: {}", refused.stderr);
            assert_eq!(std::fs::read(key(name)).unwrap(), cut, "it is not replaced");
        }
        std::fs::write(key(name), whole).unwrap();
    }
    assert_eq!(place.run(&["doctor"]).status, 0);
}

#[test]
fn a_restore_brings_keys_back_that_are_damaged() {
    let place = Workspace::new().env("CHIMERA_SECRET_BACKUP", "correct horse battery staple");
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    place.json(&["backup", "--out", "b", "--key", "secret://backup"]);
    let file = place.path(".chimera/keys/ledger.key");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..20]).unwrap();
    let said = place.run(&["restore", "--from", "b", "--force", "--key", "secret://backup"]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    assert!(
        said.stderr.contains(
            "keys/ledger.key is not 64 hex digits, so this folder's signature on the backup can't be checked"
        ),
        "{}",
        said.stderr
    );
    assert_eq!(std::fs::read(&file).unwrap(), whole);
    place.json(&["resume", "--after-restore", "--yes"]);
    let server = place.dev(&[]);
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
}
