//! Exports of a store, and proofs.

use crate::memory::Memory;
use crate::world::World;
use chimera_core::ledger::merkle::leaf_hash;
use chimera_core::ledger::proof::verify_inclusion;
use chimera_core::ledger::{Report, verify};
use chimera_core::record::Scope;
use chimera_engine::ledger::{Exported, LedgerError, export, prove};

/// Three blocks in one lane, two tenants, three checkpoints, and entries behind the last.
async fn ledger(world: &World, store: &Memory) {
    for round in 0..3 {
        world.write(store, 0, if round == 1 { "acme" } else { "zeta" }, 250).await;
        world.write(store, 1, "acme", 2).await;
        world.checkpoint(store).await;
    }
    world.write(store, 1, "zeta", 1).await;
}

async fn exported(world: &World, store: &Memory, tenant: Option<&str>) -> (Exported, Report) {
    let mut out = Vec::new();
    let keys = [world.signer.public_key()];
    let done = export(store, &world.clock, tenant, &keys, Some(&world.signer), &mut out).await.unwrap();
    (done, verify(&out[..], &keys).unwrap())
}

#[tokio::test]
async fn a_stores_export_holds_everything_and_verifies() {
    let (world, store) = (World::new(), Memory::new());
    ledger(&world, &store).await;
    let (done, report) = exported(&world, &store, None).await;
    assert!(report.is_intact() && report.signed_end, "{report:?}");
    assert_eq!(done, Exported { entries: 757, checkpoints: 3 });
    assert_eq!((report.entries, report.checkpoints, report.covered, report.lanes), (757, 3, 756, 2));
}

#[tokio::test]
async fn a_tenants_export_holds_only_its_entries_and_verifies() {
    let (world, store) = (World::new(), Memory::new());
    ledger(&world, &store).await;
    let (_, report) = exported(&world, &store, Some("acme")).await;
    assert!(report.is_intact(), "{report:?}");
    assert_eq!((report.entries, report.lanes, report.checkpoints), (256, 2, 1));
    let (_, nobody) = exported(&world, &store, Some("nobody")).await;
    assert!(nobody.is_intact());
    assert_eq!(nobody.entries, 0);
}

#[tokio::test]
async fn entries_without_a_checkpoint_can_not_be_proven() {
    let (world, store) = (World::new(), Memory::new());
    assert!(exported(&world, &store, Some("acme")).await.1.is_intact(), "nothing to prove");
    world.write(&store, 0, "acme", 1).await;
    let result = export(&store, &world.clock, Some("acme"), &[], None, &mut Vec::new()).await;
    assert!(matches!(result, Err(LedgerError::NoCheckpoint)));
    assert!(matches!(prove(&store, Scope::System, 1, 1).await, Err(LedgerError::NoCheckpoint)));
}

#[tokio::test]
async fn every_covered_entry_has_a_proof_for_its_own_tenant_only() {
    let (world, store) = (World::new(), Memory::new());
    ledger(&world, &store).await;
    let acme = || Scope::Tenant("acme".into());
    for seq in [251, 256, 257, 400, 500] {
        let proof = prove(&store, acme(), 1, seq).await.unwrap().unwrap();
        let state = proof.checkpoint.checkpoint.lane(1).unwrap();
        let (index, size) = (u64::try_from(seq - 1).unwrap(), u64::try_from(state.head.seq).unwrap());
        let leaf = leaf_hash(&proof.entry.link.hash.0);
        assert!(verify_inclusion(leaf, index, size, &proof.path, state.root));
    }
    assert_eq!(prove(&store, acme(), 1, 1).await.unwrap(), None, "it is another tenant's");
    assert_eq!(prove(&store, acme(), 1, 9_999).await.unwrap(), None);
}
