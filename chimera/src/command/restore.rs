//! `chimera restore`: put a backup in place of what is there.
//!
//! The backup is verified and its keys are opened first: nothing is touched for one that can't be restored.
//! What is there is never overwritten: it is refused, or put aside.
//! The store is held afterwards, whatever happens: nobody knows here what was done since.

use super::backup::{has_keys, verified};
use super::{Scene, print, say};
use crate::backup::{BLOB_LIST, BlobsAre, Manifest, StoreKind, files, keys};
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
    let key = match (&args.key, has_keys(&args.from)) {
        (Some(name), Some(_)) => Some(keys::open(&args.from, &compose::backup_key(config, name).await?)?),
        (Some(_), None) => return Err(Failure::new(Code::ValidationFailed, "there are no keys in this backup")),
        (None, _) => None,
    };
    let _home = Home::take_to_restore(&config.data_dir)?;
    let now = ambient.clock.now();
    let reason = format!("it was restored from a backup of {}; run chimera resume --after-restore", manifest.made_at);
    let hold = Hold { reason, since: now };
    let written;
    let aside = match manifest.store {
        StoreKind::Sqlite => {
            let aside = config.data_dir.join(format!("before-restore-{}", now.micros()));
            let there = what_is_there(config, args.force, key.is_some())?;
            compose::begin_data_restore(config)?;
            put_aside(config, &aside, &there)?;
            let kept = (!there.is_empty()).then(|| aside.display().to_string());
            // Keys come first: records without the key that signs them are refused by every start.
            written = key.as_ref().map(|key| key.put_back(&config.data_dir)).transpose()?;
            if let Err(failure) = compose::put_data_back(config, &args.from, &hold) {
                if let Some(aside) = &kept {
                    say(&format!("What was there is in {aside} now."));
                }
                return Err(failure);
            }
            kept
        }
        StoreKind::Postgres => {
            let aside = args.force.then_some(now);
            let aside = compose::fill_database(config, &args.from, manifest, (&hold, aside)).await?;
            written = key.as_ref().map(|key| key.put_back(&config.data_dir)).transpose()?;
            aside
        }
    };
    let missing = blobs(config, &args.from, manifest)?;
    if found.signed_by.is_none() {
        say("The backup is not signed: nobody can tell whether it was changed.");
    }
    tell(scene, manifest, &Restored { aside, keys: written, missing })?;
    Ok(ExitCode::SUCCESS)
}

/// What came of a restore.
struct Restored {
    aside: Option<String>,
    keys: Option<usize>,
    missing: Vec<String>,
}

/// What would be overwritten; refused if nobody allowed to put it aside. Keys move only if others come.
fn what_is_there(config: &Config, force: bool, keys: bool) -> Outcome<Vec<&'static str>> {
    let data = &config.data_dir;
    let mut there: Vec<&'static str> = RECORDS.into_iter().filter(|name| data.join(name).exists()).collect();
    if keys && data.join("keys").exists() {
        there.push("keys");
    }
    if !there.is_empty() && !force {
        let message = format!("there is data in {} already ({})", data.display(), there.join(", "));
        return Err(Failure::new(Code::OccConflict, message)
            .hint("name an empty folder with --data, or let --force put what is there aside"));
    }
    Ok(there)
}

/// Moves what is there out of the way.
fn put_aside(config: &Config, aside: &Path, there: &[&str]) -> Outcome {
    if there.is_empty() {
        return Ok(());
    }
    let data = &config.data_dir;
    files::folder(aside)?;
    for name in there {
        let moved = std::fs::rename(data.join(name), aside.join(name));
        moved.map_err(|error| Failure::file("can't put aside", &data.join(name), &error))?;
    }
    files::sync(data)
}

/// Puts blobs and buckets back that are in the backup; gives those that are only listed and missing.
fn blobs(config: &Config, from: &Path, manifest: &Manifest) -> Outcome<Vec<String>> {
    let data = &config.data_dir;
    match manifest.blobs {
        BlobsAre::Elsewhere => Ok(Vec::new()),
        BlobsAre::Whole => {
            for part in &manifest.parts {
                let kind = part.path.split('/').next().unwrap_or_default();
                let to: PathBuf = data.join(&part.path);
                let same = || files::digest(&to).is_ok_and(|found| found == (part.bytes, part.sha256.clone()));
                if ["blobs", "buckets"].contains(&kind) && !same() {
                    files::copy(&from.join(&part.path), &to)?;
                }
            }
            Ok(Vec::new())
        }
        BlobsAre::Listed => {
            let list = from.join(BLOB_LIST);
            let text = std::fs::read_to_string(&list).map_err(|error| Failure::file("can't read", &list, &error))?;
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let names = lines.filter_map(|line| line["path"].as_str().map(str::to_owned));
            Ok(names.filter(|name| files::is_inside(name) && !data.join(name).is_file()).collect())
        }
    }
}

fn tell(scene: &Scene<'_>, manifest: &Manifest, restored: &Restored) -> Outcome {
    let Restored { aside, keys, missing } = restored;
    if scene.json {
        let told = json!({
            "restored": true, "held": true, "made_at": manifest.made_at, "lanes": manifest.lanes,
            "put_aside": aside, "keys_written": keys, "blobs_missing": missing,
        });
        return print(&format!("{told}\n"));
    }
    let entries: i64 = manifest.lanes.iter().map(|lane| lane.entries).sum();
    say(&format!("Restored the backup of {}: entries of the ledger: {entries}.", manifest.made_at));
    if let Some(aside) = aside {
        say(&format!("What was there is in {aside} now."));
    }
    if let Some(keys) = keys {
        say(&format!("Keys that were written: {keys}."));
    }
    if !missing.is_empty() {
        say(&format!("Blobs and objects that are listed in the backup and missing here: {}.", missing.len()));
    }
    say("The store is held: it can be read, and nothing is driven. chimera resume --after-restore goes on.");
    Ok(())
}
