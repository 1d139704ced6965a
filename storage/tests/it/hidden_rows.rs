//! Ledger rows hidden by a row policy. A database that hides them was not restored: it is unusable while they are
//! hidden, and recovers by itself. Missing rows hold it, as after a restore.

use crate::records::{fresh_database, postgres};
use chimera_engine::port::{CommitError, Outage, Records};
use chimera_storage::records::{PostgresOptions, PostgresRecords};
use chimera_testkit::ledger_fixture::LedgerFixture;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
}

/// The URL of a user who owns nothing, so that row policies apply.
async fn visitor(url: &str, name: &str) -> String {
    postgres(url).await.close().await;
    let role = format!(
        "DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN; GRANT ALL ON SCHEMA public TO {name}; \
         GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}"
    );
    execute(url, &role).await;
    let (scheme, rest) = url.split_once("://").unwrap();
    format!("{scheme}://{name}@{}", rest.split_once('@').unwrap().1)
}

async fn node(url: &str, folder: &Path) -> PostgresRecords {
    let marks = Some(folder.join("one.mark"));
    PostgresRecords::open(PostgresOptions { marks, lanes: 1, ..PostgresOptions::new(url) }).await.unwrap()
}

/// Waits until the store is not ready for this reason.
async fn until_told(store: &dyn Records, words: &str) {
    let told = async {
        loop {
            match store.ready().await {
                Err(why) if why.outage == Outage::Unusable && why.reason.contains(words) => return,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), told).await.unwrap_or_else(|_| panic!("nobody says {words}"));
}

async fn until_ready(store: &dyn Records) {
    let back = async { while store.ready().await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(20), back).await.expect("it goes on by itself");
}

/// Whether a store stays held, or not held, for longer than two rounds of the watch task.
async fn stays_held(store: &dyn Records, held: bool) -> bool {
    let until = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < until {
        if store.hold().is_some() != held {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_hides_rows_of_the_ledger_makes_the_database_unusable_and_not_held() {
    let (url, folder, world) = (fresh_database(), tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let store = node(&visitor(&url, "visitor").await, folder.path()).await;
    world.write(&store, 0, "acme", 3).await;
    for table in ["ledger_lanes", "audit_log_entries", "store_state"] {
        // Entries can be added, but nobody sees them.
        let hide = format!(
            "DROP POLICY IF EXISTS added ON audit_log_entries; \
             CREATE POLICY added ON audit_log_entries FOR INSERT WITH CHECK (true); \
             ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        );
        execute(&url, &hide).await;
        until_told(&store, table).await;
        assert!(stays_held(&store, false).await, "{table}");
        execute(&url, &format!("ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")).await;
        until_ready(&store).await;
        world.write(&store, 0, "acme", 1).await;
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_on_a_database_that_hides_its_ledger_holds_nothing() {
    let (url, folder, world) = (fresh_database(), tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let limited = visitor(&url, "starter").await;
    let store = node(&limited, folder.path()).await;
    world.write(&store, 0, "acme", 3).await;
    store.close().await;
    for table in ["ledger_lanes", "audit_log_entries", "store_state"] {
        execute(&url, &format!("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")).await;
        let marks = Some(folder.path().join("one.mark"));
        let opened = PostgresRecords::open(PostgresOptions { marks, lanes: 1, ..PostgresOptions::new(&limited) }).await;
        let refused = opened.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains(table) && !refused.contains("older"), "{table}: {refused}");
        execute(&url, &format!("ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")).await;
    }
    let store = node(&limited, folder.path()).await;
    assert_eq!(store.hold(), None);
    world.write(&store, 0, "acme", 1).await;
    store.close().await;
}

/// Restoring an older copy behind a policy gains nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_is_gone_when_nothing_hides_it_any_more_holds_the_database() {
    let (url, folder, world) = (fresh_database(), tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let store = node(&visitor(&url, "restorer").await, folder.path()).await;
    world.write(&store, 0, "acme", 3).await;
    execute(&url, "ALTER TABLE ledger_lanes ENABLE ROW LEVEL SECURITY").await;
    assert!(store.commit(world.entries(0, "acme", 1)).await.is_err());
    until_told(&store, "ledger_lanes").await;
    let older = "ALTER TABLE audit_log_entries DISABLE TRIGGER USER; \
                 DELETE FROM audit_log_entries; DELETE FROM ledger_lanes; \
                 ALTER TABLE audit_log_entries ENABLE ALWAYS TRIGGER audit_log_entries_append_only; \
                 ALTER TABLE ledger_lanes DISABLE ROW LEVEL SECURITY";
    execute(&url, older).await;
    let held = async {
        while store.hold().is_none() {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(Duration::from_secs(20), held).await.expect("it is held");
    assert!(store.hold().unwrap().reason.contains("is older than its mark"));
    assert!(matches!(store.commit(world.entries(0, "acme", 1)).await, Err(CommitError::Blocked(_))));
    store.close().await;
}

/// A held database stays held, even while the row that says so is hidden.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_hides_the_hold_lets_nobody_change_a_database_that_is_held() {
    let (url, folder, world) = (fresh_database(), tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let store = node(&visitor(&url, "looker").await, folder.path()).await;
    world.write(&store, 0, "acme", 1).await;
    execute(&url, "UPDATE store_state SET held_reason = 'it was restored', held_at = now()").await;
    let held = async {
        while store.hold().is_none() {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(Duration::from_secs(20), held).await.expect("it is held");
    execute(&url, "ALTER TABLE store_state ENABLE ROW LEVEL SECURITY").await;
    assert!(stays_held(&store, true).await && store.commit(world.entries(0, "acme", 1)).await.is_err());
    store.close().await;
}
