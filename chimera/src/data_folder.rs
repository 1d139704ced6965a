//! The data folder: its lock, its keys and its other small files.
//!
//! One process at a time writes here. The lock belongs to open file handles, so it ends with its process,
//! and a leftover lock file is harmless. Both the file `lock` and the folder itself are locked: a removed file
//! could be created and locked again, the folder can't. Commands that only read take no lock.

use crate::backup::staging::refuse_unfinished;
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_core::limits::KEY_FILE_BYTES_MAX;
use chimera_engine::port::Random;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Prefix of benchmark folders; a random id follows.
pub(crate) const SCRATCH_PREFIX: &str = "bench-";

/// File with the URL of the running server.
const ADDRESS: &str = "address";

/// Folder with the keys of the example actors of `chimera dev`.
const ACTORS: &str = "actors";

/// A data folder, locked for this process until dropped.
#[derive(Debug)]
pub(crate) struct DataFolder {
    dir: PathBuf,
    /// Whether a ledger key already existed.
    served_before: bool,
    /// Whether `chimera dev` had made keys of actors. A folder that only `chimera serve` used has none.
    had_actors: bool,
    _lock: Option<FolderLock>,
}

#[derive(Debug)]
struct FolderLock {
    _file: File,
    _folder: File,
}

impl DataFolder {
    /// Creates the folder if it is missing, private to this user, and locks it. Rejects a folder with an
    /// unfinished restore.
    pub(crate) fn lock(dir: &Path) -> Outcome<Self> {
        let home = Self::lock_for_restore(dir)?;
        refuse_unfinished(dir)?;
        Ok(home)
    }

    /// Like `lock`, but accepts an unfinished restore.
    pub(crate) fn lock_for_restore(dir: &Path) -> Outcome<Self> {
        let made = private_folder(dir);
        made.map_err(|error| create_failure(dir, &error))?;
        let path = dir.join("lock");
        let lock = private().read(true).write(true).create(true).truncate(false).open(&path);
        let lock = lock.map_err(|error| Failure::file("can't write to the data folder", dir, &error))?;
        lock.try_lock().map_err(|error| lock_failure(dir, error))?;
        let folder = File::open(dir).map_err(|error| Failure::file("can't read the data folder", dir, &error))?;
        match folder.try_lock() {
            Err(TryLockError::Error(error)) if !locks_folders(&error) => {}
            locked => locked.map_err(|error| lock_failure(dir, error))?,
        }
        let lock = Some(FolderLock { _file: lock, _folder: folder });
        let had_actors = dir.join("keys").join(ACTORS).exists();
        Ok(Self { dir: dir.to_owned(), served_before: ledger_key(dir).exists(), had_actors, _lock: lock })
    }

    /// The folder without a lock, for a command that only reads.
    pub(crate) fn unlocked(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), served_before: false, had_actors: false, _lock: None }
    }

    /// The key of the links that the blob folder signs; made at the first start.
    pub(crate) fn link_key(&self, random: &dyn Random) -> Outcome<String> {
        self.load_or_create_key(&self.keys()?.join("links.key"), random)
    }

    /// Removes leftovers of killed benchmarks. The lock guarantees that none is running.
    pub(crate) fn remove_scratch(&self) -> Outcome {
        let failed = |error: std::io::Error| Failure::file("can't clear the data folder", &self.dir, &error);
        for entry in std::fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_prefix(SCRATCH_PREFIX));
            let ours = id.is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
            if ours && entry.file_type().map_err(failed)?.is_dir() {
                std::fs::remove_dir_all(entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn keys(&self) -> Outcome<PathBuf> {
        let keys = self.dir.join("keys");
        let made = private_folder(&keys);
        made.map_err(|error| Failure::file("can't create the key folder", &keys, &error))?;
        Ok(keys)
    }

    /// The seed of the ledger's signing key; made at the first start.
    pub(crate) fn ledger_seed(&self, random: &dyn Random) -> Outcome<[u8; 32]> {
        self.keys()?;
        let path = ledger_key(&self.dir);
        key_of(&path, &self.load_or_create_key(&path, random)?)
    }

    /// The seed of the key that signs webhooks; made at the first start.
    pub(crate) fn webhook_seed(&self, random: &dyn Random) -> Outcome<[u8; 32]> {
        let path = self.keys()?.join("webhook.key");
        key_of(&path, &self.load_or_create_key(&path, random)?)
    }

    /// Whether there is a ledger key but no data file.
    pub(crate) fn lost_data(&self) -> bool {
        ledger_key(&self.dir).exists() && !self.dir.join("chimera.db").exists()
    }

    /// The seed of the key that signs access tokens; made at the first start.
    pub(crate) fn token_seed(&self, random: &dyn Random) -> Outcome<[u8; 32]> {
        let path = self.keys()?.join("token.key");
        key_of(&path, &self.load_or_create_key(&path, random)?)
    }

    /// The key that seals actors' keys in the store; made at the first start.
    pub(crate) fn seal_key(&self, random: &dyn Random) -> Outcome<[u8; 32]> {
        self.keys()?;
        let path = seal_key(&self.dir);
        key_of(&path, &self.load_or_create_key(&path, random)?)
    }

    /// The key of an actor that `chimera dev` brings; made at the first start.
    pub(crate) fn actor_key(&self, actor: &str, random: &dyn Random) -> Outcome<String> {
        let folder = self.keys()?.join(ACTORS);
        let made = private_folder(&folder);
        made.map_err(|error| Failure::file("can't create the key folder", &folder, &error))?;
        self.load_or_create(&folder.join(format!("{actor}.key")), random, self.had_actors)
    }

    /// Publishes the server's URL to commands.
    pub(crate) fn publish_address(&self, url: &str) -> Outcome {
        let path = self.dir.join(ADDRESS);
        let failed = |error: std::io::Error| Failure::file("can't write", &path, &error);
        let draft = path.with_extension("new");
        let mut file = private().write(true).create(true).truncate(true).open(&draft).map_err(failed)?;
        file.write_all(format!("{url}\n").as_bytes()).map_err(failed)?;
        std::fs::rename(&draft, &path).map_err(failed)
    }

    /// Withdraws the server's URL. A killed process leaves a stale one, which is harmless.
    pub(crate) fn remove_address(&self) {
        let _ = std::fs::remove_file(self.dir.join(ADDRESS));
    }

    /// Reads a key file; if it is missing, creates it atomically with 32 random bytes in hex.
    fn load_or_create_key(&self, path: &Path, random: &dyn Random) -> Outcome<String> {
        self.load_or_create(path, random, true)
    }

    /// `was_made` says whether a folder that was served before had the key.
    fn load_or_create(&self, path: &Path, random: &dyn Random, was_made: bool) -> Outcome<String> {
        match line(path)? {
            Some(line) if bytes(&line).is_none() => return Err(damaged_key(path)),
            Some(line) => return Ok(line),
            None => {}
        }
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        let text = hex::encode(bytes);
        let failed = |error: std::io::Error| Failure::file("can't write", path, &error);
        let draft = path.with_extension("new");
        let mut file = private().write(true).create(true).truncate(true).open(&draft).map_err(failed)?;
        file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        std::fs::rename(&draft, path).map_err(failed)?;
        let folder = path.parent().unwrap_or(&self.dir);
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        if self.served_before && was_made {
            let key = path.file_name().unwrap_or_default().to_string_lossy();
            tracing::warn!(
                key = %key,
                "created a missing key; if it was lost, restore it from a backup: what was signed with the old key is no \
                 longer valid"
            );
        }
        Ok(text)
    }
}

/// `NotFound` although parents are created, too: the file system does not support folders, so a retry does not help.
fn create_failure(dir: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::file("can't create the data folder", dir, error);
    if error.kind() != std::io::ErrorKind::NotFound {
        return failure;
    }
    let hint = "this file system does not support folders: set data_dir to another location";
    Failure { code: Code::StoreUnusable, ..failure }.hint(hint)
}

fn lock_failure(dir: &Path, error: TryLockError) -> Failure {
    match error {
        TryLockError::WouldBlock => {
            let message = format!("another chimera process is using the data folder {}", dir.display());
            let hint = "stop it first, or send the command to it; read-only commands can run at the same time";
            Failure::new(Code::DataDirLocked, message).hint(hint)
        }
        TryLockError::Error(error) => Failure::file("can't lock the data folder", dir, &error),
    }
}

/// Whether the file system supports locks on folders. NFS does not; there the file lock has to suffice.
fn locks_folders(error: &std::io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(EBADF | ENOLCK | EOPNOTSUPP)) && error.kind() != ErrorKind::Unsupported
}

/// Linux error codes for unsupported locks.
const EBADF: i32 = 9;
const ENOLCK: i32 = 37;
const EOPNOTSUPP: i32 = 95;

/// The URL of the server that uses the folder, if published.
pub(crate) fn address(dir: &Path) -> Outcome<Option<String>> {
    line(&dir.join(ADDRESS))
}

/// The key that `chimera dev` created for an actor, if any.
pub(crate) fn existing_actor_key(dir: &Path, actor: &str) -> Outcome<Option<String>> {
    if actor.contains(['/', '\\']) {
        return Ok(None);
    }
    let path = dir.join("keys").join(ACTORS).join(format!("{actor}.key"));
    match line(&path)? {
        Some(text) if bytes(&text).is_none() => Err(damaged_key(&path)),
        found => Ok(found),
    }
}

/// How many actors have a key that `chimera dev` made.
pub(crate) fn existing_actor_keys(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("keys").join(ACTORS)).map_or(0, Iterator::count)
}

/// Where the ledger's signing key lies.
pub(crate) fn ledger_key(dir: &Path) -> PathBuf {
    dir.join("keys").join("ledger.key")
}

/// The ledger's seed, if the folder has one already.
pub(crate) fn existing_ledger_seed(dir: &Path) -> Outcome<Option<[u8; 32]>> {
    existing_key(&ledger_key(dir))
}

/// Where the key lies that seals actors' keys.
pub(crate) fn seal_key(dir: &Path) -> PathBuf {
    dir.join("keys").join("seal.key")
}

/// The key that seals actors' keys, if the folder has one already.
pub(crate) fn existing_seal_key(dir: &Path) -> Outcome<Option<[u8; 32]>> {
    existing_key(&seal_key(dir))
}

fn existing_key(path: &Path) -> Outcome<Option<[u8; 32]>> {
    line(path)?.map(|text| key_of(path, &text)).transpose()
}

/// Decodes a key file. A damaged key is never replaced: what depends on it would be lost.
fn key_of(path: &Path, text: &str) -> Outcome<[u8; 32]> {
    bytes(text).ok_or_else(|| damaged_key(path))
}

fn damaged_key(path: &Path) -> Failure {
    let mut parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let name = parts.split_off(parts.iter().rposition(|part| part == "keys").unwrap_or(0)).join("/");
    Failure::new(Code::ConfigInvalid, format!("{name} is not 64 hex digits"))
        .hint("restore it from a backup; docs/guides/backup.md describes it")
}

pub(crate) fn damaged_keys(dir: &Path) -> Vec<Failure> {
    let folder = dir.join("keys");
    let of = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ending| ending == "key"))
    };
    let mut paths: Vec<PathBuf> = of(&folder).chain(of(&folder.join(ACTORS))).collect();
    paths.sort();
    paths.iter().filter_map(|path| existing_key(path).err()).collect()
}

pub(crate) fn seed(text: &str) -> Outcome<[u8; 32]> {
    bytes(text).ok_or_else(|| Failure::new(Code::ConfigInvalid, "the ledger's signing key is not 64 hex digits"))
}

fn bytes(text: &str) -> Option<[u8; 32]> {
    hex::decode(text).ok()?.try_into().ok()
}

fn line(path: &Path) -> Outcome<Option<String>> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::file("can't read", path, &error)),
    }
}

/// Creates a private folder and its missing parents.
pub(crate) fn private_folder(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ambient::SystemRandom;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_folder_has_one_user_at_a_time_and_frees_itself() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("data");
        let home = DataFolder::lock(&dir).unwrap();
        let refused = DataFolder::lock(&dir).unwrap_err();
        assert_eq!((refused.code, refused.exit()), (Code::DataDirLocked, 5));
        drop(home);
        DataFolder::lock(&dir).unwrap();
    }

    #[test]
    fn a_lock_file_that_is_removed_or_replaced_lets_nobody_else_in() {
        let temp = tempfile::tempdir().unwrap();
        let home = DataFolder::lock(temp.path()).unwrap();
        let lock = temp.path().join("lock");
        std::fs::remove_file(&lock).unwrap();
        for _ in 0..2 {
            let refused = DataFolder::lock(temp.path()).unwrap_err();
            assert_eq!(refused.code, Code::DataDirLocked, "the first refusal left a file of its own behind");
        }
        std::fs::write(temp.path().join("other"), "").unwrap();
        std::fs::rename(temp.path().join("other"), &lock).unwrap();
        assert_eq!(DataFolder::lock(temp.path()).unwrap_err().code, Code::DataDirLocked);
        drop(home);
        DataFolder::lock(temp.path()).unwrap();
    }

    #[test]
    fn keys_are_made_once_and_for_their_owner_only() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("data");
        assert_eq!(existing_ledger_seed(&dir).unwrap(), None);
        let home = DataFolder::lock(&dir).unwrap();
        let (seed, token) = (home.ledger_seed(&SystemRandom).unwrap(), home.actor_key("admin", &SystemRandom).unwrap());
        assert_eq!(home.ledger_seed(&SystemRandom).unwrap(), seed);
        assert_eq!(home.actor_key("admin", &SystemRandom).unwrap(), token);
        assert_eq!(existing_ledger_seed(&dir).unwrap(), Some(seed));
        let webhooks = home.webhook_seed(&SystemRandom).unwrap();
        assert_eq!(home.webhook_seed(&SystemRandom).unwrap(), webhooks);
        assert_ne!(webhooks, seed);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(&ledger_key(&dir)), 0o600);
        assert_eq!(mode(&dir.join("keys/webhook.key")), 0o600);
        assert_eq!(mode(&dir.join("keys/actors/admin.key")), 0o600);
        assert_eq!(existing_actor_keys(&dir), 1);
    }

    #[test]
    fn a_damaged_key_is_refused_and_never_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let home = DataFolder::lock(temp.path()).unwrap();
        home.ledger_seed(&SystemRandom).unwrap();
        std::fs::write(ledger_key(temp.path()), "").unwrap();
        assert_eq!(home.ledger_seed(&SystemRandom).unwrap_err().code, Code::ConfigInvalid);
        home.actor_key("admin", &SystemRandom).unwrap();
        std::fs::write(temp.path().join("keys/actors/admin.key"), "").unwrap();
        let refused = existing_actor_key(temp.path(), "admin").unwrap_err();
        assert_eq!(refused.message, "keys/actors/admin.key is not 64 hex digits");
    }
}
