//! A damaged data file, with the real binary: rejected at start, reported by requests that hit it, by readiness
//! and by the doctor.

use crate::support::{CommandOutput, Server, Workspace};
use chimera_testkit::sqlite_damage::damage_root;
use serde_json::Value;

const STEP: &str = r#"local.echo={"message":"hi"}"#;

fn stopped() -> Workspace {
    let place = Workspace::new();
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    place
}

fn damage(place: &Workspace, table: &str) {
    damage_root(&place.path(".chimera/chimera.db"), table);
}

fn error(said: &CommandOutput) -> Value {
    let line: Value = serde_json::from_str(said.stderr.lines().last().unwrap()).unwrap();
    line["error"].clone()
}

fn check(place: &Workspace, args: &[&str], name: &str) -> (i32, String, String) {
    let said = place.run(&[args, &["--json"]].concat());
    let found: Value = serde_json::from_str(&said.stdout).unwrap();
    let check = found["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap().clone();
    let word = |name: &str| check[name].as_str().unwrap().to_owned();
    (said.status, word("verdict"), word("message"))
}

#[test]
fn a_start_on_damaged_data_is_refused_with_what_is_damaged_and_what_to_do() {
    let place = stopped();
    damage(&place, "runs");
    let refused = place.run(&["serve", "--listen", "127.0.0.1:0", "--json"]);
    let told = error(&refused);
    assert_eq!((refused.status, &told["code"], &told["retryable"]), (1, &"STORE_DAMAGED".into(), &false.into()));
    let (message, hint) = (told["message"].as_str().unwrap(), told["details"]["hint"].as_str().unwrap());
    assert!(message.contains("damaged: runs") && hint.contains("restore a backup"), "{told}");
    let (status, verdict, message) = check(&place, &["doctor"], "store");
    assert_eq!((status, verdict.as_str(), message.contains("runs")), (3, "fail", true), "{message}");
    let said = place.run(&["doctor"]).stdout;
    assert!(said.contains("hint: chimera doctor --deep says what is damaged"), "{said}");
}

/// Every action fails, so the server may not report that it is ready.
fn assert_acts_and_readiness_agree(place: &Workspace, server: &Server) {
    for _ in 0..3 {
        let refused = place.run(&["act", "--step", STEP, "--json"]);
        let told = error(&refused);
        assert_eq!((&told["code"], &told["retryable"]), (&"STORE_DAMAGED".into(), &false.into()), "{told}");
        assert_eq!(told["retry_after_seconds"], Value::Null);
        server.wait_until_not_ready("records", "the data file is damaged");
    }
}

#[test]
fn damage_that_commits_meet_while_a_server_runs_makes_it_not_ready_until_a_restart() {
    let place = stopped();
    let server = place.dev(&[]);
    server.wait_until_ready();
    damage(&place, "tool_calls");
    assert_acts_and_readiness_agree(&place, &server);
    server.stop();
}

#[test]
fn once_damage_is_known_nothing_new_is_begun_though_other_tables_are_whole_and_reads_go_on() {
    let place = Workspace::new().with_actors();
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    let server = place.dev(&[]);
    server.wait_until_ready();
    let run = place.json(&["act", "--step", STEP])["run_id"].as_str().unwrap().to_owned();
    damage(&place, "run_patches");
    let acted = place.run(&["act", "--step", STEP]);
    assert_eq!(acted.status, 0, "an act needs other tables: {}", acted.stderr);
    let bearer = format!("authorization: Bearer {}", server.ready["token"].as_str().unwrap());
    let get = |path: &str| server.ask(&format!("GET {path} HTTP/1.1\r\n{bearer}"));
    let met = get(&format!("/runs/{run}"));
    assert!(met.contains("STORE_DAMAGED") && met.contains("damaged: run_patches"), "{met}");
    let told = error(&place.run(&["act", "--step", STEP, "--json"]));
    assert_eq!((&told["code"], &told["retryable"]), (&"STORE_DAMAGED".into(), &false.into()), "{told}");
    assert!(told["message"].as_str().unwrap().contains("run_patches"), "{told}");
    assert!(get("/runs").starts_with("HTTP/1.1 200"));
    server.wait_until_not_ready("records", "damaged: run_patches");
    server.stop();
}

#[test]
fn a_deep_look_of_the_doctor_covers_records_ledger_and_blobs() {
    let place = stopped();
    let blob = place.path(".chimera/blobs/sha256/ab");
    std::fs::create_dir_all(&blob).unwrap();
    for (name, ends) in
        [("records", "reference"), ("ledger", "checkpoints: 1"), ("blob_contents", "referenced by records: 0")]
    {
        let (status, verdict, message) = check(&place, &["doctor", "--deep"], name);
        assert_eq!((status, verdict.as_str()), (0, "ok"), "{name}: {message}");
        assert!(message.ends_with(ends), "{name}: {message}");
    }
    std::fs::write(blob.join("cd".repeat(31)), "not what the name says").unwrap();
    let (status, verdict, message) = check(&place, &["doctor", "--deep"], "blob_contents");
    assert_eq!((status, verdict.as_str(), message.contains("damaged: 1")), (3, "fail", true), "{message}");
    damage(&place, "idx_actor_keys_actor");
    let (status, verdict, _) = check(&place, &["doctor", "--deep"], "records");
    assert_eq!((status, verdict.as_str()), (3, "fail"));
    assert_eq!(place.run(&["doctor"]).status, 3, "the quick check finds it too");
}
