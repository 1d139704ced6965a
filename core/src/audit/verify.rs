//! Offline verification of an export.
//!
//! It reads line by line in bounded memory and stops at the first fault. Without trusted keys it accepts the keys
//! that the export itself names: that detects damage, but not a forger who signs anew. The report says which was the
//! case.

use crate::audit::export::{ExportHeader, ExportLine, ExportTrailer};
use crate::audit::proof::verify_inclusion;
use crate::audit::walk::LedgerWalk;
use crate::ledger::checkpoint::{Checkpoint, PublicKey, SignedCheckpoint};
use crate::ledger::merkle::leaf_hash;
use crate::ledger::{Digest32, LedgerFault, LocatedFault, StoredEntry};
use crate::limits::EXPORT_LINE_BYTES_MAX;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::{self, BufRead, Read as _};

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationReport {
    /// The tenant, or none for a full export.
    pub tenant: Option<String>,
    /// Valid entries.
    pub entries: u64,
    pub lanes: usize,
    /// Valid checkpoints.
    pub checkpoints: u64,
    /// Entries covered by a checkpoint: these cannot have been changed or removed unnoticed.
    pub covered: u64,
    /// Whether signatures were verified with keys that the caller trusts.
    pub trusted: bool,
    /// Whether the trailer is signed, which also covers entries after the last checkpoint.
    pub signed_end: bool,
    /// The first fault, if any.
    pub first_fault: Option<LocatedFault>,
}

impl VerificationReport {
    #[must_use]
    pub const fn is_intact(&self) -> bool {
        self.first_fault.is_none()
    }
}

/// Verifies an export. An error is an I/O error, never a finding.
pub fn verify(mut reader: impl BufRead, trusted_keys: &[PublicKey]) -> io::Result<VerificationReport> {
    let mut verifier = Verifier::new(trusted_keys);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut reader).take(EXPORT_LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(verifier.finish());
        }
        if !verifier.line(&line) {
            return Ok(verifier.finish());
        }
    }
}

/// An incremental verifier, fed line by line.
#[derive(Debug)]
pub struct Verifier {
    trusted: bool,
    keys: Vec<PublicKey>,
    lines: u64,
    digest: Sha256,
    walk: LedgerWalk,
    phase: Phase,
    signed_end: bool,
    broken: Option<LocatedFault>,
}

#[derive(Debug)]
enum Phase {
    Start,
    /// A full export.
    All,
    /// A tenant export.
    Tenant(Box<TenantExport>),
    End(Option<String>, usize),
}

#[derive(Debug)]
struct TenantExport {
    tenant: String,
    checkpoint: Option<SignedCheckpoint>,
    last: Option<(i64, i64)>,
    lanes: BTreeSet<i64>,
}

impl Verifier {
    /// Trusts these keys, or the export's own keys if there are none.
    #[must_use]
    pub fn new(trusted_keys: &[PublicKey]) -> Self {
        Self {
            trusted: !trusted_keys.is_empty(),
            keys: trusted_keys.to_vec(),
            lines: 0,
            digest: Sha256::new(),
            walk: LedgerWalk::default(),
            phase: Phase::Start,
            signed_end: false,
            broken: None,
        }
    }

    /// Verifies the next line, including its line break. Returns false after the first fault.
    pub fn line(&mut self, bytes: &[u8]) -> bool {
        if self.broken.is_some() {
            return false;
        }
        self.lines += 1;
        if let Err(broken) = self.check(bytes) {
            self.broken = Some(LocatedFault { line: Some(self.lines), ..broken });
        }
        self.broken.is_none()
    }

    /// The report, after the last line.
    #[must_use]
    pub fn finish(mut self) -> VerificationReport {
        if self.broken.is_none() && !matches!(self.phase, Phase::End(..)) {
            self.broken = Some(LocatedFault { line: Some(self.lines + 1), ..LocatedFault::ledger(LedgerFault::End) });
        }
        let (tenant, lanes) = match self.phase {
            Phase::Start | Phase::All => (None, self.walk.lanes()),
            Phase::Tenant(part) => (Some(part.tenant), part.lanes.len()),
            Phase::End(tenant, lanes) => (tenant, lanes),
        };
        VerificationReport {
            tenant,
            entries: self.walk.entries,
            lanes,
            checkpoints: self.walk.checkpoints,
            covered: self.walk.covered,
            trusted: self.trusted,
            signed_end: self.signed_end,
            first_fault: self.broken,
        }
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), LocatedFault> {
        let text = bytes.strip_suffix(b"\n").ok_or_else(|| identify_entry(bytes, LedgerFault::End))?;
        let line = ExportLine::read(text).ok_or_else(|| identify_entry(text, LedgerFault::Malformed))?;
        match line {
            ExportLine::Header(header) => self.header(header)?,
            ExportLine::Entry(entry, proof) => self.entry(&entry, proof)?,
            ExportLine::Checkpoint(signed) => self.checkpoint(signed)?,
            ExportLine::Trailer(trailer) => return self.trailer(&trailer),
        }
        self.digest.update(bytes);
        Ok(())
    }

    fn header(&mut self, header: ExportHeader) -> Result<(), LocatedFault> {
        if !matches!(self.phase, Phase::Start) {
            return Err(LocatedFault::ledger(LedgerFault::Malformed));
        }
        if !self.trusted {
            self.keys = header.keys;
        }
        self.phase = match header.tenant {
            None => Phase::All,
            Some(tenant) => {
                let part = TenantExport { tenant, checkpoint: None, last: None, lanes: BTreeSet::new() };
                Phase::Tenant(Box::new(part))
            }
        };
        Ok(())
    }

    fn entry(&mut self, entry: &StoredEntry, proof: Option<Vec<Digest32>>) -> Result<(), LocatedFault> {
        match (&mut self.phase, proof) {
            (Phase::All, None) => self.walk.entry(entry).map(|_| ()),
            (Phase::Tenant(part), Some(proof)) => {
                part.entry(entry, &proof).map_err(|why| LocatedFault::entry(entry, why))?;
                self.walk.entries += 1;
                self.walk.covered += 1;
                Ok(())
            }
            _ => Err(LocatedFault::entry(entry, LedgerFault::Malformed)),
        }
    }

    fn checkpoint(&mut self, signed: SignedCheckpoint) -> Result<(), LocatedFault> {
        match &mut self.phase {
            Phase::All => self.walk.checkpoint(&signed, &self.keys),
            Phase::Tenant(part) if part.checkpoint.is_none() => {
                signed
                    .verify(&self.keys)
                    .map_err(|fault| LocatedFault::checkpoint(signed.checkpoint.seq, fault.into()))?;
                part.checkpoint = Some(signed);
                self.walk.checkpoints += 1;
                Ok(())
            }
            _ => Err(LocatedFault::ledger(LedgerFault::Malformed)),
        }
    }

    fn trailer(&mut self, trailer: &ExportTrailer) -> Result<(), LocatedFault> {
        let (tenant, lanes) = match &self.phase {
            Phase::All => (None, self.walk.lanes()),
            Phase::Tenant(part) => (Some(part.tenant.clone()), part.lanes.len()),
            Phase::Start | Phase::End(..) => return Err(LocatedFault::ledger(LedgerFault::Malformed)),
        };
        let digest = Digest32(self.digest.clone().finalize().into());
        let counts = (trailer.entries, trailer.checkpoints) == (self.walk.entries, self.walk.checkpoints);
        if !counts || trailer.digest != digest {
            return Err(LocatedFault::ledger(LedgerFault::End));
        }
        if let Some((key_id, signature)) = &trailer.signature {
            let text = trailer.signed_text();
            let key = self.keys.iter().find(|key| key.id() == *key_id);
            if !key.is_some_and(|key| key.verifies(text.as_bytes(), signature)) {
                return Err(LocatedFault::ledger(LedgerFault::Signature));
            }
            self.signed_end = true;
        }
        self.phase = Phase::End(tenant, lanes);
        Ok(())
    }
}

impl TenantExport {
    fn entry(&mut self, entry: &StoredEntry, proof: &[Digest32]) -> Result<(), LedgerFault> {
        let place = (entry.lane, entry.link.seq);
        if entry.sealed.entry.tenant_id != self.tenant || self.last.is_some_and(|last| last >= place) {
            return Err(LedgerFault::Malformed);
        }
        let checkpoint = self.checkpoint.as_ref().ok_or(LedgerFault::Checkpoint)?;
        verify_entry(entry, proof, &checkpoint.checkpoint)?;
        self.last = Some(place);
        self.lanes.insert(entry.lane);
        Ok(())
    }
}

/// Checks that `entry` matches its digest and chain hash, and that `proof` leads from it to the root of its lane in
/// `checkpoint`. It does not check the signature of the checkpoint.
pub fn verify_entry(entry: &StoredEntry, proof: &[Digest32], checkpoint: &Checkpoint) -> Result<(), LedgerFault> {
    if !entry.sealed.is_intact() {
        return Err(LedgerFault::Content);
    }
    if !entry.is_linked() {
        return Err(LedgerFault::Link);
    }
    let state = checkpoint.lane(entry.lane).ok_or(LedgerFault::Checkpoint)?;
    let index = u64::try_from(entry.link.seq - 1).map_err(|_| LedgerFault::Link)?;
    let size = u64::try_from(state.head.seq).map_err(|_| LedgerFault::Checkpoint)?;
    let leads = verify_inclusion(leaf_hash(&entry.link.hash.0), index, size, proof, state.root);
    if leads { Ok(()) } else { Err(LedgerFault::Proof) }
}

/// Extracts the identity of the entry on a damaged line, as far as possible. Members are sorted, so the last match of
/// each name belongs to the entry and not to its data.
fn identify_entry(bytes: &[u8], why: LedgerFault) -> LocatedFault {
    let text = String::from_utf8_lossy(bytes);
    if text.contains("\"kind\":\"checkpoint\"") {
        return LocatedFault::ledger(why);
    }
    let after = |mark: &str| text.rfind(mark).map(|at| &text[at + mark.len()..]);
    let number = |mark| {
        let rest: &str = after(mark)?;
        rest[..rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(rest.len())].parse().ok()
    };
    let id = after("\"id\":\"").and_then(|rest| rest.split_once('"')).map(|(id, _)| id.to_owned());
    LocatedFault { lane: number("\"lane\":"), seq: number("\"seq\":"), id, ..LocatedFault::ledger(why) }
}
