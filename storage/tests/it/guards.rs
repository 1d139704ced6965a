//! Removed guards of Chimera's own schema: a trigger, a key, a constraint, the logging of a table, or the table
//! behind a name. The store is unusable and names what is wrong, at the start and while it runs, and recovers when it
//! is repaired.

use crate::foreign_triggers::{added, execute, opened, until_ready, unusable};
use crate::records::{fresh_database, one_lane, sqlite};
use chimera_core::error::Code;
use chimera_engine::port::{CommitError, Outage, Records, Unavailable};
use chimera_storage::records::{self, MARK_FILE, OpenError, PostgresOptions, PostgresRecords};
use chimera_testkit::build::NOON;
use std::path::Path;
use std::time::Duration;

async fn lacks(url: &str) -> Option<Unavailable> {
    let folder = tempfile::tempdir().unwrap();
    records::survey_postgres(url, &folder.path().join(MARK_FILE), NOON).await.unwrap().missing
}

fn lacks_beside(folder: &Path) -> Option<Unavailable> {
    records::survey_sqlite(folder, &folder.join(MARK_FILE), NOON).unwrap().missing
}

fn refusal<T>(opened: Result<T, OpenError>) -> Unavailable {
    match opened.err() {
        Some(OpenError::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// Waits until the store reports it: a running node checks from time to time.
async fn until_told(store: &dyn Records, told: &str) {
    let seen = async { while !store.ready().await.is_err_and(|why| why.reason == told) {} };
    tokio::time::timeout(Duration::from_secs(30), seen).await.unwrap_or_else(|_| panic!("nobody saw it: {told}"));
}

/// A change to a database, the expected report, and its repair; empty where `chimera migrate` repairs it.
const HARMS: [(&str, &str, &str); 14] = [
    (
        "DROP TRIGGER audit_log_entries_append_only ON audit_log_entries",
        "trigger audit_log_entries_append_only on audit_log_entries in the database is missing; `chimera migrate` repairs it",
        "",
    ),
    (
        "ALTER TABLE workflows DISABLE TRIGGER workflows_immutable",
        "trigger workflows_immutable on workflows in the database is disabled; `chimera migrate` repairs it",
        "",
    ),
    (
        "ALTER TABLE swarm_tasks ENABLE REPLICA TRIGGER swarm_tasks_immutable",
        "trigger swarm_tasks_immutable on swarm_tasks in the database is disabled; `chimera migrate` repairs it",
        "",
    ),
    (
        "CREATE OR REPLACE TRIGGER audit_logs_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_logs \
         FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION refuse_change('append_only')",
        "trigger audit_logs_append_only on audit_logs in the database is missing; `chimera migrate` repairs it",
        "",
    ),
    (
        "ALTER TABLE idempotency_records DROP CONSTRAINT idempotency_records_pkey",
        "primary key idempotency_records_pkey on idempotency_records in the database is missing; `chimera migrate` repairs it",
        "",
    ),
    (
        "ALTER TABLE runs DROP CONSTRAINT idx_runs_trace_id; CREATE INDEX idx_runs_trace_id ON runs (trace_id)",
        "unique constraint idx_runs_trace_id on runs in the database is missing; `chimera migrate` repairs it",
        "",
    ),
    (
        "ALTER TABLE effects ALTER status DROP NOT NULL",
        "NOT NULL of status on effects in the database is missing; `chimera migrate` repairs it",
        "",
    ),
    (
        "ALTER TABLE artifacts DROP CONSTRAINT artifacts_size_bytes_check; \
         ALTER TABLE artifacts ADD CONSTRAINT artifacts_size_bytes_check CHECK (size_bytes >= 0) NOT VALID",
        "CHECK artifacts_size_bytes_check on artifacts in the database is not valid; `chimera migrate` repairs it",
        "",
    ),
    (
        "ALTER TABLE artifacts DROP CONSTRAINT artifacts_size_bytes_check",
        "CHECK artifacts_size_bytes_check on artifacts in the database is missing; add it again, or restore a backup",
        "ALTER TABLE artifacts ADD CONSTRAINT artifacts_size_bytes_check CHECK (size_bytes >= 0)",
    ),
    (
        "ALTER TABLE steps DISABLE TRIGGER ALL",
        "foreign key steps_run_id_fkey on steps in the database is disabled; enable the triggers of both tables",
        "ALTER TABLE steps ENABLE TRIGGER ALL",
    ),
    (
        "ALTER TABLE nonces SET UNLOGGED",
        "nonces in the database is unlogged, and a crash of the server empties it; make it logged",
        "ALTER TABLE nonces SET LOGGED",
    ),
    (
        "CREATE TABLE \"their's\" () INHERITS (runs)",
        "?their?s? in the database inherits from runs, so its rows appear in runs; run ALTER TABLE ?their?s? NO INHERIT runs",
        "DROP TABLE \"their's\"",
    ),
    (
        "CREATE TABLE theirs (LIKE audit_logs); ALTER TABLE audit_logs INHERIT theirs",
        "audit_logs in the database inherits from theirs, so changes through theirs bypass its triggers; remove the inheritance",
        "ALTER TABLE audit_logs NO INHERIT theirs; DROP TABLE theirs",
    ),
    (
        "CREATE SCHEMA AUTHORIZATION CURRENT_USER; CREATE TABLE nonces (LIKE public.nonces INCLUDING ALL)",
        "",
        "DO $$ BEGIN EXECUTE format('DROP SCHEMA %I CASCADE', current_user); END $$",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_lost_a_guard_is_refused_at_the_start_and_told_by_a_look() {
    let url = fresh_database();
    one_lane(&url).await.close().await;
    assert_eq!(lacks(&url).await, None);
    for (harm, told, mend) in HARMS {
        execute(&url, harm).await;
        let seen = lacks(&url).await.unwrap_or_else(|| panic!("nothing is told: {harm}"));
        assert_eq!((seen.outage, seen.outage.code()), (Outage::Unusable, Code::StoreUnusable), "{harm}");
        assert!(told.is_empty() || seen.reason == told, "{harm}: {}", seen.reason);
        let refused = refusal(PostgresRecords::open(PostgresOptions::new(&url)).await);
        assert!(refused.outage == Outage::Unusable && (told.is_empty() || refused == seen), "{harm}: {refused:?}");
        if mend.is_empty() {
            let applied = records::migrate_postgres(&url).await.unwrap();
            assert_eq!((applied.names.len(), applied.restored.len()), (0, 1), "{harm}");
        } else {
            execute(&url, mend).await;
        }
        assert_eq!(lacks(&url).await, None, "{harm}");
    }
    let refused = "DO $$ BEGIN DELETE FROM audit_log_entries; ASSERT false; \
                   EXCEPTION WHEN SQLSTATE 'CH001' THEN NULL; END $$";
    execute(&url, &format!("SET session_replication_role = replica; {refused}")).await;
    let store = one_lane(&url).await;
    store.commit(added(1)).await.unwrap();
    store.close().await;
}

/// A table name that resolves to another schema, and a `search_path` that would create new tables there.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_an_earlier_schema_of_the_search_path_is_not_taken_for_chimeras() {
    let url = fresh_database();
    one_lane(&url).await.close().await;
    let name = url.rsplit('/').next().unwrap();
    execute(&url, &format!("CREATE SCHEMA earlier; ALTER DATABASE {name} SET search_path = earlier, public")).await;
    let told = "Chimera's tables in the database are in schema public, and search_path begins with schema earlier; \
                let it begin with public";
    assert_eq!(lacks(&url).await.unwrap().reason, told);
    assert_eq!(refusal(PostgresRecords::open(PostgresOptions::new(&url)).await).reason, told);
    assert_eq!(refusal(records::migrate_postgres(&url).await).reason, told);
    execute(&url, "CREATE TABLE nonces (LIKE public.nonces INCLUDING ALL)").await;
    execute(&url, "DO $$ BEGIN ASSERT to_regclass('earlier.runs') IS NULL; END $$").await;
    let told = "nonces in the database resolves to schema earlier, but Chimera's tables are in public; \
                drop or rename earlier.nonces, or correct search_path";
    assert_eq!(lacks(&url).await.unwrap().reason, told);
    execute(&url, &format!("ALTER DATABASE {name} SET search_path = public, earlier")).await;
    assert_eq!(lacks(&url).await, None, "a later schema is somebody else's");
    one_lane(&url).await.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_runs_sees_that_a_guard_of_the_database_is_gone_and_goes_on_when_it_is_back() {
    let url = fresh_database();
    let store = one_lane(&url).await;
    store.commit(added(1)).await.unwrap();
    let (harm, told, _) = HARMS[0];
    execute(&url, harm).await;
    until_told(&store, told).await;
    unusable(&store, added(2), told, harm).await;
    records::migrate_postgres(&url).await.unwrap();
    until_ready(&store, harm).await;
    store.commit(added(2)).await.unwrap();
    let (harm, told, mend) = HARMS[8];
    execute(&url, harm).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE application_name = 'chimera' AND datname = current_database()";
    execute(&url, end).await;
    // A new connection checks before it writes.
    let refused = async {
        loop {
            match store.commit(added(3)).await {
                Err(CommitError::Unavailable(why)) if why.outage == Outage::Unusable => return why.reason,
                Err(_) => {}
                Ok(_) => panic!("it was written without the guard"),
            }
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), refused).await.unwrap(), told);
    execute(&url, mend).await;
    until_ready(&store, harm).await;
    store.commit(added(3)).await.unwrap();
    store.close().await;
}

/// Each with the expected report, and whether `chimera migrate` repairs it.
const FILE_HARMS: [(&str, &str, bool); 6] = [
    ("DROP TRIGGER audit_logs_no_update", "trigger audit_logs_no_update on audit_logs", true),
    ("DROP INDEX idx_runs_trace_id", "unique index idx_runs_trace_id on runs", true),
    (
        "DROP INDEX idx_runs_trace_id; CREATE INDEX idx_runs_trace_id ON runs (trace_id)",
        "unique index idx_runs_trace_id on runs",
        true,
    ),
    (
        "UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (size_bytes >= 0)', '') WHERE name = 'artifacts'",
        "a CHECK on artifacts",
        false,
    ),
    (
        "UPDATE sqlite_schema SET sql = replace(sql, 'size_bytes INTEGER NOT NULL', 'size_bytes INTEGER') WHERE name = 'artifacts'",
        "NOT NULL of size_bytes on artifacts",
        false,
    ),
    (
        "UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'artifacts'",
        "STRICT on artifacts",
        false,
    ),
];

#[tokio::test]
async fn a_data_file_that_lost_a_guard_is_unusable_while_it_runs_and_at_the_start() {
    for (harm, what, by_migrate) in FILE_HARMS {
        let (folder, store, file) = opened();
        store.commit(added(1)).await.unwrap();
        assert_eq!(lacks_beside(folder.path()), None);
        let schema: i64 = file.query_row("PRAGMA schema_version", [], |row| row.get(0)).unwrap();
        let rewritten = format!("PRAGMA writable_schema = ON; {harm}; PRAGMA schema_version = {}", schema + 1);
        file.execute_batch(if harm.starts_with("UPDATE") { &rewritten } else { harm }).unwrap();
        let how = if by_migrate { "`chimera migrate` repairs it" } else { "restore a backup" };
        let told = format!("{what} in the data file is missing; {how}");
        unusable(&store, added(2), &told, harm).await;
        store.close().await;
        let why = Unavailable::new(Outage::Unusable, told);
        assert_eq!(lacks_beside(folder.path()), Some(why.clone()), "{harm}");
        assert_eq!(refusal(sqlite(folder.path())), why, "{harm}");
        drop(file);
        if !by_migrate {
            assert_eq!(refusal(records::migrate_sqlite(folder.path())), why, "{harm}");
            continue;
        }
        assert_eq!(records::migrate_sqlite(folder.path()).unwrap().restored.len(), 1, "{harm}");
        assert_eq!(lacks_beside(folder.path()), None, "{harm}");
        let store = sqlite(folder.path()).unwrap();
        store.commit(added(2)).await.unwrap();
        store.close().await;
    }
}
