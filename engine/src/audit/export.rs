//! Exports a store's ledger.
//!
//! The export covers the state at its start; entries written meanwhile are not included. A tenant's export ends at the
//! newest checkpoint, because entries beyond it can't be proven yet: to include the latest entries, make a checkpoint
//! first.

use crate::audit::prove::TreeReader;
use crate::ledger::read::{self, CheckpointReader, LaneReader, LedgerError, malformed_row, tree_size};
use crate::port::Records;
use chimera_core::audit::export::{ExportHeader, Exporter};
use chimera_core::ledger::StoredEntry;
use chimera_core::ledger::checkpoint::{LaneState, Signer};
use chimera_core::record::{Row, Scope};
use std::collections::BTreeMap;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportSummary {
    pub entries: u64,
    pub checkpoints: u64,
    /// Entries newer than the last checkpoint. A full export includes them under its signed end; a tenant's export
    /// omits them, because nothing proves them yet.
    pub newer: u64,
}

type Output<'a> = &'a mut (dyn AsyncWrite + Unpin + Send);

/// Writes all entries, or those of the header's tenant, to `out`. With a signer the end is signed.
pub async fn export(
    records: &dyn Records,
    header: ExportHeader,
    signer: Option<&Signer>,
    out: Output<'_>,
) -> Result<ExportSummary, LedgerError> {
    let tenant = header.tenant.clone();
    let (exporter, first) = Exporter::begin(header);
    let mut writer = LineWriter { exporter, out, done: ExportSummary::default() };
    writer.put(first).await?;
    match tenant {
        None => export_all(records, &mut writer).await?,
        Some(tenant) => export_tenant(records, &tenant, &mut writer).await?,
    }
    let last = writer.exporter.clone().finish(signer);
    writer.put(last).await?;
    writer.out.flush().await.map_err(LedgerError::Output)?;
    Ok(writer.done)
}

struct LineWriter<'a> {
    exporter: Exporter,
    out: Output<'a>,
    done: ExportSummary,
}

impl LineWriter<'_> {
    async fn put(&mut self, line: String) -> Result<(), LedgerError> {
        self.out.write_all(line.as_bytes()).await.map_err(LedgerError::Output)
    }

    async fn entry(
        &mut self,
        entry: StoredEntry,
        proof: Option<Vec<chimera_core::ledger::Digest32>>,
    ) -> Result<(), LedgerError> {
        let line = self.exporter.entry(entry, proof);
        self.done.entries += 1;
        self.put(line).await
    }
}

fn stored_entry(row: &Row) -> Result<StoredEntry, LedgerError> {
    Ok(StoredEntry::from_row(row).map_err(|_| malformed_row(row))?)
}

/// Each checkpoint follows the entries it covers, so that a reader can verify it in one pass.
async fn export_all(records: &dyn Records, writer: &mut LineWriter<'_>) -> Result<(), LedgerError> {
    let newest = read::last_checkpoint(records).await?.map_or(0, |last| last.checkpoint.seq);
    let heads = read::lanes(records).await?;
    let mut readers: BTreeMap<i64, LaneReader> = BTreeMap::new();
    let mut checkpoints = CheckpointReader::upto(newest);
    while let Some(signed) = checkpoints.next(records).await? {
        for state in &signed.checkpoint.lanes {
            let reader = readers.entry(state.lane).or_insert_with(|| LaneReader::from(state.lane, 1, Scope::System));
            lane(records, reader, state.head.seq, writer).await?;
        }
        let line = writer.exporter.checkpoint(signed);
        writer.done.checkpoints += 1;
        writer.put(line).await?;
    }
    let covered = writer.done.entries;
    for (number, head) in heads {
        let reader = readers.entry(number).or_insert_with(|| LaneReader::from(number, 1, Scope::System));
        lane(records, reader, head.seq, writer).await?;
    }
    writer.done.newer = writer.done.entries - covered;
    Ok(())
}

async fn lane(
    records: &dyn Records,
    reader: &mut LaneReader,
    upto: i64,
    writer: &mut LineWriter<'_>,
) -> Result<(), LedgerError> {
    while let Some(row) = reader.next(records, upto).await? {
        writer.entry(stored_entry(&row)?, None).await?;
    }
    Ok(())
}

async fn export_tenant(records: &dyn Records, tenant: &str, writer: &mut LineWriter<'_>) -> Result<(), LedgerError> {
    let Some(signed) = read::last_checkpoint(records).await? else {
        let written = read::lanes(records).await?.iter().any(|(_, head)| head.seq > 0);
        return if written { Err(LedgerError::NoCheckpoint) } else { Ok(()) };
    };
    let lanes = signed.checkpoint.lanes.clone();
    writer.done.newer = count_uncovered(records, tenant, &lanes).await?;
    let line = writer.exporter.checkpoint(signed);
    writer.done.checkpoints += 1;
    writer.put(line).await?;
    for state in lanes {
        let mut reader = LaneReader::from(state.lane, 1, Scope::Tenant(tenant.to_owned()));
        let mut tree = TreeReader::of(state.lane, tree_size(state.head.seq));
        while let Some(row) = reader.next(records, state.head.seq).await? {
            let entry = stored_entry(&row)?;
            let proof = tree.inclusion(records, tree_size(entry.link.seq - 1)).await?;
            writer.entry(entry, Some(proof)).await?;
        }
    }
    Ok(())
}

/// The number of a tenant's entries without a checkpoint.
async fn count_uncovered(records: &dyn Records, tenant: &str, covered: &[LaneState]) -> Result<u64, LedgerError> {
    let mut count = 0;
    for (number, head) in read::lanes(records).await? {
        let first = covered.iter().find(|state| state.lane == number).map_or(1, |state| state.head.seq + 1);
        let mut reader = LaneReader::from(number, first, Scope::Tenant(tenant.to_owned()));
        while reader.next(records, head.seq).await?.is_some() {
            count += 1;
        }
    }
    Ok(count)
}
