//! `chimera audit export`: the ledger as a file that can be verified offline.
//!
//! A file appears only when it is complete.

use super::ledger::{self, Exported};
use crate::command::{Scene, say};
use crate::compose::{self, Ambient};
use crate::failure::{Failure, Outcome};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use tokio::fs::File;
use tokio::io::{AsyncWriteExt, BufWriter};

pub(crate) async fn run(scene: &Scene<'_>, tenant: Option<&str>, out: Option<&Path>) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let signer = compose::existing_signer(config).await?;
    let ambient = Ambient::new();
    let records = compose::records_to_read(config, &ambient).await?;
    let exported = match out {
        None => {
            let stdout = std::io::stdout().as_fd().try_clone_to_owned();
            let stdout = stdout.map_err(|error| Failure::file("can't write to", Path::new("stdout"), &error))?;
            let mut file = BufWriter::new(File::from_std(stdout.into()));
            ledger::export(&*records, &*ambient.clock, tenant, signer.as_ref(), &mut file).await?
        }
        Some(path) => {
            let failed = |error: std::io::Error| Failure::file("can't write the export", path, &error);
            let draft = path.with_extension("partial");
            let mut file = BufWriter::new(File::create(&draft).await.map_err(failed)?);
            let exported = ledger::export(&*records, &*ambient.clock, tenant, signer.as_ref(), &mut file).await?;
            file.flush().await.map_err(failed)?;
            file.get_ref().sync_all().await.map_err(failed)?;
            tokio::fs::rename(&draft, path).await.map_err(failed)?;
            exported
        }
    };
    let Exported { entries, checkpoints } = exported;
    say(&format!("exported {entries} entries and {checkpoints} checkpoints"));
    Ok(ExitCode::SUCCESS)
}
