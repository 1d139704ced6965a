//! Damage: detected at the start, reported by every commit and read that meets it, and the store is not ready while
//! it lasts.

use crate::records::{fresh_database, postgres, sqlite};
use chimera_core::flow::tables::TOOL_CALLS;
use chimera_core::job::tables::AGENTS;
use chimera_core::record::{Insert, Scope, Select, Tx, Value};
use chimera_engine::port::{CommitError, Outage, ReadError, Records};
use chimera_storage::records::{self, MARK_FILE, OpenError, SqliteRecords};
use chimera_testkit::build::NOON;
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::sqlite_damage::{damage_header, damage_root};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A folder whose data file holds only a schema, without a log.
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
    Insert::new(&AGENTS, cells).unwrap()
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
                records::survey_sqlite(folder.path(), &folder.path().join(MARK_FILE), NOON),
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

/// Fills a table until its root page has children, and damages one of those.
fn damage_leaf(path: &Path) {
    let file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch(
        "WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < 2000)
         INSERT INTO tenants (id, slug, name) SELECT 't' || at, 's' || at, 'n' || at FROM n",
    )
    .unwrap();
    let leaf = "SELECT max(pageno) FROM dbstat WHERE name = 'tenants' AND pagetype = 'leaf'";
    let (page, size): (u32, u32) = (
        file.query_row(leaf, [], |row| row.get(0)).unwrap(),
        file.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap(),
    );
    drop(file);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0xa5; 64], u64::from(page - 1) * u64::from(size)).unwrap();
}

#[tokio::test]
async fn a_deep_look_finds_what_a_glance_does_not() {
    let folder = stopped().await;
    assert!(records::check_sqlite(folder.path()).is_ok());
    damage_leaf(&folder.path().join("chimera.db"));
    assert!(
        records::survey_sqlite(folder.path(), &folder.path().join(MARK_FILE), NOON).is_ok(),
        "a glance costs the same however much is stored"
    );
    let Err(OpenError::Unavailable(why)) = records::check_sqlite(folder.path()) else { panic!("it was not found") };
    assert_eq!(why.outage, Outage::Damaged);
    assert!(!why.reason.contains(&*folder.path().to_string_lossy()), "{}", why.reason);
    assert!(matches!(records::check_sqlite(Path::new("/nowhere")), Err(OpenError::Absent)));
}

#[tokio::test]
async fn a_deep_look_finds_a_reference_that_leads_nowhere() {
    let folder = stopped().await;
    let file = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    file.execute_batch(
        "PRAGMA foreign_keys = OFF;
         INSERT INTO tenants (id, slug, name) VALUES ('t', 't', 't');
         INSERT INTO token_families (id, actor_id, tenant_id, scopes, expires_at) VALUES (zeroblob(16), 'a', 't', '[]', 0);
         INSERT INTO refresh_tokens (token_digest, family_id, issued_at, expires_at)
         VALUES (zeroblob(32), randomblob(16), 0, 0);",
    )
    .unwrap();
    drop(file);
    let Err(OpenError::Unavailable(why)) = records::check_sqlite(folder.path()) else { panic!("it was not found") };
    assert!(why.reason.contains("a row of refresh_tokens refers to a row of token_families"), "{}", why.reason);
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
    server.restart().unwrap();
    let back = async { while store.ready().await.is_err() {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), back).await.expect("a server that is back");
    let Err(ReadError::Unavailable(why)) = store.read(Select::from(&AGENTS, Scope::System)).await else {
        panic!("it was read")
    };
    assert_eq!(why.outage, Outage::Damaged);
    assert!(store.commit(Tx::default()).await.is_ok(), "other pages are whole");
    assert_eq!(store.ready().await.map_err(|why| why.outage), Err(Outage::Damaged));
    let looked = records::check_postgres(&server.url(), |_, _, _| {}).await;
    assert!(matches!(looked, Err(OpenError::Unavailable(why)) if why.reason.contains("damaged: agents")));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deep_look_reads_every_table_and_index_of_a_database() {
    let url = fresh_database();
    postgres(&url).await.close().await;
    let mut told = Vec::new();
    let tables = records::check_postgres(&url, |table, _, _| told.push(table.to_owned())).await.unwrap();
    assert!(tables > 40 && told.len() == tables, "{told:?}");
    assert!(told.contains(&"audit_log_entries".to_owned()));
}
