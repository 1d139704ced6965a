//! A database that stops answering: `until_postgres_silent` notices, and a long statement does not count as silence.

use chimera_engine::port::Outage;
use chimera_storage::records::{self, OpenError};
use chimera_testkit::postgres::PrivatePostgres;
use std::time::Duration;
use tokio::time::timeout;

const SILENCE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_server_is_silent_when_it_answers_nobody_and_not_while_one_statement_takes_long() {
    let server = PrivatePostgres::options().without_fsync().start().unwrap();
    let url = server.fresh_database().unwrap();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let long = client.batch_execute("SELECT pg_sleep(4)");
    let watched = timeout(SILENCE * 6, async {
        tokio::select! {
            biased;
            done = long => done.unwrap(),
            silent = records::until_postgres_silent(&url, SILENCE) => panic!("{silent}"),
        }
    });
    watched.await.unwrap();
    let mut watching = Box::pin(records::until_postgres_silent(&url, SILENCE));
    assert!(timeout(SILENCE, &mut watching).await.is_err(), "it answers");
    let frozen = server.freeze().unwrap();
    let silent = timeout(SILENCE * 10, watching).await.unwrap();
    assert_eq!(silent.outage, Outage::Transient);
    drop(frozen);
    server.stop().unwrap();
    let refused = timeout(SILENCE * 3, records::until_postgres_silent(&url, SILENCE)).await;
    assert!(refused.is_err(), "a server that refuses has answered: {refused:?}");
}

#[tokio::test]
async fn no_session_of_a_server_that_answers_nothing_is_waited_for_without_end() {
    let server = PrivatePostgres::options().without_fsync().start().unwrap();
    let url = server.fresh_database().unwrap();
    let _frozen = server.freeze().unwrap();
    let opened = timeout(Duration::from_secs(40), records::postgres_times(&url)).await.unwrap();
    assert!(matches!(opened, Err(OpenError::Unavailable(why)) if why.reason.contains("does not answer")));
}
