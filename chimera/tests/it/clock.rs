//! Clock jumps under a running server. A preloaded library changes the server's clock; commands see the right
//! time.

use crate::support::{Server, Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::preload::WallClock;
use chimera_testkit::sqlite_damage::{Leaf, damage_leaf};
use serde_json::Value;

const DAY: i64 = 86_400;
const HOUR: i64 = 3_600;

/// A workflow that starts with a delay.
const LATER: &str = r#"{
  "air_version": "1.0", "workflow_id": "later", "description": "Waits, then echoes.",
  "outputs": {"said": "${nodes.echo.outputs.message}"},
  "nodes": [{"id": "echo", "type": "function", "fn": "local.echo", "delay_seconds": 2, "inputs": {"message": "late"}}]
}"#;

fn begin(clock: &WallClock) -> (Workspace, Server) {
    let place = clock.env().iter().fold(Workspace::new(), |place, (name, value)| place.server_env(name, value));
    let place = place.with_actors().file("later.json", LATER);
    let server = place.dev(&[]);
    server.wait_until_ready();
    place.json(&["workflow", "apply", "later.json"]);
    (place, server)
}

/// Signs in with the right time, and acts.
fn act(place: &Workspace) {
    let said = place.run(&["act", "--step", r#"local.echo={"message":"hi"}"#]);
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
}

fn start(place: &Workspace) -> String {
    let started = place.json(&["act", "--workflow", "later"]);
    assert_ne!(started["status"], "completed", "{started}");
    started["run_id"].as_str().unwrap().to_owned()
}

fn until_completed(place: &Workspace, run: &str) {
    wait_until("the end of the run", || {
        let shown = place.json(&["runs", "show", run]);
        (shown["status"] != "completed").then(|| shown.to_string())
    });
}

/// Whether the server still accepts its initial access token.
fn takes_token(server: &Server) -> bool {
    let token = server.ready["token"].as_str().unwrap();
    server.ask(&format!("GET /runs HTTP/1.1\r\nauthorization: Bearer {token}")).starts_with("HTTP/1.1 200")
}

fn jumps_logged(log: &str) -> Vec<i64> {
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let jumped =
        lines.filter(|line| line["level"] == "WARNING" && line["message"].as_str().unwrap().contains("jumped"));
    jumped.map(|line| line["metadata"]["seconds"].as_i64().unwrap()).collect()
}

#[test]
fn a_day_ahead_for_two_seconds_refuses_nobody_and_is_told_until_the_clock_is_right_again() {
    let clock = WallClock::new();
    let (place, server) = begin(&clock);
    clock.set(DAY);
    server.wait_until_not_ready("clock", "jumped by 86400 seconds");
    act(&place);
    assert!(takes_token(&server), "while the clock is wrong");
    clock.set(0);
    act(&place);
    assert!(takes_token(&server), "once the clock is right");
    server.wait_until_ready();
    wait_until("the count of jumps", || {
        let metrics = server.ask("GET /metrics HTTP/1.1");
        (!metrics.contains("chimera_clock_jumps_total 1\n")).then_some(metrics)
    });
    let (status, log) = server.stop();
    assert_eq!((status, jumps_logged(&log)), (Some(0), vec![DAY]), "{log}");
}

#[test]
fn an_hour_back_freezes_no_timer_and_when_the_clock_is_right_again_so_is_everything() {
    let clock = WallClock::new();
    let (place, server) = begin(&clock);
    let before = start(&place);
    clock.set(-HOUR);
    server.wait_until_not_ready("clock", "jumped by -3600 seconds");
    let after = start(&place);
    until_completed(&place, &before);
    until_completed(&place, &after);
    clock.set(0);
    act(&place);
    assert!(takes_token(&server));
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
}

/// A place whose servers and commands use this clock.
fn place_of(clock: &WallClock) -> Workspace {
    clock.env().iter().fold(Workspace::new(), |place, (name, value)| place.env(name, value)).with_actors()
}

/// The doctor's finding about the clock.
fn diagnosis(place: &Workspace) -> (String, String) {
    let said = place.run(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&said.stdout).unwrap();
    let clock = found["checks"].as_array().unwrap().iter().find(|check| check["name"] == "clock").unwrap();
    (clock["verdict"].as_str().unwrap().to_owned(), clock["message"].as_str().unwrap().to_owned())
}

fn errors_logged(log: &str) -> Vec<String> {
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let bad = lines.filter(|line| line["level"] == "ERROR" || line["level"] == "CRITICAL");
    bad.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_node_that_starts_a_day_behind_its_ledger_begins_nothing_until_the_clock_is_right() {
    let clock = WallClock::new();
    let place = place_of(&clock);
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    assert_eq!(diagnosis(&place).0, "ok");
    let entries = || place.json(&["audit", "verify"])["report"]["entries"].as_u64().unwrap();
    let before = entries();
    clock.set(-DAY);
    for _ in 0..2 {
        let server = place.start_listening();
        server.wait_until_not_ready("clock", "behind");
        assert!(server.ask("POST /act HTTP/1.1\r\ncontent-length: 0").contains("NOT_READY"));
        assert!(server.ask("GET /healthz HTTP/1.1").starts_with("HTTP/1.1 200"));
        let (status, log) = server.stop();
        assert_eq!(status, Some(0));
        assert!(errors_logged(&log).iter().any(|line| line.contains("behind")), "{log}");
    }
    assert_eq!(entries(), before, "nothing was written, so the next start detects it again");
    let (verdict, words) = diagnosis(&place);
    assert_eq!((verdict.as_str(), words.matches("20").count() >= 2), ("fail", true), "{words}");
    let refused = place.run(&["actor", "add", "user_bob"]);
    assert!(refused.stderr.contains("NOT_READY") && refused.stderr.contains("behind"), "{}", refused.stderr);
    let server = place.start_listening();
    server.wait_until_not_ready("clock", "behind");
    clock.set(0);
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
}

/// A stopped place whose ledger takes several pages, one of which is damaged.
fn damaged_ledger(clock: &WallClock, which: Leaf) -> Workspace {
    let place = place_of(clock);
    let server = place.dev(&[]);
    (0..5).for_each(|_| act(&place));
    assert_eq!(server.stop().0, Some(0));
    damage_leaf(&place.path(".chimera/chimera.db"), "audit_log_entries", which);
    place
}

#[test]
fn a_damaged_page_of_older_entries_does_not_hide_that_the_clock_is_behind() {
    let clock = WallClock::new();
    let place = damaged_ledger(&clock, Leaf::First);
    clock.set(-DAY);
    let server = place.start_listening();
    server.wait_until_not_ready("clock", "behind");
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(diagnosis(&place).0, "fail");
}

#[test]
fn a_node_does_not_start_if_damage_hides_the_newest_entry() {
    let clock = WallClock::new();
    let place = damaged_ledger(&clock, Leaf::Last);
    std::fs::remove_file(place.path(".chimera/ledger.mark")).unwrap();
    for wrong in [0, -DAY] {
        clock.set(wrong);
        let refused = place.run(&["serve", "--listen", "127.0.0.1:0", "--json"]);
        assert_eq!(refused.status, 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("STORE_DAMAGED"), "{}", refused.stderr);
        let looked = place.run(&["doctor", "--json"]);
        assert_eq!((looked.status, diagnosis(&place).0.as_str()), (3, "fail"), "{}", looked.stdout);
    }
}

#[test]
fn a_clock_that_was_ahead_before_is_accepted_by_an_operator() {
    let clock = WallClock::new();
    let place = place_of(&clock);
    clock.set(DAY);
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    clock.set(0);
    let accepted = place.json(&["resume", "--accept-clock"]);
    assert_eq!(accepted["accepted"], true, "{accepted}");
    let server = place.serve(&[]);
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(place.json(&["resume", "--accept-clock"])["accepted"], false);
    assert_eq!(diagnosis(&place).0, "ok");
}

#[test]
fn accepting_a_clock_tells_what_waits_for_times_of_the_clock_before() {
    let clock = WallClock::new();
    let place = place_of(&clock).file("later.json", &LATER.replace("\"delay_seconds\": 2", "\"delay_seconds\": 900"));
    clock.set(DAY);
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "later.json"]);
    let run = start(&place);
    wait_until("the wait", || {
        let steps = place.json(&["runs", "steps", &run]);
        steps["steps"][0]["retry_at"].is_null().then(|| steps.to_string())
    });
    assert_eq!(server.stop().0, Some(0));
    clock.set(0);
    let accepted = place.json(&["resume", "--accept-clock"]);
    assert_eq!((&accepted["accepted"], &accepted["steps_waiting"]), (&true.into(), &1.into()), "{accepted}");
    let until = accepted["waiting_until"].as_str().unwrap().to_owned();
    let shown = place.run(&["runs", "show", &run]).stdout;
    assert!(shown.contains("starts in 24:1") && shown.contains(&format!("at {until}")), "{shown}");
}

#[test]
fn beside_a_database_a_clock_that_is_ahead_is_found_out_as_well() {
    let clock = WallClock::new();
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let place = place_of(&clock).env("CHIMERA_DATABASE_URL", &url);
    for wrong in [DAY, -DAY] {
        clock.set(wrong);
        let server = place.start_listening();
        server.wait_until_not_ready("clock", "they differ by 86");
        assert_eq!(diagnosis(&place).0, "fail");
        clock.set(0);
        server.wait_until_ready();
        assert_eq!(server.stop().0, Some(0));
        assert_ne!(diagnosis(&place).0, "fail");
    }
}
