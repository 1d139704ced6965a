//! Ledger access for `export` and `verify`, with errors worded for these commands.

use crate::failure::{Failure, Outcome};
use chimera_core::audit::VerificationReport;
use chimera_core::audit::export::ExportHeader;
use chimera_core::error::Code;
use chimera_core::ledger::checkpoint::{PublicKey, Signer};
use chimera_engine::audit::verify;
use chimera_engine::ledger::checkpoint::known_keys;
use chimera_engine::ledger::{LedgerError, last_checkpoint};
use chimera_engine::port::Records;
use serde::Serialize;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use tokio::io::AsyncWrite;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LedgerReport {
    /// `None` means all tenants.
    pub(super) tenant: Option<String>,
    /// Valid entries.
    pub(crate) entries: u64,
    pub(super) lanes: usize,
    /// Valid checkpoints.
    pub(crate) checkpoints: u64,
    /// Entries covered by a checkpoint.
    pub(super) covered: u64,
    /// Whether signatures were checked with keys that the caller trusts.
    pub(super) trusted: bool,
    pub(crate) first_broken: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ExportSummary {
    pub(super) entries: u64,
    pub(super) checkpoints: u64,
    /// A tenant's export omits these.
    pub(super) newer_than_last_checkpoint: u64,
}

/// Verifies an export, offline.
pub(super) fn verify_export(path: &Path, keys: &[String]) -> Outcome<LedgerReport> {
    let keys = public_keys(keys)?;
    let report = File::open(path).and_then(|file| chimera_core::audit::verify(BufReader::new(file), &keys));
    report.map(LedgerReport::from).map_err(|error| Failure::file("can't read the export", path, &error))
}

/// Verifies the ledger of a store with the given keys; by default with its own key and the trusted ones.
pub(crate) async fn verify_store(
    records: &dyn Records,
    keys: &[String],
    own: Option<&Signer>,
    others: &[PublicKey],
) -> Outcome<LedgerReport> {
    let mut keys = public_keys(keys)?;
    let trusted = !keys.is_empty();
    if !trusted {
        keys = trusted_keys(own, others);
    }
    if keys.is_empty() && last_checkpoint(records).await.map_err(ledger)?.is_some() {
        return Err(Failure::new(Code::ConfigInvalid, "no public key to verify the ledger's signatures")
            .hint("pass the public key with --key; it is in the first line of every export"));
    }
    let report = verify(records, &keys).await.map_err(ledger)?;
    Ok(LedgerReport { trusted, ..report.into() })
}

/// The ledger is empty although the mark file records entries.
pub(crate) fn lost_ledger(marked: u64) -> Failure {
    let message = format!("the ledger is empty, but its mark file records {marked} entries: they are lost");
    Failure::new(Code::LedgerBroken, message).hint("put the data back, or restore a backup; see docs/guides/backup.md")
}

/// Writes an export, signed if `signer` is given.
pub(super) async fn export(
    records: &dyn Records,
    header: ExportHeader,
    signer: Option<&Signer>,
    out: &mut (dyn AsyncWrite + Unpin + Send),
) -> Outcome<ExportSummary> {
    let done = chimera_engine::audit::export(records, header, signer, out).await.map_err(ledger)?;
    Ok(ExportSummary { entries: done.entries, checkpoints: done.checkpoints, newer_than_last_checkpoint: done.newer })
}

pub(super) fn trusted_keys(own: Option<&Signer>, others: &[PublicKey]) -> Vec<PublicKey> {
    own.map_or_else(|| others.to_vec(), |own| known_keys(own, others))
}

fn public_keys(keys: &[String]) -> Outcome<Vec<PublicKey>> {
    let read = |text: &String| {
        PublicKey::from_hex(text).ok_or_else(|| {
            Failure::new(Code::SchemaInvalid, "a key is not an Ed25519 public key").hint("64 hex digits each")
        })
    };
    keys.iter().map(read).collect()
}

fn ledger(error: LedgerError) -> Failure {
    match error {
        LedgerError::Read(error) => error.into(),
        LedgerError::Broken(broken) => Failure::new(Code::LedgerBroken, format!("the ledger is broken: {broken}")),
        LedgerError::NoCheckpoint => Failure::new(Code::NotReady, "no checkpoint covers the entries yet")
            .hint("a server makes one at intervals (ledger.checkpoint_seconds) and when it stops"),
        other => Failure::new(Code::StoreUnavailable, other.to_string()),
    }
}

impl From<VerificationReport> for LedgerReport {
    fn from(report: VerificationReport) -> Self {
        Self {
            tenant: report.tenant,
            entries: report.entries,
            lanes: report.lanes,
            checkpoints: report.checkpoints,
            covered: report.covered,
            trusted: report.trusted,
            first_broken: report.first_fault.map(|broken| broken.to_string()),
        }
    }
}
