//! `doctor --deep`: verifies all data in the record store, the ledger and the blobs.

use super::{Finding, fail, ok};
use crate::command::audit::ledger;
use crate::compose::{self, Ambient};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_core::id::BlobId;
use chimera_core::text::escape_invisible_only;
use chimera_engine::flow::port::{BlobError, Blobs};
use futures::StreamExt;
use std::collections::BTreeSet;
use std::io::Write;

const UNKNOWN: &str = "which blobs the records refer to is unknown until the findings above are fixed";
const BRING_BACK: &str = "copy blobs/ from a backup made with --with-blobs; existing blobs are not overwritten";
const RESTORE: &str = "keep a copy of the damaged data, and restore a backup as docs/guides/operations.md describes";

/// A one-line progress display on stderr.
pub(crate) struct Progress {
    pub(crate) shown: bool,
}

impl Progress {
    pub(crate) fn show(&mut self, what: &str) {
        self.write(&format!("\r\x1b[2Kchecking {}", escape_invisible_only(what)));
    }

    fn write(&mut self, text: &str) {
        if self.shown {
            let mut stderr = std::io::stderr().lock();
            // A terminal that has gone away needs no progress.
            let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.write("\r\x1b[2K");
    }
}

pub(crate) async fn examine(config: &Config, ambient: &Ambient, progress: &mut Progress) -> Vec<Finding> {
    let records = match compose::while_responsive(config, compose::verify_records(config, progress)).await {
        Ok(words) => ok("records", words),
        Err(failure) if failure.code == Code::NotFound => {
            return vec![ok("records", "there is no data yet".to_owned())];
        }
        // Later checks need the store, too.
        Err(failure) if failure.code == Code::StoreUnavailable => {
            return vec![fail("records", failure.message, "check database_url and that the server runs")];
        }
        Err(failure) => fail("records", failure.message, RESTORE),
    };
    progress.show("the ledger");
    let ledger = match compose::while_responsive(config, verify_ledger(config, ambient)).await {
        Ok(words) => ok("ledger", words),
        Err(failure) => fail("ledger", failure.message, "docs/errors/LEDGER_BROKEN.md says what to do"),
    };
    let blobs = match compose::blobs_to_read(config, ambient).await {
        Ok(blobs) => {
            let named = compose::while_responsive(config, compose::referenced_blobs(config, ambient)).await;
            check_blobs(&*blobs, named, progress).await
        }
        Err(failure) => fail("blob_contents", failure.message, "check s3_url and its credentials"),
    };
    vec![records, ledger, blobs]
}

async fn verify_ledger(config: &Config, ambient: &Ambient) -> Outcome<String> {
    let records = compose::records_to_read(config, ambient).await?;
    let own = compose::existing_signer(config).await?;
    let found = ledger::verify_store(&*records, &[], own.as_ref(), &config.trusted_keys).await?;
    records.close().await;
    let marked = compose::entries_marked(config)?;
    if found.entries == 0 && found.first_broken.is_none() && marked > 0 {
        return Err(ledger::lost_ledger(marked));
    }
    match found.first_broken {
        Some(broken) => Err(Failure::new(Code::LedgerBroken, format!("it is broken: {broken}"))),
        None => Ok(format!("intact, entries: {}, checkpoints: {}", found.entries, found.checkpoints)),
    }
}

/// Reads every blob, compares it with its address, and looks for missing blobs that the records refer to.
async fn check_blobs(blobs: &dyn Blobs, named: Outcome<BTreeSet<BlobId>>, progress: &mut Progress) -> Finding {
    const NAME: &str = "blob_contents";
    let (mut whole, mut damaged) = (0_u64, Vec::new());
    for first in 0..=u8::MAX {
        progress.show(&format!("blobs, {first} of 256 parts, {whole} so far"));
        let ids = match blobs.ids(first).await {
            Ok(ids) => ids,
            Err(error) => return fail(NAME, error.to_string(), "the blobs must be readable to be verified"),
        };
        for id in ids {
            match read(blobs, id).await {
                // Removed after it was listed.
                Err(BlobError::NotFound(_)) => {}
                Ok(()) => whole += 1,
                Err(BlobError::Damaged(_)) => damaged.push(id.hex()),
                Err(error) => return fail(NAME, error.to_string(), "the blobs must be readable to be verified"),
            }
        }
    }
    if let Some(first) = damaged.first() {
        return fail(NAME, format!("damaged: {}, first: {first}", damaged.len()), RESTORE);
    }
    let named = match named {
        Ok(named) => named,
        Err(failure) => return fail(NAME, format!("intact: {whole}, but {}", failure.message), UNKNOWN),
    };
    match compose::find_missing(blobs, &named).await {
        Ok(missing) if missing.is_empty() => {
            ok(NAME, format!("intact: {whole}, referenced by records: {}", named.len()))
        }
        Ok(missing) => fail(NAME, compose::missing_message(&missing, named.len()), BRING_BACK),
        Err(failure) => fail(NAME, failure.message, "the blobs must be readable to be verified"),
    }
}

async fn read(blobs: &dyn Blobs, id: BlobId) -> Result<(), BlobError> {
    let mut content = blobs.get(id).await?.content;
    while let Some(piece) = content.next().await {
        piece?;
    }
    Ok(())
}
