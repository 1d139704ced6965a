//! The staging folder of a restore: everything is copied there first, and moved into place when it is complete.
//!
//! The folder `restoring` is the first thing that a restore creates and the last that it removes. While it exists,
//! nothing else may use the data folder: a partial restore must not pass for a new or a complete data folder.

use super::files;
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const FOLDER: &str = "restoring";
/// Its name until `restore.json` is written; nothing was changed by then.
const DRAFT: &str = "restoring-draft";
/// Its name once everything is in place; leftovers are harmless.
const DONE: &str = "restoring-done";
const ABOUT: &str = "restore.json";

/// Describes a restore, for the command that finds it unfinished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestoreInfo {
    pub(crate) from: String,
    pub(crate) made_at: String,
    /// Whether it may move existing data aside.
    #[serde(default)]
    pub(crate) force: bool,
    /// Where this restore and earlier attempts moved existing data.
    pub(crate) put_aside: Vec<String>,
}

/// The unfinished restore of a data folder, if any.
pub(crate) fn unfinished(data: &Path) -> Option<RestoreInfo> {
    let folder = data.join(FOLDER);
    folder.symlink_metadata().ok()?;
    let text = std::fs::read(folder.join(ABOUT)).ok();
    // The file exists from the beginning; if it can't be read, it was damaged later.
    Some(text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default())
}

/// Rejects a data folder with an unfinished restore.
pub(crate) fn refuse_unfinished(data: &Path) -> Outcome {
    let Some(about) = unfinished(data) else { return Ok(()) };
    let from = if about.from.is_empty() { "BACKUP".to_owned() } else { about.from.clone() };
    let message = format!("a restore into {} was begun and is not complete{}", data.display(), about.moved_to());
    Err(Failure::new(Code::StoreUnusable, message)
        .hint(format!("repeat it: chimera restore --from {from}; docs/guides/backup.md describes how to give it up")))
}

impl RestoreInfo {
    /// Where the previous data is now, as the end of a sentence.
    pub(crate) fn moved_to(&self) -> String {
        if self.put_aside.is_empty() {
            return String::new();
        }
        format!("; what was there is in {} now", self.put_aside.join(" and "))
    }
}

pub(crate) struct Staging {
    data: PathBuf,
    pub(crate) about: RestoreInfo,
}

impl Staging {
    /// Starts a restore, or restarts an unfinished one.
    pub(crate) fn begin(data: &Path, from: &Path, made_at: &str, force: bool) -> Outcome<Self> {
        let before = unfinished(data);
        let begun = before.is_some();
        let from = std::path::absolute(from).unwrap_or_else(|_| from.to_owned());
        let about = RestoreInfo {
            from: from.display().to_string(),
            made_at: made_at.to_owned(),
            force,
            ..before.unwrap_or_default()
        };
        let staging = Self { data: data.to_owned(), about };
        if begun {
            staging.save()?;
            staging.clear()?;
            return Ok(staging);
        }
        if let Err(failure) = staging.create() {
            // Nothing was changed yet. A folder that can't be removed is rejected later.
            let _ = std::fs::remove_dir_all(data.join(DRAFT));
            let _ = std::fs::remove_dir_all(staging.folder());
            return Err(failure);
        }
        Ok(staging)
    }

    /// Creates the folder atomically with its `restore.json`.
    fn create(&self) -> Outcome {
        let (draft, folder) = (self.data.join(DRAFT), self.folder());
        for old in [&draft, &self.data.join(DONE)] {
            let _ = std::fs::remove_dir_all(old);
        }
        files::folder(&draft)?;
        files::replace(&draft.join(ABOUT), &self.text()?)?;
        std::fs::rename(&draft, &folder).map_err(|error| Failure::file("can't write", &folder, &error))?;
        files::sync(&self.data)
    }

    /// Removes copies of an earlier attempt.
    fn clear(&self) -> Outcome {
        let _ = std::fs::remove_dir_all(self.data.join(DONE));
        let folder = self.folder();
        let failed = |error| Failure::file("can't clear", &folder, &error);
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                std::fs::remove_dir_all(entry.path()).map_err(failed)?;
            } else if entry.file_name() != ABOUT {
                std::fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        self.data.join(FOLDER)
    }

    fn save(&self) -> Outcome {
        files::replace(&self.path(ABOUT), &self.text()?)
    }

    fn text(&self) -> Outcome<Vec<u8>> {
        let text = serde_json::to_vec_pretty(&self.about);
        text.map_err(|error| Failure::new(Code::Internal, format!("the restore: {error}")))
    }

    /// Where something is kept until it is put in place.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Moves existing data aside; records where to before it moves anything.
    pub(crate) fn put_aside(&mut self, names: &[String], aside: &Path) -> Outcome {
        if names.is_empty() {
            return Ok(());
        }
        self.about.put_aside.push(aside.display().to_string());
        self.save()?;
        for name in names {
            let (from, to) = (self.data.join(name), aside.join(name));
            files::folder(to.parent().unwrap_or(aside))?;
            files::put(&from, &to).map_err(|error| Failure::file("can't put aside", &from, &error))?;
        }
        files::sync(aside)?;
        files::sync(&self.data)
    }

    /// Moves every staged file below `kind` into place. Existing keys are kept. Returns the number of files.
    pub(crate) fn put_in_place(&self, kind: &str) -> Outcome<usize> {
        let (mut count, mut folders) = (0, BTreeSet::new());
        for path in files::list(&self.path(kind))? {
            let (from, to) = (self.path(kind).join(&path), self.data.join(kind).join(&path));
            if kind == "keys" && to.exists() {
                continue;
            }
            let folder = to.parent().unwrap_or(&self.data).to_owned();
            files::folder(&folder)?;
            files::put(&from, &to).map_err(|error| Failure::file("can't write", &to, &error))?;
            folders.extend(folder.ancestors().take_while(|above| above.starts_with(&self.data)).map(Path::to_owned));
            count += 1;
        }
        folders.iter().try_for_each(|folder| files::sync(folder))?;
        Ok(count)
    }

    /// Puts one file in its place, last of all.
    pub(crate) fn put_file_in_place(&self, name: &str) -> Outcome {
        let to = self.data.join(name);
        files::put(&self.path(name), &to).map_err(|error| Failure::file("can't write", &to, &error))?;
        files::sync(&self.data)
    }

    /// Ends the restore: everything is in place, or nothing was changed.
    pub(crate) fn end(self) -> Outcome {
        let (from, to) = (self.folder(), self.data.join(DONE));
        std::fs::rename(&from, &to).map_err(|error| Failure::file("can't remove", &from, &error))?;
        files::sync(&self.data)?;
        // Leftovers are harmless.
        let _ = std::fs::remove_dir_all(&to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restore_that_did_not_end_is_refused_until_it_does_and_remembers_what_was_put_aside() {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path();
        std::fs::write(data.join("chimera.db"), "old").unwrap();
        refuse_unfinished(data).unwrap();
        let mut staging = Staging::begin(data, Path::new("b"), "noon", true).unwrap();
        staging.put_aside(&["chimera.db".to_owned()], &data.join("aside")).unwrap();
        std::fs::write(staging.path("chimera.db"), "of an earlier try").unwrap();
        drop(staging);
        let refused = refuse_unfinished(data).unwrap_err();
        assert!(refused.message.contains("/aside now") && refused.hint.unwrap().contains("--from /"));
        let again = Staging::begin(data, Path::new("b"), "noon", true).unwrap();
        assert!(again.about.moved_to().contains("/aside now") && !again.path("chimera.db").exists());
        again.end().unwrap();
        refuse_unfinished(data).unwrap();
        assert_eq!(std::fs::read_to_string(data.join("aside/chimera.db")).unwrap(), "old");
    }

    #[test]
    fn a_folder_that_says_nothing_of_its_restore_is_refused_too() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join(FOLDER)).unwrap();
        assert_eq!(refuse_unfinished(temp.path()).unwrap_err().code, Code::StoreUnusable);
    }
}
