//! What `export` and `verify` ask of the ledger, in the words of these commands.

use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_engine::port::{Clock, Records};
use serde::Serialize;
use std::io::BufRead;
use tokio::io::AsyncWrite;

/// What verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Verified {
    /// Whose entries; none: everybody's.
    pub(super) tenant: Option<String>,
    /// Entries that are right.
    pub(super) entries: u64,
    /// Lanes that they are in.
    pub(super) lanes: usize,
    /// Checkpoints that are right.
    pub(super) checkpoints: u64,
    /// Entries under a checkpoint.
    pub(super) covered: u64,
    /// Whether signatures were checked with keys that the caller trusts.
    pub(super) trusted: bool,
    /// The first thing that is wrong, if any.
    pub(super) first_broken: Option<String>,
}

/// What an export holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Exported {
    pub(super) entries: u64,
    pub(super) checkpoints: u64,
}

/// Verifies an export, offline.
pub(super) fn verify_export(_reader: &mut dyn BufRead, _keys: &[String]) -> Outcome<Verified> {
    Err(absent())
}

/// Verifies the ledger of a store.
pub(super) async fn verify_store(_records: &dyn Records, _keys: &[String]) -> Outcome<Verified> {
    Err(absent())
}

/// Writes an export; with the seed of the signing key its end is signed.
pub(super) async fn export(
    _records: &dyn Records,
    _clock: &dyn Clock,
    _tenant: Option<&str>,
    _seed: Option<[u8; 32]>,
    _out: &mut (dyn AsyncWrite + Unpin + Send),
) -> Outcome<Exported> {
    Err(absent())
}

fn absent() -> Failure {
    Failure::new(Code::StoreUnavailable, "this build has no ledger")
}
