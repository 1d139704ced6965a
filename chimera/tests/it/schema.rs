//! A database migrated by another version of Chimera, before the start and under a running node.

use crate::support::{CommandOutput, Server, Workspace};
use chimera_testkit::postgres::PrivatePostgres;
use serde_json::{Value, json};

/// The trace of a newer version that this one can see.
const NEWER: &str = "INSERT INTO schema_migrations (version, name, checksum, applied_at) \
     SELECT 9999, '9999_later', 'x', max(applied_at) FROM schema_migrations";

/// Makes the schema of a place newer.
type MakeNewer = Box<dyn Fn(&Workspace)>;

/// A place on each store.
fn places() -> Vec<(Workspace, MakeNewer)> {
    let postgres = PrivatePostgres::shared().unwrap();
    let url = postgres.fresh_database().unwrap();
    let shared = Workspace::new().with_actors().env("CHIMERA_DATABASE_URL", &url);
    vec![
        (
            Workspace::new().with_actors(),
            Box::new(|place| chimera_testkit::sqlite_exec::execute(&place.path(".chimera/chimera.db"), NEWER).unwrap()),
        ),
        (shared, Box::new(move |_| postgres.execute(&url, NEWER).unwrap())),
    ]
}

fn refusal(said: &CommandOutput) -> Value {
    let line = said.stderr.lines().last().unwrap_or_default();
    serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{}", said.stderr))["error"].take()
}

fn assert_refused_for_good(said: &CommandOutput) {
    let error = refusal(said);
    assert_eq!((&error["code"], &error["retryable"]), (&json!("SCHEMA_MISMATCH"), &json!(false)), "{error}");
    assert!(error["message"].as_str().unwrap().contains("schema version 9999"), "{error}");
    assert_eq!(error["retry_after_seconds"], Value::Null, "{error}");
}

fn act(place: &Workspace) -> CommandOutput {
    place.run(&["act", "--step", "local.echo={\"message\":\"x\"}", "--wait", "--json"])
}

fn assert_steps_aside(place: &Workspace, server: &Server) {
    server.wait_until_not_ready("records", "schema version 9999");
    for _ in 0..2 {
        let said = act(place);
        assert_eq!(said.status, 1, "{}", said.stdout);
        assert_refused_for_good(&said);
    }
    assert!(server.ask("GET /healthz HTTP/1.1").starts_with("HTTP/1.1 200"), "the process itself is alive");
}

#[test]
fn a_running_node_steps_aside_for_a_newer_schema_and_says_why() {
    for (place, make_newer) in places() {
        let server = place.dev(&[]);
        assert_eq!(act(&place).status, 0);
        make_newer(&place);
        assert_steps_aside(&place, &server);
        let (status, log) = server.stop();
        assert_eq!(status, Some(0), "{log}");
        assert_eq!(log.matches("schema mismatch; this node has stopped writing").count(), 1, "{log}");
    }
}

#[test]
fn commands_and_starts_are_refused_a_newer_schema_for_good() {
    for (place, make_newer) in places() {
        assert_eq!(place.run(&["migrate"]).status, 0);
        make_newer(&place);
        for args in
            [&["serve"][..], &["dev"], &["migrate"], &["migrate", "--check"], &["runs", "list"], &["audit", "verify"]]
        {
            let said = place.run(&[args, &["--json"]].concat());
            assert_eq!(said.status, 1, "{args:?}: {}{}", said.stdout, said.stderr);
            assert_refused_for_good(&said);
        }
        let doctor = place.run(&["doctor"]);
        assert_eq!(doctor.status, 3);
        assert!(doctor.stdout.contains("FAIL  schema       version 9999, this binary knows only"), "{}", doctor.stdout);
    }
}

#[test]
fn who_reads_data_that_was_never_migrated_is_refused_for_good() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let file = Workspace::new();
    std::fs::create_dir(file.path(".chimera")).unwrap();
    std::fs::write(file.path(".chimera/chimera.db"), b"").unwrap();
    for place in [file, Workspace::new().env("CHIMERA_DATABASE_URL", &url)] {
        let error = refusal(&place.run(&["runs", "list", "--json"]));
        assert_eq!((&error["code"], &error["retryable"]), (&json!("SCHEMA_MISMATCH"), &json!(false)), "{error}");
        assert_eq!(error["message"], "the data has no schema yet; chimera migrate creates it");
    }
}

#[test]
fn a_migration_that_the_database_refuses_is_refused_for_good_with_the_reason() {
    let postgres = PrivatePostgres::shared().unwrap();
    let url = postgres.fresh_database().unwrap();
    postgres.execute(&url, "CREATE TABLE steps (id INTEGER)").unwrap();
    let error = refusal(&Workspace::new().env("CHIMERA_DATABASE_URL", &url).run(&["serve", "--json"]));
    assert_eq!((&error["code"], &error["retryable"]), (&json!("SCHEMA_MISMATCH"), &json!(false)), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("migration 0003_flow failed: ") && message.contains("already exists"), "{message}");
}
