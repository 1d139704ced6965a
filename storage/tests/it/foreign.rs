//! Rules that somebody else put into the store: triggers and constraints that Chimera's schema does not have. What they
//! refuse is trouble of the store, as long as they are there; what Chimera's own schema refuses is the change's fault.

use crate::records::{fresh_database, postgres, sqlite};
use chimera_core::job::tables::AGENTS;
use chimera_core::record::{Insert, Tx, Update, Value};
use chimera_engine::port::{CommitError, Outage, Records, Unavailable};

fn agent(n: u64, level: &str) -> Tx {
    let cells = vec![
        ("id", uuid::Uuid::from_u64_pair(1, n).into()),
        ("name", "a".into()),
        ("agent_level", level.into()),
        ("llm_provider", "local".into()),
        ("llm_model", "m".into()),
        ("max_tokens", Value::Int(1)),
        ("allowed_skills", Vec::<String>::new().into()),
    ];
    Tx { inserts: vec![Insert::into(&AGENTS, cells).unwrap()], ..Tx::default() }
}

fn renamed(n: u64) -> Tx {
    let key = vec![uuid::Uuid::from_u64_pair(1, n).into()];
    let update = Update::of(&AGENTS, key, vec![("name", "a".into())], vec![("name", "b".into())]);
    Tx { updates: vec![update.unwrap()], ..Tx::default() }
}

async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
}

/// The reason for which a change was refused, which names what is to blame and no statement.
async fn unusable(store: &dyn Records, tx: Tx, rule: &str) -> Unavailable {
    match store.commit(tx).await {
        Err(CommitError::Unavailable(why)) => {
            assert_eq!(why.outage, Outage::Unusable, "{rule}: {}", why.reason);
            for word in ["RAISE", "secret words", "INSERT", "SELECT"] {
                assert!(!why.reason.contains(word), "{}", why.reason);
            }
            why
        }
        other => panic!("{rule}: {other:?}"),
    }
}

/// A trigger that does this.
fn trigger(body: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION dba_rule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN NEW; END $$; \
         CREATE TRIGGER dba AFTER INSERT ON agents FOR EACH ROW EXECUTE FUNCTION dba_rule()"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rule_of_somebody_else_refuses_is_trouble_of_the_database_until_the_rule_is_gone() {
    let url = fresh_database();
    let store = postgres(&url).await;
    let drop = "DROP TRIGGER dba ON agents";
    for (n, (rule, mend)) in (1..).zip([
        (trigger("RAISE 'secret words'"), drop),
        (trigger("RAISE 'secret words' USING ERRCODE = '45000'"), drop),
        (trigger("RAISE 'secret words' USING ERRCODE = 'check_violation'"), drop),
        (trigger("RAISE 'secret words' USING ERRCODE = '23514', CONSTRAINT = 'agents_agent_level_check'"), drop),
        (trigger("PERFORM 1 / 0"), drop),
        (trigger("PERFORM 'x'::int"), drop),
        (
            "ALTER TABLE agents ADD CONSTRAINT dba CHECK (name <> 'a') NOT VALID".to_owned(),
            "ALTER TABLE agents DROP CONSTRAINT dba",
        ),
        ("ALTER TABLE agents ADD dba TEXT NOT NULL".to_owned(), "ALTER TABLE agents DROP dba"),
    ]) {
        execute(&url, "DELETE FROM agents").await;
        execute(&url, &rule).await;
        unusable(&store, agent(n, "L0"), &rule).await;
        for _ in 0..2 {
            assert!(store.commit(Tx::default()).await.is_ok(), "small changes work: {rule}");
            assert_eq!(store.ready().await.map_err(|why| why.outage), Err(Outage::Unusable), "{rule}");
        }
        execute(&url, mend).await;
        assert_eq!(store.ready().await, Ok(()), "{rule}");
        store.commit(agent(n, "L0")).await.unwrap();
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_refuses_a_change_is_named_by_its_function() {
    let url = fresh_database();
    let store = postgres(&url).await;
    execute(&url, &trigger("RAISE 'secret words'")).await;
    let why = unusable(&store, agent(1, "L0"), "raise").await;
    assert_eq!(why.reason, "a trigger or a function that is not Chimera's refuses changes in the database: dba_rule()");
    store.close().await;
}

/// Whoever claims a lane meets the rule, too, and waits until it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_on_the_lanes_makes_the_database_unusable_and_not_held() {
    let url = fresh_database();
    let store = postgres(&url).await;
    let raise = "CREATE FUNCTION dba_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$; \
                 CREATE TRIGGER dba BEFORE UPDATE ON ledger_lanes FOR EACH ROW EXECUTE FUNCTION dba_no()";
    execute(&url, raise).await;
    for _ in 0..3 {
        unusable(&store, agent(1, "L0"), "lanes").await;
        assert!(store.ready().await.is_err());
    }
    execute(&url, "DROP TRIGGER dba ON ledger_lanes").await;
    let back = async { while store.ready().await.is_err() {} };
    tokio::time::timeout(std::time::Duration::from_secs(20), back).await.expect("it goes on");
    store.commit(agent(1, "L0")).await.unwrap();
    store.close().await;
}

/// The change is to blame, and no repetition would help it.
#[tokio::test(flavor = "multi_thread")]
async fn what_chimeras_own_schema_refuses_is_the_changes_own_fault_on_both_stores() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Box<dyn Records>; 2] =
        [Box::new(postgres(&fresh_database()).await), Box::new(sqlite(folder.path()).unwrap())];
    for store in stores {
        let refused = store.commit(agent(1, "L9")).await;
        assert!(matches!(refused, Err(CommitError::Rejected { .. })), "{refused:?}");
        assert_eq!(store.ready().await, Ok(()));
        store.close().await;
    }
}

#[tokio::test]
async fn what_a_trigger_of_somebody_else_refuses_is_trouble_of_the_data_file_until_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(folder.path()).unwrap();
    store.commit(agent(1, "L0")).await.unwrap();
    let file = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    for (n, (on, how, tx)) in (2..).zip([
        ("BEFORE INSERT", "ABORT", agent(2, "L0")),
        ("AFTER INSERT", "FAIL", agent(3, "L0")),
        ("AFTER INSERT", "ROLLBACK", agent(4, "L0")),
        ("BEFORE UPDATE", "ABORT", renamed(1)),
    ]) {
        let rule = format!("CREATE TRIGGER dba {on} ON agents BEGIN SELECT RAISE({how}, 'secret words'); END");
        file.execute_batch(&rule).unwrap();
        let why = unusable(&store, tx.clone(), &rule).await;
        assert_eq!(why.reason, "a trigger that is not Chimera's refuses changes in the data file", "{n}");
        for _ in 0..3 {
            assert!(store.commit(Tx::default()).await.is_ok(), "small changes work: {rule}");
            assert_eq!(store.ready().await, Err(why.clone()), "{rule}");
        }
        file.execute_batch("DROP TRIGGER dba").unwrap();
        assert_eq!(store.ready().await, Ok(()), "{rule}");
        store.commit(tx).await.unwrap();
    }
    store.close().await;
}

/// What was tried leaves nothing behind, and a row that has changed since is tried with another one.
#[tokio::test]
async fn a_trial_in_a_data_file_changes_nothing_and_takes_another_row_where_the_first_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(folder.path()).unwrap();
    store.commit(agent(1, "L0")).await.unwrap();
    let file = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    let rule = "CREATE TRIGGER dba BEFORE UPDATE ON agents BEGIN SELECT RAISE(ABORT, 'secret words'); END";
    file.execute_batch(rule).unwrap();
    unusable(&store, renamed(1), rule).await;
    file.execute_batch(&format!("DROP TRIGGER dba; UPDATE agents SET name = 'c'; {rule}")).unwrap();
    assert!(store.ready().await.is_err(), "the row is another by now, and the trigger is there");
    file.execute_batch("DROP TRIGGER dba").unwrap();
    assert_eq!(store.ready().await, Ok(()));
    let name: String = file.query_row("SELECT name FROM agents", [], |row| row.get(0)).unwrap();
    assert_eq!(name, "c");
    store.close().await;
}
