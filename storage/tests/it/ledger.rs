//! Every store carries the ledger's functions: memory, SQLite on a file, PostgreSQL with two nodes
//! of two lanes each.

mod sites;
mod tampering;

use crate::records::{fresh_database, one_lane, sqlite};
use chimera_engine::port::Records;
use chimera_testkit::memory::MemoryRecords;
use chimera_testkit::suite::ledger as suite;
use sites::every_site;

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_cover_the_ledger_of_every_store() {
    for site in every_site() {
        suite::checkpoints(&*site).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proofs_and_exports_of_every_store_verify_without_it() {
    for site in every_site() {
        suite::exports(&*site).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feed_of_every_store_has_no_gap_and_no_duplicate() {
    for site in every_site() {
        suite::feed(&*site).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_a_key_happens_once_on_every_store() {
    for site in every_site() {
        suite::idempotency(&*site).await;
    }
}

/// CONTENT-118, CONTENT-121, CONTENT-123, SWARM-119
#[tokio::test(flavor = "multi_thread")]
async fn decisions_and_actions_are_recorded_whole_on_every_store() {
    for site in every_site() {
        suite::audit(&*site).await;
    }
}

/// CONTENT-123, CONTENT-124
#[tokio::test]
async fn an_act_without_its_audit_row_does_not_happen_in_memory() {
    let store = MemoryRecords::new();
    let (hurt, mend) = (async || store.refuse_writes(), async || store.clear_faults());
    suite::without_its_audit_row_an_act_does_not_happen(&store, hurt, mend).await;
}

/// CONTENT-123, CONTENT-124
#[tokio::test]
async fn an_act_without_its_audit_row_does_not_happen_on_the_embedded_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(folder.path()).unwrap();
    let other = sites::file(folder.path());
    let run = |text: &str| other.execute_batch(text).unwrap();
    let hurt = async || run("CREATE UNIQUE INDEX no ON audit_logs (length(audit_log_id) > 0)");
    let mend = async || run("DROP INDEX no");
    suite::without_its_audit_row_an_act_does_not_happen(&store, hurt, mend).await;
    store.close().await;
}

/// CONTENT-123, CONTENT-124
#[tokio::test(flavor = "multi_thread")]
async fn an_act_without_its_audit_row_does_not_happen_on_the_shared_store() {
    let url = fresh_database();
    let (store, client) = (one_lane(&url).await, sites::client(&url).await);
    let run = async |text: &str| client.batch_execute(text).await.unwrap();
    let hurt = async || {
        run("ALTER TABLE audit_logs ADD CONSTRAINT no CHECK (false) NOT VALID").await;
    };
    let mend = async || run("ALTER TABLE audit_logs DROP CONSTRAINT no").await;
    suite::without_its_audit_row_an_act_does_not_happen(&store, hurt, mend).await;
    store.close().await;
}
