//! Verifying a store in place, after an intruder was there.

use crate::memory::{Memory, entry_at};
use crate::world::World;
use chimera_core::ledger::checkpoint::Signer;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_CHECKPOINTS, LEDGER_LANES, LEDGER_NODES};
use chimera_core::ledger::{Digest32, Fault, Head, Report, StoredEntry};
use chimera_core::record::{Row, Table, Value};
use chimera_engine::ledger::verify;

struct Scene {
    world: World,
    store: Memory,
}

impl Scene {
    /// Lane 1 has 300 entries under two checkpoints and 3 behind them; lane 2 has 5 covered ones.
    async fn new() -> Self {
        let (world, store) = (World::new(), Memory::new());
        world.write(&store, 0, "acme", 100).await;
        world.checkpoint(&store).await;
        world.write(&store, 0, "zeta", 200).await;
        world.write(&store, 1, "zeta", 5).await;
        world.checkpoint(&store).await;
        world.write(&store, 0, "acme", 3).await;
        Self { world, store }
    }

    async fn verify(&self) -> Report {
        verify(&self.store, &[self.world.signer.public_key()]).await.unwrap()
    }

    /// Tampers and says which entry is found broken.
    async fn after(&self, table: &'static Table, change: impl FnOnce(&mut Vec<Vec<Value>>)) -> (i64, i64, Fault) {
        self.store.tamper(table, change);
        let broken = self.verify().await.first_broken.expect("the change is found");
        (broken.lane.unwrap_or(0), broken.seq.unwrap_or(0), broken.why)
    }
}

fn column(table: &Table, name: &str) -> usize {
    table.position(name).unwrap()
}

#[tokio::test]
async fn an_untouched_store_verifies() {
    let report = Scene::new().await.verify().await;
    assert!(report.is_intact(), "{report:?}");
    assert_eq!((report.entries, report.lanes, report.checkpoints, report.covered), (308, 2, 2, 305));
}

/// Every column of an entry is covered by a digest.
#[tokio::test]
async fn a_change_in_any_column_of_an_entry_is_found_and_named() {
    for at in 2..AUDIT_LOG_ENTRIES.columns.len() {
        let scene = Scene::new().await;
        let found = scene.after(&AUDIT_LOG_ENTRIES, |rows| {
            let row = entry_at(rows, 1, 42);
            rows[row][at] = rows[entry_at(rows, 2, 3)][at].clone();
            if rows[row][at] == rows[entry_at(rows, 1, 41)][at] || at == 2 {
                rows[row][at] = match AUDIT_LOG_ENTRIES.columns[at].name {
                    "subject_type" => "other".into(),
                    "actor_type" => "system".into(),
                    "timestamp" => Value::Time(chimera_core::time::Timestamp::from_micros(1)),
                    "data_json" => chimera_core::record::Json::parse("{\"ratio\":0.2}").unwrap().into(),
                    "run_id" => uuid::Uuid::from_u128(1).into(),
                    "run_seq" => 1.into(),
                    _ => "changed".into(),
                };
            }
        });
        let (lane, seq, _) = found.await;
        assert_eq!((lane, seq), (1, 42), "{}", AUDIT_LOG_ENTRIES.columns[at].name);
    }
}

#[tokio::test]
async fn a_deleted_entry_is_found_in_the_middle_and_at_the_end() {
    let delete = |lane, seq| move |rows: &mut Vec<Vec<Value>>| drop(rows.remove(entry_at(rows, lane, seq)));
    assert_eq!(Scene::new().await.after(&AUDIT_LOG_ENTRIES, delete(1, 42)).await, (1, 43, Fault::Link));
    assert_eq!(Scene::new().await.after(&AUDIT_LOG_ENTRIES, delete(2, 5)).await, (2, 5, Fault::Checkpoint));
    assert_eq!(Scene::new().await.after(&AUDIT_LOG_ENTRIES, delete(1, 303)).await, (1, 303, Fault::Lane));
}

#[tokio::test]
async fn a_tail_cut_together_with_its_head_is_found_up_to_the_last_checkpoint() {
    let scene = Scene::new().await;
    let head_of = |rows: &[Vec<Value>], seq| {
        let cells = rows[entry_at(rows, 1, seq)].clone();
        let link = StoredEntry::from_row(&Row { table: &AUDIT_LOG_ENTRIES, cells }).unwrap().link;
        link.head()
    };
    let mut head = Head::EMPTY;
    scene.store.tamper(&AUDIT_LOG_ENTRIES, |rows| {
        head = head_of(rows, 250);
        rows.retain(|cells| cells[0] != Value::Int(1) || cells[1].as_int() <= Some(250));
    });
    let found = scene.after(&LEDGER_LANES, |rows| {
        (rows[0][2], rows[0][3]) = (Value::Int(head.seq), Value::Bytes(head.hash.0.to_vec()));
    });
    assert_eq!(found.await, (1, 251, Fault::Checkpoint));
}

#[tokio::test]
async fn a_changed_head_tree_hash_or_checkpoint_is_found() {
    let hash = || Value::Bytes(vec![9; 32]);
    let head = column(&LEDGER_LANES, "head_hash");
    assert_eq!(Scene::new().await.after(&LEDGER_LANES, |rows| rows[0][head] = hash()).await, (1, 303, Fault::Lane));
    let node = column(&LEDGER_NODES, "hash");
    assert_eq!(Scene::new().await.after(&LEDGER_NODES, |rows| rows[0][node] = hash()).await, (1, 1, Fault::Lane));
    assert_eq!(Scene::new().await.after(&LEDGER_NODES, Vec::clear).await, (1, 1, Fault::Lane));
    let signature = column(&LEDGER_CHECKPOINTS, "signature");
    let forged = |rows: &mut Vec<Vec<Value>>| rows[0][signature] = Value::Bytes(vec![9; 64]);
    assert_eq!(Scene::new().await.after(&LEDGER_CHECKPOINTS, forged).await.2, Fault::Signature);
    let first_gone = |rows: &mut Vec<Vec<Value>>| drop(rows.remove(0));
    assert_eq!(Scene::new().await.after(&LEDGER_CHECKPOINTS, first_gone).await.2, Fault::Checkpoint);
}

/// An intruder without the key can rebuild every hash, but not the signature over them.
#[tokio::test]
async fn a_lane_that_was_rebuilt_from_a_changed_entry_on_is_found() {
    let scene = Scene::new().await;
    let mut head = Head::EMPTY;
    scene.store.tamper(&AUDIT_LOG_ENTRIES, |rows| {
        for seq in 1..=303 {
            let at = entry_at(rows, 1, seq);
            let row = Row { table: &AUDIT_LOG_ENTRIES, cells: rows[at].clone() };
            let old = StoredEntry::from_row(&row).unwrap().sealed;
            let mut entry = old.entry;
            if seq == 150 {
                entry.actor_id = Some("nobody".into());
            }
            let forged = StoredEntry::after(1, head, entry.seal(old.salt).unwrap());
            head = forged.link.head();
            rows[at] = forged.row().cells;
        }
    });
    let found = scene.after(&LEDGER_LANES, |rows| rows[0][3] = Value::Bytes(head.hash.0.to_vec()));
    let (lane, seq, why) = found.await;
    assert_eq!(lane, 1);
    assert!(matches!(why, Fault::Lane | Fault::Checkpoint), "{why}");
    assert!(seq <= 150, "the broken part begins at {seq}");
    assert_ne!(head.hash, Digest32::ZERO);
}

#[tokio::test]
async fn checkpoints_of_an_unknown_key_are_not_believed() {
    let scene = Scene::new().await;
    let stranger = Signer::from_seed(&[8; 32]).public_key();
    let report = verify(&scene.store, &[stranger]).await.unwrap();
    assert_eq!(report.first_broken.unwrap().why, Fault::Signature);
}
