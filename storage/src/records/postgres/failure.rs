//! What PostgreSQL's errors mean to the committer.

use chimera_engine::commit::Outcome;
use chimera_engine::port::Unavailable;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Why the server can't be used; the words name no host and no SQL.
pub(in super::super) fn unavailable(error: &Error) -> Unavailable {
    let reason = match error.code() {
        Some(code) if *code == SqlState::DISK_FULL => "the database's disk is full".to_owned(),
        Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => "the database is read-only".to_owned(),
        Some(code) if code.code().starts_with("28") => "the database refuses the credentials".to_owned(),
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => "the database does not exist".to_owned(),
        Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => "the database has no free connection".to_owned(),
        Some(code) if *code == SqlState::CANNOT_CONNECT_NOW => "the database is starting or stopping".to_owned(),
        Some(code) => format!("the database refuses an operation ({})", code.code()),
        None => "the database can't be reached".to_owned(),
    };
    Unavailable { reason }
}

/// The outcome of a batch that failed before its commit was sent: nothing was changed.
pub(super) fn of_batch(error: &Error) -> Outcome {
    if is_lost(error) {
        return Outcome::Unavailable(unavailable(error));
    }
    let Some(db) = error.as_db_error() else { return Outcome::Refused("a value can't be sent".to_owned()) };
    let code = db.code();
    let contended = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::OUT_OF_MEMORY,
    ];
    if contended.contains(code) {
        return Outcome::Contended;
    }
    // Classes: 22 data, 23 integrity, 42 names and rights, CH ours, P0 raised by a rule.
    if ["22", "23", "42", "CH", "P0"].iter().any(|class| code.code().starts_with(class)) {
        let named = db.constraint().map(str::to_owned);
        return Outcome::Refused(named.unwrap_or_else(|| db.message().to_owned()));
    }
    Outcome::Unavailable(unavailable(error))
}

/// Whether the connection is of no more use, so that what it was doing may or may not have happened.
pub(super) fn is_lost(error: &Error) -> bool {
    let io = std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>());
    let shut =
        error.as_db_error().is_some_and(|db| ["57P", "08"].iter().any(|class| db.code().code().starts_with(class)));
    error.is_closed() || io || shut
}

/// Whether an insert met a key that another row has.
pub(super) fn is_taken_key(error: &Error) -> bool {
    error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}
