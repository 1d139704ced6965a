//! Opens the data file and claims its lane.

use super::failure::{head, left_out, unavailable};
use super::log_pairing;
use super::read_errors::ReadProbe;
use chimera_core::error::io_reason;
use chimera_core::ledger::tables::LEDGER_LANES;
use chimera_core::limits;
use chimera_engine::commit::{Batch, Lane, Resolution};
use chimera_engine::port::{Outage, Unavailable};
use rusqlite::config::DbConfig;
use rusqlite::ffi::SQLITE_IOERR_SHORT_READ;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use rustix::fs::{Access, access};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The one lane of an embedded store.
pub(crate) const LANE: i64 = 1;
/// SQLite's number for `synchronous = FULL`; only EXTRA is higher.
const SYNCHRONOUS_FULL: i64 = 2;

const PRIVATE: u32 = 0o600;

pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join("chimera.db")
}

/// Device and inode of a file: writes to a file that was removed or replaced are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    /// The file at `path`, if it exists.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|file| Self(file.dev(), file.ino()))
    }
}

/// A data file that is safe to open: it exists, and its log belongs to it. All connections are opened through it, and
/// only while the path leads to the same file.
#[derive(Clone, Debug)]
pub(crate) struct DataFile {
    path: PathBuf,
    identity: FileId,
    probe: Arc<ReadProbe>,
}

impl DataFile {
    /// The data file in `folder`, if there is one. Rejects a file that is missing or empty beside a non-empty log, or
    /// that its log does not belong to: the log holds the latest writes, and SQLite would delete it or apply it to
    /// the wrong pages.
    pub(crate) fn find(folder: &Path) -> Result<Option<Self>, Unavailable> {
        Self::at(&path_in(folder))
    }

    /// The same for a path.
    pub(crate) fn at(path: &Path) -> Result<Option<Self>, Unavailable> {
        if !is_there(path)? {
            return Ok(None);
        }
        log_pairing::check(path)?;
        Ok(FileId::of(path).map(|identity| Self { path: path.to_owned(), identity, probe: Arc::default() }))
    }

    /// Opens the data file in `folder` for writing, and creates it if it is missing.
    pub(crate) fn create(folder: &Path) -> Result<(Self, Connection), Unavailable> {
        let path = path_in(folder);
        if let Some(found) = Self::at(&path)? {
            let conn = found.open_writer()?;
            return Ok((found, conn));
        }
        // If this fails, opening reports the reason.
        let _ = create_private(&path);
        let made = writer(&path, OpenFlags::SQLITE_OPEN_CREATE);
        let conn = made.map_err(|error| with_cause(&path, unavailable(&error)))?;
        let identity = FileId::of(&path).ok_or_else(data_file_gone)?;
        Ok((Self { path, identity, probe: Arc::default() }, conn))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong according to the operating system, for an error of SQLite on this file.
    pub(super) fn explain(&self, met: Unavailable) -> Unavailable {
        with_cause(&self.path, self.probe.explain(&self.path, met))
    }

    /// Whether the path still leads to this file. Writes to an unlinked file are lost, and so is a log that is merged
    /// into it.
    pub(crate) fn is_in_place(&self) -> bool {
        FileId::of(&self.path) == Some(self.identity)
    }

    /// Opens it for writing, with durable commits.
    pub(crate) fn open_writer(&self) -> Result<Connection, Unavailable> {
        self.may_open()?;
        restrict_permissions(&self.path);
        writer(&self.path, OpenFlags::empty()).map_err(|error| with_cause(&self.path, unavailable(&error)))
    }

    /// Opens it for reading. Works beside a live writer, on the data of a stopped one, and on a read-only file
    /// system.
    pub(crate) fn open_reader(&self) -> Result<Connection, Unavailable> {
        self.may_open()?;
        reader(&self.path).map_err(|error| match error.sqlite_error() {
            Some(short) if short.extended_code == SQLITE_IOERR_SHORT_READ && is_empty(&log_of(&self.path)) => {
                // The log holds less than the writer has acknowledged.
                log_gone()
            }
            _ => with_cause(&self.path, unavailable(&error)),
        })
    }

    fn may_open(&self) -> Result<(), Unavailable> {
        is_there(&self.path)?;
        if self.is_in_place() { Ok(()) } else { Err(data_file_gone()) }
    }
}

/// The error for a removed or replaced data file.
pub(super) fn data_file_gone() -> Unavailable {
    Unavailable::new(Outage::Unusable, "the data file was removed or replaced; restart to use what is there now")
}

/// The error for a removed or replaced log. The open log still holds everything, and a clean shutdown copies it into
/// the data file.
pub(super) fn log_gone() -> Unavailable {
    let reason = "the write-ahead log was removed or replaced; stop the server with SIGTERM, which saves what it holds";
    Unavailable::new(Outage::Unusable, reason)
}

fn is_empty(path: &Path) -> bool {
    path.metadata().map_or(true, |file| file.len() == 0)
}

fn is_there(path: &Path) -> Result<bool, Unavailable> {
    let bytes = |path: &Path| path.metadata().ok().map(|file| file.len());
    let found = bytes(path);
    if found.unwrap_or(0) > 0 {
        return Ok(true);
    }
    if bytes(&log_of(path)).unwrap_or(0) > 0 {
        return Err(Unavailable::new(Outage::Unusable, lone_log(path, found.is_some())));
    }
    Ok(found.is_some())
}

fn lone_log(path: &Path, empty: bool) -> String {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (data, log) = (name(path), name(&log_of(path)));
    let how = if empty { "empty" } else { "missing" };
    format!(
        "{data} is {how}, but its log {log} is there and holds what was written last; restore the matching {data}, or a \
         backup; moving {log} away discards the last writes"
    )
}

/// Creates an empty file that only its owner can access, whatever the umask; SQLite gives its companion files the
/// same mode.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)
}

/// Restricts a data file with wider permissions to its owner. Fails silently for anybody but the owner.
fn restrict_permissions(path: &Path) {
    for file in [path.to_owned(), log_of(path), companion_path(path, "-shm")] {
        if file.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0) {
            let _ = std::fs::set_permissions(&file, Permissions::from_mode(PRIVATE));
        }
    }
}

/// Adds the operating system's reason, if there is one: SQLite says that a file can't be opened or written, not why.
pub(super) fn with_cause(path: &Path, unavailable: Unavailable) -> Unavailable {
    let obstacle =
        matches!(unavailable.outage, Outage::Transient | Outage::DiskError).then(|| write_obstacle(path)).flatten();
    obstacle.map_or(unavailable, |error| {
        Unavailable::new(Outage::from_io(&error), format!("the data folder can't be used: {}", io_reason(&error)))
    })
}

/// Why the data file can't be written. Does not open the file itself: closing a second handle would release this
/// process's locks on it.
fn write_obstacle(path: &Path) -> Option<io::Error> {
    let folder = path.parent()?;
    let writable = access(path, Access::READ_OK | Access::WRITE_OK).map_err(io::Error::from);
    let writable = match writable {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        unavailable => unavailable,
    };
    let within = || access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from);
    writable.and_then(|()| within()).and_then(|()| File::open(folder).map(drop)).err()
}

fn writer(path: &Path, more: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let conn = Connection::open_with_flags(path, flags)?;
    keep_log(&conn)?;
    conn.busy_timeout(limits::SQLITE_BUSY_TIMEOUT)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    force_commits(&conn)?;
    // Overwrites deleted content, so that freed pages hold no old data.
    conn.pragma_update(None, "secure_delete", true)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    // A restarted log releases the space it does not need.
    conn.pragma_update(None, "journal_size_limit", limits::SQLITE_LOG_KEPT_BYTES)?;
    set_pragmas(&conn)?;
    conn.pragma_update(None, "cache_size", -limits::SQLITE_WRITER_CACHE_KIB)?;
    Ok(conn)
}

/// Keeps a connection from merging the log on close: a reader changes nothing, and the writer merges only when it
/// knows that the data file is the right one.
fn keep_log(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(drop)
}

/// Merges the log into the data file. If nobody else has them open, closing the connection leaves a single file.
pub(crate) fn merge_log(conn: &Connection) -> rusqlite::Result<()> {
    let busy: i64 = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy == 0 {
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    }
    Ok(())
}

/// Makes every commit of a connection wait for the disk.
pub(crate) fn force_commits(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "synchronous", "FULL")
}

/// Whether every commit of a connection waits for the disk, according to the connection.
pub(crate) fn forces_commits(conn: &Connection) -> rusqlite::Result<bool> {
    let level: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    Ok(level >= SYNCHRONOUS_FULL)
}

fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags)
        .or_else(|_| Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY))
        .and_then(|conn| {
            keep_log(&conn)?;
            conn.busy_timeout(limits::SQLITE_BUSY_TIMEOUT)?;
            conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            Ok(conn)
        });
    let conn = match opened {
        // Reading needs two companion files. Where they can't be created nobody writes either, and without a leftover
        // log the file alone is complete.
        Err(error) if needs_writing(&error) && !log_of(path).exists() => open_unchanging(path)?,
        other => other?,
    };
    set_pragmas(&conn)?;
    conn.pragma_update(None, "query_only", true)?;
    Ok(conn)
}

fn needs_writing(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// The write-ahead log of a data file.
pub(crate) fn log_of(path: &Path) -> PathBuf {
    companion_path(path, "-wal")
}

fn companion_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn open_unchanging(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri + "?immutable=1", flags)
}

fn set_pragmas(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "recursive_triggers", true)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "cache_size", -65_536)?;
    conn.set_prepared_statement_cache_capacity(limits::SQLITE_STATEMENTS_MAX);
    Ok(())
}

/// Claims the lane: increments the epoch, so that the previous holder can't commit any more.
pub(crate) fn claim(conn: &Connection, lease_until: i64) -> Result<Lane, Unavailable> {
    let text = "INSERT INTO ledger_lanes (lane, epoch, head_seq, head_hash, lease_until) \
                VALUES (?1, 1, 0, zeroblob(32), ?2) \
                ON CONFLICT (lane) DO UPDATE SET epoch = epoch + 1, lease_until = excluded.lease_until \
                RETURNING epoch, head_seq, head_hash";
    let taken = in_durable_transaction(conn, || conn.query_row(text, params![LANE, lease_until], lane).optional());
    taken.map_err(|error| unavailable(&error))?.ok_or_else(|| left_out(LEDGER_LANES.name))
}

/// The current lane, whoever holds it.
pub(super) fn lane_now(conn: &Connection) -> rusqlite::Result<Option<Lane>> {
    let text = "SELECT epoch, head_seq, head_hash FROM ledger_lanes WHERE lane = ?1";
    conn.prepare_cached(text)?.query_row([LANE], lane).optional()
}

/// Runs a changing query in an explicit transaction and checks its commit: an auto-committed statement returns its
/// row first, and a full disk after that would go unnoticed.
pub(super) fn in_durable_transaction<T>(
    conn: &Connection,
    work: impl FnOnce() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let named = work().and_then(|value| log_pairing::stamp(conn).map(|()| value));
    let done = named.and_then(|value| conn.execute_batch("COMMIT").map(|()| value));
    if !conn.is_autocommit() {
        // A connection that can't roll back rejects the next transaction and is replaced then.
        let _ = conn.execute_batch("ROLLBACK");
    }
    done
}

fn lane(row: &rusqlite::Row<'_>) -> rusqlite::Result<Lane> {
    Ok(Lane { id: LANE, epoch: row.get(0)?, head: head(LANE, row, (1, 2))? })
}

/// Claims the lane again and looks for a batch whose commit gave no clear answer.
pub(crate) fn settle(conn: &Connection, batch: &Batch) -> Result<Resolution, Unavailable> {
    let text = "UPDATE ledger_lanes SET epoch = epoch + 1 WHERE lane = ?1 AND epoch = ?2 \
                RETURNING epoch, head_seq, head_hash, last_batch_id";
    let found = in_durable_transaction(conn, || {
        let place = params![batch.lane.id, batch.lane.epoch];
        conn.query_row(text, place, |row| Ok((lane(row)?, row.get::<_, Option<Vec<u8>>>(3)?))).optional()
    });
    let found = found.map_err(|error| unavailable(&error))?;
    Ok(match found {
        Some((lane, last)) if last.as_deref() == Some(batch.id.as_bytes()) => Resolution::Committed(lane),
        Some((lane, _)) => Resolution::NotCommitted(lane),
        // Nobody took it over: the update was silently dropped, and the lane can be claimed once that is fixed.
        None if lane_now(conn).map_err(|error| unavailable(&error))?.is_some_and(|lane| same(lane, batch)) => {
            return Err(left_out(LEDGER_LANES.name));
        }
        None => Resolution::Fenced { durable: durable(conn, batch)? },
    })
}

fn same(lane: Lane, batch: &Batch) -> bool {
    (lane.id, lane.epoch) == (batch.lane.id, batch.lane.epoch)
}

fn durable(conn: &Connection, batch: &Batch) -> Result<Option<bool>, Unavailable> {
    let (links, _) = batch.chain(|_| true);
    let Some(first) = links.first() else { return Ok(None) };
    let text = "SELECT 1 FROM audit_log_entries WHERE lane = ?1 AND seq = ?2 AND hash = ?3";
    let found = conn.prepare(text).and_then(|mut s| s.exists(params![batch.lane.id, first.seq, first.hash.0]));
    // Losers were removed from the sent batch, so a different hash proves nothing.
    found.map(|same| same.then_some(true)).map_err(|error| unavailable(&error))
}

/// Ends the lane's lease now.
pub(crate) fn release(conn: &Connection, lane: Lane) {
    let text = "UPDATE ledger_lanes SET lease_until = 0 WHERE lane = ?1 AND epoch = ?2";
    // The process is stopping: a lease that could not be released expires by itself.
    let _ = in_durable_transaction(conn, || conn.execute(text, params![lane.id, lane.epoch]));
}

#[cfg(test)]
mod tests {
    use super::super::statement_cache::StatementCache;
    use super::*;
    use chimera_engine::commit::BatchOutcome;
    use uuid::Uuid;

    #[test]
    fn every_commit_of_the_writer_waits_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (_, writer) = DataFile::create(folder.path()).unwrap();
        let setting = |name| writer.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(setting("synchronous"), 2, "FULL: NORMAL loses the last commits of a log in a power cut");
        assert_eq!(writer.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0)).unwrap(), "wal");
        assert!(forces_commits(&writer).unwrap());
    }

    #[test]
    fn the_data_is_its_owners_alone_however_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_in(folder.path());
        let modes = || {
            let mode = |file: PathBuf| file.metadata().unwrap().permissions().mode() & 0o777;
            [path.clone(), log_of(&path), companion_path(&path, "-shm")].map(mode)
        };
        let (data, conn) = DataFile::create(folder.path()).unwrap();
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        assert_eq!(modes(), [0o600; 3], "whatever the umask is");
        for file in [path.clone(), log_of(&path), companion_path(&path, "-shm")] {
            std::fs::set_permissions(file, Permissions::from_mode(0o664)).unwrap();
        }
        let again = data.open_writer().unwrap();
        assert_eq!(modes(), [0o600; 3], "wider ones are narrowed");
        drop((conn, again));
    }

    #[test]
    fn what_is_deleted_or_replaced_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_in(folder.path());
        let (_, conn) = DataFile::create(folder.path()).unwrap();
        conn.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT)").unwrap();
        let text = |n: i64| format!("{}-forgotten-{n}", "long ".repeat(2_000));
        for n in 0..20_i64 {
            conn.execute("INSERT INTO t VALUES (?1, ?2)", params![n, text(n)]).unwrap();
        }
        conn.execute_batch("DELETE FROM t WHERE id < 10; UPDATE t SET x = 'short'; DELETE FROM t WHERE id > 15")
            .unwrap();
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(9).any(|part| part == b"forgotten"), "a freed page holds what was there");
    }

    #[test]
    fn a_batch_whose_answer_was_lost_is_known_by_its_id() {
        let folder = tempfile::tempdir().unwrap();
        let (_, mut conn) = DataFile::create(folder.path()).unwrap();
        crate::migrate::sqlite(&mut conn).unwrap();
        let batch =
            |lane, number| Batch { lane, id: Uuid::from_u64_pair(1, number), txs: Vec::new(), locks: Vec::new() };
        let first = batch(claim(&conn, 0).unwrap(), 1);
        let outcome = {
            let mut objects = super::super::objects::ObjectWatch::new().unwrap();
            super::super::execute::execute(&conn, &mut StatementCache::default(), &mut objects, &first)
        };
        assert!(matches!(outcome, BatchOutcome::Committed { .. }), "{outcome:?}");
        let Resolution::Committed(lane) = settle(&conn, &first).unwrap() else { panic!("it is durable") };
        assert_eq!(lane.epoch, first.lane.epoch + 1, "whoever sends it late is fenced");
        let never = batch(lane, 2);
        let Resolution::NotCommitted(after) = settle(&conn, &never).unwrap() else { panic!("it was never written") };
        assert_eq!(after.epoch, lane.epoch + 1);
        assert_eq!(settle(&conn, &never).unwrap(), Resolution::Fenced { durable: None });
    }

    #[test]
    fn a_connection_that_does_not_wait_for_the_disk_is_not_called_durable() {
        let conn = Connection::open_in_memory().unwrap();
        for (level, durable) in [("OFF", false), ("NORMAL", false), ("FULL", true), ("EXTRA", true)] {
            conn.pragma_update(None, "synchronous", level).unwrap();
            assert_eq!(forces_commits(&conn).unwrap(), durable, "{level}");
        }
    }
}
