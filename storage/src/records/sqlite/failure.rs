//! Maps SQLite errors to committer outcomes.

use chimera_core::ledger::ChainHead;
use chimera_engine::commit::{BatchOutcome, TxRejection};
use chimera_engine::port::{Outage, Unavailable};
use rusqlite::types::Type;
use rusqlite::{ErrorCode, Row, ffi};

/// Why the store as a whole is unavailable; the message contains no path.
pub(crate) fn unavailable(error: &rusqlite::Error) -> Unavailable {
    if let rusqlite::Error::FromSqlConversionFailure(_, _, cause) = error
        && let Some(known) = cause.downcast_ref::<Unavailable>()
    {
        return known.clone();
    }
    if let Some(words) = lacking(error) {
        return Unavailable::new(Outage::Unusable, words);
    }
    let (outage, reason) = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => (Outage::Full, "the disk is full"),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (Outage::Unusable, "the data folder is read-only"),
        Some(ErrorCode::SystemIoFailure) if is_too_large(error) => {
            (Outage::Full, "a file has reached the size that this process may write (ulimit -f)")
        }
        Some(ErrorCode::SystemIoFailure) => (Outage::DiskError, "the disk reports an input/output error"),
        // Too many open files is transient, a missing folder may come back or not: it is unknown.
        Some(ErrorCode::CannotOpen) => (Outage::Transient, "the data file can't be opened"),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (Outage::Damaged, "the data file is damaged"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (Outage::Transient, "the data file is locked by another process")
        }
        _ => (Outage::Transient, "the data file refuses an operation"),
    };
    Unavailable::new(outage, reason)
}

/// The error for a data file that silently skips changes of a table.
pub(super) fn left_out(table: &str) -> Unavailable {
    let reason = format!("the data file left out changes of {table} without an error");
    Unavailable::new(Outage::Unusable, reason)
}

/// What Chimera's own statements need and the data file lacks.
fn lacking(error: &rusqlite::Error) -> Option<String> {
    let words = match error {
        rusqlite::Error::SqliteFailure(_, Some(words)) | rusqlite::Error::SqlInputError { msg: words, .. } => words,
        _ => return None,
    };
    if words.contains("no such table: schema_migrations") {
        return Some("the data has no schema yet; chimera migrate creates it".to_owned());
    }
    let lacks = ["no such table", "no such column", "has no column named"].iter().any(|lack| words.contains(lack));
    lacks.then(|| format!("the data's schema is not whole: {words}"))
}

/// Whether a write failed under a file size limit of the process. SQLite does not report which error it met.
fn is_too_large(error: &rusqlite::Error) -> bool {
    let writes = error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_WRITE);
    writes && rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

/// The chain head of a lane, from two columns of a row.
pub(in super::super) fn head(lane: i64, row: &Row<'_>, (seq, hash): (usize, usize)) -> rusqlite::Result<ChainHead> {
    let bytes: Vec<u8> = row.get(hash)?;
    let head = super::super::hold::head(lane, row.get(seq)?, &bytes);
    head.map_err(|damage| rusqlite::Error::FromSqlConversionFailure(hash, Type::Blob, Box::new(damage)))
}

/// Whether the failure proves that the end of the write is not on disk.
pub(super) fn wrote_nothing(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::ReadOnly))
}

/// A failure of one transaction only, or of everything.
pub(super) fn of_statement(error: &rusqlite::Error) -> Result<TxRejection, BatchOutcome> {
    match error {
        error if lacking(error).is_some() => Ok(TxRejection::Lacking(unavailable(error))),
        rusqlite::Error::SqliteFailure(failure, message) if failure.code == ErrorCode::ConstraintViolation => {
            Ok(TxRejection::Rejected(message.clone().unwrap_or_else(|| failure.to_string())))
        }
        rusqlite::Error::SqliteFailure(failure, _) if matches!(failure.code, ErrorCode::DatabaseBusy) => {
            Err(BatchOutcome::Contended)
        }
        rusqlite::Error::SqliteFailure(failure, message) if failure.code == ErrorCode::Unknown => {
            Ok(TxRejection::Rejected(message.clone().unwrap_or_else(|| failure.to_string())))
        }
        other => Err(BatchOutcome::Unavailable(unavailable(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn what_the_schema_lacks_is_named_and_is_no_fault_of_the_transaction() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE steps (id)").unwrap();
        for (text, expected) in [
            ("SELECT 1 FROM runs", "the data's schema is not whole: no such table: runs"),
            ("SELECT status FROM steps", "the data's schema is not whole: no such column: status"),
            (
                "INSERT INTO steps (status) VALUES (1)",
                "the data's schema is not whole: table steps has no column named status",
            ),
            ("SELECT 1 FROM schema_migrations", "the data has no schema yet; chimera migrate creates it"),
        ] {
            let error = conn.prepare(text).unwrap_err();
            assert_eq!(of_statement(&error), Ok(TxRejection::Lacking(Unavailable::new(Outage::Unusable, expected))));
        }
    }

    #[test]
    fn only_a_commit_without_room_or_right_to_write_certainly_did_not_happen() {
        assert!(wrote_nothing(&failure(ffi::SQLITE_FULL)) && wrote_nothing(&failure(ffi::SQLITE_READONLY)));
        for code in [ffi::SQLITE_IOERR, ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_CORRUPT, ffi::SQLITE_CANTOPEN] {
            assert!(!wrote_nothing(&failure(code)), "what a failed sync leaves may be found later: {code}");
        }
    }
}
