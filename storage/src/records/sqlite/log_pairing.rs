//! Whether a data file and a write-ahead log belong together.
//!
//! SQLite applies a log to whatever data file it finds. Applied to the wrong one, the result is a mixture that was
//! never committed and may look intact. So every transaction records a random id of the state it creates, and the id
//! of the previous state, in the header of the data file (`user_version` and `application_id`). The header is in page
//! 1, and so in every transaction of the log. A data file belongs to a log that begins right after its state, or that
//! contains it because the log was merged, completely or in part.

use super::failure::unavailable;
use super::file::{log_of, open_unchanging, with_cause};
use chimera_core::error::io_reason;
use chimera_core::limits;
use chimera_engine::port::{Outage, Unavailable};
use rusqlite::Connection;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// The first four bytes of a log, except for the last bit, which gives the byte order of its checksums.
const MAGIC: u32 = 0x377f_0682;
const LOG_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// Offsets of the state id and the previous state id in the header of a data file.
const STATE_AT: usize = 60;
const BEFORE_AT: usize = 68;
const PAGE_BYTES_MAX: u32 = 65_536;

/// Records the id of the state that the open transaction creates. Ids are random, not counted, so that diverging
/// histories have no id in common.
pub(crate) fn stamp(conn: &Connection) -> rusqlite::Result<()> {
    let number = |text| conn.prepare_cached(text)?.query_row([], |row| row.get::<_, i64>(0));
    let before = number("PRAGMA user_version")?;
    let state = number("SELECT random() % 2147483648")?;
    // Pragmas take no parameters.
    conn.execute_batch(&format!("PRAGMA application_id = {before}; PRAGMA user_version = {state}"))
}

/// Rejects a log beside a data file that it does not belong to, or whose header can't be read: SQLite would take the
/// header from the log and merge the rest. A file that is no log is left to SQLite.
pub(super) fn check(path: &Path) -> Result<(), Unavailable> {
    let mut unread = None;
    for _ in 0..limits::SQLITE_FILE_READS_MAX {
        match look(path) {
            Ok(PairState::Apart) => return Err(Unavailable::new(Outage::Unusable, mixture(path))),
            Ok(PairState::Together) => return Ok(()),
            Ok(PairState::Changing) => unread = None,
            Err(why) => unread = Some(why),
        }
    }
    // A mismatch that nobody has open does not change.
    unread.map_or(Ok(()), Err)
}

fn mixture(path: &Path) -> String {
    let (data, log) = names(path);
    format!(
        "{data} is not the data file that its log {log} continues: it is older, newer or another one; restore the \
         matching {data}, or a backup; moving {log} away discards the last writes"
    )
}

fn headless(path: &Path) -> String {
    let (data, log) = names(path);
    format!(
        "the data file is damaged: the header of {data} can't be read, so nothing shows that its log {log} continues \
         it; restore the matching {data}, or a backup; moving {log} away discards the last writes"
    )
}

fn names(path: &Path) -> (String, String) {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (name(path), name(&log_of(path)))
}

/// How two files relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairState {
    Together,
    Apart,
    /// One of them was written in between.
    Changing,
}

fn look(path: &Path) -> Result<PairState, Unavailable> {
    let log = log_of(path);
    let Some(header) = header(&log)? else { return Ok(PairState::Together) };
    let state = state(path)?;
    let states = match File::open(&log).and_then(|log| LogStates::of(BufReader::new(log))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(PairState::Changing),
        read => read.map_err(|error| unreadable(&error))?,
    };
    if states.is_none_or(|states| states.belong_to(state)) {
        return Ok(PairState::Together);
    }
    // The log can restart, and its pages can reach the data file, between two reads, but not unnoticed.
    let same = self::header(&log)? == Some(header) && self::state(path)? == state;
    Ok(if same { PairState::Apart } else { PairState::Changing })
}

/// The state id of a data file, without its log. SQLite itself reads it, because closing the file any other way would
/// release this process's locks on it.
fn state(path: &Path) -> Result<u32, Unavailable> {
    let read = || {
        let conn = open_unchanging(path)?;
        // Also reads the header of a file that is shorter than it claims, such as a truncated copy.
        let _ = conn.pragma_update(None, "writable_schema", true);
        conn.query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0))
    };
    read().map(i32::cast_unsigned).map_err(|error| match unavailable(&error) {
        Unavailable { outage: Outage::Damaged, .. } => Unavailable::new(Outage::Damaged, headless(path)),
        other => with_cause(path, other),
    })
}

/// The header of a log, which may be cut short; `None` if there is no log, or an empty one.
fn header(log: &Path) -> Result<Option<Vec<u8>>, Unavailable> {
    let mut header = Vec::new();
    let read = File::open(log).and_then(|log| log.take(LOG_HEADER_BYTES as u64).read_to_end(&mut header));
    match read {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unreadable(&error)),
        _ => Ok((!header.is_empty()).then_some(header)),
    }
}

fn unreadable(error: &io::Error) -> Unavailable {
    Unavailable::new(Outage::from_io(error), format!("the data folder can't be used: {}", io_reason(error)))
}

/// Fills `bytes`; `false` at the end of the log.
fn filled(log: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The states that the transactions of a log create.
#[derive(Debug, PartialEq, Eq)]
struct LogStates {
    /// The state before the first of them.
    before: u32,
    made: Vec<u32>,
}

impl LogStates {
    /// Reads as much of a log as SQLite would: up to the last commit before the first invalid frame. `None` if no
    /// transaction records its state.
    fn of(mut log: impl Read) -> io::Result<Option<Self>> {
        let mut header = [0; LOG_HEADER_BYTES];
        if !filled(&mut log, &mut header)? {
            return Ok(None);
        }
        let Some(mut sums) = Checksums::begin(&header) else { return Ok(None) };
        let (salts, page_bytes) = (&header[16..24], word(&header, 8));
        if !(512..=PAGE_BYTES_MAX).contains(&page_bytes) || !page_bytes.is_power_of_two() {
            return Ok(None);
        }
        let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes as usize];
        let (mut found, mut pair): (Option<Self>, Option<(u32, u32)>) = (None, None);
        while filled(&mut log, &mut frame)? {
            let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
            sums.add(&head[..8]);
            sums.add(page);
            if head[8..16] != *salts || (word(head, 16), word(head, 20)) != (sums.first, sums.second) {
                break;
            }
            if word(head, 0) == 1 {
                pair = Some((word(page, BEFORE_AT), word(page, STATE_AT)));
            }
            if word(head, 4) > 0
                && let Some((before, state)) = pair.take()
            {
                found.get_or_insert(Self { before, made: Vec::new() }).made.push(state);
            }
        }
        Ok(found)
    }

    fn belong_to(&self, state: u32) -> bool {
        self.before == state || self.made.contains(&state)
    }
}

/// The running checksums of a log.
struct Checksums {
    first: u32,
    second: u32,
    read: fn([u8; 4]) -> u32,
}

impl Checksums {
    /// Starts with the header of a log, if it is valid.
    fn begin(header: &[u8; LOG_HEADER_BYTES]) -> Option<Self> {
        let magic = word(header, 0);
        if magic & !1 != MAGIC {
            return None;
        }
        let read = if magic & 1 == 1 { u32::from_be_bytes } else { u32::from_le_bytes };
        let mut sums = Self { first: 0, second: 0, read };
        sums.add(&header[..24]);
        ((word(header, 24), word(header, 28)) == (sums.first, sums.second)).then_some(sums)
    }

    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.as_chunks::<4>().0.chunks_exact(2) {
            self.first = self.first.wrapping_add((self.read)(pair[0])).wrapping_add(self.second);
            self.second = self.second.wrapping_add((self.read)(pair[1])).wrapping_add(self.first);
        }
    }
}

/// Four bytes in SQLite's byte order; zero if out of range.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::super::file::{DataFile, path_in};
    use super::*;

    /// A store with a log of three transactions, the second of which does not record its state.
    fn made(folder: &Path) -> (Connection, Vec<u32>) {
        let (_, conn) = DataFile::create(folder).unwrap();
        let mut names = Vec::new();
        for (text, named) in
            [("CREATE TABLE t (x)", true), ("INSERT INTO t VALUES (1)", false), ("DELETE FROM t", true)]
        {
            conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            conn.execute_batch(text).unwrap();
            if named {
                stamp(&conn).unwrap();
                names.push(conn.query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0)).unwrap());
            }
            conn.execute_batch("COMMIT").unwrap();
        }
        (conn, names.into_iter().map(i32::cast_unsigned).collect())
    }

    #[test]
    fn a_log_tells_every_state_that_was_committed_to_it_and_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let (conn, names) = made(folder.path());
        let log = std::fs::read(log_of(&path_in(folder.path()))).unwrap();
        let states = LogStates::of(&log[..]).unwrap().unwrap();
        assert_eq!((states.before, &states.made), (0, &names));
        conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        assert_eq!(state(&path_in(folder.path())).ok(), names.last().copied());
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        stamp(&conn).unwrap();
        conn.execute_batch("COMMIT").unwrap();
        let log = std::fs::read(log_of(&path_in(folder.path()))).unwrap();
        let states = LogStates::of(&log[..]).unwrap().unwrap();
        assert_eq!(
            (Some(states.before), states.made.len()),
            (names.last().copied(), 1),
            "what is left over is not read"
        );
    }

    #[test]
    fn only_whole_transactions_count_and_what_is_no_log_tells_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (_conn, names) = made(folder.path());
        let log = std::fs::read(log_of(&path_in(folder.path()))).unwrap();
        let made = |log: &[u8]| LogStates::of(log).unwrap().map(|states| states.made);
        assert_eq!(made(&log[..log.len() - 1]).as_deref(), Some(&names[..1]));
        assert_eq!(made(&log[..LOG_HEADER_BYTES]), None);
        for at in [0, 8, 16, 24, 40, LOG_HEADER_BYTES + FRAME_HEADER_BYTES] {
            let mut damaged = log.clone();
            damaged[at] ^= 1;
            assert_eq!(made(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn a_store_from_before_states_had_names_belongs_to_its_log() {
        let states = LogStates { before: 0, made: vec![0, 0] };
        assert!(states.belong_to(0) && !states.belong_to(7));
    }
}
