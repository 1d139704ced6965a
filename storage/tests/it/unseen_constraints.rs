//! What planning a statement does not show: a constraint or function that rejects every real change. The store is not
//! ready while it exists, however often it is asked, and recovers by itself.

use crate::records::{fresh_database, postgres};
use chimera_core::job::tables::AGENTS;
use chimera_core::record::{Insert, Tx, Update, Value};
use chimera_engine::port::{CommitError, Records};
use std::time::Duration;

fn agent(n: u64) -> Tx {
    let cells = vec![
        ("id", uuid::Uuid::from_u64_pair(1, n).into()),
        ("name", "a".into()),
        ("agent_level", "L0".into()),
        ("llm_provider", "local".into()),
        ("llm_model", "m".into()),
        ("max_tokens", Value::Int(1)),
        ("allowed_skills", Vec::<String>::new().into()),
    ];
    Tx { inserts: vec![Insert::new(&AGENTS, cells).unwrap()], ..Tx::default() }
}

fn renamed(n: u64, from: &str) -> Tx {
    let key = vec![uuid::Uuid::from_u64_pair(1, n).into()];
    let update = Update::new(&AGENTS, key, vec![("name", from.into())], vec![("name", "b".into())]);
    Tx { updates: vec![update.unwrap()], ..Tx::default() }
}

async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
}

/// The URL of a user who owns nothing.
async fn limited(url: &str) -> String {
    postgres(url).await.close().await;
    let role = "DROP ROLE IF EXISTS somebody; CREATE ROLE somebody LOGIN; GRANT ALL ON SCHEMA public TO somebody; \
                GRANT ALL ON ALL TABLES IN SCHEMA public TO somebody";
    execute(url, role).await;
    let (scheme, rest) = url.split_once("://").unwrap();
    format!("{scheme}://somebody@{}", rest.split_once('@').unwrap().1)
}

const DROP: &str = "ALTER TABLE agents DROP CONSTRAINT dba";

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_a_constraint_refuses_keeps_the_store_from_being_ready() {
    let url = fresh_database();
    let url_limited = limited(&url).await;
    let store = postgres(&url_limited).await;
    store.commit(agent(1)).await.unwrap();
    // A user who owns nothing may not write there.
    let note = "CREATE TABLE dba_log (x text); CREATE FUNCTION dba_note() RETURNS boolean LANGUAGE plpgsql AS \
                $$ BEGIN INSERT INTO dba_log VALUES ('x'); RETURN true; END $$; \
                ALTER TABLE agents ADD CONSTRAINT dba CHECK (dba_note()) NOT VALID";
    let raise = "CREATE FUNCTION dba_no() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$; \
                 ALTER TABLE agents ADD CONSTRAINT dba CHECK (dba_no()) NOT VALID";
    for (n, hurt) in (2..).zip([note, raise]) {
        execute(&url, hurt).await;
        let failed = store.commit(agent(n)).await;
        assert!(matches!(failed, Err(CommitError::Unavailable(_))), "{hurt}");
        for _ in 0..3 {
            assert!(store.commit(Tx::default()).await.is_ok(), "small changes work");
            assert!(store.ready().await.is_err(), "{hurt}");
        }
        execute(&url, DROP).await;
        assert_eq!(store.ready().await, Ok(()), "{hurt}");
        store.commit(agent(n)).await.unwrap();
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_has_changed_since_it_was_refused_is_tried_with_another_one() {
    let url = fresh_database();
    let store = postgres(&url).await;
    store.commit(agent(1)).await.unwrap();
    let raise = "CREATE OR REPLACE FUNCTION dba_no() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$; \
                 ALTER TABLE agents ADD CONSTRAINT dba CHECK (dba_no()) NOT VALID";
    execute(&url, raise).await;
    assert!(store.commit(renamed(1, "a")).await.is_err());
    execute(&url, &format!("{DROP}; UPDATE agents SET name = 'c'; {raise}")).await;
    assert!(store.ready().await.is_err(), "the row is another by now, and the constraint is there");
    execute(&url, DROP).await;
    assert_eq!(store.ready().await, Ok(()));
    store.close().await;
}

/// A readiness request waits two seconds; a probe may take longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_probe_goes_on_when_whoever_asked_has_gone() {
    let url = fresh_database();
    let store = postgres(&url).await;
    execute(&url, "ALTER TABLE agents RENAME TO agents_x").await;
    assert!(store.commit(agent(1)).await.is_err());
    let slow = "ALTER TABLE agents_x RENAME TO agents; CREATE FUNCTION dba_slow() RETURNS boolean LANGUAGE plpgsql AS \
                $$ BEGIN PERFORM pg_sleep(1); RETURN true; END $$; \
                ALTER TABLE agents ADD CONSTRAINT dba CHECK (dba_slow()) NOT VALID";
    execute(&url, slow).await;
    let (began, mut asked) = (tokio::time::Instant::now(), 0);
    while tokio::time::timeout(Duration::from_millis(400), store.ready()).await != Ok(Ok(())) {
        asked += 1;
        assert!(began.elapsed() < Duration::from_secs(60), "no probe ever ends");
    }
    assert!(asked > 0, "it was slow");
    store.close().await;
}
