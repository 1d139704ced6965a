//! Verifying a store with several lanes in place, after tampering.

use chimera_core::audit::VerificationReport;
use chimera_core::ledger::checkpoint::{Checkpoint, SignedCheckpoint, Signer};
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_CHECKPOINTS, LEDGER_LANES};
use chimera_core::ledger::{ChainHead, Digest32, LedgerFault, StoredEntry};
use chimera_core::record::{Row, Table, Value};
use chimera_engine::audit::verify;
use chimera_testkit::cells::Cells;
use chimera_testkit::ledger_fixture::LedgerFixture;
use chimera_testkit::memory::MemoryRecords;

struct TamperedStore {
    world: LedgerFixture,
    store: MemoryRecords,
}

impl TamperedStore {
    /// Lane 1 has 300 entries under two checkpoints and 3 after them; lane 2 has 5 covered ones.
    async fn new() -> Self {
        let (world, store) = (LedgerFixture::new(1), MemoryRecords::with_lanes(2));
        world.write(&store, 0, "acme", 100).await;
        world.checkpoint(&store).await;
        world.write(&store, 0, "zeta", 200).await;
        world.write(&store, 1, "zeta", 5).await;
        world.checkpoint(&store).await;
        world.write(&store, 0, "acme", 3).await;
        Self { world, store }
    }

    async fn verify(&self) -> VerificationReport {
        verify(&self.store, &self.world.keys()).await.unwrap()
    }

    /// Tampers; returns the entry that is found broken.
    async fn after(&self, table: &'static Table, change: impl FnOnce(&mut Vec<Row>)) -> (i64, i64, LedgerFault) {
        self.store.tamper(table, change);
        let broken = self.verify().await.first_fault.expect("the change is found");
        (broken.lane.unwrap_or(0), broken.seq.unwrap_or(0), broken.fault)
    }
}

/// The position of an entry among the rows of its table.
pub(crate) fn place(rows: &[Row], lane: i64, seq: i64) -> usize {
    rows.iter().position(|row| (row.int("lane"), row.int("seq")) == (lane, seq)).unwrap()
}

/// An entry among the rows of its table.
pub(crate) fn entry(rows: &mut [Row], lane: i64, seq: i64) -> &mut Row {
    let at = place(rows, lane, seq);
    &mut rows[at]
}

#[tokio::test]
async fn an_untouched_store_verifies() {
    let report = TamperedStore::new().await.verify().await;
    assert!(report.is_intact(), "{report:?}");
    assert_eq!((report.entries, report.lanes, report.checkpoints, report.covered), (308, 2, 2, 305));
}

#[tokio::test]
async fn a_deleted_entry_is_found_in_the_lane_it_was_in() {
    let delete = |lane, seq| move |rows: &mut Vec<Row>| drop(rows.remove(place(rows, lane, seq)));
    assert_eq!(TamperedStore::new().await.after(&AUDIT_LOG_ENTRIES, delete(1, 42)).await, (1, 43, LedgerFault::Link));
    assert_eq!(
        TamperedStore::new().await.after(&AUDIT_LOG_ENTRIES, delete(2, 5)).await,
        (2, 5, LedgerFault::Checkpoint)
    );
    assert_eq!(TamperedStore::new().await.after(&AUDIT_LOG_ENTRIES, delete(1, 303)).await, (1, 303, LedgerFault::Lane));
    let whole_lane = |rows: &mut Vec<Row>| rows.retain(|row| row.int("lane") == 1);
    assert_eq!(TamperedStore::new().await.after(&AUDIT_LOG_ENTRIES, whole_lane).await, (2, 1, LedgerFault::Checkpoint));
}

/// An entry's hash includes its lane, so two lanes can't exchange entries.
#[tokio::test]
async fn entries_exchanged_between_lanes_are_found() {
    let exchange = |rows: &mut Vec<Row>| {
        for row in rows.iter_mut().filter(|row| row.int("seq") <= 5) {
            row.cells[0] = Value::Int(3 - row.int("lane"));
        }
    };
    assert_eq!(TamperedStore::new().await.after(&AUDIT_LOG_ENTRIES, exchange).await, (1, 1, LedgerFault::Link));
}

/// An intruder without the key can rebuild every hash, but not the signature over them.
#[tokio::test]
async fn a_lane_that_was_rebuilt_from_a_changed_entry_on_is_found() {
    let scene = TamperedStore::new().await;
    let mut head = ChainHead::EMPTY;
    scene.store.tamper(&AUDIT_LOG_ENTRIES, |rows| {
        for row in rows.iter_mut().filter(|row| row.int("lane") == 1) {
            let old = StoredEntry::from_row(row).unwrap().sealed;
            let mut entry = old.entry;
            if row.int("seq") == 150 {
                entry.actor_id = Some("nobody".into());
            }
            let forged = StoredEntry::after(1, head, entry.seal(old.salt).unwrap());
            head = forged.link.head();
            *row = forged.row();
        }
    });
    let hash = LEDGER_LANES.position("head_hash").unwrap();
    let found = scene.after(&LEDGER_LANES, |rows| rows[0].cells[hash] = Value::Bytes(head.hash.0.to_vec()));
    let (lane, seq, why) = found.await;
    assert!(matches!(why, LedgerFault::Lane | LedgerFault::Checkpoint), "{why}");
    assert!(lane == 1 && seq <= 150, "the broken part begins at {seq}");
}

/// Replaces the last checkpoint with one signed by the ledger's own key.
async fn resigned(change: impl FnOnce(&mut Checkpoint)) -> (Option<i64>, Option<i64>, LedgerFault) {
    let scene = TamperedStore::new().await;
    scene.store.tamper(&LEDGER_CHECKPOINTS, |rows| {
        let mut last = SignedCheckpoint::from_row(&rows[1]).unwrap().checkpoint;
        change(&mut last);
        let insert = last.sign(&scene.world.signer).insert().unwrap();
        rows[1].cells = LEDGER_CHECKPOINTS.columns.iter().map(|column| insert.value(column.name).clone()).collect();
    });
    let broken = scene.verify().await.first_fault.expect("the change is found");
    (broken.checkpoint, broken.lane, broken.fault)
}

#[tokio::test]
async fn a_signed_checkpoint_is_compared_with_the_one_before_and_with_the_entries() {
    for previous in [None, Some(Digest32([9; 32]))] {
        let found = resigned(|last| last.previous = previous).await;
        assert_eq!(found, (Some(2), None, LedgerFault::Checkpoint), "{previous:?}");
    }
    for (at, lane) in [(0, 1), (1, 2)] {
        let found = resigned(|last| last.lanes[at].root = Digest32([9; 32])).await;
        assert_eq!(found, (None, Some(lane), LedgerFault::Checkpoint));
    }
}

#[tokio::test]
async fn checkpoints_of_an_unknown_key_are_not_believed() {
    let scene = TamperedStore::new().await;
    let stranger = Signer::from_seed(&[8; 32]).public_key();
    let report = verify(&scene.store, &[stranger]).await.unwrap();
    assert_eq!(report.first_fault.unwrap().fault, LedgerFault::Signature);
}
