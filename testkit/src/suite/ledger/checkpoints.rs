//! Checkpoints: what they cover, and concurrent makers.

use super::{LedgerNodes, all_rows, entries, join_workers, list};
use chimera_core::ledger::checkpoint::SignedCheckpoint;
use chimera_core::ledger::tables::{LEDGER_CHECKPOINTS, LaneRow};
use chimera_core::ledger::{ChainHead, Digest32};
use chimera_core::record::{Scope, Select, StoredRow};
use chimera_engine::audit::verify;
use chimera_engine::ledger::checkpoint::CheckpointOutcome;
use chimera_engine::ledger::last_checkpoint;
use chimera_engine::port::Records;
use futures::future::join_all;
use sha2::{Digest, Sha256};

/// The Merkle root as RFC 6962 defines it, computed independently of the tree under test.
fn root(leaves: &[Vec<u8>]) -> [u8; 32] {
    let hash = |parts: &[&[u8]]| parts.iter().fold(Sha256::new(), |hasher, part| hasher.chain_update(part)).finalize();
    match leaves {
        [leaf] => hash(&[&[0], leaf]).into(),
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            hash(&[&[1], &root(left), &root(right)]).into()
        }
    }
}

async fn stored(records: &dyn Records) -> Vec<SignedCheckpoint> {
    let rows = all_rows(records, Select::from(&LEDGER_CHECKPOINTS, Scope::System)).await;
    rows.iter().map(|row| SignedCheckpoint::from_row(row).unwrap()).collect()
}

async fn assert_intact(stage: &LedgerNodes) {
    let report = verify(&*stage.two, &stage.world.keys()).await.unwrap();
    assert!(report.is_intact(), "{report:?}");
    assert_eq!((report.entries, report.covered), (report.entries, report.entries), "everything is covered");
    assert_eq!(report.entries as usize, entries(&*stage.one).await.len());
    assert_eq!(report.checkpoints as usize, stored(&*stage.one).await.len());
}

pub(super) async fn without_anything_new_there_is_no_checkpoint(stage: &LedgerNodes) {
    assert_eq!(stage.world.try_checkpoint(&*stage.one).await, CheckpointOutcome::NothingNew);
    stage.world.write(&*stage.one, 0, "acme", 1).await;
    let made = stage.world.checkpoint(&*stage.one).await;
    assert_eq!(stage.world.try_checkpoint(&*stage.two).await, CheckpointOutcome::NothingNew);
    assert_eq!(last_checkpoint(&*stage.two).await.unwrap(), Some(made));
}

pub(super) async fn a_checkpoint_has_the_right_root_of_every_lane(stage: &LedgerNodes) {
    // More than one block of stored tree hashes, started in one checkpoint and completed in another.
    for (affinity, count) in [(0, 200), (1, 7), (0, 100), (1, 1)] {
        stage.world.write(&*stage.one, affinity, "acme", count).await;
        stage.world.write(&*stage.two, affinity, "zeta", count + 1).await;
        let before = last_checkpoint(&*stage.one).await.unwrap().unwrap();
        let made = stage.world.checkpoint(&*stage.one).await;
        assert_eq!(made.verify(&stage.world.keys()), Ok(()));
        assert_eq!((made.checkpoint.seq, made.checkpoint.previous), (before.checkpoint.seq + 1, Some(before.digest())));
        let rows = entries(&*stage.two).await;
        let lanes: Vec<LaneRow> = list(&*stage.two, LaneRow::select(Scope::System)).await;
        let used: Vec<&LaneRow> = lanes.iter().filter(|lane| lane.head_seq > 0).collect();
        assert_eq!(made.checkpoint.lanes.len(), used.len());
        for lane in used {
            let leaves: Vec<Vec<u8>> =
                rows.iter().filter(|row| row.lane == lane.lane).map(|row| row.hash.to_vec()).collect();
            let state = made.checkpoint.lane(lane.lane).unwrap();
            assert_eq!(state.head, ChainHead { seq: lane.head_seq, hash: lane.head_hash });
            assert_eq!(state.root, Digest32(root(&leaves)));
        }
    }
    assert_intact(stage).await;
}

pub(super) async fn of_makers_at_once_one_wins(stage: &LedgerNodes) {
    for affinity in 0..5 {
        stage.world.write(&*stage.one, affinity, "acme", 1).await;
        let before = stored(&*stage.one).await.len();
        let made = join_all(stage.nodes().take(6).map(|node| stage.world.try_checkpoint(&**node))).await;
        assert_eq!(made.iter().filter(|made| matches!(made, CheckpointOutcome::Created(_))).count(), 1, "{made:?}");
        let chain = stored(&*stage.two).await;
        assert_eq!(chain.len(), before + 1);
        assert!(chain.windows(2).all(|pair| pair[1].checkpoint.previous == Some(pair[0].digest())));
    }
    assert_intact(stage).await;
}

pub(super) async fn a_ledger_that_grows_is_covered_and_verifies(stage: &LedgerNodes) {
    let writing = tokio::spawn(join_workers(stage.writers(4, 20)));
    while !writing.is_finished() {
        join_all(stage.nodes().take(2).map(|node| stage.world.try_checkpoint(&**node))).await;
        let report = verify(&*stage.two, &stage.world.keys()).await.unwrap();
        assert!(report.is_intact(), "{report:?}");
    }
    writing.await.unwrap();
    stage.world.try_checkpoint(&*stage.one).await;
    assert_intact(stage).await;
}
