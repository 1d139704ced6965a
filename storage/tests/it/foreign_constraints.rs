//! Foreign constraints in the store. A change that they reject is an outage of the store while they exist; a change
//! that Chimera's own schema rejects is invalid.

use crate::records::{fresh_database, postgres, sqlite};
use chimera_core::job::tables::AGENTS;
use chimera_core::record::{Insert, Tx, Value};
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
    Tx { inserts: vec![Insert::new(&AGENTS, cells).unwrap()], ..Tx::default() }
}

async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
}

/// Why a change was rejected; names the culprit, but no statement text.
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

/// A constraint whose function does this.
fn constraint(body: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION dba_rule() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN true; END $$; \
         ALTER TABLE agents ADD CONSTRAINT dba CHECK (dba_rule()) NOT VALID"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_constraint_of_somebody_else_refuses_is_trouble_of_the_database_until_it_is_gone() {
    let url = fresh_database();
    let store = postgres(&url).await;
    let drop = "ALTER TABLE agents DROP CONSTRAINT dba";
    for (n, (rule, mend)) in (1..).zip([
        (constraint("RAISE 'secret words'"), drop),
        (constraint("RAISE 'secret words' USING ERRCODE = '45000'"), drop),
        (constraint("RAISE 'secret words' USING ERRCODE = 'check_violation'"), drop),
        (constraint("RAISE 'secret words' USING ERRCODE = '23514', CONSTRAINT = 'agents_agent_level_check'"), drop),
        (constraint("PERFORM 1 / 0"), drop),
        (constraint("PERFORM 'x'::int"), drop),
        ("ALTER TABLE agents ADD CONSTRAINT dba CHECK (name <> 'a') NOT VALID".to_owned(), drop),
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
async fn a_constraint_that_refuses_a_change_is_named_by_its_function() {
    let url = fresh_database();
    let store = postgres(&url).await;
    execute(&url, &constraint("RAISE 'secret words'")).await;
    let why = unusable(&store, agent(1, "L0"), "raise").await;
    assert_eq!(why.reason, "a trigger or a function that is not Chimera's refuses changes in the database: dba_rule()");
    store.close().await;
}

/// A trigger's message is its author's text, and is not repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_raises_is_named_and_none_of_its_words_are_told() {
    let url = fresh_database();
    let store = postgres(&url).await;
    for table in ["agents", "ledger_lanes"] {
        let raise = format!(
            "CREATE OR REPLACE FUNCTION dba_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'secret words'; END $$; \
             CREATE TRIGGER \"d b'a\" BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION dba_no()"
        );
        execute(&url, &raise).await;
        for _ in 0..3 {
            let why = unusable(&store, agent(1, "L0"), table).await;
            assert_eq!(why.reason, format!("trigger d?b?a on {table} in the database is not Chimera's; drop it"));
            assert_eq!(store.ready().await, Err(why));
        }
        execute(&url, &format!("DROP TRIGGER \"d b'a\" ON {table}")).await;
        let back = async { while store.ready().await.is_err() {} };
        tokio::time::timeout(std::time::Duration::from_secs(20), back).await.expect("it goes on");
    }
    store.commit(agent(1, "L0")).await.unwrap();
    store.close().await;
}

/// The change is invalid, and retrying does not help.
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
