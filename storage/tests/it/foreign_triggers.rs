//! Foreign triggers, rules and row policies on Chimera's tables. Some silently drop a change, some revert it, some do
//! nothing. While the object exists, the store is unusable, names it and makes no change. Afterwards it recovers by
//! itself.

use crate::records::{fresh_database, one_lane, sqlite};
use chimera_core::access::tables::NONCES;
use chimera_core::job::tables::AGENTS;
use chimera_core::record::{Comparison, Condition, Conflict, Insert, RowCount, Step, Tx, Update, Value};
use chimera_engine::port::{CommitError, Outage, Records, Unavailable};
use chimera_storage::records::{self, MARK_FILE, PostgresOptions, PostgresRecords, SqliteRecords};
use chimera_testkit::build::NOON;
use std::time::Duration;

fn agent(n: u64) -> Insert {
    let cells = vec![
        ("id", uuid::Uuid::from_u64_pair(1, n).into()),
        ("name", "a".into()),
        ("agent_level", "L0".into()),
        ("llm_provider", "local".into()),
        ("llm_model", "m".into()),
        ("max_tokens", Value::Int(1)),
        ("allowed_skills", Vec::<String>::new().into()),
    ];
    Insert::new(&AGENTS, cells).unwrap()
}

fn id(n: u64) -> Value {
    uuid::Uuid::from_u64_pair(1, n).into()
}

fn is(column: &'static str, value: Value) -> Condition {
    Condition { column, compare: Comparison::Is, value }
}

pub(crate) fn added(n: u64) -> Tx {
    Tx { inserts: vec![agent(n)], ..Tx::default() }
}

fn added_in_order(n: u64) -> Tx {
    Tx { steps: vec![Step::Insert(agent(n))], ..Tx::default() }
}

fn renamed(n: u64) -> Tx {
    let update = Update::new(&AGENTS, vec![id(n)], vec![("name", "a".into())], vec![("name", "b".into())]);
    Tx { updates: vec![update.unwrap()], ..Tx::default() }
}

fn renamed_in_order(n: u64) -> Tx {
    let conditions = vec![is("id", id(n)), is("name", "a".into())];
    let step = Step::update(&AGENTS, conditions, vec![("name", "b".into())], RowCount::Exactly(1)).unwrap();
    Tx { steps: vec![step], ..Tx::default() }
}

fn removed(n: u64) -> Tx {
    let conditions = vec![is("id", id(n))];
    Tx { steps: vec![Step::Delete { table: &AGENTS, conditions, rows: RowCount::Exactly(1) }], ..Tx::default() }
}

pub(crate) async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
}

/// A store opened by a user who owns nothing, so that row policies apply.
pub(crate) async fn visited(url: &str, name: &str) -> PostgresRecords {
    one_lane(url).await.close().await;
    let role = format!(
        "DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN; GRANT ALL ON SCHEMA public TO {name}; \
         GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}"
    );
    execute(url, &role).await;
    let (scheme, rest) = url.split_once("://").unwrap();
    one_lane(&format!("{scheme}://{name}@{}", rest.split_once('@').unwrap().1)).await
}

/// A PostgreSQL trigger that does this before every change of that kind.
pub(crate) fn before(change: &str, table: &str, body: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION dba_rule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$; \
         CREATE TRIGGER dba BEFORE {change} ON {table} FOR EACH ROW EXECUTE FUNCTION dba_rule()"
    )
}

/// A policy that allows reads and inserts, but no updates.
pub(crate) fn policy(table: &str) -> String {
    format!(
        "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; CREATE POLICY seen ON {table} FOR SELECT USING (true); \
         CREATE POLICY added ON {table} FOR INSERT WITH CHECK (true); \
         CREATE POLICY changed ON {table} FOR UPDATE USING (false)"
    )
}

pub(crate) fn no_policy(table: &str) -> String {
    format!(
        "ALTER TABLE {table} DISABLE ROW LEVEL SECURITY; DROP POLICY seen ON {table}; DROP POLICY added ON {table}; \
         DROP POLICY changed ON {table}"
    )
}

/// A SQLite trigger that drops every change of that kind.
pub(crate) fn ignore(change: &str, table: &str) -> String {
    format!("CREATE TRIGGER dba BEFORE {change} ON {table} BEGIN SELECT RAISE(IGNORE); END")
}

/// Every change is rejected, and the store is not ready for the same reason, however often it is asked.
pub(crate) async fn unusable(store: &dyn Records, tx: Tx, table: &str, rule: &str) {
    let told = |why: &Unavailable| why.outage == Outage::Unusable && why.reason.contains(table);
    for tx in [tx, Tx::default()] {
        match store.commit(tx).await {
            Err(CommitError::Unavailable(why)) if told(&why) => {}
            other => panic!("{rule}: {other:?}"),
        }
    }
    for _ in 0..3 {
        match store.ready().await {
            Err(why) if told(&why) => {}
            other => panic!("{rule}: {other:?}"),
        }
    }
    assert_eq!(store.hold(), None, "{rule}");
}

pub(crate) async fn until_ready(store: &dyn Records, rule: &str) {
    let back = async { while store.ready().await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(20), back).await.unwrap_or_else(|_| panic!("it stays so: {rule}"));
}

pub(crate) fn opened() -> (tempfile::TempDir, SqliteRecords, rusqlite::Connection) {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(folder.path()).unwrap();
    let file = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    (folder, store, file)
}

/// What a trigger of a data file does with a row that was named `b`.
fn sets_back(when: &str) -> String {
    format!(
        "CREATE TRIGGER dba {when} ON agents WHEN NEW.name = 'b' BEGIN UPDATE agents SET name = 'a' WHERE id = NEW.id; END"
    )
}

#[tokio::test]
async fn a_trigger_of_somebody_else_makes_a_data_file_unusable_whatever_it_does() {
    let (_folder, store, file) = opened();
    for n in 1..=9 {
        store.commit(added(n)).await.unwrap();
    }
    let harmless = "CREATE TRIGGER dba AFTER INSERT ON agents BEGIN SELECT 1; END".to_owned();
    let raise = |when: &str, how: &str| {
        format!("CREATE TRIGGER dba {when} ON agents BEGIN SELECT RAISE({how}, 'secret words'); END")
    };
    for (rule, tx) in [
        (ignore("INSERT", "agents"), added(11)),
        (ignore("INSERT", "agents"), added_in_order(12)),
        (ignore("UPDATE", "agents"), renamed(1)),
        (ignore("UPDATE", "agents"), renamed_in_order(2)),
        (ignore("DELETE", "agents"), removed(3)),
        (sets_back("AFTER UPDATE"), renamed(4)),
        (sets_back("AFTER UPDATE"), renamed_in_order(5)),
        (raise("BEFORE INSERT", "ABORT"), added(13)),
        (raise("AFTER INSERT", "ROLLBACK"), added(14)),
        (raise("AFTER UPDATE", "FAIL"), renamed(6)),
        (harmless, renamed(7)),
    ] {
        file.execute_batch(&rule).unwrap();
        unusable(&store, tx.clone(), "trigger dba on agents in the data file is not Chimera's; drop it", &rule).await;
        let b: i64 = file.query_row("SELECT count(*) FROM agents WHERE name = 'b'", [], |row| row.get(0)).unwrap();
        file.execute_batch("DROP TRIGGER dba").unwrap();
        until_ready(&store, &rule).await;
        store.commit(tx).await.unwrap();
        let after: i64 = file.query_row("SELECT count(*) FROM agents WHERE name = 'b'", [], |row| row.get(0)).unwrap();
        assert_eq!(after - b, i64::from(rule.contains("UPDATE") || rule.contains("SELECT 1")), "{rule}");
    }
    store.close().await;
}

/// A trigger that has the name of one of Chimera's, a trigger on a view, and a view in the place of a table.
#[tokio::test]
async fn what_stands_in_the_place_of_an_object_of_chimeras_is_not_chimeras() {
    let (_folder, store, file) = opened();
    store.commit(added(1)).await.unwrap();
    let guard = "SELECT sql FROM sqlite_schema WHERE name = 'audit_logs_no_update'";
    let guard: String = file.query_row(guard, [], |row| row.get(0)).unwrap();
    for (rule, mend, told) in [
        (
            "DROP TRIGGER audit_logs_no_update; CREATE TRIGGER audit_logs_no_update BEFORE UPDATE ON audit_logs \
             BEGIN SELECT RAISE(IGNORE); END",
            format!("DROP TRIGGER audit_logs_no_update; {guard}"),
            "trigger audit_logs_no_update on audit_logs",
        ),
        (
            "CREATE TRIGGER dba INSTEAD OF INSERT ON scoped_agents BEGIN SELECT 1; END",
            "DROP TRIGGER dba".to_owned(),
            "trigger dba on scoped_agents",
        ),
        (
            "PRAGMA legacy_alter_table = ON; ALTER TABLE nonces RENAME TO kept; CREATE VIEW nonces AS SELECT * FROM kept",
            "DROP VIEW nonces; ALTER TABLE kept RENAME TO nonces".to_owned(),
            "nonces in the data file is not the relation that Chimera made",
        ),
    ] {
        file.execute_batch(rule).unwrap();
        unusable(&store, renamed(1), told, rule).await;
        file.execute_batch(&mend).unwrap();
        until_ready(&store, rule).await;
    }
    file.execute_batch("CREATE TABLE theirs (x); CREATE TRIGGER dba AFTER INSERT ON theirs BEGIN SELECT 1; END")
        .unwrap();
    file.execute_batch("CREATE TEMP TRIGGER own AFTER INSERT ON agents BEGIN SELECT 1; END").unwrap();
    store.commit(renamed(1)).await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_put_on_a_table_makes_a_database_unusable_whatever_it_does() {
    let url = fresh_database();
    let store = visited(&url, "swallowed_row").await;
    for n in 1..=14 {
        store.commit(added(n)).await.unwrap();
    }
    let drop = || "DROP TRIGGER dba ON agents".to_owned();
    let trigger = |change| (before(change, "agents", "RETURN NULL;"), drop());
    // It counts as changed, but keeps its old value.
    let kept = (before("UPDATE", "agents", "RETURN OLD;"), drop());
    let function = "CREATE OR REPLACE FUNCTION dba_rule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                    UPDATE agents SET name = 'a' WHERE id = NEW.id; RETURN NULL; END $$;";
    let behind = || {
        let made = "CREATE TRIGGER dba AFTER UPDATE ON agents FOR EACH ROW WHEN (NEW.name = 'b')";
        (format!("{function} {made} EXECUTE FUNCTION dba_rule()"), drop())
    };
    let at_commit = || {
        let made = "CREATE CONSTRAINT TRIGGER dba AFTER UPDATE ON agents DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
                    WHEN (NEW.name = 'b')";
        (format!("{function} {made} EXECUTE FUNCTION dba_rule()"), drop())
    };
    let disabled = (format!("{}; ALTER TABLE agents DISABLE TRIGGER dba", trigger("UPDATE").0), drop());
    let rule = |change| {
        (format!("CREATE RULE dba AS ON {change} TO agents DO INSTEAD NOTHING"), "DROP RULE dba ON agents".to_owned())
    };
    let policy = || (policy("agents"), no_policy("agents"));
    for ((rule, mend), tx) in [
        (trigger("INSERT"), added(21)),
        (trigger("INSERT"), added_in_order(22)),
        (rule("INSERT"), added_in_order(23)),
        (rule("INSERT"), added(24)),
        (trigger("UPDATE"), renamed(1)),
        (kept, renamed(9)),
        (trigger("UPDATE"), renamed_in_order(2)),
        (trigger("DELETE"), removed(3)),
        (rule("UPDATE"), renamed(4)),
        (rule("DELETE"), removed(5)),
        (policy(), renamed(6)),
        (policy(), renamed_in_order(7)),
        (policy(), removed(8)),
        (behind(), renamed(10)),
        (behind(), renamed_in_order(11)),
        (at_commit(), renamed(12)),
        (at_commit(), renamed_in_order(13)),
        (disabled, renamed(14)),
    ] {
        execute(&url, &rule).await;
        let told = match &rule {
            rule if rule.contains("SECURITY") => "row security is on for agents in the database; switch it off",
            rule if rule.contains("RULE dba") => "rule dba on agents in the database is not Chimera's; drop it",
            _ => "trigger dba on agents in the database is not Chimera's; drop it",
        };
        unusable(&store, tx.clone(), told, &rule).await;
        execute(&url, &mend).await;
        until_ready(&store, &rule).await;
        store.commit(tx).await.unwrap();
    }
    let made = "DO $$ BEGIN ASSERT (SELECT count(*) FROM agents WHERE name = 'b') = 11; END $$";
    execute(&url, made).await;
    store.close().await;
}

/// Its function has the same body and was made again, so the OIDs that a session knows are of no use.
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_chimeras_that_were_made_again_keep_nobody_from_committing() {
    let url = fresh_database();
    let store = one_lane(&url).await;
    let guard = include_str!("../../migrations/postgres/0007_guards.sql");
    let body = guard.split("$$").nth(1).unwrap();
    for n in 1..=6 {
        store.commit(added(n)).await.unwrap();
        let again =
            format!("CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $${body}$$");
        execute(&url, &again).await;
        store.commit(renamed(n)).await.unwrap();
    }
    assert!(matches!(store.commit(renamed(1)).await, Err(CommitError::Conflict(Conflict::Stale(_)))));
    store.close().await;
}

/// Another body under the name of Chimera's function, a trigger of a name that Chimera has elsewhere, and a view in the place of a table.
#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_the_place_of_an_object_of_chimeras_is_not_chimeras_in_a_database_either() {
    let url = fresh_database();
    let store = one_lane(&url).await;
    store.commit(added(1)).await.unwrap();
    let guard = include_str!("../../migrations/postgres/0007_guards.sql");
    let body = guard.split("$$").nth(1).unwrap();
    let nonce = vec![("actor_id", "a".into()), ("nonce", "n".into()), ("expires_at", NOON.into())];
    let nonce = Tx { inserts: vec![Insert::new(&NONCES, nonce).unwrap()], ..Tx::default() };
    for (rule, mend, told, tx) in [
        (
            "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
            format!("CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $${body}$$"),
            "is not Chimera's",
            renamed(1),
        ),
        (
            "CREATE TRIGGER workflows_immutable BEFORE UPDATE ON agents FOR EACH STATEMENT \
             EXECUTE FUNCTION refuse_change('immutable')",
            "DROP TRIGGER workflows_immutable ON agents".to_owned(),
            "trigger workflows_immutable on agents",
            renamed(1),
        ),
        (
            "CREATE RULE dba AS ON INSERT TO scoped_agents DO INSTEAD NOTHING",
            "DROP RULE dba ON scoped_agents".to_owned(),
            "rule dba on scoped_agents",
            // Nothing is ever written there: only readiness reports it.
            Tx::default(),
        ),
        (
            "ALTER TABLE nonces RENAME TO kept; CREATE VIEW nonces AS SELECT * FROM kept",
            "DROP VIEW nonces; ALTER TABLE kept RENAME TO nonces".to_owned(),
            // The check of the batch and that of the guards tell different things about the view.
            "nonces in the database is",
            nonce,
        ),
    ] {
        execute(&url, rule).await;
        unusable(&store, tx, told, rule).await;
        execute(&url, &mend).await;
        until_ready(&store, rule).await;
    }
    let theirs = "CREATE TABLE theirs (x int); CREATE RULE dba AS ON INSERT TO theirs DO INSTEAD NOTHING";
    execute(&url, theirs).await;
    store.commit(renamed(1)).await.unwrap();
    store.close().await;
}

/// `open`, `migrate` and `facts` report it too, and change nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_refuses_what_somebody_put_on_a_table_and_names_it() {
    let (folder, store, file) = opened();
    store.close().await;
    file.execute_batch(&ignore("UPDATE", "ledger_lanes")).unwrap();
    let told = "trigger dba on ledger_lanes in the data file is not Chimera's; drop it";
    assert!(sqlite(folder.path()).is_err_and(|why| why.to_string().contains(told)));
    assert!(records::migrate_sqlite(folder.path()).is_err_and(|why| why.to_string().contains(told)));
    let facts = records::survey_sqlite(folder.path(), &folder.path().join(MARK_FILE), NOON).unwrap();
    assert_eq!(facts.missing.unwrap().reason, told);
    file.execute_batch("DROP TRIGGER dba").unwrap();
    sqlite(folder.path()).unwrap().close().await;

    let url = fresh_database();
    one_lane(&url).await.close().await;
    execute(&url, &before("UPDATE", "ledger_lanes", "RETURN NULL;")).await;
    let told = "trigger dba on ledger_lanes in the database is not Chimera's; drop it";
    let opened = PostgresRecords::open(PostgresOptions::new(&url)).await;
    assert!(opened.is_err_and(|why| why.to_string().contains(told)));
    assert!(records::migrate_postgres(&url).await.is_err_and(|why| why.to_string().contains(told)));
    let facts = records::survey_postgres(&url, &folder.path().join("none"), NOON).await.unwrap();
    assert_eq!(facts.missing.unwrap().reason, told);
    execute(&url, "DROP TRIGGER dba ON ledger_lanes").await;
    one_lane(&url).await.close().await;
}

/// A real conflict is reported as such, and the store stays ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_lost_a_race_is_no_trouble_of_either_store() {
    let (folder, url) = (tempfile::tempdir().unwrap(), fresh_database());
    let stores: [Box<dyn Records>; 2] = [Box::new(sqlite(folder.path()).unwrap()), Box::new(one_lane(&url).await)];
    for store in stores {
        store.commit(added(1)).await.unwrap();
        store.commit(renamed(1)).await.unwrap();
        let late = store.commit(renamed(1)).await;
        assert!(matches!(late, Err(CommitError::Conflict(Conflict::Stale(_)))), "{late:?}");
        for (late, there) in [(renamed(2), false), (added(1), true)] {
            let answer = store.commit(late).await;
            let told = if there {
                matches!(answer, Err(CommitError::Conflict(Conflict::Exists(_))))
            } else {
                matches!(answer, Err(CommitError::Conflict(Conflict::Missing(_))))
            };
            assert!(told, "{answer:?}");
        }
        for late in [renamed_in_order(1), removed(2)] {
            let late = store.commit(late).await;
            assert!(matches!(late, Err(CommitError::Conflict(Conflict::Rows { .. }))), "{late:?}");
        }
        assert_eq!(store.ready().await, Ok(()));
        store.close().await;
    }
}
