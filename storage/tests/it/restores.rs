//! A store that is older than its marks: truncated, deleted, replaced, restored.

use crate::records::fresh_database;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, STORE_STATE};
use chimera_core::ledger::{MARK_BYTES, Mark};
use chimera_core::record::{Comparison, Condition, RowCount, Scope, Select, Step, Tx, Value};
use chimera_core::time::Timestamp;
use chimera_engine::port::{Blocked, CommitError, Hold, Outage, Records};
use chimera_storage::records::{
    self, AccessMode, DATA_FILE, DatabaseCopy, MARK_FILE, OpenError, PostgresOptions, PostgresRecords, SqliteRecords,
};
use chimera_testkit::cells::Cells;
use chimera_testkit::ledger_fixture::LedgerFixture;
use chimera_testkit::seeded::FakeClock;
use chimera_testkit::sqlite_damage::damage_root;
use chimera_testkit::suite::records::verify_chains;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const NOON: i64 = 1_767_268_800_000_000;

pub(crate) fn open(folder: &Path, access: AccessMode) -> SqliteRecords {
    let clock = Arc::new(FakeClock::at(Timestamp::from_micros(NOON)));
    SqliteRecords::open(folder, access, clock).unwrap()
}

fn held_reason(folder: &Path) -> Option<String> {
    let now = Timestamp::from_micros(NOON);
    records::survey_sqlite(folder, &folder.join(MARK_FILE), now).unwrap().hold.map(|hold| hold.reason)
}

/// The transaction with which an operator resumes.
fn let_go(generation: i64) -> Tx {
    let at = |column| STORE_STATE.position(column).unwrap();
    let set =
        vec![(at("generation"), generation.into()), (at("held_reason"), Value::Null), (at("held_at"), Value::Null)];
    let conditions = vec![Condition { column: "id", compare: Comparison::Is, value: 1.into() }];
    Tx {
        steps: vec![Step::Update { table: &STORE_STATE, conditions, set, rows: RowCount::Exactly(1) }],
        ..Tx::default()
    }
}

pub(crate) async fn entries(store: &dyn Records) -> usize {
    store.read(Select::from(&AUDIT_LOG_ENTRIES, Scope::System).take(1_000)).await.unwrap().rows.len()
}

/// The files of a data folder after a power cut or a kill: the store was never closed.
pub(crate) async fn killed(writes: usize) -> (TempDir, PathBuf) {
    let (place, world) = (tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let (live, left) = (place.path().join("live"), place.path().join("left"));
    let store = open(&live, AccessMode::Write);
    for _ in 0..writes {
        world.write(&store, 0, "acme", 1).await;
    }
    std::fs::create_dir(&left).unwrap();
    for name in ["chimera.db", "chimera.db-wal", MARK_FILE] {
        std::fs::copy(live.join(name), left.join(name)).unwrap();
    }
    store.close().await;
    (place, left)
}

/// Reads work, changes don't, and a restart does not alter that.
async fn is_held(folder: &Path, because: &str) {
    let world = LedgerFixture::new(2);
    for _ in 0..2 {
        let store = open(folder, AccessMode::Write);
        let hold = store.hold().expect("it is held");
        assert!(hold.reason.contains(because), "{}", hold.reason);
        let refused = store.commit(world.entries(0, "acme", 1)).await;
        assert!(matches!(&refused, Err(CommitError::Blocked(Blocked::Held(found))) if *found == hold), "{refused:?}");
        assert_eq!(store.lane(0), None, "nothing can be driven");
        assert!(store.ready().await.unwrap_err().reason.starts_with("held: "));
        entries(&store).await;
        store.close().await;
    }
    assert!(held_reason(folder).unwrap().contains(because));
}

#[tokio::test]
async fn a_killed_store_goes_on_and_one_whose_log_was_deleted_is_held() {
    let (_place, left) = killed(20).await;
    let store = open(&left, AccessMode::Write);
    assert_eq!((store.hold(), entries(&store).await), (None, 20));
    store.close().await;
    let (_place, left) = killed(20).await;
    std::fs::remove_file(left.join("chimera.db-wal")).unwrap();
    is_held(&left, "lane 1 is missing, which had 20 entries").await;
}

#[tokio::test]
async fn a_store_whose_log_was_cut_is_held() {
    let (_place, left) = killed(40).await;
    let log = std::fs::File::options().write(true).open(left.join("chimera.db-wal")).unwrap();
    log.set_len(log.metadata().unwrap().len() - 20 * 4_096).unwrap();
    drop(log);
    is_held(&left, "entries, and had 40 before").await;
}

#[tokio::test]
async fn a_data_file_that_was_removed_is_missed() {
    let (_place, left) = killed(3).await;
    for name in ["chimera.db", "chimera.db-wal"] {
        std::fs::remove_file(left.join(name)).unwrap();
    }
    assert!(held_reason(&left).unwrap().contains("lane 1 is missing"), "before anybody starts");
    is_held(&left, "lane 1 is missing").await;
}

#[tokio::test]
async fn an_older_file_is_held_and_the_newer_one_is_not() {
    let (folder, world) = (tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let data = folder.path().join("chimera.db");
    let store = open(folder.path(), AccessMode::Write);
    world.write(&store, 0, "acme", 5).await;
    store.close().await;
    std::fs::copy(&data, folder.path().join("older")).unwrap();
    let store = open(folder.path(), AccessMode::Write);
    world.write(&store, 0, "acme", 5).await;
    store.close().await;
    std::fs::copy(&data, folder.path().join("newer")).unwrap();
    std::fs::copy(folder.path().join("older"), &data).unwrap();
    is_held(folder.path(), "epoch").await;
    std::fs::copy(folder.path().join("newer"), &data).unwrap();
    let store = open(folder.path(), AccessMode::Write);
    world.write(&store, 0, "acme", 1).await;
    assert_eq!(entries(&store).await, 11);
    store.close().await;
}

/// Both chains end at the same number; only the hash differs.
#[tokio::test]
async fn another_history_of_the_same_length_is_held() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (folder, seed) in [(&one, 1), (&two, 2)] {
        let store = open(folder.path(), AccessMode::Write);
        LedgerFixture::new(seed).write(&store, 0, "acme", 4).await;
        store.close().await;
    }
    std::fs::copy(two.path().join("chimera.db"), one.path().join("chimera.db")).unwrap();
    is_held(one.path(), "entry 4 of lane 1 is not the one").await;
}

#[tokio::test]
async fn whoever_resumes_has_an_epoch_that_nobody_had_and_the_next_start_goes_on() {
    let (folder, world) = (tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let data = folder.path().join("chimera.db");
    let store = open(folder.path(), AccessMode::Write);
    world.write(&store, 0, "acme", 5).await;
    store.close().await;
    std::fs::copy(&data, folder.path().join("older")).unwrap();
    let mut last = 0;
    for _ in 0..4 {
        let store = open(folder.path(), AccessMode::Write);
        last = world.write(&store, 0, "acme", 5).await.epoch;
        store.close().await;
    }
    std::fs::copy(folder.path().join("older"), &data).unwrap();
    is_held(folder.path(), "epoch").await;
    let resumed = open(folder.path(), AccessMode::Resume);
    let receipt = resumed.commit(world.entries(0, "acme", 1)).await.unwrap();
    assert!(receipt.epoch > last, "{receipt:?} after {last}");
    resumed.close().await;
    is_held(folder.path(), "epoch").await;
    let resumed = open(folder.path(), AccessMode::Resume);
    resumed.commit(let_go(NOON)).await.unwrap();
    resumed.close().await;
    let store = open(folder.path(), AccessMode::Write);
    assert_eq!(store.hold(), None);
    world.write(&store, 0, "acme", 1).await;
    assert_eq!(verify_chains(&store).await, 7);
    store.close().await;
    std::fs::copy(folder.path().join("older"), &data).unwrap();
    is_held(folder.path(), "a state from before that").await;
}

#[tokio::test]
async fn a_copy_is_taken_beside_a_writer_and_is_held_however_it_is_put_back() {
    let (folder, world) = (tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let (live, copy, back) = (folder.path().join("live"), folder.path().join("copy"), folder.path().join("back"));
    let store = open(&live, AccessMode::Write);
    world.write(&store, 0, "acme", 6).await;
    [&copy, &back].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let hold = Hold { reason: "it is a backup".to_owned(), since: Timestamp::from_micros(NOON) };
    let copied = records::copy_sqlite(&live, &copy, &hold).unwrap();
    world.write(&store, 0, "acme", 1).await;
    assert_eq!((copied.lanes.len(), copied.lanes[0].2.seq), (1, 6));
    assert_eq!(records::inspect_sqlite_copy(&copy).unwrap(), copied);
    store.close().await;
    std::fs::copy(copy.join("records.db"), back.join("chimera.db")).unwrap();
    is_held(&back, "it is a backup").await;
    assert_eq!(entries(&open(&back, AccessMode::Read)).await, 6);
}

/// A resume by a clock that was far ahead.
const AHEAD: i64 = 2 * NOON;

async fn generation(store: &dyn Records) -> i64 {
    store.read(Select::from(&STORE_STATE, Scope::System).take(1)).await.unwrap().rows[0].int("generation")
}

/// Resumes as an operator with a correct clock does: beyond what the store knows.
async fn resume(store: &dyn Records) {
    let known = generation(store).await;
    store.commit(let_go(NOON.max(known + 1))).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn data_that_is_held_knows_every_generation_that_its_mark_knows_and_a_resume_goes_beyond() {
    let (folder, world) = (tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let data = folder.path().join("chimera.db");
    open(folder.path(), AccessMode::Write).close().await;
    std::fs::copy(&data, folder.path().join("older")).unwrap();
    let hold = Hold { reason: "it was restored".to_owned(), since: Timestamp::from_micros(NOON) };
    records::hold_sqlite(folder.path(), &folder.path().join(MARK_FILE), &hold).unwrap();
    let resumed = open(folder.path(), AccessMode::Resume);
    resumed.commit(let_go(AHEAD)).await.unwrap();
    resumed.close().await;
    let marked = open(folder.path(), AccessMode::Write);
    world.write(&marked, 0, "acme", 1).await;
    marked.close().await;
    // Held by a start, by a restore, and not at all before the resume.
    for how in ["start", "restore", "resume"] {
        std::fs::copy(folder.path().join("older"), &data).unwrap();
        match how {
            "start" => is_held(folder.path(), "a state from before that").await,
            "restore" => records::hold_sqlite(folder.path(), &folder.path().join(MARK_FILE), &hold).unwrap(),
            _ => {}
        }
        open(folder.path(), AccessMode::Resume).close().await;
        is_held(folder.path(), if how == "restore" { "it was restored" } else { "a state from before that" }).await;
        resume(&open(folder.path(), AccessMode::Resume)).await;
        let store = open(folder.path(), AccessMode::Write);
        assert_eq!(store.hold(), None, "{how}");
        assert!(generation(&store).await > AHEAD, "{how}");
        world.write(&store, 0, "acme", 1).await;
        store.close().await;
    }
}

async fn resumer(url: &str, marks: PathBuf) -> PostgresRecords {
    let options = PostgresOptions { marks: Some(marks), resume: true, lanes: 1, ..PostgresOptions::new(url) };
    PostgresRecords::open(options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_held_learns_the_generations_that_nodes_know_and_a_resume_goes_beyond() {
    let (url, folder, world) = (fresh_database(), tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let (copy, none) = (folder.path().join("copy"), folder.path().join("none.mark"));
    let one = node(&url, folder.path(), "one").await;
    world.write(&one, 0, "acme", 1).await;
    one.close().await;
    std::fs::create_dir(&copy).unwrap();
    let copied = records::copy_postgres(&url, &copy, |_| {}).await.unwrap();
    let source = DatabaseCopy { folder: &copy, manifest: &copied };
    let hold = Hold { reason: "it was restored".to_owned(), since: Timestamp::from_micros(NOON) };
    for (step, known) in [(0, false), (1, true), (2, false)] {
        let aside = Some(Timestamp::from_micros(NOON + step));
        records::fill_postgres(&url, source, &none, &hold, aside).await.unwrap();
        if step > 0 && !known {
            // The waiting node has marks that the resuming operator does not know.
            node(&url, folder.path(), "one").await.close().await;
        }
        let marks = if known { folder.path().join("one.mark") } else { none.clone() };
        let resumed = resumer(&url, marks).await;
        if step == 0 {
            resumed.commit(let_go(AHEAD)).await.unwrap();
            resumed.close().await;
        } else {
            resume(&resumed).await;
        }
        let one = node(&url, folder.path(), "one").await;
        assert_eq!(one.hold(), None, "step {step}");
        assert!(generation(&one).await >= AHEAD + step, "step {step}");
        world.write(&one, 0, "acme", 1).await;
        one.close().await;
    }
}

async fn node(url: &str, folder: &Path, name: &str) -> PostgresRecords {
    let marks = Some(folder.join(format!("{name}.mark")));
    let lanes = 1;
    PostgresRecords::open(PostgresOptions { marks, lanes, node: name.to_owned(), ..PostgresOptions::new(url) })
        .await
        .unwrap()
}

/// Waits until a store is held, or no longer held.
async fn until_held(store: &dyn Records, held: bool) {
    let waits = async {
        while store.hold().is_some() != held {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), waits).await.expect("every node hears of it");
}

/// Commits until the lane is claimed again.
async fn written(world: &LedgerFixture, store: &dyn Records) {
    let writes = async {
        while store.commit(world.entries(0, "acme", 1)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(40), writes).await.expect("it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_put_back_is_held_for_every_node_until_it_is_resumed() {
    let (url, folder, world) = (fresh_database(), tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let (one, two) = (node(&url, folder.path(), "one").await, node(&url, folder.path(), "two").await);
    for store in [&one, &two] {
        world.write(store, 0, "acme", 3).await;
    }
    let copy = folder.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    let copied = records::copy_postgres(&url, &copy, |_| {}).await.unwrap();
    let source = DatabaseCopy { folder: &copy, manifest: &copied };
    assert_eq!(copied.lanes.iter().map(|(_, _, head)| head.seq).sum::<i64>(), 6);
    world.write(&one, 0, "acme", 4).await;
    let hold = Hold { reason: "it was restored".to_owned(), since: Timestamp::from_micros(NOON) };
    let none = folder.path().join("none.mark");
    let refused = records::fill_postgres(&url, source, &none, &hold, None).await.unwrap_err();
    assert_eq!(refused.to_string(), "the database is not empty");
    let aside = Some(Timestamp::from_micros(NOON));
    let kept = records::fill_postgres(&url, source, &none, &hold, aside).await.unwrap();
    assert_eq!(kept.as_deref(), Some(format!("before_restore_{NOON}").as_str()));
    for store in [&one, &two] {
        until_held(store, true).await;
        assert!(matches!(store.commit(world.entries(0, "acme", 1)).await, Err(CommitError::Blocked(_))));
        assert_eq!(entries(store).await, 6, "reads work");
    }
    let marks = Some(folder.path().join("one.mark"));
    let options = PostgresOptions { marks, resume: true, lanes: 1, ..PostgresOptions::new(&url) };
    let resumed = PostgresRecords::open(options).await.unwrap();
    resumed.commit(let_go(NOON)).await.unwrap();
    resumed.close().await;
    for store in [&one, &two] {
        until_held(store, false).await;
        written(&world, store).await;
        store.close().await;
    }
    let again = node(&url, folder.path(), "one").await;
    assert_eq!(again.hold(), None);
    verify_chains(&again).await;
    again.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_nodes_mark_holds_a_database_that_was_replaced_behind_everybodys_back() {
    let (url, folder, world) = (fresh_database(), tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let one = node(&url, folder.path(), "one").await;
    world.write(&one, 0, "acme", 3).await;
    one.close().await;
    let other = fresh_database();
    let two = node(&other, folder.path(), "two").await;
    world.write(&two, 0, "acme", 1).await;
    assert_eq!(two.hold(), None, "it knows of nothing else");
    let one = node(&other, folder.path(), "one").await;
    assert!(one.hold().unwrap().reason.contains("older than its mark"));
    assert!(matches!(one.commit(world.entries(0, "acme", 1)).await, Err(CommitError::Blocked(_))));
    let refused = two.commit(world.entries(0, "acme", 1)).await;
    assert!(matches!(refused, Err(CommitError::Blocked(_) | CommitError::Fenced)), "{refused:?}");
    until_held(&two, true).await;
    one.close().await;
    two.close().await;
}

#[tokio::test]
async fn a_copy_of_data_that_is_not_sound_is_refused_when_it_is_made_and_when_it_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path(), AccessMode::Write).close().await;
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hold = Hold { reason: "it is a copy".to_owned(), since: Timestamp::from_micros(NOON) };
    let is_refused = |copied: Result<_, OpenError>| matches!(copied, Err(OpenError::Unavailable(why)) if why.outage == Outage::Damaged);
    records::copy_sqlite(folder.path(), whole.path(), &hold).unwrap();
    assert!(records::inspect_sqlite_copy(whole.path()).is_ok());
    damage_root(&whole.path().join(DATA_FILE), "agents");
    assert!(is_refused(records::inspect_sqlite_copy(whole.path())), "a page that nothing else reads");
    // A row that violates a constraint is copied byte by byte: only a check of the copy finds it.
    let file = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    let text = "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; \
                INSERT INTO actor_keys (id, actor_id, tenant_id) VALUES (zeroblob(16), 'a', 't')";
    file.execute_batch(text).unwrap();
    drop(file);
    assert!(is_refused(records::copy_sqlite(folder.path(), broken.path(), &hold)));
}

/// Removes the last entries from a database, as on a server that never received them.
async fn forget_the_end(url: &str, lane: i64, seq: i64) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let text = format!(
        "BEGIN; ALTER TABLE audit_log_entries DISABLE TRIGGER USER; \
         DELETE FROM audit_log_entries WHERE lane = {lane} AND seq > {seq}; \
         UPDATE ledger_lanes SET head_seq = {seq}, head_hash = (SELECT hash FROM audit_log_entries \
           WHERE lane = {lane} AND seq = {seq}) WHERE lane = {lane}; \
         ALTER TABLE audit_log_entries ENABLE ALWAYS TRIGGER audit_log_entries_append_only; COMMIT"
    );
    client.batch_execute(&text).await.unwrap();
}

/// Waits until a mark file has a lane at this position.
async fn until_marked(marks: &Path, lane: i64, seq: i64) {
    let marked = || {
        let bytes = std::fs::read(marks).unwrap_or_default();
        let mut found = bytes.chunks(MARK_BYTES).filter_map(Mark::decode);
        found.any(|mark| mark.lane == lane && mark.head.seq == seq)
    };
    let waits = async {
        while !marked() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), waits).await.expect("every node marks every lane");
}

/// What the other node wrote is missing, and this node, whose own lane is intact, would continue from there.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_misses_the_end_of_what_another_one_wrote() {
    for restarted in [false, true] {
        let (url, folder, world) = (fresh_database(), tempfile::tempdir().unwrap(), LedgerFixture::new(1));
        let (one, two) = (node(&url, folder.path(), "one").await, node(&url, folder.path(), "two").await);
        world.write(&one, 0, "acme", 3).await;
        let kept = world.write(&two, 0, "acme", 3).await;
        let last = world.write(&two, 0, "acme", 2).await;
        assert_eq!((last.lane, last.head_seq), (kept.lane, 5));
        until_marked(&folder.path().join("one.mark"), kept.lane, 5).await;
        two.close().await;
        let one = if restarted {
            one.close().await;
            forget_the_end(&url, kept.lane, 3).await;
            node(&url, folder.path(), "one").await
        } else {
            forget_the_end(&url, kept.lane, 3).await;
            one
        };
        until_held(&one, true).await;
        let hold = one.hold().unwrap();
        assert!(hold.reason.contains("has 3 entries, and had 5 before"), "{}", hold.reason);
        assert!(matches!(one.commit(world.entries(0, "acme", 1)).await, Err(CommitError::Blocked(_))));
        one.close().await;
    }
}

/// An interrupted restore, for whatever reason, leaves the database as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_whose_restore_fails_is_what_it_was() {
    let (url, folder, world) = (fresh_database(), tempfile::tempdir().unwrap(), LedgerFixture::new(1));
    let one = node(&url, folder.path(), "one").await;
    world.write(&one, 0, "acme", 3).await;
    let copy = folder.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    let copied = records::copy_postgres(&url, &copy, |_| {}).await.unwrap();
    let source = DatabaseCopy { folder: &copy, manifest: &copied };
    let last = &copied.tables.last().unwrap().name;
    std::fs::remove_file(copy.join(format!("{last}.copy"))).unwrap();
    let hold = Hold { reason: "it was restored".to_owned(), since: Timestamp::from_micros(NOON) };
    let aside = Some(Timestamp::from_micros(NOON));
    let none = folder.path().join("none.mark");
    records::fill_postgres(&url, source, &none, &hold, aside).await.unwrap_err();
    written(&world, &one).await;
    assert_eq!((entries(&one).await, one.hold()), (4, None), "nothing was moved");
    one.close().await;
    let empty = fresh_database();
    records::fill_postgres(&empty, source, &none, &hold, aside).await.unwrap_err();
    let refused = PostgresRecords::open_read_only(&empty).await.err().map(|error| error.to_string());
    assert!(refused.is_some_and(|said| said.contains("schema")), "an empty one is empty");
}

/// An unreadable head is reported as damage of that lane, and not treated as zeros or as unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_whose_head_is_damaged_is_named_by_every_look_and_every_copy() {
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let now = Timestamp::from_micros(NOON);
    let is_named = |found: Option<OpenError>| {
        let named = |why: &str| why == "the head of lane 1 of the ledger is damaged";
        assert!(
            matches!(&found, Some(OpenError::Unavailable(why)) if why.outage == Outage::Damaged && named(&why.reason)),
            "{found:?}"
        );
    };
    let (one, world) = (open(folder.path(), AccessMode::Write), LedgerFixture::new(1));
    world.write(&one, 0, "acme", 1).await;
    one.close().await;
    let file = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    let text = "PRAGMA ignore_check_constraints = ON; UPDATE ledger_lanes SET head_hash = x'07'";
    file.execute_batch(text).unwrap();
    drop(file);
    let marks = folder.path().join(MARK_FILE);
    is_named(records::survey_sqlite(folder.path(), &marks, now).err());
    let clock = Arc::new(FakeClock::at(now));
    is_named(SqliteRecords::open_marked(folder.path(), &marks, AccessMode::Write, clock).err());

    let (url, marks) = (fresh_database(), folder.path().join("one.mark"));
    let one = node(&url, folder.path(), "one").await;
    LedgerFixture::new(1).write(&one, 0, "acme", 1).await;
    one.close().await;
    damage_heads(&url).await;
    is_named(records::survey_postgres(&url, &marks, now).await.err());
    is_named(records::copy_postgres(&url, copy.path(), |_| {}).await.err());
}

async fn damage_heads(url: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let text = "ALTER TABLE ledger_lanes DROP CONSTRAINT ledger_lanes_head_hash_check; \
                UPDATE ledger_lanes SET head_hash = '\\x07'";
    client.batch_execute(text).await.unwrap();
}
