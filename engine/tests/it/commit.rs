//! The committer under seeded random faults: nothing acknowledged is lost, nothing refused is kept, nothing happens
//! twice, no chain breaks.

use chimera_core::flow::tables::RUNS;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::record::Tx;
use chimera_engine::commit::{Batch, BatchOutcome};
use chimera_engine::port::{CommitError, Outage, Records, Unavailable};
use chimera_testkit::build::{entry, run};
use chimera_testkit::cells::Cells;
use chimera_testkit::memory::MemoryRecords;
use chimera_testkit::seeded::Seeded;
use chimera_testkit::suite::records::verify_chains;
use futures::future::join_all;
use uuid::Uuid;

const SEEDS: u64 = 300;
const ROUNDS: u64 = 6;

/// A change that inserts a row and an entry with the same id.
fn change(seeded: &Seeded) -> (Uuid, Tx) {
    let row = run(seeded);
    let mut sealed = entry(seeded, "acme", "made").unwrap();
    sealed.entry.subject_id = row.id.to_string();
    let sealed = sealed.entry.seal(sealed.salt).unwrap();
    (row.id, Tx { entries: vec![sealed], affinity: seeded.next(), ..row.tx().unwrap() })
}

fn inject_faults(seed: u64) -> impl FnMut(&Batch) -> Option<BatchOutcome> + Send {
    let dice = Seeded::new(seed ^ 0xfau64);
    move |batch| match dice.below(12) {
        0 => Some(BatchOutcome::Contended),
        1 => Some(BatchOutcome::Unavailable(Unavailable::new(Outage::Transient, "gone"))),
        2 => Some(BatchOutcome::Fenced),
        3 => Some(BatchOutcome::Unknown { lost: Vec::new() }),
        // Applied, and the reply is lost.
        4 => Some(BatchOutcome::Committed { head: batch.lane.head, lost: Vec::new() }),
        5 if batch.txs.len() > 1 => Some(BatchOutcome::Refused("a rule".to_owned())),
        _ => None,
    }
}

async fn weather(seed: u64) -> (usize, usize) {
    let (seeded, store) = (Seeded::new(seed), MemoryRecords::with_lanes(2));
    store.inject_batch_fault(Box::new(inject_faults(seed)));
    let (mut kept, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let changes: Vec<_> = (0..=seeded.below(12)).map(|_| change(&seeded)).collect();
        let answers = join_all(changes.iter().map(|(_, tx)| store.commit(tx.clone()))).await;
        for ((id, _), answer) in changes.iter().zip(answers) {
            match answer {
                Ok(_) => kept.push(*id),
                Err(CommitError::Unavailable(_) | CommitError::Fenced | CommitError::Rejected { .. }) => {
                    refused.push(*id)
                }
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
    }
    store.clear_faults();
    let rows: Vec<Uuid> = store.rows(&RUNS).iter().map(|row| row.uuid("id")).collect();
    let entries = store.rows(&AUDIT_LOG_ENTRIES);
    let count = |id: &Uuid| entries.iter().filter(|row| row.text("subject_id") == id.to_string()).count();
    for id in &kept {
        assert!(rows.contains(id), "seed {seed}: an acknowledged row is gone");
        assert_eq!(count(id), 1, "seed {seed}: an acknowledged entry is there once");
    }
    for id in &refused {
        assert!(!rows.contains(id) && count(id) == 0, "seed {seed}: a refused change was kept");
    }
    assert_eq!(verify_chains(&store).await, kept.len(), "seed {seed}");
    (kept.len(), refused.len())
}

#[tokio::test]
async fn whatever_the_store_does_every_answer_is_true() {
    let (mut kept, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let (some, others) = weather(seed).await;
        kept += some;
        refused += others;
    }
    assert!(kept > 1_000 && refused > 1_000, "{kept} kept, {refused} refused: the storm is one-sided");
}

#[tokio::test]
async fn a_seed_tells_the_same_story_twice() {
    assert_eq!(weather(7).await, weather(7).await);
}
