//! Changes that a trigger, a rule or a row policy swallows without an error. They are not taken for made, nor for a lost
//! race: the store is unusable and names the table as long as that is so, keeps nothing of the change, and goes on by
//! itself afterwards.

use crate::records::{fresh_database, one_lane, sqlite};
use chimera_core::job::tables::AGENTS;
use chimera_core::record::{Compare, Condition, Conflict, Insert, RowCount, Step, Tx, Update, Value};
use chimera_engine::port::{CommitError, Outage, Records, Unavailable};
use chimera_storage::records::{PostgresRecords, SqliteRecords};
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
    Insert::into(&AGENTS, cells).unwrap()
}

fn id(n: u64) -> Value {
    uuid::Uuid::from_u64_pair(1, n).into()
}

fn is(column: &'static str, value: Value) -> Condition {
    Condition { column, compare: Compare::Is, value }
}

pub(crate) fn added(n: u64) -> Tx {
    Tx { inserts: vec![agent(n)], ..Tx::default() }
}

fn added_in_order(n: u64) -> Tx {
    Tx { steps: vec![Step::Insert(agent(n))], ..Tx::default() }
}

fn renamed(n: u64) -> Tx {
    let update = Update::of(&AGENTS, vec![id(n)], vec![("name", "a".into())], vec![("name", "b".into())]);
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

/// The store of somebody who owns nothing, whom policies concern.
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

/// A trigger of the server that does this before every change of that kind.
pub(crate) fn before(change: &str, table: &str, body: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION dba_rule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$; \
         CREATE TRIGGER dba BEFORE {change} ON {table} FOR EACH ROW EXECUTE FUNCTION dba_rule()"
    )
}

/// A policy that lets everything be seen and added, and nothing be changed.
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

/// A trigger of the file that swallows every change of that kind.
pub(crate) fn ignore(change: &str, table: &str) -> String {
    format!("CREATE TRIGGER dba BEFORE {change} ON {table} BEGIN SELECT RAISE(IGNORE); END")
}

/// A change is refused for the table, and the store is not ready for the same reason, however often it is asked.
pub(crate) async fn unusable(store: &dyn Records, tx: Tx, table: &str, rule: &str) {
    let told = |why: &Unavailable| why.outage == Outage::Unusable && why.reason.contains(table);
    match store.commit(tx).await {
        Err(CommitError::Unavailable(why)) if told(&why) => {}
        other => panic!("{rule}: {other:?}"),
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

#[tokio::test]
async fn rows_that_a_data_file_swallows_are_neither_made_nor_the_changes_fault_nor_a_lost_race() {
    let (_folder, store, file) = opened();
    for n in 1..=3 {
        store.commit(added(n)).await.unwrap();
    }
    for (change, tx) in [
        ("INSERT", added(11)),
        ("INSERT", added_in_order(12)),
        ("UPDATE", renamed(1)),
        ("UPDATE", renamed_in_order(2)),
        ("DELETE", removed(3)),
    ] {
        let rule = ignore(change, "agents");
        file.execute_batch(&rule).unwrap();
        unusable(&store, tx.clone(), "agents", &rule).await;
        assert!(store.commit(Tx::default()).await.is_ok(), "small changes work: {rule}");
        file.execute_batch("DROP TRIGGER dba").unwrap();
        until_ready(&store, &rule).await;
        store.commit(tx).await.unwrap();
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_database_swallows_are_neither_made_nor_the_changes_fault_nor_a_lost_race() {
    let url = fresh_database();
    let store = visited(&url, "swallowed_row").await;
    for n in 1..=9 {
        store.commit(added(n)).await.unwrap();
    }
    let trigger = |change| (before(change, "agents", "RETURN NULL;"), "DROP TRIGGER dba ON agents".to_owned());
    // It counts as changed, and is as it was.
    let kept = (before("UPDATE", "agents", "RETURN OLD;"), "DROP TRIGGER dba ON agents".to_owned());
    let rule = |change| {
        (format!("CREATE RULE dba AS ON {change} TO agents DO INSTEAD NOTHING"), "DROP RULE dba ON agents".to_owned())
    };
    let policy = || (policy("agents"), no_policy("agents"));
    for ((rule, mend), tx) in [
        (trigger("INSERT"), added(11)),
        (trigger("INSERT"), added_in_order(12)),
        (rule("INSERT"), added_in_order(13)),
        (trigger("UPDATE"), renamed(1)),
        (kept, renamed(9)),
        (trigger("UPDATE"), renamed_in_order(2)),
        (trigger("DELETE"), removed(3)),
        (rule("UPDATE"), renamed(4)),
        (rule("DELETE"), removed(5)),
        (policy(), renamed(6)),
        (policy(), renamed_in_order(7)),
        (policy(), removed(8)),
    ] {
        execute(&url, &rule).await;
        // The server does not say which table has the rule that an insert in its order can't be used with.
        let told = if rule.contains("RULE dba AS ON INSERT") { "pg_rules" } else { "agents" };
        unusable(&store, tx.clone(), told, &rule).await;
        assert!(store.commit(Tx::default()).await.is_ok(), "small changes work: {rule}");
        execute(&url, &mend).await;
        until_ready(&store, &rule).await;
        store.commit(tx).await.unwrap();
    }
    store.close().await;
}

/// The row that was meant has changed since: another one shows that changes are still swallowed.
#[tokio::test(flavor = "multi_thread")]
async fn a_trial_with_another_row_counts_what_it_changed_on_both_stores() {
    let (_folder, store, file) = opened();
    store.commit(added(1)).await.unwrap();
    let rule = ignore("UPDATE", "agents");
    file.execute_batch(&rule).unwrap();
    unusable(&store, renamed(1), "agents", &rule).await;
    file.execute_batch(&format!("DROP TRIGGER dba; UPDATE agents SET name = 'c'; {rule}")).unwrap();
    assert!(store.ready().await.is_err());
    file.execute_batch("DROP TRIGGER dba").unwrap();
    assert_eq!(store.ready().await, Ok(()));
    store.close().await;

    let url = fresh_database();
    let store = one_lane(&url).await;
    store.commit(added(1)).await.unwrap();
    let rule = before("UPDATE", "agents", "RETURN NULL;");
    execute(&url, &rule).await;
    unusable(&store, renamed(1), "agents", &rule).await;
    let changed =
        "ALTER TABLE agents DISABLE TRIGGER dba; UPDATE agents SET name = 'c'; ALTER TABLE agents ENABLE TRIGGER dba";
    execute(&url, changed).await;
    assert!(store.ready().await.is_err());
    execute(&url, "DROP TRIGGER dba ON agents").await;
    assert_eq!(store.ready().await, Ok(()));
    store.close().await;
}

/// Whoever really came too late is told so, and the store is ready.
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

/// Adds, takes and changes rows at once; the rule concerns one row that is added and the first that is changed.
async fn together(store: &dyn Records) {
    let changes = [added(1), added(21), added_in_order(22), renamed(1), renamed(2), renamed_in_order(3), added(23)];
    let answers = futures::future::join_all(changes.map(|tx| store.commit(tx))).await;
    let words = answers.iter().map(|answer| match answer {
        Ok(_) => "made",
        Err(CommitError::Conflict(Conflict::Exists(_))) => "exists",
        Err(CommitError::Unavailable(why)) if why.outage == Outage::Unusable => "unusable",
        _ => "another",
    });
    let words: Vec<_> = words.collect();
    assert_eq!(words, ["exists", "made", "unusable", "unusable", "made", "made", "made"], "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_swallowed_does_not_disturb_those_it_was_sent_with() {
    let first = "UPDATE agents SET llm_model = 'x' WHERE id = (SELECT id FROM agents ORDER BY id LIMIT 1)";
    let (_folder, store, file) = opened();
    for n in 1..=3 {
        store.commit(added(n)).await.unwrap();
    }
    let twenty_two = "00000000-0000-0001-0000-000000000016";
    let rules = format!(
        "{first}; CREATE TRIGGER one BEFORE UPDATE ON agents WHEN OLD.llm_model = 'x' BEGIN SELECT RAISE(IGNORE); END; \
         CREATE TRIGGER two BEFORE INSERT ON agents WHEN lower(hex(NEW.id)) = '{}' OR NEW.id = '{twenty_two}' \
         BEGIN SELECT RAISE(IGNORE); END",
        twenty_two.replace('-', "")
    );
    file.execute_batch(&rules).unwrap();
    together(&store).await;
    store.close().await;

    let url = fresh_database();
    let store = one_lane(&url).await;
    for n in 1..=3 {
        store.commit(added(n)).await.unwrap();
    }
    let body = format!(
        "IF NEW.id = '{twenty_two}' OR (TG_OP = 'UPDATE' AND NEW.llm_model = 'x') THEN RETURN NULL; END IF; RETURN NEW;"
    );
    execute(&url, &format!("{first}; {}", before("INSERT OR UPDATE", "agents", &body))).await;
    together(&store).await;
    store.close().await;
}
