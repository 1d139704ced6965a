//! A data file and a write-ahead log that do not belong together are rejected, and neither is changed.

use crate::restores::{entries, open};
use chimera_core::flow::tables::RUNS;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::record::{Scope, Select, Tx};
use chimera_core::time::Timestamp;
use chimera_engine::port::{Hold, Outage, Random, Records};
use chimera_storage::records::{self, AccessMode, MARK_FILE, OpenError, SqliteRecords};
use chimera_testkit::build::{entry, run};
use chimera_testkit::flow::until;
use chimera_testkit::ledger_fixture::LedgerFixture;
use chimera_testkit::seeded::{FakeClock, Seeded};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const DATA: &str = "chimera.db";
const LOG: &str = "chimera.db-wal";
/// How SQLite checkpoints the log into the data file.
const CHECKPOINTS: [&str; 3] = ["PASSIVE", "RESTART", "TRUNCATE"];
const PAGE_BYTES: usize = 4096;

/// A data file and its log, as on disk at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    data: Vec<u8>,
    log: Vec<u8>,
}

impl Pair {
    /// Reads both until neither changed meanwhile.
    fn of(folder: &Path) -> Self {
        let look = || Self {
            data: std::fs::read(folder.join(DATA)).unwrap(),
            log: std::fs::read(folder.join(LOG)).unwrap_or_default(),
        };
        loop {
            let (first, second) = (look(), look());
            if first == second {
                return first;
            }
        }
    }

    fn put(&self, folder: &Path) {
        std::fs::write(folder.join(DATA), &self.data).unwrap();
        std::fs::write(folder.join(LOG), &self.log).unwrap();
    }

    fn within(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        self.put(folder.path());
        folder
    }
}

fn opened(folder: &Path, access: AccessMode) -> Result<(), OpenError> {
    SqliteRecords::open(folder, access, Arc::new(FakeClock::at(Timestamp::from_micros(0)))).map(drop)
}

fn hold() -> Hold {
    Hold { reason: "it is a copy".to_owned(), since: Timestamp::from_micros(0) }
}

/// Everything that only reads the data in a folder.
fn lookers(folder: &Path) -> [Result<(), OpenError>; 5] {
    let copy = tempfile::tempdir().unwrap();
    [
        opened(folder, AccessMode::Read),
        records::survey_sqlite(folder, &folder.join(MARK_FILE), Timestamp::from_micros(0)).map(drop),
        records::sqlite_times(folder).map(drop),
        records::check_sqlite(folder),
        records::copy_sqlite(folder, copy.path(), &hold()).map(drop),
    ]
}

/// Everything that would change it.
fn writers(folder: &Path) -> [Result<(), OpenError>; 4] {
    [
        opened(folder, AccessMode::Write),
        opened(folder, AccessMode::Resume),
        records::migrate_sqlite(folder).map(drop),
        records::hold_sqlite(folder, &folder.join(MARK_FILE), &hold()),
    ]
}

#[tokio::test]
async fn an_older_data_file_beside_a_newer_log_is_refused_by_everybody_and_both_are_left_alone() {
    let (place, world) = (tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let mut older = Vec::new();
    for _ in 0..3 {
        let store = open(place.path(), AccessMode::Write);
        world.write(&store, 0, "acme", 5).await;
        store.close().await;
        older.push(std::fs::read(place.path().join(DATA)).unwrap());
    }
    let store = open(place.path(), AccessMode::Write);
    world.write(&store, 0, "acme", 5).await;
    let right = Pair::of(place.path());
    let mark = std::fs::read(place.path().join(MARK_FILE)).unwrap();
    store.close().await;
    assert!(!right.log.is_empty());
    for data in &older[..2] {
        let mixed = Pair { data: data.clone(), log: right.log.clone() };
        let left = mixed.within();
        std::fs::write(left.path().join(MARK_FILE), &mark).unwrap();
        for refused in lookers(left.path()).into_iter().chain(writers(left.path())) {
            let Err(OpenError::Unavailable(why)) = refused else { panic!("{refused:?}") };
            assert_eq!(why.outage, Outage::Unusable, "{why:?}");
            for words in ["chimera.db is not the data file", "chimera.db-wal", "restore the matching chimera.db"] {
                assert!(why.reason.contains(words), "{words}: {}", why.reason);
            }
            assert!(Pair::of(left.path()) == mixed, "somebody changed a file");
        }
        right.put(left.path());
        let store = open(left.path(), AccessMode::Write);
        assert_eq!((store.hold(), entries(&store).await), (None, 20));
        store.close().await;
    }
    let left = Pair { data: older[2].clone(), log: right.log.clone() }.within();
    assert_eq!(entries(&open(left.path(), AccessMode::Read)).await, 20, "the log begins where this one ends");
}

/// The log holds the first page, so SQLite would open any file with a damaged one and merge the log into it.
#[tokio::test]
async fn a_data_file_with_a_damaged_header_beside_a_log_is_refused_by_everybody_and_both_are_left_alone() {
    let (place, world) = (tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let mut files = Vec::new();
    for _ in 0..2 {
        let store = open(place.path(), AccessMode::Write);
        world.write(&store, 0, "acme", 5).await;
        store.close().await;
        files.push(std::fs::read(place.path().join(DATA)).unwrap());
    }
    let store = open(place.path(), AccessMode::Write);
    world.write(&store, 0, "acme", 5).await;
    let right = Pair::of(place.path());
    store.close().await;
    for (data, damage) in files.iter().flat_map(|data| [(data, vec![0; PAGE_BYTES]), (data, vec![0xa5; 100])]) {
        let mut mixed = Pair { data: data.clone(), log: right.log.clone() };
        mixed.data[..damage.len()].copy_from_slice(&damage);
        let left = mixed.within();
        for refused in lookers(left.path()).into_iter().chain(writers(left.path())) {
            let Err(OpenError::Unavailable(why)) = refused else { panic!("{refused:?}") };
            assert_eq!(why.outage, Outage::Damaged, "{why:?}");
            for words in ["the header of chimera.db can't be read", "chimera.db-wal", "restore the matching chimera.db"]
            {
                assert!(why.reason.contains(words), "{words}: {}", why.reason);
            }
            assert!(Pair::of(left.path()) == mixed, "somebody changed a file");
        }
        right.put(left.path());
        let store = open(left.path(), AccessMode::Write);
        assert_eq!((store.hold(), entries(&store).await), (None, 15));
        store.close().await;
    }
}

#[tokio::test]
async fn whoever_only_looks_leaves_a_data_file_and_its_log_as_they_are() {
    let (place, world) = (tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let store = open(place.path(), AccessMode::Write);
    world.write(&store, 0, "acme", 5).await;
    let right = Pair::of(place.path());
    store.close().await;
    let left = right.within();
    lookers(left.path()).into_iter().for_each(|looked| looked.unwrap());
    assert!(Pair::of(left.path()) == right, "a look moved the log into the data file");
}

/// Removed, or replaced by a copy of the same bytes: the content of the log is in no file with a name.
#[tokio::test]
async fn the_log_of_a_data_file_that_was_removed_or_replaced_outlives_an_orderly_stop() {
    for replaced in [false, true] {
        let (place, world) = (tempfile::tempdir().unwrap(), LedgerFixture::new(1));
        let (data, aside) = (place.path().join(DATA), place.path().join("aside"));
        let store = open(place.path(), AccessMode::Write);
        for _ in 0..5 {
            world.write(&store, 0, "acme", 1).await;
        }
        let before = Pair::of(place.path());
        assert!(!before.log.is_empty());
        std::fs::write(&aside, &before.data).unwrap();
        if replaced {
            std::fs::rename(&aside, &data).unwrap();
        } else {
            std::fs::remove_file(&data).unwrap();
        }
        assert!(store.commit(world.entries(0, "acme", 1)).await.is_err(), "it would be lost");
        store.close().await;
        drop(store);
        assert_eq!(std::fs::read(place.path().join(LOG)).unwrap(), before.log, "replaced: {replaced}");
        if !replaced {
            std::fs::rename(&aside, &data).unwrap();
        }
        let store = open(place.path(), AccessMode::Write);
        assert_eq!((store.hold(), entries(&store).await), (None, 5), "replaced: {replaced}");
        store.close().await;
    }
}

/// Everything that the batches of these tests write.
async fn content(store: &dyn Records) -> String {
    let mut text = String::new();
    for table in [&RUNS, &AUDIT_LOG_ENTRIES] {
        let rows = store.read(Select::from(table, Scope::System).take(1_000)).await.unwrap().rows;
        text += &format!("{:?}", rows.iter().map(|row| &row.cells).collect::<Vec<_>>());
    }
    text
}

/// A store that has claimed its lane: from here on it writes only what it is given.
async fn claimed(folder: &Path) -> SqliteRecords {
    let store = open(folder, AccessMode::Write);
    until("the lane", || store.lane(0).is_some()).await;
    store
}

/// One history of a store, with copies of its files from every moment.
struct History {
    folder: TempDir,
    store: SqliteRecords,
    seeded: Seeded,
    dice: Seeded,
    committed: BTreeSet<String>,
    kept: Vec<Pair>,
    /// Pairs whose data file was being written. Such a file is consistent only together with its own log.
    torn: Vec<Pair>,
}

impl History {
    async fn begin(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // From here on every data file has the schema, even without a log.
        open(folder.path(), AccessMode::Write).close().await;
        let store = claimed(folder.path()).await;
        let committed = BTreeSet::from([content(&store).await]);
        let (seeded, dice) = (Seeded::new(seed), Seeded::new(seed + 1_000));
        Self { folder, store, seeded, dice, committed, kept: Vec::new(), torn: Vec::new() }
    }

    fn roll(&self, sides: usize) -> usize {
        let mut bytes = [0; 8];
        self.dice.fill(&mut bytes);
        usize::try_from(u64::from_le_bytes(bytes) % sides as u64).unwrap()
    }

    fn keep(&mut self) {
        self.kept.push(Pair::of(self.folder.path()));
    }

    async fn batch(&mut self) {
        let row = run(&self.seeded);
        let tx = Tx { entries: vec![entry(&self.seeded, "acme", "made").unwrap()], ..row.tx().unwrap() };
        self.store.commit(tx).await.unwrap();
        self.committed.insert(content(&self.store).await);
    }

    /// Checkpoints the log; also records the files as they look when that is interrupted at some page.
    fn checkpoint(&mut self) {
        let before = Pair::of(self.folder.path());
        let conn = rusqlite::Connection::open(self.folder.path().join(DATA)).unwrap();
        conn.execute_batch("PRAGMA busy_timeout = 0").unwrap();
        let mode = CHECKPOINTS[self.roll(CHECKPOINTS.len())];
        conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())).unwrap();
        drop(conn);
        let after = Pair::of(self.folder.path());
        let pages = before.data.len().min(after.data.len()) / PAGE_BYTES;
        let cut = self.roll(pages + 1) * PAGE_BYTES;
        let data = [&after.data[..cut], &before.data[cut..]].concat();
        self.torn.push(Pair { data, log: before.log });
        self.kept.push(after);
    }

    /// Continues from files as a kill or a copy left them: the newest, or older ones.
    async fn go_on_from(&mut self, pair: &Pair) {
        self.store.close().await;
        self.keep();
        self.folder = pair.within();
        self.store = claimed(self.folder.path()).await;
        self.committed.insert(content(&self.store).await);
    }

    /// A clean stop, which checkpoints the whole log, and a start.
    async fn restart(&mut self) {
        self.store.close().await;
        self.keep();
        self.store = claimed(self.folder.path()).await;
    }

    async fn step(&mut self) {
        match self.roll(11) {
            0..=4 => self.batch().await,
            5 | 6 => self.checkpoint(),
            7 => self.go_on_from(&Pair::of(self.folder.path())).await,
            8 => self.restart().await,
            9 if !self.torn.is_empty() => {
                self.go_on_from(&self.torn[self.roll(self.torn.len())].clone()).await;
                self.restart().await;
            }
            _ if self.kept.is_empty() => {}
            _ => self.go_on_from(&self.kept[self.roll(self.kept.len())].clone()).await,
        }
        self.keep();
    }
}

/// The contents of the files, if they are accepted.
async fn accepted(pair: &Pair, which: &str) -> Option<String> {
    let folder = pair.within();
    let clock = Arc::new(FakeClock::at(Timestamp::from_micros(0)));
    match SqliteRecords::open(folder.path(), AccessMode::Read, clock) {
        Ok(store) => {
            records::check_sqlite(folder.path()).unwrap_or_else(|error| panic!("{which}: {error}"));
            Some(content(&store).await)
        }
        Err(OpenError::Unavailable(why)) if why.reason.contains("is not the data file") => None,
        Err(other) => panic!("{which}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happened_files_that_belong_together_are_accepted_and_no_mixture_passes_for_a_state() {
    let (mut mixtures, mut refused) = (0, 0);
    for seed in 1..=4 {
        let mut history = History::begin(seed).await;
        for _ in 0..30 {
            history.step().await;
        }
        history.store.close().await;
        for (at, pair) in history.kept.iter().chain(&history.torn).enumerate() {
            let which = format!("seed {seed}: pair {at}, torn after {}", history.kept.len());
            let found = accepted(pair, &which).await.unwrap_or_else(|| panic!("{which}: it belongs together"));
            assert!(history.committed.contains(&found), "{which}: nobody committed that");
        }
        for _ in 0..60 {
            let of = |at: usize| &history.kept[at];
            let (data, log) = (history.roll(history.kept.len()), history.roll(history.kept.len()));
            let pair = Pair { data: of(data).data.clone(), log: of(log).log.clone() };
            mixtures += 1;
            let which = format!("seed {seed}: data {data}, log {log}");
            match accepted(&pair, &which).await {
                Some(found) => assert!(history.committed.contains(&found), "{which}"),
                None => refused += 1,
            }
        }
    }
    assert!(refused > mixtures / 4, "{refused} of {mixtures}: these histories prove little");
}
