//! Tells a disk that fails from data that is damaged.
//!
//! SQLite reports a read that the disk fails with `EIO` as damage. Such a failure may pass, and damage does not. So
//! when SQLite reports damage, the files are read again without it, small ones several times: a disk may fail only now
//! and then.

use super::super::OpenError;
use super::file::{log_of, path_in};
use chimera_core::limits;
use chimera_engine::port::{Outage, Unavailable};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tokio::time::Instant;

/// Reads the files of an open store. Keeps its handle: closing it would release this process's locks on the data file.
#[derive(Debug, Default)]
pub(super) struct ReadProbe(Mutex<Option<LastProbe>>);

#[derive(Debug)]
struct LastProbe {
    data: File,
    at: Instant,
    fails: bool,
}

impl ReadProbe {
    /// What is wrong, if it is not damage.
    pub(super) fn explain(&self, path: &Path, met: Unavailable) -> Unavailable {
        if met.outage.is_damage() && self.disk_fails(path) { disk_error() } else { met }
    }

    fn disk_fails(&self, path: &Path) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && last.at.elapsed() < limits::SQLITE_READ_PROBE_INTERVAL
        {
            return last.fails;
        }
        let Some(data) = last.take().map(|last| last.data).or_else(|| File::open(path).ok()) else { return true };
        let fails = !is_readable(&data) || log_fails(path);
        *last = Some(LastProbe { data, at: Instant::now(), fails });
        fails
    }
}

/// The same for a call that has ended and left no connection to the data in `folder`.
pub(in super::super) fn explain<T>(folder: &Path, done: Result<T, OpenError>) -> Result<T, OpenError> {
    let path = path_in(folder);
    done.map_err(|error| match error {
        OpenError::Unavailable(met) if met.outage.is_damage() && file_fails(&path) | log_fails(&path) => {
            disk_error().into()
        }
        error => error,
    })
}

fn disk_error() -> Unavailable {
    Unavailable::new(Outage::DiskError, "the disk reports an input/output error")
}

fn log_fails(path: &Path) -> bool {
    file_fails(&log_of(path))
}

fn file_fails(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => !is_readable(&file),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Whether the disk reads the file, to its end or to a limit.
fn is_readable(file: &File) -> bool {
    reads_succeed(|page, at| file.read_at(page, at))
}

/// Whether every read succeeds. A disk may fail only some of the reads of one place, so a small file is read several
/// times.
fn reads_succeed(mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>) -> bool {
    let (mut page, mut bytes_read) = ([0; 4096], 0);
    for _ in 0..limits::SQLITE_READ_PROBE_ROUNDS {
        let mut at = 0;
        while bytes_read < limits::SQLITE_READ_PROBE_BYTES_MAX {
            match read(&mut page, at) {
                Ok(0) => break,
                Ok(bytes) => (at, bytes_read) = (at + bytes as u64, bytes_read + bytes as u64),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that fails one read in a hundred, under a file of a few pages.
    #[test]
    fn a_disk_that_fails_now_and_then_is_found_under_a_small_file() {
        let file = |pages: u64, fails_at: Option<usize>| {
            let mut reads = 0;
            reads_succeed(move |page, at| {
                reads += 1;
                match fails_at {
                    Some(read) if reads == read => Err(io::Error::from_raw_os_error(5)),
                    _ if at < pages * 4096 => Ok(page.len()),
                    _ => Ok(0),
                }
            })
        };
        assert!(file(20, None));
        assert!(!file(20, Some(15)));
        assert!(!file(20, Some(100)), "the first rounds succeed");
    }
}
