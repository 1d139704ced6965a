//! `chimera audit export`: the ledger as a file that can be verified offline.
//!
//! A file appears only when it is complete.

use super::ledger::{self, ExportSummary};
use super::tenant_id;
use crate::command::{CommandContext, print, say};
use crate::compose::{self, Ambient};
use crate::failure::{Failure, Outcome};
use chimera_core::audit::export::ExportHeader;
use serde_json::json;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::fs::File;
use tokio::io::{AsyncWriteExt, BufWriter};

pub(crate) async fn run(scene: &CommandContext<'_>, tenant: Option<&str>, out: Option<&Path>) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let signer = compose::existing_signer(config).await?;
    let ambient = Ambient::new();
    let records = compose::records_to_read(config, &ambient).await?;
    let id = match tenant {
        Some(named) => Some(tenant_id(&*records, named).await?),
        None => None,
    };
    let keys = ledger::trusted_keys(signer.as_ref(), &config.trusted_keys);
    let header = ExportHeader { created_at: ambient.clock.now(), tenant: id, keys };
    let exported = match out {
        None => {
            let stdout = std::io::stdout().as_fd().try_clone_to_owned();
            let stdout = stdout.map_err(|error| Failure::file("can't write to", Path::new("stdout"), &error))?;
            let mut file = BufWriter::new(File::from_std(stdout.into()));
            ledger::export(&*records, header, signer.as_ref(), &mut file).await?
        }
        // A pipe, a device or a link is written to, not replaced.
        Some(path) if path.symlink_metadata().is_ok_and(|there| !there.is_file()) => {
            let failed = |error: std::io::Error| Failure::file("can't write the export", path, &error);
            let mut file = BufWriter::new(File::options().write(true).truncate(true).open(path).await.map_err(failed)?);
            ledger::export(&*records, header, signer.as_ref(), &mut file).await?
        }
        Some(path) => {
            let failed = |error: std::io::Error| Failure::file("can't write the export", path, &error);
            let draft = draft_of(path, &ambient.random.opaque_id());
            let file = File::options().write(true).create_new(true).open(&draft).await.map_err(failed)?;
            let written = async {
                let mut file = BufWriter::new(file);
                let exported = ledger::export(&*records, header, signer.as_ref(), &mut file).await?;
                file.flush().await.map_err(failed)?;
                file.get_ref().sync_all().await.map_err(failed)?;
                tokio::fs::rename(&draft, path).await.map_err(failed)?;
                Ok(exported)
            };
            let written: Outcome<ExportSummary> = written.await;
            if written.is_err() {
                // An incomplete file must not pass for an export; a leftover is recognizable by its name.
                let _ = tokio::fs::remove_file(&draft).await;
            }
            written?
        }
    };
    // If the export goes to stdout, the summary must not.
    match (scene.json, out) {
        (true, Some(_)) => print(&format!("{}\n", json!(exported)))?,
        (true, None) => say(&json!(exported).to_string()),
        (false, _) => say(&summary(tenant, exported)),
    }
    Ok(ExitCode::SUCCESS)
}

/// A unique name next to the target.
fn draft_of(path: &Path, unique: &str) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{unique}.partial"));
    draft.into()
}

fn summary(tenant: Option<&str>, exported: ExportSummary) -> String {
    let ExportSummary { entries, checkpoints, newer_than_last_checkpoint: newer } = exported;
    let mut text = format!("exported entries: {entries}, checkpoints: {checkpoints}");
    match (newer, tenant) {
        (0, _) => {}
        (_, None) => text += &format!("\n{newer} of the entries are newer than the last checkpoint"),
        (_, Some(tenant)) => {
            text += &format!(
                "\nleft out: {newer} entries of tenant {tenant} that are newer than the last checkpoint\n  \
                 hint: export again after the next one; a server makes one at intervals and when it stops"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_checkpoint_covers_is_told() {
        let exported = ExportSummary { entries: 5, checkpoints: 2, newer_than_last_checkpoint: 3 };
        insta::assert_snapshot!(summary(None, exported));
        insta::assert_snapshot!(summary(Some("acme"), exported));
    }
}
