//! `chimera restore`: replaces the data with a backup.
//!
//! The backup is verified and its keys are decrypted first, so an unusable backup changes nothing. Existing data
//! is never overwritten: the restore is rejected, or moves it aside. Everything is copied to a staging folder
//! first and then moved into place, records last; an interrupted restore is detected by the next command.
//! Afterwards the store is always held, because what happened after the backup is unknown.

use super::backup::{keys_path, verify_with_records, warn_missing_blobs};
use super::{CommandContext, print, say};
use crate::backup::staging::{Staging, unfinished};
use crate::backup::{BLOB_LIST, BackupFile, BlobPlacement, Manifest, StoreKind, VerifiedBackup, files, keys};
use crate::cli::RestoreArgs;
use crate::compose::{self, Ambient};
use crate::config::Config;
use crate::data_folder::DataFolder;
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_engine::port::Hold;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The SQLite files of a data folder.
const RECORDS: [&str; 3] = ["chimera.db", "chimera.db-wal", "chimera.db-shm"];

pub(crate) async fn run(scene: &CommandContext<'_>, args: &RestoreArgs) -> Outcome<ExitCode> {
    let (config, ambient) = (&scene.loaded.config, Ambient::new());
    let found = verify_with_records(scene, &args.from, &args.trust).await?;
    let manifest = &found.manifest;
    if manifest.store != compose::store_kind(config) {
        let message = match manifest.store {
            StoreKind::Sqlite => "the backup was made from a data folder, but `database_url` is set",
            StoreKind::Postgres => "the backup was made from a database, but `database_url` is not set",
        };
        return Err(Failure::new(Code::ConfigInvalid, message).hint("restore into the same kind of store"));
    }
    let keys = match (&args.key, keys_path(&args.from)) {
        (Some(name), Some(_)) => Some(keys::open(&args.from, &compose::backup_key(config, name).await?)?),
        // If all keys come from secrets, the backup has none; missing keys are reported at the end.
        (Some(_), None) => None,
        (None, _) => None,
    };
    let _home = DataFolder::lock_for_restore(&config.data_dir)?;
    let now = ambient.clock.now();
    let reason = format!("it was restored from a backup of {}; run chimera resume --after-restore", manifest.made_at);
    let before = unfinished(&config.data_dir);
    let begun = before.is_some();
    let mut task = RestoreTask {
        config,
        from: &args.from,
        manifest,
        keys,
        hold: Hold { reason, since: now },
        force: args.force || before.is_some_and(|about| about.force),
        aside: config.data_dir.join(format!("before-restore-{}", now.micros())),
    };
    // Leftovers of an earlier attempt must be moved aside.
    task.force = task.force || task.check_target(&ambient, begun).await?;
    let mut staging = Staging::begin(&config.data_dir, &args.from, &manifest.made_at, task.force)?;
    if let Err(failure) = task.stage(&staging) {
        if begun {
            return Err(incomplete_failure(failure, &staging));
        }
        staging.end()?;
        say("The restore failed; existing data was not changed.");
        return Err(failure);
    }
    let mut restored = match task.move_into_place(&mut staging).await {
        Ok(restored) => restored,
        Err(failure) => return Err(incomplete_failure(failure, &staging)),
    };
    restored.aside.splice(0..0, staging.about.put_aside.iter().cloned());
    staging.end()?;
    print_warnings(&found);
    print_summary(scene, manifest, &restored)?;
    Ok(ExitCode::SUCCESS)
}

/// A failure after the data folder was changed.
fn incomplete_failure(failure: Failure, staging: &Staging) -> Failure {
    let message = format!("{}; the restore is not complete{}", failure.message, staging.about.moved_to());
    Failure { message, ..failure }
        .hint("fix the cause and repeat the restore; until then this data folder can't be used")
}

/// Warns of a missing or untrusted signature, and of missing blobs.
fn print_warnings(found: &VerifiedBackup) {
    match &found.signed_by {
        None => say("The backup is not signed: changes to it can't be detected."),
        Some(key) if !found.trusted => {
            say(&format!("The backup is signed with {key}, which it contains itself: no key is trusted here yet."));
        }
        Some(_) => {}
    }
    warn_missing_blobs(&found.manifest);
}

/// Missing key files that a server needs and that no secret replaces.
fn keys_missing(config: &Config) -> Vec<&'static str> {
    let needed = [
        ("keys/ledger.key", config.signing_key.is_none()),
        ("keys/seal.key", config.access.seal_key.is_none()),
        ("keys/token.key", config.access.token_key.is_none() && !config.access.hs256),
        ("keys/webhook.key", config.webhook_key.is_none()),
        ("keys/links.key", config.s3_url.is_none()),
    ];
    let missing = needed.into_iter().filter(|(name, needed)| *needed && !config.data_dir.join(name).exists());
    missing.map(|(name, _)| name).collect()
}

struct RestoreSummary {
    aside: Vec<String>,
    keys: Option<usize>,
    missing: Vec<String>,
    keys_missing: Vec<&'static str>,
}

struct RestoreTask<'a> {
    config: &'a Config,
    from: &'a Path,
    manifest: &'a Manifest,
    keys: Option<keys::DecryptedKeys>,
    hold: Hold,
    force: bool,
    /// Where existing data is moved to.
    aside: PathBuf,
}

impl RestoreTask<'_> {
    /// Fails if there is data that may not be moved aside. Returns whether an earlier attempt left some.
    async fn check_target(&self, ambient: &Ambient, begun: bool) -> Outcome<bool> {
        if self.manifest.store == StoreKind::Postgres {
            return compose::check_database_empty(self.config, ambient, begun).await;
        }
        let there = self.existing_files();
        if begun || there.is_empty() {
            return Ok(begun);
        }
        let message = format!("{} already contains data ({})", self.config.data_dir.display(), there.join(", "));
        Err(Failure::new(Code::OccConflict, message)
            .hint("choose an empty folder with --data, or pass --force to move the existing data aside"))
    }

    /// Existing files that must be moved aside; keys only if the backup brings others.
    fn existing_files(&self) -> Vec<String> {
        if self.manifest.store == StoreKind::Postgres {
            return Vec::new();
        }
        let keys = self.keys.as_ref().map(|_| "keys");
        let names = RECORDS.into_iter().chain(keys);
        names.filter(|name| self.config.data_dir.join(name).exists()).map(str::to_owned).collect()
    }

    /// Copies everything to the staging folder; existing data is not changed.
    fn stage(&self, staging: &Staging) -> Outcome {
        if let Some(keys) = &self.keys {
            keys.write(&staging.path("keys"))?;
        }
        for part in
            self.manifest.parts.iter().filter(|part| self.manifest.blobs == BlobPlacement::Whole && is_blob(part))
        {
            let there = self.config.data_dir.join(&part.path);
            if !files::digest(&there).is_ok_and(|found| found == (part.bytes, part.sha256.clone())) {
                files::copy(&self.from.join(&part.path), &staging.path(&part.path))?;
            }
        }
        match self.manifest.store {
            StoreKind::Sqlite => compose::stage_data(self.config, self.from, staging, &self.hold),
            StoreKind::Postgres => Ok(()),
        }
    }

    /// Moves everything into place. Records come last, so what they refer to already exists.
    async fn move_into_place(&self, staging: &mut Staging) -> Outcome<RestoreSummary> {
        let objects = files::list(&staging.path("buckets"))?.into_iter().map(|path| format!("buckets/{path}"));
        let replaced = objects.filter(|path| self.config.data_dir.join(path).exists());
        let names: Vec<String> = self.existing_files().into_iter().chain(replaced).collect();
        staging.put_aside(&names, &self.aside)?;
        let written = staging.put_in_place("keys")?;
        staging.put_in_place("blobs")?;
        staging.put_in_place("buckets")?;
        let missing = self.missing()?;
        let mut aside = Vec::new();
        match self.manifest.store {
            StoreKind::Sqlite => staging.put_file_in_place(compose::RECORDS_FILE)?,
            StoreKind::Postgres => {
                let at = self.force.then_some(self.hold.since);
                let kept = compose::fill_database(self.config, self.from, self.manifest, &self.hold, at).await?;
                aside.extend(kept);
            }
        }
        Ok(RestoreSummary {
            aside,
            keys: self.keys.as_ref().map(|_| written),
            missing,
            keys_missing: keys_missing(self.config),
        })
    }

    /// Missing blobs and objects that the backup only lists.
    fn missing(&self) -> Outcome<Vec<String>> {
        if self.manifest.blobs != BlobPlacement::Listed {
            return Ok(Vec::new());
        }
        let list = self.from.join(BLOB_LIST);
        let text = std::fs::read_to_string(&list).map_err(|error| Failure::file("can't read", &list, &error))?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let names = lines.filter_map(|line| line["path"].as_str().map(str::to_owned));
        Ok(names.filter(|name| files::is_inside(name) && !self.config.data_dir.join(name).is_file()).collect())
    }
}

/// Whether a part of a backup is a blob or an object of a bucket.
fn is_blob(part: &BackupFile) -> bool {
    ["blobs", "buckets"].contains(&part.path.split('/').next().unwrap_or_default())
}

fn print_summary(scene: &CommandContext<'_>, manifest: &Manifest, restored: &RestoreSummary) -> Outcome {
    let RestoreSummary { aside, keys, missing, keys_missing } = restored;
    if scene.json {
        let report = json!({
            "restored": true, "held": true, "made_at": manifest.made_at, "lanes": manifest.lanes,
            "put_aside": (!aside.is_empty()).then(|| aside.join(" and ")), "keys_written": keys, "keys_missing": keys_missing,
            "blobs_missing": missing,
        });
        return print(&format!("{report}\n"));
    }
    let entries: i64 = manifest.lanes.iter().map(|lane| lane.entries).sum();
    say(&format!("Restored the backup of {}: entries of the ledger: {entries}.", manifest.made_at));
    if !aside.is_empty() {
        say(&format!("The previous data was moved to {}.", aside.join(" and ")));
    }
    if let Some(keys) = keys {
        say(&format!("Keys restored: {keys}."));
    }
    if !keys_missing.is_empty() {
        say(&format!("Missing keys: {}.", keys_missing.join(", ")));
        say(
            "Restore them before you start a server: --key restores them from a backup that includes them. Without the key that",
        );
        say(
            "signed the ledger, or the one that encrypted the actors' keys, no server starts; the others are created again.",
        );
    }
    if !missing.is_empty() {
        say(&format!("Missing blobs and objects that the backup lists: {}.", missing.len()));
    }
    say("The store is held: it can be read, but no run continues. Run chimera resume --after-restore to resume it.");
    Ok(())
}
