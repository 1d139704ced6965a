//! External faults: a full disk, a read-only folder, unreachable servers. Each time the server reports the fault,
//! recovers by itself, and has lost nothing that it acknowledged.

use crate::disk::SmallDisk;
use crate::support::{Server, Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::redis::PrivateRedis;
use chimera_testkit::s3::PrivateS3;
use serde_json::Value;

/// The ledger is intact, and has these events in this order, apart from those of runs.
fn assert_nothing_is_lost(place: &Workspace, data: &[&str], events: &[&str]) {
    let found = place.json(&[&["audit", "verify"], data].concat());
    assert_eq!(found["intact"], true, "{found}");
    let listed = place.json(&[&["audit", "list", "--limit", "1000"], data].concat());
    let mut items = listed["items"].as_array().unwrap().clone();
    items.sort_by_key(|entry| entry["timestamp"].as_str().unwrap().to_owned());
    let types = items.iter().map(|entry| entry["event_type"].as_str().unwrap());
    let of_node: Vec<&str> = types.filter(|kind| !kind.starts_with("run.") && !kind.starts_with("step.")).collect();
    assert_eq!(of_node, events);
}

fn has_line(log: &str, level: &str, message: &str) -> bool {
    let fields = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    log.lines().map(fields).any(|line| line["level"] == level && line["message"].as_str().unwrap().contains(message))
}

fn assert_told(server: Server, part: &str) {
    let (status, log) = server.stop();
    assert_eq!(status, Some(0), "{log}");
    assert!(has_line(&log, "ERROR", part), "{log}");
    assert!(has_line(&log, "CRITICAL", "changes and their audit entries can't be written"), "{log}");
}

/// Fills the disk, and acts until a change is refused: the log may have space from before. Returns the runs that
/// were acknowledged.
fn write_until_full(disk: &SmallDisk, place: &Workspace, data: &str) -> Vec<String> {
    disk.fill();
    let step = format!("local.echo={{\"message\":\"{}\"}}", "x".repeat(50_000));
    let mut runs = Vec::new();
    wait_until("a refused write", || {
        let acted = place.run(&["act", "--data", data, "--json", "--step", &step]);
        let run: Value = serde_json::from_str(&acted.stdout).ok()?;
        runs.push(run["run_id"].as_str()?.to_owned());
        Some(acted.stdout)
    });
    runs
}

#[test]
fn a_full_disk_is_told_and_when_there_is_room_again_everything_goes_on() {
    let disk = SmallDisk::new(8);
    let place = Workspace::new().wrapped_in(disk.entrance());
    let data = disk.data();
    let server = place.dev(&["--data", &data]);
    server.wait_until_ready();
    let runs = write_until_full(&disk, &place, &data);
    server.wait_until_not_ready("records", "the disk is full");
    disk.empty();
    server.wait_until_ready();
    for run in runs {
        wait_until("the end of an acknowledged run", || {
            let shown = place.json(&["runs", "show", &run, "--data", &data]);
            (shown["status"] != "completed").then(|| shown.to_string())
        });
    }
    assert_told(server, "records");
    assert_nothing_is_lost(&place, &["--data", &data], &["node.started", "node.stopped"]);
}

#[test]
fn a_folder_that_becomes_read_only_is_told_and_when_it_can_be_written_again_everything_goes_on() {
    let disk = SmallDisk::new(64);
    let place = Workspace::new().wrapped_in(disk.entrance());
    let data = disk.data();
    let server = place.dev(&["--data", &data]);
    server.wait_until_ready();
    disk.make_read_only();
    server.wait_until_not_ready("data_folder", "the data folder can't be written: read-only");
    server.wait_until_not_ready("blobs", "the folder is read-only");
    disk.make_writable();
    server.wait_until_ready();
    let (status, log) = server.stop();
    assert_eq!(status, Some(0), "{log}");
    assert!(has_line(&log, "ERROR", "not ready: data_folder, blobs"), "{log}");
    disk.make_read_only();
    let refused = place.run(&["dev", "--data", &data, "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("can't write to the data folder"), "{}", refused.stderr);
    assert_nothing_is_lost(&place, &["--data", &data], &["node.started", "node.stopped"]);
    disk.make_writable();
    assert_eq!(place.dev(&["--data", &data]).stop().0, Some(0));
}

#[test]
fn a_stop_on_a_full_disk_ends_and_the_next_start_on_the_same_data_goes_on() {
    let disk = SmallDisk::new(8);
    let place = Workspace::new().wrapped_in(disk.entrance());
    let data = disk.data();
    let server = place.dev(&["--data", &data]);
    write_until_full(&disk, &place, &data);
    server.wait_until_not_ready("records", "the disk is full");
    let (status, log) = server.stop();
    assert_eq!(status, Some(0), "{log}");
    assert!(has_line(&log, "WARNING", "could not record the stop in the ledger"), "{log}");
    let refused = place.run(&["dev", "--data", &data, "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("the disk is full"), "{}", refused.stderr);
    disk.empty();
    assert_eq!(place.dev(&["--data", &data]).stop().0, Some(0));
    assert_nothing_is_lost(&place, &["--data", &data], &["node.started", "node.started", "node.stopped"]);
}

#[test]
fn a_lost_postgres_is_told_and_when_it_is_back_everything_goes_on() {
    let postgres = PrivatePostgres::start().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &postgres.url());
    let server = place.serve(&[]);
    server.wait_until_ready();
    postgres.stop().unwrap();
    server.wait_until_not_ready("records", "the database can't be reached");
    postgres.restart().unwrap();
    server.wait_until_ready();
    postgres.kill().unwrap();
    server.wait_until_not_ready("records", "the database can't be reached");
    postgres.restart().unwrap();
    server.wait_until_ready();
    let (status, log) = server.stop();
    assert_eq!(status, Some(0), "{log}");
    assert!(has_line(&log, "CRITICAL", "changes and their audit entries can't be written"), "{log}");
    assert_nothing_is_lost(&place, &[], &["node.started", "node.stopped"]);
}

#[test]
fn commands_beside_a_database_that_answers_nothing_end_and_say_so() {
    let postgres = PrivatePostgres::options().without_fsync().start().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &postgres.url());
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    let frozen = postgres.freeze().unwrap();
    let commands: [&[&str]; 9] = [
        &["doctor"],
        &["doctor", "--deep"],
        &["runs", "list"],
        &["audit", "list"],
        &["audit", "verify"],
        &["audit", "export"],
        &["migrate", "--check"],
        &["resume", "--after-restore"],
        &["backup", "--out", "copy"],
    ];
    let said: Vec<_> = std::thread::scope(|scope| {
        let run = |args: &&'static [&'static str]| (*args, place.start(args));
        let running: Vec<_> = commands.iter().map(run).collect();
        let wait = |(args, child): (_, std::process::Child)| scope.spawn(move || (args, child.wait_with_output()));
        let waiting: Vec<_> = running.into_iter().map(wait).collect();
        waiting.into_iter().map(|waiting| waiting.join().unwrap()).collect()
    });
    drop(frozen);
    for (args, output) in said {
        let output = output.unwrap();
        let words = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(!output.status.success() && words.contains("does not answer"), "{args:?}: {words}");
    }
}

#[test]
fn a_backup_that_waits_for_a_busy_database_is_not_cut_until_that_stops() {
    let postgres = PrivatePostgres::options().without_fsync().start().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &postgres.url());
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    let lock = postgres.lock(&postgres.url(), "audit_log_entries").unwrap();
    let mut waiting = place.start(&["backup", "--out", "copy"]);
    let waits = "SELECT 1 / count(*) FROM pg_locks WHERE NOT granted";
    crate::support::wait_until("the backup that waits", || {
        postgres.execute(&postgres.url(), waits).err().map(|error| error.to_string())
    });
    assert!(waiting.try_wait().unwrap().is_none());
    let frozen = postgres.freeze().unwrap();
    let output = waiting.wait_with_output().unwrap();
    drop(frozen);
    drop(lock);
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("STORE_UNAVAILABLE") && words.contains("does not answer"), "{words}");
}

#[test]
fn a_start_without_the_database_is_refused_in_words() {
    let port = chimera_testkit::net::free_port();
    let place =
        Workspace::new().env("CHIMERA_DATABASE_URL", &format!("postgres://chimera:hunter2@127.0.0.1:{port}/db"));
    let said = place.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!((said.status, said.stdout.as_str()), (1, ""));
    assert!(!said.stderr.contains("hunter2"));
    insta::assert_snapshot!(said.stderr);
    let said = place.run(&["doctor"]);
    assert_eq!(said.status, 3, "{}", said.stdout);
    assert!(
        said.stdout.contains("FAIL  store        the record store is unavailable: the database can't be reached"),
        "{}",
        said.stdout
    );
}

#[test]
fn a_lost_redis_is_told_and_when_it_is_back_the_server_is_ready_again() {
    let mut redis = PrivateRedis::start();
    let place = Workspace::new().env("CHIMERA_REDIS_URL", &redis.url());
    let server = place.serve(&[]);
    server.wait_until_ready();
    redis.stop();
    server.wait_until_not_ready("redis", "redis refuses connections");
    assert_eq!(server.readiness().1["error"]["message"], "not ready: redis");
    redis.restart();
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_lost_s3_is_told_and_when_it_is_back_the_server_is_ready_again() {
    let mut s3 = PrivateS3::start();
    let credentials = format!("{}:{}", PrivateS3::ACCESS_KEY_ID, PrivateS3::SECRET_ACCESS_KEY);
    let place = Workspace::new()
        .env("CHIMERA_S3_URL", &s3.url("blobs"))
        .env("CHIMERA_S3_CREDENTIALS", "secret://s3")
        .env("CHIMERA_SECRET_S3", &credentials);
    let server = place.serve(&[]);
    server.wait_until_ready();
    s3.stop();
    server.wait_until_not_ready("blobs", "the object store is unreachable or returned an unexpected response");
    assert_eq!(server.readiness().1["error"]["message"], "not ready: blobs");
    s3.restart();
    server.wait_until_ready();
    let (status, log) = server.stop();
    assert_eq!(status, Some(0));
    assert!(!log.contains(PrivateS3::SECRET_ACCESS_KEY));
}
