//! Migrations on both stores: concurrent, repeated, changed, newer.

use chimera_storage::migrate::{self, MIGRATIONS, MigrateError};
use chimera_testkit::postgres::PrivatePostgres;
use rusqlite::Connection;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

/// A connection to a new, empty database.
pub(crate) async fn empty_postgres() -> Client {
    connect(&PrivatePostgres::shared().unwrap().fresh_database().unwrap()).await
}

/// A connection to a new database with the whole schema.
pub(crate) async fn migrated_postgres() -> Client {
    let mut client = empty_postgres().await;
    migrate::postgres(&mut client).await.unwrap();
    client
}

/// A connection to the one database with the whole schema that tests share: commit nothing there.
pub(crate) async fn shared_postgres() -> Client {
    static SHARED: OnceCell<String> = OnceCell::const_new();
    let url = SHARED.get_or_init(async || {
        let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
        migrate::postgres(&mut connect(&url).await).await.unwrap();
        url
    });
    connect(url.await).await
}

/// An embedded database in memory with the whole schema.
pub(crate) fn migrated_sqlite() -> Connection {
    let mut conn = Connection::open_in_memory().unwrap();
    conn.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    migrate::sqlite(&mut conn).unwrap();
    conn
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap()
}

fn all_names() -> Vec<&'static str> {
    MIGRATIONS.iter().map(|migration| migration.name).collect()
}

#[test]
fn every_migration_exists_for_both_stores_under_one_name_and_no_file_is_left_out() {
    for store in ["postgres", "sqlite"] {
        let folder = format!("{}/migrations/{store}", env!("CARGO_MANIFEST_DIR"));
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = entries.collect();
        files.sort();
        let names: Vec<String> = all_names().iter().map(|name| format!("{name}.sql")).collect();
        assert_eq!(files, names, "{store}");
    }
}

#[tokio::test]
async fn a_second_run_on_postgres_applies_nothing() {
    let mut client = empty_postgres().await;
    assert_eq!(migrate::postgres_status(&client).await.unwrap().pending, all_names());
    let first = migrate::postgres(&mut client).await.unwrap();
    assert_eq!(first.names, all_names());
    let second = migrate::postgres(&mut client).await.unwrap();
    assert_eq!((second.names, second.version), (vec![], newest()));
    let status = migrate::postgres_status(&client).await.unwrap();
    assert_eq!((status.version, status.pending), (newest(), vec![]));
}

#[test]
fn a_second_run_on_sqlite_applies_nothing() {
    let mut conn = Connection::open_in_memory().unwrap();
    assert_eq!(migrate::sqlite_status(&conn).unwrap().pending, all_names());
    assert_eq!(migrate::sqlite(&mut conn).unwrap().names, all_names());
    let second = migrate::sqlite(&mut conn).unwrap();
    assert_eq!((second.names, second.version), (vec![], newest()));
    assert_eq!(migrate::sqlite_status(&conn).unwrap().pending, Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_processes_at_once_apply_each_migration_once_on_postgres() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let mut client = connect(&url).await;
        tasks.push(tokio::spawn(async move { migrate::postgres(&mut client).await.unwrap() }));
    }
    let mut names = Vec::new();
    for task in tasks {
        let applied = task.await.unwrap();
        assert_eq!(applied.version, newest());
        names.extend(applied.names);
    }
    names.sort_unstable();
    assert_eq!(names, all_names());
}

#[test]
fn four_processes_at_once_apply_each_migration_once_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.db");
    let start = std::sync::Barrier::new(4);
    let mut names: Vec<&str> = std::thread::scope(|scope| {
        let run = || {
            let mut conn = Connection::open(&path).unwrap();
            start.wait();
            migrate::sqlite(&mut conn).unwrap().names
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    names.sort_unstable();
    assert_eq!(names, all_names());
}

#[tokio::test]
async fn postgres_refuses_a_migration_whose_text_has_changed() {
    let mut client = migrated_postgres().await;
    client.execute("UPDATE schema_migrations SET checksum = 'other' WHERE version = 3", &[]).await.unwrap();
    let refused = migrate::postgres(&mut client).await;
    assert!(matches!(refused, Err(MigrateError::Changed { version: 3 })), "{refused:?}");
    let refused = migrate::postgres_status(&client).await;
    assert!(matches!(refused, Err(MigrateError::Changed { version: 3 })), "{refused:?}");
}

#[test]
fn sqlite_refuses_a_migration_whose_text_has_changed() {
    let mut conn = migrated_sqlite();
    conn.execute("UPDATE schema_migrations SET checksum = 'other' WHERE version = 3", []).unwrap();
    let refused = migrate::sqlite(&mut conn);
    assert!(matches!(refused, Err(MigrateError::Changed { version: 3 })), "{refused:?}");
    let refused = migrate::sqlite_status(&conn);
    assert!(matches!(refused, Err(MigrateError::Changed { version: 3 })), "{refused:?}");
}

#[tokio::test]
async fn postgres_refuses_a_database_newer_than_the_binary() {
    let mut client = migrated_postgres().await;
    let newer = "INSERT INTO schema_migrations (version, name, checksum) VALUES (999, '0999_later', 'x')";
    client.execute(newer, &[]).await.unwrap();
    let refused = migrate::postgres(&mut client).await;
    assert!(matches!(refused, Err(MigrateError::Newer { found: 999, .. })), "{refused:?}");
}

#[test]
fn sqlite_refuses_a_database_newer_than_the_binary() {
    let mut conn = migrated_sqlite();
    let newer = "INSERT INTO schema_migrations (version, name, checksum) VALUES (999, '0999_later', 'x')";
    conn.execute(newer, []).unwrap();
    let refused = migrate::sqlite(&mut conn);
    assert!(matches!(refused, Err(MigrateError::Newer { found: 999, .. })), "{refused:?}");
}

#[test]
fn a_failed_migration_leaves_nothing_behind_on_sqlite() {
    let mut conn = Connection::open_in_memory().unwrap();
    conn.execute_batch("CREATE TABLE steps (id INTEGER)").unwrap();
    let failed = migrate::sqlite(&mut conn);
    assert!(matches!(failed, Err(MigrateError::Failed { name: "0003_flow", .. })), "{failed:?}");
    assert_eq!(migrate::sqlite_status(&conn).unwrap().version, 0);
    let others = "SELECT COUNT(*) FROM sqlite_schema WHERE name <> 'steps'";
    assert_eq!(conn.query_row(others, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[tokio::test]
async fn a_failed_migration_leaves_nothing_behind_on_postgres() {
    let mut client = empty_postgres().await;
    client.batch_execute("CREATE TABLE steps (id INTEGER)").await.unwrap();
    let failed = migrate::postgres(&mut client).await;
    assert!(matches!(failed, Err(MigrateError::Failed { name: "0003_flow", .. })), "{failed:?}");
    assert_eq!(migrate::postgres_status(&client).await.unwrap().version, 2);
    let runs = client.query_one("SELECT to_regclass('runs') IS NULL", &[]).await.unwrap();
    assert!(runs.get::<_, bool>(0));
}

/// The texts of the migrations before the one with this name, and its own.
fn up_to(store: &str, last: &str) -> (Vec<String>, String) {
    let text = |name: &str| {
        let file = format!("{}/migrations/{store}/{name}.sql", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(file).unwrap()
    };
    let names = all_names();
    let at = names.iter().position(|name| name.ends_with(last)).unwrap();
    (names[..at].iter().map(|name| text(name)).collect(), text(names[at]))
}

/// A finished run, a waiting one and one that was rolled back by hand, each with a step and an effect with unknown
/// outcome.
const DOUBTS: &[&str] = &[
    "INSERT INTO runs (id, actor, request_payload, status, trace_id, tenant_id) VALUES
        ({1}, 'a', '{}', 'completed', 't1', 'x'), ({2}, 'a', '{}', 'running', 't2', 'x'),
        ({3}, 'a', '{}', 'rolled_back', 't3', 'x')",
    "INSERT INTO steps (id, run_id, tenant_id, node_id, position, status) VALUES
        ({11}, {1}, 'x', 'n', 0, 'completed'), ({12}, {2}, 'x', 'n', 0, 'outcome_unknown'),
        ({13}, {3}, 'x', 'n', 0, 'completed'), ({14}, {1}, 'x', 'n', 0, 'completed')",
    "INSERT INTO effects (id, tenant_id, run_id, step_id, kind, tool, status, idempotency_key, input_digest, settled_at)
        VALUES ({21}, 'x', {1}, {11}, 'compensation', 't', 'unknown', 'k1', {digest}, {time}),
        ({22}, 'x', {2}, {12}, 'tool', 't', 'unknown', 'k2', {digest}, {time}),
        ({23}, 'x', {3}, {13}, 'compensation', 't', 'unknown', 'k3', {digest}, {time}),
        ({24}, 'x', {1}, {14}, 'tool', 't', 'succeeded', 'k4', {digest}, {time})",
];

/// A statement in the dialect of one store.
fn spelled(text: &str, id: impl Fn(u8) -> String, digest: &str, time: &str) -> String {
    let text = (1..30).fold(text.to_owned(), |text, n| text.replace(&format!("{{{n}}}"), &id(n)));
    text.replace("{digest}", digest).replace("{time}", time)
}

const FOUND: &str = "SELECT (SELECT count(*) FROM steps WHERE in_doubt_since IS NOT NULL),
    (SELECT count(*) FROM steps WHERE in_doubt_since = {time} AND (id = {11} OR id = {12})),
    (SELECT count(*) FROM runs WHERE in_doubt_since = {time} AND (id = {1} OR id = {2})),
    (SELECT count(*) FROM runs WHERE in_doubt_since IS NOT NULL)";

#[tokio::test]
async fn calls_that_were_in_doubt_before_there_was_a_column_for_it_are_found() {
    let wanted = (2_i64, 2_i64, 2_i64, 2_i64);
    let conn = Connection::open_in_memory().unwrap();
    let (before, doubts) = up_to("sqlite", "_doubts");
    let spell = |text: &str| spelled(text, |n| format!("x'{n:032x}'"), "x'00'", "1700000000000000");
    before.iter().for_each(|text| conn.execute_batch(text).unwrap());
    DOUBTS.iter().for_each(|text| conn.execute_batch(&spell(text)).unwrap());
    conn.execute_batch(&doubts).unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    assert_eq!(conn.query_row(&spell(FOUND), [], row).unwrap(), wanted);

    let client = empty_postgres().await;
    let (before, doubts) = up_to("postgres", "_doubts");
    let spell = |text: &str| {
        let id = |n: u8| format!("'{}'::uuid", uuid::Uuid::from_u128(n.into()));
        spelled(text, id, "'\\x00'::bytea", "to_timestamp(1700000000)")
    };
    for text in before.iter().cloned().chain(DOUBTS.iter().map(|text| spell(text))).chain([doubts]) {
        client.batch_execute(&text).await.unwrap();
    }
    let row = client.query_one(&spell(FOUND), &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2), row.get(3)), wanted);
}

/// Two tenants that stored the same document, one whose step only names it, and uploads that replaced something.
const MADE: &[&str] = &[
    "INSERT INTO tenants (id, slug, name) VALUES ('default', 'default', 'x'), ('acme', 'acme', 'x')",
    "INSERT INTO runs (id, actor, request_payload, status, trace_id, tenant_id) VALUES ({1}, 'a', '{}', 'completed', 't1', 'x')",
    "INSERT INTO steps (id, run_id, tenant_id, node_id, position, status, tool, output) VALUES
        ({11}, {1}, 'default', 'n', 0, 'completed', 'local.markdown_to_pdf', '{\"artifact\": \"cas://sha256:AA\", \"bytes\": 7}'),
        ({12}, {1}, 'default', 'n', 0, 'completed', 'local.markdown_to_pdf', '{\"artifact\": \"cas://sha256:AA\", \"bytes\": 7}'),
        ({13}, {1}, 'acme', 'n', 0, 'completed', 'local.markdown_to_pdf', '{\"artifact\": \"cas://sha256:AA\", \"bytes\": 7}'),
        ({14}, {1}, 'acme', 'n', 0, 'completed', 'local.echo', '{\"artifact\": \"cas://sha256:BB\"}'),
        ({15}, {1}, 'acme', 'n', 0, 'completed', 's3_upload', '{\"replaced\": \"cas://sha256:BB\"}'),
        ({16}, {1}, 'default', 'n', 0, 'completed', 's3_upload', '{\"replaced\": \"cas://sha256:BB\"}'),
        ({17}, {1}, 'default', 'n', 0, 'completed', 's3_upload', '{\"replaced\": null}'),
        ({18}, {1}, 'default', 'n', 0, 'failed', 'local.markdown_to_pdf', NULL)",
];

const OWNED: &str =
    "SELECT count(*), sum(CASE WHEN tenant_id = 'default' THEN 1 ELSE 0 END), sum(size_bytes) FROM artifacts";

#[tokio::test]
async fn blobs_from_before_there_were_owners_belong_to_the_tenants_that_made_them() {
    let digests = |text: String| text.replace("AA", &"aa".repeat(32)).replace("BB", &"bb".repeat(32));
    let conn = Connection::open_in_memory().unwrap();
    let (before, owners) = up_to("sqlite", "_artifact_owners");
    let spell = |text: &str| digests(spelled(text, |n| format!("x'{n:032x}'"), "x'00'", "1700000000000000"));
    before.iter().for_each(|text| conn.execute_batch(text).unwrap());
    MADE.iter().for_each(|text| conn.execute_batch(&spell(text)).unwrap());
    conn.execute_batch(&owners).unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    assert_eq!(conn.query_row(OWNED, [], row).unwrap(), (3_i64, 2_i64, 14_i64));

    let client = empty_postgres().await;
    let (before, owners) = up_to("postgres", "_artifact_owners");
    let spell = |text: &str| {
        let id = |n: u8| format!("'{}'::uuid", uuid::Uuid::from_u128(n.into()));
        digests(spelled(text, id, "'\\x00'::bytea", "to_timestamp(1700000000)"))
    };
    for text in before.iter().cloned().chain(MADE.iter().map(|text| spell(text))).chain([owners]) {
        client.batch_execute(&text).await.unwrap();
    }
    let row = client.query_one(&OWNED.replace("sum(size_bytes)", "sum(size_bytes)::bigint"), &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2)), (3_i64, 2_i64, 14_i64));
}

/// A restore fills a database in one transaction; a process that starts meanwhile learns why it waits.
#[tokio::test]
async fn whoever_waits_for_a_migration_that_does_not_end_is_told_so() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let (mut first, mut second) = (connect(&url).await, connect(&url).await);
    let mut under_way = first.transaction().await.unwrap();
    migrate::postgres(&mut under_way).await.unwrap();
    second.batch_execute("SET lock_timeout = '50ms'").await.unwrap();
    let refused = migrate::postgres(&mut second).await.unwrap_err();
    assert!(matches!(refused, MigrateError::Busy) && refused.is_transient(), "{refused}");
    assert_eq!(refused.to_string(), "another process is migrating or restoring the database");
    under_way.commit().await.unwrap();
    assert_eq!(migrate::postgres(&mut second).await.unwrap().version, newest());
}
