//! File operations for backups: atomic writes, listing, copying, digests.

use super::BackupFile;
use crate::data_folder::private_folder;
use crate::failure::{Failure, Outcome};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

const READ_BYTES: usize = 256 * 1024;

/// Folder below blobs with unfinished uploads.
const UNFINISHED: &str = "tmp";

/// Creates a private folder and its parents.
pub(crate) fn folder(path: &Path) -> Outcome {
    private_folder(path).map_err(|error| Failure::file("can't create", path, &error))
}

/// Writes a new private file and syncs it.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Outcome {
    let failed = |error: io::Error| Failure::file("can't write", path, &error);
    let mut file = private(path).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)
}

/// Replaces a private file atomically.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Outcome {
    let draft = draft_of(path);
    let _ = std::fs::remove_file(&draft);
    write(&draft, bytes)?;
    std::fs::rename(&draft, path).map_err(|error| Failure::file("can't write", path, &error))?;
    sync(path.parent().unwrap_or(Path::new(".")))
}

/// Moves a file or folder. Files are copied if the target is on another disk.
pub(crate) fn put(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices && from.is_file() => {
            copied(from, to)?;
            std::fs::remove_file(from)
        }
        other => other,
    }
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    path.with_file_name(name)
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Syncs a folder's entries to disk.
pub(crate) fn sync(folder: &Path) -> Outcome {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Failure::file("can't sync", folder, &error))
}

/// The length and digest of a file.
pub(crate) fn digest(path: &Path) -> io::Result<(u64, String)> {
    read(File::open(path)?, |_| Ok(()))
}

/// Copies a file atomically. Returns its length and digest.
pub(crate) fn copy(from: &Path, to: &Path) -> Outcome<(u64, String)> {
    if let Some(above) = to.parent() {
        folder(above)?;
    }
    copied(from, to).map_err(|error| Failure::file("can't copy", from, &error))
}

fn copied(from: &Path, to: &Path) -> io::Result<(u64, String)> {
    let draft = draft_of(to);
    // A leftover of an earlier attempt is incomplete, too.
    let _ = std::fs::remove_file(&draft);
    let mut file = private(&draft)?;
    let copied = read(File::open(from)?, |piece| file.write_all(piece))?;
    file.sync_all().and_then(|()| std::fs::rename(&draft, to))?;
    Ok(copied)
}

fn read(mut file: File, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<(u64, String)> {
    let (mut hasher, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; READ_BYTES]);
    loop {
        let read = file.read(&mut piece)?;
        let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else { break };
        hasher.update(read);
        each(read)?;
        bytes += read.len() as u64;
    }
    Ok((bytes, hex::encode(hasher.finalize())))
}

pub(crate) fn part(folder: &Path, path: &str) -> Outcome<BackupFile> {
    let file = folder.join(path);
    let (bytes, sha256) = digest(&file).map_err(|error| Failure::file("can't read", &file, &error))?;
    Ok(BackupFile { path: path.to_owned(), bytes, sha256 })
}

/// Relative paths of all files below a folder, sorted; empty if the folder does not exist.
pub(crate) fn list(folder: &Path) -> Outcome<Vec<String>> {
    let failed = |error: io::Error| Failure::file("can't read", folder, &error);
    let mut found = Vec::new();
    let mut queue = vec![folder.to_owned()];
    while let Some(next) = queue.pop() {
        let entries = match std::fs::read_dir(&next) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                queue.push(entry.path());
            } else if kind.is_file() {
                let path = entry.path();
                let inside = path.strip_prefix(folder).unwrap_or(&path);
                found.push(inside.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Every finished blob or object below a folder.
pub(crate) fn finished(folder: &Path) -> Outcome<Vec<String>> {
    let unfinished =
        |path: &String| Path::new(path).components().next() == Some(Component::Normal(UNFINISHED.as_ref()));
    Ok(list(folder)?.into_iter().filter(|path| !unfinished(path)).collect())
}

/// Whether a relative path stays inside its folder.
pub(crate) fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
