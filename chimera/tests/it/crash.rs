//! Killed processes, concurrent starts, and commands that run next to a live server.

use crate::support::{Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Child;

/// The number of verified entries. Fails if a kill broke a chain.
fn entries_of(place: &Workspace, args: &[&str]) -> u64 {
    let found = place.json(&[&["audit", "verify"], args].concat());
    assert_eq!(found["intact"], true, "{found}");
    found["report"]["entries"].as_u64().unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The scratch folders of benchmarks below `data`.
fn scratch(place: &Workspace, data: &str) -> Vec<String> {
    let folders = std::fs::read_dir(place.path(data)).into_iter().flatten().flatten();
    let names = folders.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("bench-")).map(|name| format!("{data}/{name}")).collect()
}

/// The number of entries; zero while there is no file with a schema yet.
fn written(place: &Workspace, folder: &str) -> u64 {
    let said = place.run(&["audit", "verify", "--data", folder, "--json"]);
    let found: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
    found["report"]["entries"].as_u64().unwrap_or(0)
}

#[test]
fn a_kill_under_load_leaves_an_intact_ledger_with_everything_that_was_seen() {
    let place = Workspace::new();
    // Kills later each time: with one writer, then with many.
    for (round, enough) in [1, 40, 400, 900].into_iter().enumerate() {
        let data = format!("d{round}");
        let child = place.start(&["bench", "store", "--data", &data, "--transactions", "3000"]);
        let mut seen = 0;
        wait_until("entries", || {
            seen = scratch(&place, &data).first().map_or(0, |folder| written(&place, folder));
            (seen < enough).then(|| format!("{seen} entries"))
        });
        kill(child);
        let folder = scratch(&place, &data).remove(0);
        let left = entries_of(&place, &["--data", &folder]);
        assert!(left >= seen, "{left} of {seen} entries are left");
        // A server continues from the state of the killed one.
        assert_eq!(place.dev(&["--data", &folder]).stop().0, Some(0));
        assert_eq!(entries_of(&place, &["--data", &folder]), left + 2);
    }
}

/// A place whose commands use the schema of a benchmark that has just started.
fn inside(place: &Workspace, url: &str, data: &str) -> (Child, Workspace) {
    let mut child = place.start(&["bench", "store", "--data", data, "--transactions", "3000"]);
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let fields: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
    let schema = fields["metadata"]["schema"].as_str().unwrap();
    let url = format!("{url}?options=-csearch_path%3D{schema}");
    (child, Workspace::new().env("CHIMERA_DATABASE_URL", &url))
}

fn written_to_schema(inside: &Workspace) -> u64 {
    let said = inside.run(&["audit", "verify", "--json"]);
    let found: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
    found["report"]["entries"].as_u64().unwrap_or(0)
}

#[test]
fn a_kill_under_load_on_postgres_leaves_intact_chains_that_go_on() {
    let postgres = PrivatePostgres::start().unwrap();
    let url = postgres.url();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &url).env("CHIMERA_LOG__LEVEL", "info");
    for (data, enough) in [("a", 10), ("b", 500)] {
        let (child, inside) = inside(&place, &url, data);
        let mut seen = 0;
        wait_until("entries", || {
            seen = written_to_schema(&inside);
            (seen < enough).then(|| format!("{seen} entries"))
        });
        kill(child);
        let left = entries_of(&inside, &[]);
        assert!(left >= seen, "{left} of {seen} entries are left");
        assert_eq!(inside.serve(&[]).stop().0, Some(0));
        assert_eq!(entries_of(&inside, &[]), left + 2);
    }
}

#[test]
fn processes_that_start_together_on_one_fresh_postgres_share_it_and_no_chain_breaks() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let places: Vec<Workspace> = (0..3).map(|_| Workspace::new().env("CHIMERA_DATABASE_URL", &url)).collect();
    let servers: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = places.iter().map(|place| scope.spawn(|| place.serve(&[]))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    servers.iter().for_each(|server| server.wait_until_ready());
    for server in servers {
        assert_eq!(server.stop().0, Some(0));
    }
    // Each has the key of its own folder, and none signed after a checkpoint by an unknown key.
    assert_eq!(entries_of(&places[0], &[]), 6);
}

#[test]
fn benchmarks_beside_each_other_on_one_postgres_leave_its_ledger_alone() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &url);
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    let small = |data: &str| place.start(&["bench", "store", "--data", data, "--transactions", "300"]);
    let running = [small("a"), small("b")];
    for child in running {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(entries_of(&place, &[]), 2);
}

#[test]
fn of_two_that_start_together_on_one_folder_one_serves_and_the_other_is_refused() {
    let place = Workspace::new();
    let start = || place.start(&["dev", "--json", "--no-examples", "--listen", "127.0.0.1:0"]);
    let mut both = [start(), start()];
    let mut said: Vec<String> = Vec::new();
    for child in &mut both {
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        said.push(line);
    }
    let serving = said.iter().filter(|line| line.contains("\"url\"")).count();
    assert_eq!(serving, 1, "{said:?}");
    let refused = usize::from(said[1].is_empty());
    let status = both[refused].wait().unwrap();
    assert_eq!(status.code(), Some(5));
    for child in both {
        kill(child);
    }
    assert_eq!(entries_of(&place, &[]), 1);
}

#[test]
fn commands_that_only_read_work_beside_a_live_server_and_leave_it_unharmed() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    for args in [
        &["audit", "list"][..],
        &["audit", "verify"],
        &["audit", "export", "--out", "x.jsonl"],
        &["doctor"],
        &["config", "print"],
        &["migrate", "--check"],
    ] {
        let said = place.run(args);
        assert_eq!(said.status, 0, "{args:?}: {}{}", said.stdout, said.stderr);
    }
    for args in [&["migrate"][..], &["bench", "store"], &["dev"]] {
        let said = place.run(args);
        assert_eq!(said.status, 5, "{args:?}: {}", said.stderr);
        assert!(said.stderr.starts_with("error[DATA_DIR_LOCKED]"), "{}", said.stderr);
    }
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
    let found = place.json(&["audit", "verify"]);
    assert_eq!((&found["report"]["entries"], &found["report"]["covered"]), (&2.into(), &2.into()), "{found}");
}
