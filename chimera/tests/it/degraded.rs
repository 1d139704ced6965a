//! A node that can't work: a hanging or read-only database, a failing disk, an unusable mark file. It reports what
//! is wrong, what to do, and whether a retry helps.

use crate::disk::SmallDisk;
use crate::support::{Server, Workspace, wait_until};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::preload::FaultyDisk;
use serde_json::Value;
use std::time::Duration;

/// The error of a failed command, as JSON.
fn refusal(place: &Workspace, args: &[&str]) -> Value {
    let said = place.run(&[args, &["--json"]].concat());
    assert_ne!(said.status, 0, "{}", said.stdout);
    let last = said.stderr.lines().last().unwrap();
    serde_json::from_str::<Value>(last).unwrap_or_else(|_| panic!("{}", said.stderr))["error"].take()
}

/// One finding of the doctor.
fn finding(place: &Workspace, name: &str) -> Value {
    let said = place.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("{report}")).clone()
}

fn start_refused(place: &Workspace) -> Value {
    refusal(place, &["serve", "--listen", "127.0.0.1:0"])
}

#[test]
#[allow(clippy::disallowed_methods, reason = "how long the stop takes is what is tested")]
fn a_stop_beside_a_database_that_answers_nothing_ends_with_the_grace_time() {
    let postgres = PrivatePostgres::options().without_fsync().start().unwrap();
    let place =
        Workspace::new().env("CHIMERA_DATABASE_URL", &postgres.url()).env("CHIMERA_SHUTDOWN__GRACE_SECONDS", "2");
    let server = place.serve(&[]);
    server.wait_until_ready();
    let frozen = postgres.freeze().unwrap();
    let begun = std::time::Instant::now();
    let (status, log) = server.stop();
    let took = begun.elapsed();
    drop(frozen);
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("did not answer within the grace time"), "{log}");
    assert!(took < Duration::from_secs(7), "{took:?} instead of two seconds and a little");
}

#[test]
fn a_start_beside_a_database_that_answers_nothing_says_what_it_waits_for_and_ends_in_words() {
    let postgres = PrivatePostgres::options().without_fsync().start().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &postgres.url());
    let frozen = postgres.freeze().unwrap();
    let (patient, stopped) = (place.start_listening(), Workspace::new().env("CHIMERA_DATABASE_URL", &postgres.url()));
    let stopped = stopped.start_listening();
    for server in [&patient, &stopped] {
        assert!(server.ask("GET /healthz HTTP/1.1").starts_with("HTTP/1.1 200"));
        let (status, said) = server.readiness();
        let records = &said["error"]["details"]["checks"][1];
        assert_eq!((status, &records["name"]), (503, &"records".into()), "{said}");
        assert_eq!(records["reason"], "starting: waiting for the database");
        assert!(server.ask("GET /runs HTTP/1.1").contains("NOT_READY"));
    }
    let (status, log) = stopped.stop();
    assert_eq!(status, Some(0), "a signal ends the wait: {log}");
    let (status, log) = patient.wait();
    drop(frozen);
    assert_eq!(status, Some(1), "{log}");
    assert!(log.contains("waiting for the database"), "{log}");
    let last = log.lines().filter(|line| line.starts_with("error[")).collect::<Vec<_>>();
    assert_eq!(last, ["error[STORE_UNAVAILABLE]: the record store is unavailable: the database does not answer"]);
    assert_eq!(place.serve(&[]).stop().0, Some(0));
}

fn act(place: &Workspace) -> Value {
    refusal(place, &["act", "--step", r#"local.echo={"message":"hi"}"#])
}

fn acts(place: &Workspace) {
    wait_until("an act", || {
        let said = place.run(&["act", "--step", r#"local.echo={"message":"hi"}"#]);
        (said.status != 0).then_some(said.stderr)
    });
}

#[test]
fn a_database_that_is_read_only_is_not_worth_asking_again_and_when_it_takes_changes_the_node_goes_on() {
    let postgres = PrivatePostgres::shared().unwrap();
    let url = postgres.fresh_database().unwrap();
    let place = Workspace::new().with_actors().env("CHIMERA_DATABASE_URL", &url);
    let server = place.dev(&[]);
    acts(&place);
    let name = url.rsplit('/').next().unwrap();
    let set = |value: &str| {
        let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
        postgres.execute(&postgres.url(), &sql).unwrap();
        let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        postgres.execute(&postgres.url(), &cut).unwrap();
    };
    set("on");
    server.wait_until_not_ready(
        "records",
        "the database is read-only: it is a standby, or default_transaction_read_only",
    );
    let refused = act(&place);
    assert_eq!((&refused["code"], &refused["retryable"]), (&"STORE_UNUSABLE".into(), &false.into()), "{refused}");
    let second = Workspace::new().env("CHIMERA_DATABASE_URL", &url);
    let refused = start_refused(&second);
    assert_eq!((&refused["code"], &refused["retryable"]), (&"STORE_UNUSABLE".into(), &false.into()), "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("the database is read-only"), "{refused}");
    let found = finding(&second, "store");
    assert_eq!(found["message"], "PostgreSQL is read-only");
    assert!(found["hint"].as_str().unwrap().contains("standby"), "{found}");
    set("off");
    server.wait_until_ready();
    acts(&place);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_database_without_a_table_or_a_right_is_not_ready_and_the_doctor_names_what_is_missing() {
    let postgres = PrivatePostgres::shared().unwrap();
    let url = postgres.fresh_database().unwrap();
    let place = Workspace::new().with_actors().env("CHIMERA_DATABASE_URL", &url);
    let server = place.dev(&[]);
    acts(&place);
    postgres.execute(&url, "ALTER TABLE steps RENAME TO steps_x").unwrap();
    let told = "the database's schema is not whole: relation \"steps\" does not exist";
    for _ in 0..2 {
        let refused = act(&place);
        assert_eq!((&refused["code"], &refused["retryable"]), (&"STORE_UNUSABLE".into(), &false.into()), "{refused}");
        server.wait_until_not_ready("records", told);
    }
    let found = finding(&place, "schema");
    assert_eq!((&found["verdict"], &found["message"]), (&"fail".into(), &told.into()), "{found}");
    postgres.execute(&url, "ALTER TABLE steps_x RENAME TO steps").unwrap();
    server.wait_until_ready();
    acts(&place);
    assert_eq!(finding(&place, "schema")["verdict"], "ok");
    assert_eq!(server.stop().0, Some(0));
}

/// Some reject a change, some revert it.
#[test]
fn a_trigger_of_somebody_else_makes_the_store_unusable_and_the_doctor_names_it() {
    let postgres = PrivatePostgres::shared().unwrap();
    let url = postgres.fresh_database().unwrap();
    let place = Workspace::new().with_actors().env("CHIMERA_DATABASE_URL", &url);
    assert!(!place.run(&["doctor"]).stdout.contains("server"), "no server runs");
    let server = place.dev(&[]);
    acts(&place);
    assert_eq!(finding(&place, "server")["verdict"], "ok");
    let raise = "CREATE FUNCTION dba_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'secret words'; END $$; \
                 CREATE TRIGGER dba BEFORE INSERT ON steps FOR EACH ROW EXECUTE FUNCTION dba_no()";
    let back = "CREATE FUNCTION dba_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                UPDATE steps SET status = OLD.status WHERE id = OLD.id; RETURN NULL; END $$; \
                CREATE CONSTRAINT TRIGGER dba AFTER UPDATE ON steps DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
                WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION dba_back()";
    let told = "trigger dba on steps in the database is not Chimera's; drop it";
    for rule in [raise, back] {
        postgres.execute(&url, rule).unwrap();
        let refused = act(&place);
        assert_eq!((&refused["code"], &refused["retryable"]), (&"STORE_UNUSABLE".into(), &false.into()), "{refused}");
        assert!(refused["message"].as_str().unwrap().contains(told), "{refused}");
        server.wait_until_not_ready("records", told);
        for check in ["server", "schema"] {
            let found = finding(&place, check);
            assert_eq!(found["verdict"], "fail");
            assert!(found["message"].as_str().unwrap().contains(told), "{found}");
        }
        let refused = start_refused(&Workspace::new().env("CHIMERA_DATABASE_URL", &url));
        assert_eq!((&refused["code"], &refused["retryable"]), (&"STORE_UNUSABLE".into(), &false.into()), "{refused}");
        assert!(refused["message"].as_str().unwrap().contains(told), "{refused}");
        postgres.execute(&url, "DROP TRIGGER dba ON steps").unwrap();
        server.wait_until_ready();
        acts(&place);
    }
    assert_eq!(finding(&place, "server")["verdict"], "ok");
    let (status, log) = server.stop();
    assert!(status == Some(0) && !log.contains("secret words"), "{log}");
}

#[test]
fn a_data_folder_that_can_not_be_made_is_not_worth_trying_again() {
    for folder in ["/proc/nowhere", "/dev/null/data"] {
        let refused = start_refused(&Workspace::new().env("CHIMERA_DATA_DIR", folder));
        assert_eq!((&refused["code"], &refused["retryable"]), (&"STORE_UNUSABLE".into(), &false.into()), "{refused}");
        assert!(refused["message"].as_str().unwrap().contains(folder), "{refused}");
    }
}

#[test]
fn a_data_folder_on_a_read_only_disk_is_not_worth_asking_again() {
    let disk = SmallDisk::new(64);
    let data = disk.data();
    let place = Workspace::new().wrapped_in(disk.entrance()).env("CHIMERA_DATA_DIR", &data);
    assert_eq!(place.serve(&[]).stop().0, Some(0));
    disk.make_read_only();
    for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate"]] {
        let refused = refusal(&place, args);
        assert_eq!((&refused["code"], &refused["retryable"]), (&"STORE_UNUSABLE".into(), &false.into()), "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("read-only file system (EROFS)"), "{refused}");
        assert!(refused["details"]["hint"].as_str().unwrap().contains("mounted read-only"), "{refused}");
    }
    let found = finding(&place, "data_folder");
    assert_eq!(found["message"], "the data folder can't be written: read-only file system (EROFS)");
    assert!(found["hint"].as_str().unwrap().contains("mounted read-only"), "{found}");
    disk.make_writable();
}

/// The kernel sends SIGXFSZ with the failed write, which kills a process that does not ignore it.
#[test]
fn a_file_that_may_not_grow_any_more_is_like_a_full_disk_and_ends_no_node() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let place = Workspace::new().with_actors();
    let server = place.dev(&[]);
    acts(&place);
    let pid = Pid::from_raw(i32::try_from(server.id()).unwrap());
    let limit = |bytes| assert!(prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).is_ok());
    limit(Some(1));
    server.wait_until_not_ready("records", "a file has reached the size that this process may write (ulimit -f)");
    let refused = act(&place);
    assert_eq!((&refused["code"], &refused["retryable"]), (&"STORE_UNAVAILABLE".into(), &true.into()), "{refused}");
    assert!(server.ask("GET /healthz HTTP/1.1").starts_with("HTTP/1.1 200"));
    limit(None);
    server.wait_until_ready();
    acts(&place);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_disk_that_fails_is_told_in_the_systems_words() {
    let disk = FaultyDisk::new();
    let place = disk.env().iter().fold(Workspace::new(), |place, (name, value)| place.server_env(name, value));
    let server: Server = place.serve(&[]);
    server.wait_until_ready();
    disk.fail_flushes();
    server.wait_until_not_ready("data_folder", "the data folder can't be written: input/output error (EIO)");
    server.wait_until_not_ready("blobs", "the folder failed: input/output error (EIO)");
    // The outcome of the failed commit is unknown. Later commits fail with the reason at once.
    server.wait_until_not_ready("records", "the disk reports an input/output error");
    disk.slow(0);
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_disk_that_fails_reads_is_not_called_damage_and_the_store_is_ready_when_it_reads_again() {
    let disk = FaultyDisk::new();
    let place = disk.env().iter().fold(Workspace::new(), |place, (name, value)| place.server_env(name, value));
    assert_eq!(place.dev(&[]).stop().0, Some(0));
    disk.fail_reads();
    let refused = place.start(&["serve", "--listen", "127.0.0.1:0"]).wait_with_output().unwrap();
    let log = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && log.contains("STORE_UNAVAILABLE") && !log.contains("damaged"), "{log}");
    disk.slow(0);
    let server = place.dev(&[]);
    server.wait_until_ready();
    disk.fail_reads();
    server.wait_until_not_ready("records", "the disk reports an input/output error");
    disk.slow(0);
    server.wait_until_ready();
    acts(&place);
    let (status, log) = server.stop();
    assert!(status == Some(0) && !log.contains("damaged"), "{log}");
}

#[test]
fn a_mark_of_the_ledger_that_is_no_file_is_named_as_that() {
    for url in [None, Some(PrivatePostgres::shared().unwrap().fresh_database().unwrap())] {
        let place = url.iter().fold(Workspace::new(), |place, url| place.env("CHIMERA_DATABASE_URL", url));
        let name = if url.is_some() { "ledger.postgres.mark" } else { "ledger.mark" };
        let mark = place.path(&format!(".chimera/{name}"));
        let server = place.serve(&[]);
        server.wait_until_ready();
        std::fs::rename(&mark, place.path("aside")).unwrap();
        std::fs::create_dir(&mark).unwrap();
        let words = format!("the ledger's mark {name} can't be used: is a directory (EISDIR)");
        server.wait_until_not_ready("records", &words);
        std::fs::remove_dir(&mark).unwrap();
        server.wait_until_ready();
        assert_eq!(server.stop().0, Some(0));
        std::fs::remove_file(&mark).unwrap();
        std::fs::create_dir(&mark).unwrap();
        let refused = start_refused(&place);
        assert_eq!((&refused["code"], &refused["retryable"]), (&"STORE_UNUSABLE".into(), &false.into()), "{refused}");
        let told = refused["message"].as_str().unwrap();
        assert!(told.starts_with("the ledger's mark can't be used: ") && told.contains(name), "{told}");
        assert!(refused["details"]["hint"].as_str().unwrap().contains("move it away"), "{refused}");
        let found = finding(&place, "ledger_mark");
        assert_eq!((&found["verdict"], found["message"].as_str()), (&"fail".into(), Some(told)), "{found}");
    }
}

#[test]
fn a_second_node_is_refused_though_the_lock_file_was_removed() {
    let place = Workspace::new();
    let server = place.serve(&[]);
    std::fs::remove_file(place.path(".chimera/lock")).unwrap();
    assert_eq!(start_refused(&place)["code"], "DATA_DIR_LOCKED");
    server.wait_until_ready();
    assert_eq!(server.stop().0, Some(0));
}
