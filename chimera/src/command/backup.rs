//! `chimera backup`: backs up everything a server needs, while it runs.
//!
//! Records are copied before blobs, so every blob that the copied records refer to already exists.

use super::{CommandContext, EXIT_FOUND_WRONG, print, say};
use crate::backup::{self, BLOB_LIST, BlobPlacement, FORMAT, KEYS, Manifest, VerifiedBackup, draft_of, files, keys};
use crate::cli::{BackupArgs, BackupCommand};
use crate::compose::{self, Ambient};
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_core::ledger::checkpoint::PublicKey;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, args: BackupArgs) -> Outcome<ExitCode> {
    if let Some(BackupCommand::Verify { path, trust }) = args.command {
        return verify(scene, &path, &trust).await;
    }
    let out = args.out.ok_or_else(|| Failure::new(Code::MalformedArgs, "--out is required: the folder to write to"))?;
    if out.symlink_metadata().is_ok() {
        return Err(Failure::new(Code::OccConflict, format!("{} exists already", out.display()))
            .hint("a backup needs a new folder; choose another name"));
    }
    let ambient = Ambient::new();
    let draft = draft_of(&out, &ambient.random.opaque_id());
    let asked_for_keys = args.key.is_some();
    let task = BackupTask { scene, ambient: &ambient, draft: &draft, with_blobs: args.with_blobs, key: args.key };
    let made = async {
        files::folder(&draft)?;
        let manifest = task.fill().await?;
        std::fs::rename(&draft, &out).map_err(|error| Failure::file("can't write", &out, &error))?;
        let above = out.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        files::sync(above)?;
        Ok(manifest)
    };
    let made: Outcome<Manifest> = made.await;
    if made.is_err() {
        // An incomplete folder must not pass for a backup; a leftover is recognizable by its name.
        let _ = std::fs::remove_dir_all(&draft);
    }
    let made = made?;
    print_summary(scene, &out, &made, asked_for_keys)?;
    Ok(exit(&made))
}

/// A backup with missing blobs is better than none, but must not pass for complete.
fn exit(manifest: &Manifest) -> ExitCode {
    if manifest.blobs_missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FOUND_WRONG) }
}

/// Warns of blobs that the records refer to and that are not in the backup.
pub(super) fn warn_missing_blobs(manifest: &Manifest) {
    let missing = &manifest.blobs_missing;
    let Some(first) = missing.first() else { return };
    let (count, more) = (missing.len(), if missing.len() > 1 { ", …" } else { "" });
    say(&format!(
        "INCOMPLETE: blobs that the records refer to were missing when the backup was made: {count} ({first}{more})."
    ));
}

struct BackupTask<'a> {
    scene: &'a CommandContext<'a>,
    ambient: &'a Ambient,
    draft: &'a Path,
    with_blobs: bool,
    key: Option<String>,
}

impl BackupTask<'_> {
    async fn fill(&self) -> Outcome<Manifest> {
        let config = &self.scene.loaded.config;
        let bar = progress(self.scene);
        let mut manifest = Manifest {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            made_at: self.ambient.clock.now().to_string(),
            store: compose::store_kind(config),
            schema_version: 0,
            generation: 0,
            lanes: Vec::new(),
            blobs_missing: Vec::new(),
            blobs: if config.s3_url.is_some() { BlobPlacement::Elsewhere } else { BlobPlacement::Listed },
            keys_sealed: false,
            tables: Vec::new(),
            parts: Vec::new(),
        };
        bar.set_message("records");
        let next = |table: &str| bar.set_message(format!("records: {table}"));
        compose::copy_records(config, self.ambient, self.draft, &mut manifest, next).await?;
        self.blobs(&mut manifest, &bar)?;
        if manifest.blobs != BlobPlacement::Elsewhere {
            manifest.blobs_missing = self.missing().await?;
        }
        if let Some(name) = &self.key {
            let key = compose::backup_key(config, name).await?;
            manifest.keys_sealed = keys::save(&config.data_dir, self.draft, &key, &*self.ambient.random)?;
        }
        bar.set_message("digests");
        manifest.parts =
            files::list(self.draft)?.iter().map(|path| files::part(self.draft, path)).collect::<Outcome<_>>()?;
        let signer = compose::existing_signer(config).await?;
        manifest.write(self.draft, signer.as_ref())?;
        files::sync(self.draft)?;
        bar.finish_and_clear();
        Ok(manifest)
    }

    /// Missing blobs that the records refer to.
    async fn missing(&self) -> Outcome<Vec<String>> {
        let config = &self.scene.loaded.config;
        let named = match compose::referenced_blobs(config, self.ambient).await {
            Ok(named) => named,
            // An invalid tool configuration must not prevent a backup.
            Err(failure) if failure.code == Code::ConfigInvalid => {
                say(&format!("Can't determine which blobs the records refer to: {}.", failure.message));
                return Ok(Vec::new());
            }
            Err(failure) => return Err(failure),
        };
        let blobs = compose::blobs_to_read(config, self.ambient).await?;
        Ok(compose::find_missing(&*blobs, &named).await?.iter().map(ToString::to_string).collect())
    }

    /// Copies or lists blobs and buckets.
    fn blobs(&self, manifest: &mut Manifest, bar: &ProgressBar) -> Outcome {
        if manifest.blobs == BlobPlacement::Elsewhere {
            if self.with_blobs {
                return Err(Failure::new(Code::ConfigInvalid, "blobs and buckets are in object storage (`s3_url`)")
                    .hint("back up the bucket separately, and omit --with-blobs"));
            }
            return Ok(());
        }
        let data = &self.scene.loaded.config.data_dir;
        let mut list = String::new();
        for kind in ["blobs", "buckets"] {
            for path in files::finished(&data.join(kind))? {
                let name = format!("{kind}/{path}");
                bar.set_message(name.clone());
                let from = data.join(&name);
                if self.with_blobs {
                    files::copy(&from, &self.draft.join(&name))?;
                    continue;
                }
                // A blob that is being removed is not needed.
                let Ok((bytes, sha256)) = files::digest(&from) else { continue };
                list += &format!("{}\n", json!({"path": name, "bytes": bytes, "sha256": sha256}));
            }
        }
        if self.with_blobs {
            manifest.blobs = BlobPlacement::Whole;
            return Ok(());
        }
        files::write(&self.draft.join(BLOB_LIST), list.as_bytes())
    }
}

fn progress(scene: &CommandContext<'_>) -> ProgressBar {
    if !scene.terminal.attached || scene.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    match ProgressStyle::with_template("{spinner} {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn print_summary(scene: &CommandContext<'_>, out: &Path, manifest: &Manifest, asked_for_keys: bool) -> Outcome {
    if scene.json {
        return print(&format!("{}\n", summary(out, manifest)));
    }
    let entries: i64 = manifest.lanes.iter().map(|lane| lane.entries).sum();
    let bytes: u64 = manifest.parts.iter().map(|part| part.bytes).sum();
    say(&format!(
        "Wrote {}: entries of the ledger: {entries}, files: {}, bytes: {bytes}.",
        out.display(),
        manifest.parts.len()
    ));
    match manifest.blobs {
        BlobPlacement::Listed => say("Blobs and buckets are listed, not copied; --with-blobs copies them."),
        BlobPlacement::Whole => say("Blobs and buckets are included."),
        BlobPlacement::Elsewhere => say("Blobs and buckets are in object storage and are not included."),
    }
    say(match (manifest.keys_sealed, asked_for_keys) {
        (true, _) => "The data folder's keys are included, encrypted.",
        (false, true) => "The data folder has no keys, so none are included.",
        (false, false) => "The data folder's keys are NOT included; pass --key with a secret to encrypt them.",
    });
    warn_missing_blobs(manifest);
    Ok(())
}

fn summary(out: &Path, manifest: &Manifest) -> serde_json::Value {
    json!({
        "path": out.display().to_string(), "format": manifest.format, "made_at": manifest.made_at,
        "store": manifest.store, "schema_version": manifest.schema_version, "lanes": manifest.lanes,
        "blobs": manifest.blobs, "blobs_missing": manifest.blobs_missing, "keys_sealed": manifest.keys_sealed,
        "files": manifest.parts.len(),
        "bytes": manifest.parts.iter().map(|part| part.bytes).sum::<u64>(),
    })
}

/// Parses the public keys given on the command line.
pub(super) fn parse_trusted_keys(trust: &[String]) -> Outcome<Vec<PublicKey>> {
    let read = |text: &String| {
        let refused = || Failure::new(Code::MalformedArgs, format!("{text} is not a public key (64 hex digits)"));
        PublicKey::from_hex(text).ok_or_else(refused)
    };
    trust.iter().map(read).collect()
}

/// Verifies a backup, including its records.
pub(super) async fn verify_with_records(
    scene: &CommandContext<'_>,
    path: &Path,
    trust: &[String],
) -> Outcome<VerifiedBackup> {
    let config = &scene.loaded.config;
    let mut known = config.trusted_keys.clone();
    match compose::existing_signer(config).await {
        Ok(own) => known.extend(own.map(|signer| signer.public_key())),
        // A damaged key must not prevent the restore that brings it back.
        Err(failure) if failure.code == Code::ConfigInvalid && config.signing_key.is_none() => {
            say(&format!("{}, so this folder's signature on the backup can't be checked.", failure.message));
        }
        Err(failure) => return Err(failure),
    }
    let found = backup::verify(path, &parse_trusted_keys(trust)?, &known)?;
    compose::inspect_records(&found.manifest, path)?;
    Ok(found)
}

async fn verify(scene: &CommandContext<'_>, path: &Path, trust: &[String]) -> Outcome<ExitCode> {
    let found = verify_with_records(scene, path, trust).await?;
    let VerifiedBackup { manifest, signed_by, trusted } = &found;
    if scene.json {
        let mut report = summary(path, manifest);
        report["intact"] = manifest.blobs_missing.is_empty().into();
        report["signed_by"] = json!(signed_by);
        report["trusted"] = (*trusted).into();
        print(&format!("{report}\n"))?;
        return Ok(exit(manifest));
    }
    let signed = match (signed_by, trusted) {
        (None, _) => "not signed".to_owned(),
        (Some(key), true) => format!("signed with {key}, which you trust"),
        (Some(key), false) => format!("signed with {key}, which it contains itself"),
    };
    let entries: i64 = manifest.lanes.iter().map(|lane| lane.entries).sum();
    let word = if manifest.blobs_missing.is_empty() { "intact" } else { "as it was written" };
    say(&format!(
        "{word}: made {}, entries of the ledger: {entries}, files: {}, {signed}",
        manifest.made_at,
        manifest.parts.len()
    ));
    warn_missing_blobs(manifest);
    Ok(exit(manifest))
}

/// Where the keys of a backup are.
pub(super) fn keys_path(path: &Path) -> Option<PathBuf> {
    Some(path.join(KEYS)).filter(|keys| keys.is_file())
}
