//! Damage: it is found at the start, told by every commit and read that meets it, and readiness says
//! no for as long as it is there.

use crate::records::{postgres, sqlite};
use chimera_core::flow::tables::TOOL_CALLS;
use chimera_core::job::tables::AGENTS;
use chimera_core::record::{Insert, Scope, Select, Tx, Value};
use chimera_engine::port::{CommitError, Outage, ReadError, Records};
use chimera_storage::records::{OpenError, SqliteRecords};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::sqlite_file::{damage_header, damage_root};
use std::os::unix::fs::FileExt;

/// A folder whose data file holds a schema and nothing more; all of it is in the file itself.
async fn stopped() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    sqlite(folder.path()).unwrap().close().await;
    folder
}

fn outage(opened: Result<SqliteRecords, OpenError>) -> (Outage, String) {
    match opened {
        Err(OpenError::Unavailable(why)) => (why.outage, why.reason),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was opened"),
    }
}

fn agent() -> Insert {
    let cells = vec![
        ("id", uuid::Uuid::from_u64_pair(1, 1).into()),
        ("name", "a".into()),
        ("agent_level", "L0".into()),
        ("llm_provider", "local".into()),
        ("llm_model", "m".into()),
        ("max_tokens", Value::Int(1)),
        ("allowed_skills", Vec::<String>::new().into()),
    ];
    Insert::into(&AGENTS, cells).unwrap()
}

fn of_calls() -> Select {
    Select::from(&TOOL_CALLS, Scope::System).take(1)
}

#[tokio::test]
async fn a_damaged_first_page_of_any_table_or_index_is_found_at_the_start_and_named() {
    for name in ["runs", "tool_calls", "audit_log_entries", "ledger_lanes", "idx_actor_keys_actor"] {
        let folder = stopped().await;
        let file = folder.path().join("chimera.db");
        damage_root(&file, name);
        let before = std::fs::read(&file).unwrap();
        let (outage, reason) = outage(sqlite(folder.path()));
        assert_eq!((outage, reason.contains(name)), (Outage::Damaged, true), "{name}: {reason}");
        assert!(
            matches!(
                SqliteRecords::facts(folder.path(), &folder.path().join(MARK_FILE), NOON),
                Err(OpenError::Unavailable(_))
            ),
            "{name}"
        );
        assert!(std::fs::read(&file).unwrap() == before, "nothing was changed in it");
    }
}

#[tokio::test]
async fn a_damaged_header_is_found_at_the_start() {
    let folder = stopped().await;
    damage_header(&folder.path().join("chimera.db"));
    assert_eq!(outage(sqlite(folder.path())), (Outage::Damaged, "the data file is damaged".to_owned()));
}

#[tokio::test]
async fn a_read_that_meets_damage_makes_the_store_not_ready_though_commits_work() {
    let folder = stopped().await;
    let store = sqlite(folder.path()).unwrap();
    assert_eq!(store.ready().await, Ok(()));
    damage_root(&folder.path().join("chimera.db"), "sqlite_autoindex_tool_calls_1");
    let Err(ReadError::Unavailable(why)) = store.read(of_calls()).await else { panic!("it was read") };
    assert_eq!(why.outage, Outage::Damaged);
    assert!(store.commit(Tx::default()).await.is_ok(), "other pages are whole");
    assert_eq!(store.ready().await.map_err(|why| why.outage), Err(Outage::Damaged));
    store.close().await;
}

#[tokio::test]
async fn a_commit_that_meets_damage_makes_the_store_not_ready_though_other_commits_work() {
    let folder = stopped().await;
    let store = sqlite(folder.path()).unwrap();
    damage_root(&folder.path().join("chimera.db"), "agents");
    let tx = Tx { inserts: vec![agent()], ..Tx::default() };
    let Err(CommitError::Unavailable(why)) = store.commit(tx).await else { panic!("it was committed") };
    assert_eq!(why.outage, Outage::Damaged);
    assert!(store.commit(Tx::default()).await.is_ok());
    assert_eq!(store.ready().await.map_err(|why| why.outage), Err(Outage::Damaged));
    store.close().await;
}

/// A private server: its files are damaged while it is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_page_of_a_database_makes_the_store_not_ready_though_commits_work() {
    let server = PrivatePostgres::start().unwrap();
    let store = postgres(&server.url()).await;
    store.commit(Tx { inserts: vec![agent()], ..Tx::default() }).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("CHECKPOINT").await.unwrap();
    let text = "SELECT current_setting('data_directory') || '/' || pg_relation_filepath('agents')";
    let path: String = client.query_one(text, &[]).await.unwrap().get(0);
    drop(client);
    server.stop().unwrap();
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[0xa5; 8_192], 0).unwrap();
    server.start_again().unwrap();
    let back = async { while store.ready().await.is_err() {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), back).await.expect("a server that is back");
    let Err(ReadError::Unavailable(why)) = store.read(Select::from(&AGENTS, Scope::System)).await else {
        panic!("it was read")
    };
    assert_eq!(why.outage, Outage::Damaged);
    assert!(store.commit(Tx::default()).await.is_ok(), "other pages are whole");
    assert_eq!(store.ready().await.map_err(|why| why.outage), Err(Outage::Damaged));
    store.close().await;
}
