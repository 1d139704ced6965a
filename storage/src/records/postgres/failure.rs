//! Maps PostgreSQL errors to committer outcomes.

use super::foreign;
use chimera_engine::commit::BatchOutcome;
use chimera_engine::port::{Outage, Unavailable};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

/// Why the server can't be used; the message contains no host and no SQL.
pub(in super::super) fn unavailable(error: &Error) -> Unavailable {
    let Some(code) = error.code() else {
        return Unavailable::new(Outage::Transient, "the database can't be reached");
    };
    let (outage, reason) = kind(code);
    match error.as_db_error() {
        Some(db) if lacks(code) => return Unavailable::new(outage, lacking(code, db.message())),
        Some(db) if foreign::replaces(db) => return Unavailable::new(Outage::Unusable, foreign::replacing(db)),
        Some(db) if is_foreign(db) => return Unavailable::new(Outage::Unusable, foreign::reason(db)),
        _ => {}
    }
    let reason = reason.map_or_else(|| format!("the database refuses an operation ({})", code.code()), str::to_owned);
    Unavailable::new(outage, reason)
}

/// The error for a database that silently skips changes of a table.
pub(super) fn left_out(table: &str) -> Unavailable {
    let reason = format!("the database left out changes of {table} without an error");
    Unavailable::new(Outage::Unusable, reason)
}

/// Whether the error means that a schema object or privilege is missing.
fn lacks(code: &SqlState) -> bool {
    ["42", "3F"].iter().any(|class| code.code().starts_with(class))
}

/// What is missing, in the server's words, which name the table, column or privilege.
fn lacking(code: &SqlState, words: &str) -> String {
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return format!("a right is missing in the database: {words}");
    }
    if words.contains("schema_migrations") {
        return "the database has no schema yet; chimera migrate creates it".to_owned();
    }
    format!("the database's schema is not whole: {words}")
}

/// The message for a server that accepts no changes.
const READ_ONLY: &str = "the database is read-only: it is a standby, or default_transaction_read_only is on";

/// The meaning of an error code, and a message if there is one. Unknown codes count as transient.
fn kind(code: &SqlState) -> (Outage, Option<&'static str>) {
    known(code).unwrap_or((Outage::Transient, None))
}

fn known(code: &SqlState) -> Option<(Outage, Option<&'static str>)> {
    let named = [
        (SqlState::DISK_FULL, Outage::Full, "the database's disk is full"),
        // A server that has just become a standby may be replaced by another soon, but retrying does not help.
        (SqlState::READ_ONLY_SQL_TRANSACTION, Outage::Unusable, READ_ONLY),
        (SqlState::INVALID_CATALOG_NAME, Outage::Unusable, "the database does not exist"),
        (SqlState::TOO_MANY_CONNECTIONS, Outage::Transient, "the database has no free connection"),
        (SqlState::LOCK_NOT_AVAILABLE, Outage::Transient, "somebody else holds a lock in the database"),
        (SqlState::CANNOT_CONNECT_NOW, Outage::Transient, "the database is starting or stopping"),
        (SqlState::DATA_CORRUPTED, Outage::Damaged, "the database's data is damaged"),
        (SqlState::INDEX_CORRUPTED, Outage::Damaged, "an index of the database is damaged"),
        (SqlState::UNDEFINED_FILE, Outage::Damaged, "a file of the database is missing"),
        (SqlState::IO_ERROR, Outage::DiskError, "the database's disk reports an input/output error"),
    ];
    if let Some((_, outage, words)) = named.into_iter().find(|(named, ..)| named == code) {
        return Some((outage, Some(words)));
    }
    match code.code().get(..2) {
        Some("28") => Some((Outage::Unusable, Some("the database refuses the credentials"))),
        Some("42" | "3F") => Some((Outage::Unusable, None)),
        _ => None,
    }
}

/// Whether a rule that is not part of Chimera's schema refused the change; it may be dropped any moment. An error
/// code that the server itself is known to raise keeps its meaning, whoever raised it.
fn is_foreign(db: &DbError) -> bool {
    known(db.code()).is_none() && foreign::refuses(db)
}

/// Whether Chimera's own schema rejected a change for its content. Classes: 22 data, 23 integrity, CH ours.
pub(super) fn is_own_fault(error: &Error) -> bool {
    let classed = |db: &DbError| ["22", "23", "CH"].iter().any(|class| db.code().code().starts_with(class));
    error.as_db_error().is_some_and(|db| classed(db) && !is_foreign(db))
}

/// The outcome of a batch that failed before COMMIT was sent: nothing was changed.
pub(super) fn of_batch(error: &Error) -> BatchOutcome {
    if is_lost(error) {
        return BatchOutcome::Unavailable(unavailable(error));
    }
    let Some(db) = error.as_db_error() else { return BatchOutcome::Refused("a value can't be sent".to_owned()) };
    let code = db.code();
    let contended = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::OUT_OF_MEMORY,
    ];
    if contended.contains(code) {
        return BatchOutcome::Contended;
    }
    if lacks(code) || foreign::replaces(db) || is_foreign(db) {
        return BatchOutcome::Lacking(unavailable(error));
    }
    if is_own_fault(error) {
        let named = db.constraint().map(str::to_owned);
        return BatchOutcome::Refused(named.unwrap_or_else(|| db.message().to_owned()));
    }
    BatchOutcome::Unavailable(unavailable(error))
}

/// Whether the connection is lost, so that the outcome of its last statement is unknown.
pub(super) fn is_lost(error: &Error) -> bool {
    let io = std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>());
    let shut =
        error.as_db_error().is_some_and(|db| ["57P", "08"].iter().any(|class| db.code().code().starts_with(class)));
    error.is_closed() || io || shut
}

/// Whether an insert violated a unique key.
pub(super) fn is_taken_key(error: &Error) -> bool {
    error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_schema_or_the_rights_lack_is_named() {
        for (code, words, expected) in [
            (
                "42501",
                "permission denied for table steps",
                "a right is missing in the database: permission denied for table steps",
            ),
            (
                "42P01",
                "relation \"steps\" does not exist",
                "the database's schema is not whole: relation \"steps\" does not exist",
            ),
            (
                "42P01",
                "relation \"schema_migrations\" does not exist",
                "the database has no schema yet; chimera migrate creates it",
            ),
        ] {
            assert_eq!(lacking(&SqlState::from_code(code), words), expected);
        }
        let lacks =
            ["42703", "42883", "3F000", "23505", "22P02", "40001"].map(|code| lacks(&SqlState::from_code(code)));
        assert_eq!(lacks, [true, true, true, false, false, false]);
    }

    #[test]
    fn what_a_restart_of_the_server_mends_may_be_tried_again_and_damage_may_not() {
        let outages = ["XX001", "XX002", "58P01", "58030", "53100", "57P03", "25006", "28P01", "42P01", "40001"];
        let outages = outages.map(|code| kind(&SqlState::from_code(code)).0);
        assert_eq!(
            outages,
            [
                Outage::Damaged,
                Outage::Damaged,
                Outage::Damaged,
                Outage::DiskError,
                Outage::Full,
                Outage::Transient,
                Outage::Unusable,
                Outage::Unusable,
                Outage::Unusable,
                Outage::Transient,
            ]
        );
    }
}
