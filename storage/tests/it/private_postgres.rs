//! The private server itself: what it promises to tests that stop and kill it.

use chimera_testkit::postgres::PrivatePostgres;
use std::path::Path;
use tokio_postgres::{Client, NoTls};

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn setting(client: &Client, name: &str) -> String {
    client.query_one("SELECT current_setting($1)", &[&name]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_killed_server_comes_back_on_its_port_with_what_was_committed_and_leaves_nothing_at_the_end() {
    let server = PrivatePostgres::start().unwrap();
    let url = server.fresh_database().unwrap();
    let client = connect(&url).await;
    assert_eq!((setting(&client, "fsync").await.as_str(), setting(&client, "TimeZone").await.as_str()), ("on", "UTC"));
    client.batch_execute("CREATE TABLE kept (n INT); INSERT INTO kept VALUES (1)").await.unwrap();
    server.kill().unwrap();
    assert!(tokio_postgres::connect(&url, NoTls).await.is_err());
    server.restart().unwrap();
    connect(&url).await.batch_execute("INSERT INTO kept VALUES (2)").await.unwrap();
    server.stop().unwrap();
    assert!(tokio_postgres::connect(&url, NoTls).await.is_err());
    server.restart().unwrap();
    let client = connect(&url).await;
    assert_eq!(client.query("SELECT n FROM kept", &[]).await.unwrap().len(), 2);
    let data = setting(&client, "data_directory").await;
    assert!(Path::new(&data).exists());
    drop(server);
    assert!(!Path::new(&data).exists());
    assert!(tokio_postgres::connect(&url, NoTls).await.is_err());
}
