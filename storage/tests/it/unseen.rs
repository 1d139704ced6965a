//! What no plan of a statement shows: a trigger, a row policy or a function that refuses every real change. The store
//! is not ready while that is so, whoever asks how often, and is ready by itself afterwards.

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
    Tx { inserts: vec![Insert::into(&AGENTS, cells).unwrap()], ..Tx::default() }
}

fn renamed(n: u64, from: &str) -> Tx {
    let key = vec![uuid::Uuid::from_u64_pair(1, n).into()];
    let update = Update::of(&AGENTS, key, vec![("name", from.into())], vec![("name", "b".into())]);
    Tx { updates: vec![update.unwrap()], ..Tx::default() }
}

async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
}

/// The URL of somebody who owns nothing.
async fn limited(url: &str) -> String {
    postgres(url).await.close().await;
    let role = "DROP ROLE IF EXISTS somebody; CREATE ROLE somebody LOGIN; GRANT ALL ON SCHEMA public TO somebody; \
                GRANT ALL ON ALL TABLES IN SCHEMA public TO somebody";
    execute(url, role).await;
    let (scheme, rest) = url.split_once("://").unwrap();
    format!("{scheme}://somebody@{}", rest.split_once('@').unwrap().1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_a_trigger_or_a_policy_refuses_keeps_the_store_from_being_ready() {
    let url = fresh_database();
    let url_limited = limited(&url).await;
    let store = postgres(&url_limited).await;
    store.commit(agent(1)).await.unwrap();
    let note = "CREATE TABLE dba_log (x text); CREATE FUNCTION dba_note() RETURNS trigger LANGUAGE plpgsql AS \
                $$ BEGIN INSERT INTO dba_log VALUES ('x'); RETURN NEW; END $$; \
                CREATE TRIGGER dba AFTER INSERT ON agents FOR EACH ROW EXECUTE FUNCTION dba_note()";
    let raise = "CREATE FUNCTION dba_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$; \
                 CREATE TRIGGER dba AFTER INSERT ON agents FOR EACH ROW EXECUTE FUNCTION dba_no()";
    let late = "CREATE CONSTRAINT TRIGGER dba AFTER INSERT ON agents DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
                EXECUTE FUNCTION dba_note()";
    let policy = "ALTER TABLE agents ENABLE ROW LEVEL SECURITY; CREATE POLICY seen ON agents FOR SELECT USING (true)";
    let drop = "DROP TRIGGER dba ON agents";
    for (n, (hurt, mend)) in (2..).zip([
        (note, drop),
        (raise, drop),
        (late, drop),
        (policy, "ALTER TABLE agents DISABLE ROW LEVEL SECURITY"),
    ]) {
        execute(&url, hurt).await;
        let failed = store.commit(agent(n)).await;
        assert!(matches!(failed, Err(CommitError::Unavailable(_))), "{hurt}");
        for _ in 0..3 {
            assert!(store.commit(Tx::default()).await.is_ok(), "small changes work");
            assert!(store.ready().await.is_err(), "{hurt}");
        }
        execute(&url, mend).await;
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
    let raise = "CREATE FUNCTION dba_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$; \
                 CREATE TRIGGER dba BEFORE UPDATE ON agents FOR EACH ROW EXECUTE FUNCTION dba_no()";
    execute(&url, raise).await;
    assert!(store.commit(renamed(1, "a")).await.is_err());
    execute(
        &url,
        "ALTER TABLE agents DISABLE TRIGGER dba; UPDATE agents SET name = 'c'; ALTER TABLE agents ENABLE TRIGGER dba",
    )
    .await;
    assert!(store.ready().await.is_err(), "the row is another by now, and the trigger is there");
    execute(&url, "DROP TRIGGER dba ON agents").await;
    assert_eq!(store.ready().await, Ok(()));
    store.close().await;
}

/// Whoever asks for readiness waits two seconds; a probe may take longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_probe_goes_on_when_whoever_asked_has_gone() {
    let url = fresh_database();
    let store = postgres(&url).await;
    execute(&url, "ALTER TABLE agents RENAME TO agents_x").await;
    assert!(store.commit(agent(1)).await.is_err());
    let slow = "ALTER TABLE agents_x RENAME TO agents; CREATE FUNCTION dba_slow() RETURNS trigger LANGUAGE plpgsql AS \
                $$ BEGIN PERFORM pg_sleep(1); RETURN NEW; END $$; \
                CREATE TRIGGER dba BEFORE INSERT ON agents FOR EACH ROW EXECUTE FUNCTION dba_slow()";
    execute(&url, slow).await;
    let (began, mut asked) = (tokio::time::Instant::now(), 0);
    while tokio::time::timeout(Duration::from_millis(400), store.ready()).await != Ok(Ok(())) {
        asked += 1;
        assert!(began.elapsed() < Duration::from_secs(60), "no probe ever ends");
    }
    assert!(asked > 0, "it was slow");
    store.close().await;
}
