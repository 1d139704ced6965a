//! The write-ahead log of the embedded store stays small, even with concurrent readers.

use crate::records::sqlite;
use crate::restores::{entries, killed, open};
use chimera_core::flow::tables::RUNS;
use chimera_core::record::{Scope, Select, Tx};
use chimera_core::time::Timestamp;
use chimera_engine::port::{CommitError, Hold, Outage, Records};
use chimera_storage::records::{self, AccessMode, MARK_FILE, OpenError, SqliteRecords};
use chimera_testkit::build::{entry, run};
use chimera_testkit::seeded::{FakeClock, Seeded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More than the log is truncated to, and much less than these writes amount to without checkpoints.
const BYTES_MAX: u64 = 48 * 1024 * 1024;

/// Fewer than any number of transactions that triggers a checkpoint.
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

/// SQLite deletes a log when it creates its data file, or opens an empty one.
#[tokio::test]
async fn a_log_whose_data_file_is_missing_or_empty_is_left_alone_whoever_opens_it() {
    let (_place, left) = killed(20).await;
    let (data, log, aside) = (left.join("chimera.db"), left.join("chimera.db-wal"), left.join("aside"));
    let held = std::fs::read(&log).unwrap();
    std::fs::rename(&data, &aside).unwrap();
    let now = Timestamp::from_micros(0);
    let hold = Hold { reason: "it is a copy".to_owned(), since: now };
    let opened = |access| SqliteRecords::open(&left, access, Arc::new(FakeClock::at(now))).map(drop);
    for how in ["missing", "empty"] {
        let refusals = [
            opened(AccessMode::Write),
            opened(AccessMode::Read),
            opened(AccessMode::Resume),
            records::migrate_sqlite(&left).map(drop),
            records::survey_sqlite(&left, &left.join(MARK_FILE), now).map(drop),
            records::sqlite_times(&left).map(drop),
            records::check_sqlite(&left),
            records::copy_sqlite(&left, &left, &hold).map(drop),
            records::hold_sqlite(&left, &left.join(MARK_FILE), &hold),
        ];
        for refused in refusals {
            let Err(OpenError::Unavailable(why)) = refused else { panic!("{how}: {refused:?}") };
            assert_eq!(why.outage, Outage::Unusable);
            for words in [how, "chimera.db-wal", "restore the matching chimera.db"] {
                assert!(why.reason.contains(words), "{words}: {}", why.reason);
            }
        }
        assert_eq!(std::fs::read(&log).unwrap(), held, "{how}");
        std::fs::write(&data, "").unwrap();
    }
    std::fs::rename(&aside, &data).unwrap();
    let store = open(&left, AccessMode::Write);
    assert_eq!((store.hold(), entries(&store).await), (None, 20));
    store.close().await;
}

#[tokio::test]
async fn nothing_is_resumed_where_there_is_no_data_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(FakeClock::at(Timestamp::from_micros(0)));
    let refused = SqliteRecords::open(folder.path(), AccessMode::Resume, clock).map(drop);
    assert!(matches!(refused, Err(OpenError::Absent)), "{refused:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
