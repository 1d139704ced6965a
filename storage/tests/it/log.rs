//! The write-ahead log of the embedded store stays small, with readers around it.

use crate::records::sqlite;
use chimera_core::flow::tables::RUNS;
use chimera_core::record::{Scope, Select, Tx};
use chimera_engine::port::{CommitError, Outage, Records};
use chimera_testkit::build::{entry, run};
use chimera_testkit::seeded::Seeded;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More than the log is cut to, and much less than these writes come to without care.
const BYTES_MAX: u64 = 48 * 1024 * 1024;

/// Fewer than any count of transactions after which something used to be done.
const WRITES: usize = 1_500;

#[tokio::test(flavor = "multi_thread")]
async fn the_log_stays_small_under_light_load_with_readers_and_is_cut_when_nobody_writes() {
    let (folder, seeded) = (tempfile::tempdir().unwrap(), Seeded::new(1));
    let store = Arc::new(sqlite(folder.path()).unwrap());
    let over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (store, over) = (Arc::clone(&store), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    store.read(Select::from(&RUNS, Scope::System).take(50)).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let log = folder.path().join("chimera.db-wal");
    let (mut largest, mut written) = (0, 0);
    for _ in 0..WRITES {
        let row = run(&seeded);
        let tx = Tx { entries: vec![entry(&seeded, "acme", "made").unwrap()], ..row.tx().unwrap() };
        let before = log.metadata().unwrap().len();
        store.commit(tx).await.unwrap();
        let after = log.metadata().unwrap().len();
        largest = after.max(largest);
        written += after.saturating_sub(before);
    }
    assert!(largest < BYTES_MAX, "the log grew to {largest} bytes, of {written} that were added");
    over.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    let cut = async {
        while log.metadata().unwrap().len() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), cut).await.expect("a log that nobody writes to is cut");
    store.close().await;
}

#[tokio::test]
async fn a_log_that_is_removed_under_a_writer_is_noticed_and_an_orderly_stop_saves_what_it_held() {
    let (folder, seeded) = (tempfile::tempdir().unwrap(), Seeded::new(1));
    let store = sqlite(folder.path()).unwrap();
    for _ in 0..5 {
        store.commit(run(&seeded).tx().unwrap()).await.unwrap();
    }
    std::fs::remove_file(folder.path().join("chimera.db-wal")).unwrap();
    let refused = store.commit(run(&seeded).tx().unwrap()).await;
    let CommitError::Unavailable(why) = refused.unwrap_err() else { panic!("another refusal") };
    assert!(why.outage == Outage::Unusable && why.reason.contains("write-ahead log was removed"), "{why:?}");
    assert!(store.ready().await.is_err(), "readiness says so");
    store.close().await;
    let store = sqlite(folder.path()).unwrap();
    assert_eq!(store.read(Select::from(&RUNS, Scope::System).take(50)).await.unwrap().rows.len(), 5);
    store.close().await;
}
