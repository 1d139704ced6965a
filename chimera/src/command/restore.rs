//! `chimera restore`: put a backup in place of what is there.
//!
//! The backup is verified and its keys are opened first: nothing is touched for one that can't be restored.
//! What is there is never overwritten: it is refused, or put aside. Everything is copied beside it first and put in
//! place then, records last; a restore that does not end is found by whoever comes next.
//! The store is held afterwards, whatever happens: nobody knows here what was done since.

use super::backup::{has_keys, tell_missing, verified};
use super::{Scene, print, say};
use crate::backup::staging::{Staging, unfinished};
use crate::backup::{BLOB_LIST, BlobsAre, Manifest, Part, StoreKind, Verified, files, keys};
use crate::cli::RestoreArgs;
use crate::compose::{self, Ambient};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::home::Home;
use chimera_core::error::Code;
use chimera_engine::port::Hold;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What belongs to the records of a data folder.
const RECORDS: [&str; 3] = ["chimera.db", "chimera.db-wal", "chimera.db-shm"];

pub(crate) async fn run(scene: &Scene<'_>, args: &RestoreArgs) -> Outcome<ExitCode> {
    let (config, ambient) = (&scene.loaded.config, Ambient::new());
    let found = verified(scene, &args.from, &args.trust).await?;
    let manifest = &found.manifest;
    if manifest.store != compose::store_kind(config) {
        let message = match manifest.store {
            StoreKind::Sqlite => "the backup is of a data folder, but `database_url` is set",
            StoreKind::Postgres => "the backup is of a database, but `database_url` is not set",
        };
        return Err(Failure::new(Code::ConfigInvalid, message).hint("restore to the store that it was made of"));
    }
    let keys = match (&args.key, has_keys(&args.from)) {
        (Some(name), Some(_)) => Some(keys::open(&args.from, &compose::backup_key(config, name).await?)?),
        // Where keys come from secrets there were none to seal; what is missing here is named at the end.
        (Some(_), None) => None,
        (None, _) => None,
    };
    let _home = Home::take_to_restore(&config.data_dir)?;
    let now = ambient.clock.now();
    let reason = format!("it was restored from a backup of {}; run chimera resume --after-restore", manifest.made_at);
    let before = unfinished(&config.data_dir);
    let begun = before.is_some();
    let mut task = Task {
        config,
        from: &args.from,
        manifest,
        keys,
        hold: Hold { reason, since: now },
        force: args.force || before.is_some_and(|about| about.force),
        aside: config.data_dir.join(format!("before-restore-{}", now.micros())),
    };
    // What a try that began has left is in the way of the next.
    task.force = task.force || task.refuse(&ambient, begun).await?;
    let mut staging = Staging::begin(&config.data_dir, &args.from, &manifest.made_at, task.force)?;
    if let Err(failure) = task.stage(&staging) {
        if begun {
            return Err(incomplete(failure, &staging));
        }
        staging.end()?;
        say("The restore failed before anything that was there was changed.");
        return Err(failure);
    }
    let mut restored = match task.switch(&mut staging).await {
        Ok(restored) => restored,
        Err(failure) => return Err(incomplete(failure, &staging)),
    };
    restored.aside.splice(0..0, staging.about.put_aside.iter().cloned());
    staging.end()?;
    doubts(&found);
    tell(scene, manifest, &restored)?;
    Ok(ExitCode::SUCCESS)
}

/// What failed while things were put in place, and what that means.
fn incomplete(failure: Failure, staging: &Staging) -> Failure {
    let message = format!("{}; the restore is not complete{}", failure.message, staging.about.kept());
    Failure { message, ..failure }
        .hint("repeat it when the reason is gone: until then, nothing else uses this data folder")
}

/// What nobody here can say of the backup, and what a server will miss.
fn doubts(found: &Verified) {
    match &found.signed_by {
        None => say("The backup is not signed: nobody can tell whether it was changed."),
        Some(key) if !found.trusted => {
            say(&format!("The backup is signed with {key}, the key that it names itself: no key is trusted here yet."));
        }
        Some(_) => {}
    }
    tell_missing(&found.manifest);
}

/// The keys of a data folder that a server needs, that no secret stands for, and that are not there.
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

/// What came of a restore.
struct Restored {
    aside: Vec<String>,
    keys: Option<usize>,
    missing: Vec<String>,
    keys_missing: Vec<&'static str>,
}

/// A restore with everything that it needs.
struct Task<'a> {
    config: &'a Config,
    from: &'a Path,
    manifest: &'a Manifest,
    keys: Option<keys::Opened>,
    hold: Hold,
    force: bool,
    /// Where what is there goes.
    aside: PathBuf,
}

impl Task<'_> {
    /// Refuses if there is data that nobody allowed to put aside. Gives whether an earlier try left some.
    async fn refuse(&self, ambient: &Ambient, begun: bool) -> Outcome<bool> {
        if self.manifest.store == StoreKind::Postgres {
            return compose::refuse_filled(self.config, ambient, begun).await;
        }
        let there = self.there();
        if begun || there.is_empty() {
            return Ok(begun);
        }
        let message = format!("there is data in {} already ({})", self.config.data_dir.display(), there.join(", "));
        Err(Failure::new(Code::OccConflict, message)
            .hint("name an empty folder with --data, or let --force put what is there aside"))
    }

    /// What is in the way. Keys are only if others come, and of a database only its own tables.
    fn there(&self) -> Vec<String> {
        if self.manifest.store == StoreKind::Postgres {
            return Vec::new();
        }
        let keys = self.keys.as_ref().map(|_| "keys");
        let names = RECORDS.into_iter().chain(keys);
        names.filter(|name| self.config.data_dir.join(name).exists()).map(str::to_owned).collect()
    }

    /// Copies everything beside what is there, which stays as it is.
    fn stage(&self, staging: &Staging) -> Outcome {
        if let Some(keys) = &self.keys {
            keys.write(&staging.path("keys"))?;
        }
        for part in self.manifest.parts.iter().filter(|part| self.manifest.blobs == BlobsAre::Whole && is_blob(part)) {
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

    /// Puts everything in its place. Records come last: whatever they name is there by then.
    async fn switch(&self, staging: &mut Staging) -> Outcome<Restored> {
        let objects = files::list(&staging.path("buckets"))?.into_iter().map(|path| format!("buckets/{path}"));
        let replaced = objects.filter(|path| self.config.data_dir.join(path).exists());
        let names: Vec<String> = self.there().into_iter().chain(replaced).collect();
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
                let kept = compose::fill_database(self.config, self.from, self.manifest, (&self.hold, at)).await?;
                aside.extend(kept);
            }
        }
        Ok(Restored {
            aside,
            keys: self.keys.as_ref().map(|_| written),
            missing,
            keys_missing: keys_missing(self.config),
        })
    }

    /// Blobs and objects that the backup only lists and that are not here.
    fn missing(&self) -> Outcome<Vec<String>> {
        if self.manifest.blobs != BlobsAre::Listed {
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
fn is_blob(part: &Part) -> bool {
    ["blobs", "buckets"].contains(&part.path.split('/').next().unwrap_or_default())
}

fn tell(scene: &Scene<'_>, manifest: &Manifest, restored: &Restored) -> Outcome {
    let Restored { aside, keys, missing, keys_missing } = restored;
    if scene.json {
        let told = json!({
            "restored": true, "held": true, "made_at": manifest.made_at, "lanes": manifest.lanes,
            "put_aside": (!aside.is_empty()).then(|| aside.join(" and ")), "keys_written": keys, "keys_missing": keys_missing,
            "blobs_missing": missing,
        });
        return print(&format!("{told}\n"));
    }
    let entries: i64 = manifest.lanes.iter().map(|lane| lane.entries).sum();
    say(&format!("Restored the backup of {}: entries of the ledger: {entries}.", manifest.made_at));
    if !aside.is_empty() {
        say(&format!("What was there is in {} now.", aside.join(" and ")));
    }
    if let Some(keys) = keys {
        say(&format!("Keys that were written: {keys}."));
    }
    if !keys_missing.is_empty() {
        say(&format!("Keys that are not here: {}.", keys_missing.join(", ")));
        say("Put them back before you start: --key restores them from a backup that has them. Without the key that");
        say("signed the ledger, or the one that sealed actors' keys, no server starts; others are made anew.");
    }
    if !missing.is_empty() {
        say(&format!("Blobs and objects that are listed in the backup and missing here: {}.", missing.len()));
    }
    say("The store is held: it can be read, and nothing is driven. chimera resume --after-restore goes on.");
    Ok(())
}
