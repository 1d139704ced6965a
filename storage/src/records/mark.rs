//! The mark file: how far each lane has come, stored outside the store itself.
//!
//! Every lane has two slots, written alternately, so a torn write leaves the previous mark intact. A mark is written
//! after its commit is durable, and synced a moment later: after a power cut it may be older than the store, never
//! newer.

use super::OpenError;
use chimera_core::error::io_reason;
use chimera_core::ledger::{MARK_BYTES, Mark};
use chimera_core::limits;
use chimera_engine::port::{Outage, Unavailable};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file's name in a data folder.
pub const MARK_FILE: &str = "ledger.mark";

pub(crate) struct MarkFile {
    path: PathBuf,
    inner: Mutex<MarkFileState>,
    /// Something was written that may not be on disk yet.
    fresh: AtomicBool,
    /// Why marks can't be written, once logged.
    failing: Mutex<Option<Unavailable>>,
    /// What was wrong with the file when it was opened, if it held no mark.
    lack: Option<MarkFileProblem>,
}

/// Why a file holds no marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MarkFileProblem {
    Missing,
    Empty,
    Unreadable,
}

impl MarkFileProblem {
    const fn words(self) -> &'static str {
        match self {
            Self::Missing => "is missing",
            Self::Empty => "is empty",
            Self::Unreadable => "can't be read as a mark",
        }
    }

    /// The warning for a store that was used before: it is unknown whether it is the newest copy. Nodes that share a
    /// store have a mark each, and a new one has none.
    fn note(self, name: &str, is_shared: bool) -> String {
        if is_shared && self == Self::Missing {
            return format!(
                "this node has no ledger mark {name} yet: expected of a node that is new to this database; otherwise \
                 nothing shows whether the data is the newest"
            );
        }
        format!(
            "the ledger's mark {name} {}, although this store was used before; so nothing shows whether the data is \
             the newest",
            self.words()
        )
    }
}

struct MarkFileState {
    file: File,
    /// The mark of each lane, and which of its two slots holds it.
    marks: BTreeMap<i64, (Mark, u64)>,
}

impl MarkFile {
    /// Opens or creates the file.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        Self::opened(path).map_err(|source| OpenError::Marks { path: path.to_owned(), source })
    }

    fn opened(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            crate::folder::create(folder)?;
        }
        let existed = path.exists();
        let file = create(path)?;
        let found = read_slots(&file)?;
        let lack = found.lack().map(|lack| if existed { lack } else { MarkFileProblem::Missing });
        let MarkSlots { marks, unreadable } = found;
        if unreadable > 0 && lack.is_none() {
            tracing::warn!(
                places = unreadable,
                "some slots of the ledger's mark file can't be read; using the previous marks"
            );
        }
        let inner = Mutex::new(MarkFileState { file, marks });
        Ok(Self { path: path.to_owned(), inner, fresh: AtomicBool::new(false), failing: Mutex::default(), lack })
    }

    /// The warning for a store that was used before and had no marks. The log includes the path, the returned note
    /// only the file name.
    pub(crate) fn missing_note(&self, used: bool, is_shared: bool) -> Option<String> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let note = self.lack.filter(|_| used)?.note(&name, is_shared);
        tracing::warn!(
            file = %self.path.display(),
            "{note}; a new one is begun; if it is on a disk that is not mounted, stop the server and mount it"
        );
        Some(note)
    }

    /// The same without opening the file for writing.
    pub(crate) fn missing_note_at(path: &Path, is_shared: bool) -> Result<Option<String>, OpenError> {
        let lack = match File::open(path) {
            Ok(file) => read_slots(&file).map(|found| found.lack()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(MarkFileProblem::Missing)),
            Err(error) => Err(error),
        };
        let lack = lack.map_err(|source| OpenError::Marks { path: path.to_owned(), source })?;
        Ok(lack.map(|lack| lack.note(&path.display().to_string(), is_shared)))
    }

    /// The marks in a file, without creating one.
    pub(crate) fn read(path: &Path) -> Result<Vec<Mark>, OpenError> {
        let read = match File::open(path) {
            Ok(file) => read_slots(&file).map(|found| found.marks.into_values().map(|(mark, _)| mark).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        read.map_err(|source| OpenError::Marks { path: path.to_owned(), source })
    }

    fn inner(&self) -> MutexGuard<'_, MarkFileState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn marks(&self) -> Vec<Mark> {
        self.inner().marks.values().map(|(mark, _)| *mark).collect()
    }

    /// Writes a lane's mark into the slot that does not hold the previous one. Its commit is already durable, so a
    /// mark that can't be written is only logged.
    pub(crate) fn write(&self, mark: Mark) {
        let mut inner = self.inner();
        let place = match inner.marks.get(&mark.lane) {
            Some((before, _)) if !mark.is_later_than(before) => return,
            Some((_, place)) => 1 - place,
            None => 0,
        };
        let Some(at) = offset(mark.lane, place) else { return };
        match inner.file.write_all_at(&mark.encode(), at) {
            Ok(()) => {
                inner.marks.insert(mark.lane, (mark, place));
                self.fresh.store(true, Ordering::Relaxed);
            }
            Err(error) => self.log_failure(&error),
        }
    }

    /// Syncs everything that was written. Recreates a file that somebody removed or replaced.
    pub(crate) fn sync(&self) {
        if self.fresh.swap(false, Ordering::Relaxed) {
            self.settle(self.sync_now());
        }
    }

    /// Whether marks can be written now. Retries after a failure.
    pub(crate) fn check(&self) -> Result<(), Unavailable> {
        let failed = self.failing().is_some();
        if failed || !self.inner().is_at(&self.path) {
            self.settle(self.sync_now());
        }
        self.failing().clone().map_or(Ok(()), Err)
    }

    fn sync_now(&self) -> io::Result<()> {
        let mut inner = self.inner();
        if self.failing().is_some() || !inner.is_at(&self.path) {
            inner.rewrite(&self.path)?;
        }
        // Writers don't wait for the disk meanwhile.
        let file = inner.file.try_clone();
        drop(inner);
        file?.sync_data()
    }

    fn settle(&self, kept: io::Result<()>) {
        match kept {
            Ok(()) => *self.failing() = None,
            Err(error) => self.log_failure(&error),
        }
    }

    fn log_failure(&self, error: &io::Error) {
        let reason = unusable(&self.path, error);
        let before = self.failing().replace(Unavailable::new(Outage::from_io(error), reason.clone()));
        if before.is_none() {
            tracing::warn!(reason, "the mark of the ledger can't be written; a restore may go unnoticed");
        }
    }

    fn failing(&self) -> MutexGuard<'_, Option<Unavailable>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is wrong with a mark file; names the file but not its folder.
fn unusable(path: &Path, error: &io::Error) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("the ledger's mark {name} can't be used: {}", io_reason(error))
}

impl MarkFileState {
    /// Whether the path still leads to the open file.
    fn is_at(&self, path: &Path) -> bool {
        let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let (open, found) = (self.file.metadata().map(identity), path.metadata().map(identity));
        open.is_ok_and(|open| found.is_ok_and(|found| found == open))
    }

    fn rewrite(&mut self, path: &Path) -> io::Result<()> {
        self.file = create(path)?;
        for (mark, place) in self.marks.values() {
            let Some(at) = offset(mark.lane, *place) else { continue };
            self.file.write_all_at(&mark.encode(), at)?;
        }
        Ok(())
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The offset of a lane's slot.
fn offset(lane: i64, place: u64) -> Option<u64> {
    let number = u64::try_from(lane).ok()?.checked_sub(1).filter(|at| *at < limits::LANES_MAX as u64)?;
    Some((number * 2 + place) * MARK_BYTES as u64)
}

/// The contents of a mark file.
struct MarkSlots {
    /// The mark of each lane, and which of its two slots holds it.
    marks: BTreeMap<i64, (Mark, u64)>,
    /// Slots that were written but hold no valid mark.
    unreadable: usize,
}

impl MarkSlots {
    /// What is wrong with a file that holds no marks.
    fn lack(&self) -> Option<MarkFileProblem> {
        let lack = if self.unreadable > 0 { MarkFileProblem::Unreadable } else { MarkFileProblem::Empty };
        self.marks.is_empty().then_some(lack)
    }
}

fn read_slots(file: &File) -> io::Result<MarkSlots> {
    let mut bytes = Vec::new();
    file.take((limits::LANES_MAX * 2 * MARK_BYTES) as u64).read_to_end(&mut bytes)?;
    let mut marks: BTreeMap<i64, (Mark, u64)> = BTreeMap::new();
    let mut unreadable = 0;
    for (bytes, place) in bytes.chunks(MARK_BYTES).zip([0, 1].into_iter().cycle()) {
        let Some(mark) = Mark::decode(bytes) else {
            unreadable += usize::from(bytes.iter().any(|byte| *byte != 0));
            continue;
        };
        let known = marks.get(&mark.lane);
        if known.is_none_or(|(known, _)| mark.is_later_than(known)) {
            marks.insert(mark.lane, (mark, place));
        }
    }
    Ok(MarkSlots { marks, unreadable })
}

/// Whether the marks of a store can be written; runs on a blocking thread.
pub(crate) async fn check_marks(marks: Option<&Arc<MarkFile>>) -> Result<(), Unavailable> {
    let Some(marks) = marks.cloned() else { return Ok(()) };
    let asked = tokio::task::spawn_blocking(move || marks.check()).await;
    asked.unwrap_or_else(|_| Err(Unavailable::new(Outage::Transient, "the store is stopped")))
}

/// The number of entries that the marks in a file know of.
pub fn marked_entries(path: &Path) -> Result<u64, OpenError> {
    Ok(MarkFile::read(path)?.iter().map(|mark| mark.head.seq.unsigned_abs()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::ledger::{ChainHead, Digest32};

    fn mark(lane: i64, seq: i64) -> Mark {
        Mark { lane, generation: 0, epoch: 1, head: ChainHead { seq, hash: Digest32([7; 32]) } }
    }

    #[test]
    fn a_new_node_of_a_shared_store_is_not_told_that_its_mark_was_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MARK_FILE);
        let note = |is_shared: bool| MarkFile::missing_note_at(&path, is_shared).unwrap().unwrap();
        assert!(note(true).contains("expected of a node that is new to this database"), "{}", note(true));
        assert!(note(false).contains("is missing, although this store was used before"), "{}", note(false));
        std::fs::write(&path, "").unwrap();
        assert_eq!(note(true), note(false), "an empty file was there before");
    }

    #[test]
    fn the_last_mark_of_every_lane_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MARK_FILE);
        let file = MarkFile::open(&path).unwrap();
        (1..=5).for_each(|seq| file.write(mark(1, seq)));
        file.write(mark(3, 9));
        file.write(mark(3, 8));
        file.sync();
        assert_eq!(MarkFile::read(&path).unwrap(), [mark(1, 5), mark(3, 9)]);
        assert_eq!(MarkFile::open(&path).unwrap().marks(), file.marks());
        assert_eq!(MarkFile::read(&folder.path().join("none")).unwrap(), []);
    }

    #[test]
    fn a_file_that_can_not_be_written_any_more_is_named_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MARK_FILE);
        let file = MarkFile::open(&path).unwrap();
        file.write(mark(1, 1));
        assert_eq!(file.check(), Ok(()));
        std::fs::rename(&path, folder.path().join("aside")).unwrap();
        std::fs::create_dir(&path).unwrap();
        let missing =
            Unavailable::new(Outage::Unusable, "the ledger's mark ledger.mark can't be used: is a directory (EISDIR)");
        assert_eq!(file.check(), Err(missing), "nobody has to write before it is noticed");
        std::fs::remove_dir(&path).unwrap();
        assert_eq!(file.check(), Ok(()));
        assert_eq!(MarkFile::read(&path).unwrap(), [mark(1, 1)]);
    }

    #[test]
    fn a_torn_write_leaves_the_mark_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MARK_FILE);
        let file = MarkFile::open(&path).unwrap();
        (1..=4).for_each(|seq| file.write(mark(1, seq)));
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.chunks(MARK_BYTES).position(|place| Mark::decode(place) == Some(mark(1, 4))).unwrap();
        bytes[last * MARK_BYTES + 40..(last + 1) * MARK_BYTES].fill(0);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(MarkFile::read(&path).unwrap(), [mark(1, 3)]);
    }

    #[test]
    fn a_file_that_was_removed_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MARK_FILE);
        let file = MarkFile::open(&path).unwrap();
        file.write(mark(1, 1));
        std::fs::remove_file(&path).unwrap();
        file.write(mark(2, 4));
        file.sync();
        assert_eq!(MarkFile::read(&path).unwrap(), [mark(1, 1), mark(2, 4)]);
    }
}
