//! Proofs and exports: they are complete, and verified without the store.

use super::{LedgerNodes, entries, join_workers};
use crate::seeded::Seeded;
use chimera_core::audit::export::ExportHeader;
use chimera_core::audit::{VerificationReport, verify};
use chimera_core::ledger::LedgerFault;
use chimera_core::record::Scope;
use chimera_engine::audit::{ExportSummary, export, prove};
use chimera_engine::ledger::LedgerError;
use chimera_engine::port::{Clock, Records};

async fn exported(stage: &LedgerNodes, records: &dyn Records, tenant: Option<&str>) -> (ExportSummary, Vec<u8>) {
    let (world, mut out) = (&stage.world, Vec::new());
    let header =
        ExportHeader { created_at: world.clock.now(), tenant: tenant.map(str::to_owned), keys: world.keys().into() };
    let done = export(records, header, Some(&world.signer), &mut out).await.unwrap();
    (done, out)
}

fn check(stage: &LedgerNodes, bytes: &[u8]) -> VerificationReport {
    verify(bytes, &stage.world.keys()).unwrap()
}

/// The number of a tenant's entries.
async fn owned(stage: &LedgerNodes, tenant: &str) -> u64 {
    entries(&*stage.two).await.iter().filter(|row| row.tenant_id == tenant).count() as u64
}

pub(super) async fn what_no_checkpoint_covers_can_not_be_proven(stage: &LedgerNodes) {
    assert!(check(stage, &exported(stage, &*stage.one, Some("acme")).await.1).is_intact(), "nothing to prove");
    let receipt = stage.world.write(&*stage.one, 0, "acme", 2).await;
    let (created_at, tenant) = (stage.world.clock.now(), Some("acme".to_owned()));
    let header = ExportHeader { created_at, tenant, keys: Vec::new() };
    let tenants = export(&*stage.two, header, None, &mut Vec::new()).await;
    assert!(matches!(tenants, Err(LedgerError::NoCheckpoint)));
    let proof = prove(&*stage.two, Scope::System, receipt.lane, 1).await;
    assert!(matches!(proof, Err(LedgerError::NoCheckpoint)));
}

pub(super) async fn a_covered_entry_has_a_proof_for_its_own_tenant_only(stage: &LedgerNodes) {
    let (world, keys) = (&stage.world, stage.world.keys());
    let scope = |tenant: &str| Scope::Tenant(tenant.to_owned());
    world.write(&*stage.one, 0, "zeta", 250).await;
    world.checkpoint(&*stage.one).await;
    let receipt = world.write(&*stage.one, 0, "acme", 100).await;
    world.write(&*stage.two, 1, "acme", 3).await;
    world.checkpoint(&*stage.two).await;
    let (lane, first) = (receipt.lane, receipt.first_seq.unwrap());
    for seq in [first, 256, 257, receipt.head_seq] {
        let proof = prove(&*stage.two, scope("acme"), lane, seq).await.unwrap().unwrap();
        assert_eq!(proof.verify(&keys), Ok(()));
        assert_eq!(proof.verify(&[]), Err(LedgerFault::Signature));
        let mut other = proof.clone();
        other.path[0].0[0] ^= 1;
        assert_eq!(other.verify(&keys), Err(LedgerFault::Proof));
        let mut other = proof.clone();
        other.entry.sealed.entry.subject_id.push('2');
        assert_eq!(other.verify(&keys), Err(LedgerFault::Content));
    }
    assert_eq!(prove(&*stage.one, scope("acme"), lane, first - 1).await.unwrap(), None, "it belongs to another tenant");
    assert_eq!(prove(&*stage.one, scope("acme"), lane, 99_999).await.unwrap(), None);
}

pub(super) async fn a_whole_export_holds_everything_and_verifies(stage: &LedgerNodes) {
    stage.world.write(&*stage.one, 1, "acme", 2).await;
    let (done, bytes) = exported(stage, &*stage.two, None).await;
    let report = check(stage, &bytes);
    assert!(report.is_intact() && report.signed_end && report.trusted, "{report:?}");
    assert_eq!(report.entries as usize, entries(&*stage.one).await.len());
    assert_eq!((report.entries, report.checkpoints), (done.entries, done.checkpoints));
    assert_eq!(report.covered, report.entries - 2, "the last ones are after the newest checkpoint");
}

pub(super) async fn a_tenants_export_holds_only_its_entries_and_verifies(stage: &LedgerNodes) {
    stage.world.checkpoint(&*stage.one).await;
    for tenant in ["acme", "zeta", "nobody"] {
        let (done, bytes) = exported(stage, &*stage.two, Some(tenant)).await;
        let report = check(stage, &bytes);
        assert!(report.is_intact(), "{report:?}");
        assert_eq!((report.tenant.as_deref(), report.checkpoints), (Some(tenant), 1));
        assert_eq!((report.entries, done.entries), (owned(stage, tenant).await, report.entries));
        let text = String::from_utf8(bytes).unwrap();
        let others = ["acme", "zeta"].iter().filter(|other| **other != tenant);
        others.for_each(|other| {
            assert!(!text.contains(&format!("\"{other}\"")), "{other} appears in the export of {tenant}")
        });
    }
}

pub(super) async fn a_flipped_bit_in_an_export_is_found(stage: &LedgerNodes) {
    let seeded = Seeded::new(11);
    for tenant in [None, Some("acme")] {
        let (_, bytes) = exported(stage, &*stage.one, tenant).await;
        for _ in 0..40 {
            let at = usize::try_from(seeded.below(bytes.len() as u64)).unwrap();
            let mut changed = bytes.clone();
            changed[at] ^= 1 << seeded.below(8);
            assert!(!check(stage, &changed).is_intact(), "byte {at} of {tenant:?}");
        }
    }
}

pub(super) async fn an_export_of_a_ledger_that_grows_verifies(stage: &LedgerNodes) {
    let writing = tokio::spawn(join_workers(stage.writers(4, 10)));
    while !writing.is_finished() {
        stage.world.try_checkpoint(&*stage.one).await;
        for tenant in [None, Some("acme")] {
            let report = check(stage, &exported(stage, &*stage.two, tenant).await.1);
            assert!(report.is_intact(), "{report:?}");
        }
    }
    writing.await.unwrap();
}
