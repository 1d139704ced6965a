//! `chimera audit export`: the ledger as a file that can be verified offline.
//!
//! A file appears only when it is complete.

use super::ledger::{self, Exported};
use crate::command::{Scene, say};
use crate::compose::{self, Ambient};
use crate::failure::{Failure, Outcome};
use crate::home;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

pub(crate) async fn run(scene: &Scene<'_>, tenant: Option<&str>, out: Option<&Path>) -> Outcome<ExitCode> {
    let config = &scene.loaded.config;
    let seed = home::existing_ledger_seed(&config.data_dir)?;
    let records = compose::records(config, &Ambient::new()).await?;
    let exported = match out {
        None => ledger::export(&*records, tenant, seed, &mut std::io::stdout()).await?,
        Some(path) => {
            let failed = |error: std::io::Error| Failure::file("can't write the export", path, &error);
            let draft = path.with_extension("partial");
            let mut file = BufWriter::new(File::create(&draft).map_err(failed)?);
            let exported = ledger::export(&*records, tenant, seed, &mut file).await?;
            file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)?;
            std::fs::rename(&draft, path).map_err(failed)?;
            exported
        }
    };
    let Exported { entries, checkpoints } = exported;
    say(&format!("exported {entries} entries and {checkpoints} checkpoints"));
    Ok(ExitCode::SUCCESS)
}
