//! Foreign triggers, rules and row policies on the ledger, its lanes and its hold. No entry is stored without its
//! head, no lane is taken over, and the store is not ready while the object exists.

use crate::foreign_triggers::{before, execute, ignore, no_policy, opened, policy, until_ready, unusable, visited};
use crate::records::{fresh_database, one_lane, sqlite};
use chimera_engine::port::Records;
use chimera_testkit::ledger_fixture::LedgerFixture;

/// The number of entries, and the number according to the lanes.
async fn ledger(url: &str) -> (i64, i64) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let text = "SELECT (SELECT count(*) FROM audit_log_entries), (SELECT sum(head_seq)::bigint FROM ledger_lanes)";
    let row = client.query_one(text, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

fn ledger_in(file: &rusqlite::Connection) -> (i64, i64) {
    let text = "SELECT (SELECT count(*) FROM audit_log_entries), (SELECT sum(head_seq) FROM ledger_lanes)";
    file.query_row(text, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

#[tokio::test]
async fn a_data_file_that_swallows_changes_of_the_lane_keeps_no_entry_without_its_head() {
    let (_folder, store, file) = opened();
    let world = LedgerFixture::new(1);
    world.write(&store, 0, "acme", 2).await;
    for rule in [ignore("UPDATE", "ledger_lanes"), ignore("UPDATE OF head_seq", "ledger_lanes")] {
        let before = ledger_in(&file);
        file.execute_batch(&rule).unwrap();
        unusable(&store, world.entries(0, "acme", 1), "ledger_lanes", &rule).await;
        assert_eq!(ledger_in(&file), before, "{rule}");
        file.execute_batch("DROP TRIGGER dba").unwrap();
        until_ready(&store, &rule).await;
        world.write(&store, 0, "acme", 1).await;
        assert_eq!(ledger_in(&file), (before.0 + 1, before.1 + 1), "{rule}");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_swallows_changes_of_the_lane_is_unusable_and_nobody_took_the_lane_over() {
    let (url, world) = (fresh_database(), LedgerFixture::new(1));
    let store = visited(&url, "swallowed_lane").await;
    world.write(&store, 0, "acme", 2).await;
    let drop = "DROP TRIGGER dba ON ledger_lanes".to_owned();
    for (rule, mend) in [
        (before("UPDATE", "ledger_lanes", "RETURN NULL;"), drop.clone()),
        (before("UPDATE", "ledger_lanes", "RETURN OLD;"), drop),
        (
            "CREATE RULE dba AS ON UPDATE TO ledger_lanes DO INSTEAD NOTHING".to_owned(),
            "DROP RULE dba ON ledger_lanes".to_owned(),
        ),
        (policy("ledger_lanes"), no_policy("ledger_lanes")),
    ] {
        let before = ledger(&url).await;
        execute(&url, &rule).await;
        unusable(&store, world.entries(0, "acme", 1), "ledger_lanes", &rule).await;
        assert_eq!(ledger(&url).await, before, "{rule}");
        execute(&url, &mend).await;
        until_ready(&store, &rule).await;
        world.write(&store, 0, "acme", 1).await;
        assert_eq!(ledger(&url).await, (before.0 + 1, before.1 + 1), "{rule}");
    }
    store.close().await;
}

#[tokio::test]
async fn entries_that_a_data_file_swallows_keep_it_from_being_ready() {
    let (_folder, store, file) = opened();
    let world = LedgerFixture::new(1);
    world.write(&store, 0, "acme", 1).await;
    let of_one = "CREATE TRIGGER dba BEFORE INSERT ON audit_log_entries WHEN NEW.tenant_id = 'acme' \
                  BEGIN SELECT RAISE(IGNORE); END";
    for rule in [ignore("INSERT", "audit_log_entries"), of_one.to_owned()] {
        let before = ledger_in(&file);
        file.execute_batch(&rule).unwrap();
        unusable(&store, world.entries(0, "acme", 2), "audit_log_entries", &rule).await;
        assert_eq!(ledger_in(&file), before, "{rule}");
        file.execute_batch("DROP TRIGGER dba").unwrap();
        until_ready(&store, &rule).await;
        world.write(&store, 0, "acme", 1).await;
        assert_eq!(ledger_in(&file), (before.0 + 1, before.1 + 1), "{rule}");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_a_database_swallows_or_refuses_at_the_commit_keep_it_from_being_ready() {
    let (url, world) = (fresh_database(), LedgerFixture::new(1));
    let store = one_lane(&url).await;
    world.write(&store, 0, "acme", 1).await;
    let drop = "DROP TRIGGER dba ON audit_log_entries";
    let late = |when: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION audit_log_entries_late() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE 'no'; END $$; CREATE CONSTRAINT TRIGGER dba AFTER INSERT ON audit_log_entries \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW {when} EXECUTE FUNCTION audit_log_entries_late()"
        )
    };
    let of_one = "IF NEW.tenant_id = 'acme' THEN RETURN NULL; END IF; RETURN NEW;";
    for (rule, mend) in [
        (before("INSERT", "audit_log_entries", "RETURN NULL;"), drop),
        (before("INSERT", "audit_log_entries", of_one), drop),
        (
            "CREATE RULE dba AS ON INSERT TO audit_log_entries DO INSTEAD NOTHING".to_owned(),
            "DROP RULE dba ON audit_log_entries",
        ),
        (late(""), drop),
        (late("WHEN (NEW.tenant_id = 'acme')"), drop),
    ] {
        let before = ledger(&url).await;
        execute(&url, &rule).await;
        unusable(&store, world.entries(0, "acme", 2), "audit_log_entries", &rule).await;
        assert_eq!(ledger(&url).await, before, "{rule}");
        execute(&url, mend).await;
        until_ready(&store, &rule).await;
        world.write(&store, 0, "acme", 1).await;
        assert_eq!(ledger(&url).await, (before.0 + 1, before.1 + 1), "{rule}");
    }
    store.close().await;
}

/// Restored data does not count as the newest while a trigger prevents the hold from being written.
#[tokio::test]
async fn older_data_that_swallows_its_hold_is_refused_and_held_afterwards() {
    let (folder, store, file) = opened();
    let world = LedgerFixture::new(1);
    world.write(&store, 0, "acme", 1).await;
    drop(file);
    store.close().await;
    let (data, copy) = (folder.path().join("chimera.db"), folder.path().join("older"));
    std::fs::copy(&data, &copy).unwrap();
    let store = sqlite(folder.path()).unwrap();
    world.write(&store, 0, "acme", 1).await;
    store.close().await;
    std::fs::copy(&copy, &data).unwrap();
    let file = rusqlite::Connection::open(&data).unwrap();
    file.execute_batch(&ignore("INSERT", "store_state")).unwrap();
    assert!(sqlite(folder.path()).is_err_and(|why| why.to_string().contains("trigger dba on store_state")));
    file.execute_batch("DROP TRIGGER dba").unwrap();
    let store = sqlite(folder.path()).unwrap();
    assert!(store.hold().is_some());
    store.close().await;
}
