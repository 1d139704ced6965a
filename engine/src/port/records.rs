//! The record store: one way to change state, one way to read it.

use async_trait::async_trait;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::record::{Conflict, Count, Counted, InvalidCursor, InvalidTx, Page, Row, Select, Tx};
use chimera_core::time::Timestamp;
use std::io;

/// Errors of a disk that have no kind of their own in the standard library.
const EIO: i32 = 5;
const EUCLEAN: i32 = 117;

/// A durable store of rows and ledger entries.
///
/// **Atomic.** A `Tx` commits whole, with its ledger entries, or not at all.
/// **Durable.** A receipt means that the change survives a crash of process and machine.
/// **Isolated.** Every `expect` and every unique key is checked against the state that the change
/// lands on, whoever else writes, in this process or another.
/// **Independent.** A `Tx` that loses does not disturb those committed with it.
/// **Ordered.** Two `Tx`s of one affinity, the second sent after the first was sent, commit in
/// that order.
/// **Honest.** `Unavailable` means that nothing was changed; `Unknown` means that nobody can tell,
/// and is given only when the lane was taken over in the very moment of a lost commit.
#[async_trait]
pub trait Records: Send + Sync {
    /// Commits `tx`, or says why not.
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError>;

    /// Reads one page. A missing row is an empty page, never an error. What was acknowledged
    /// before the call is seen. A page of large rows is shorter than was asked for: whoever needs more than
    /// its first row goes on behind its cursor, or asks for [`first`](Self::first) rows.
    async fn read(&self, select: Select) -> Result<Page, ReadError>;

    /// The first `rows_max` rows of a query, however many pages they take, and whether there are more.
    async fn first(&self, select: Select, rows_max: usize) -> Result<(Vec<Row>, bool), ReadError> {
        let mut rows: Vec<Row> = Vec::new();
        let mut select = select.take(rows_max);
        loop {
            let page = self.read(select.clone()).await?;
            rows.extend(page.rows);
            let left = rows_max.saturating_sub(rows.len());
            match page.next {
                Some(next) if left > 0 => {
                    select.after = Some(next);
                    select = select.take(left);
                }
                next => return Ok((rows, next.is_some())),
            }
        }
    }

    /// Counts rows by the values of a column, in no order; a value that no row has is left out.
    async fn count(&self, count: Count) -> Result<Vec<Counted>, ReadError> {
        let table = count.select.table;
        if let Some(column) = [count.by, count.oldest].into_iter().find(|column| table.position(column).is_none()) {
            return Err(ReadError::Invalid { table: table.name, reason: format!("no column {column}") });
        }
        let mut counted = Vec::new();
        let (mut select, mut left) = (count.select.clone(), count.rows_max);
        loop {
            let page = self.read(select.clone().take(left)).await?;
            count.add(&page.rows, &mut counted);
            left = left.saturating_sub(page.rows.len());
            select.after = page.next;
            if select.after.is_none() || left == 0 {
                return Ok(counted);
            }
        }
    }

    /// The lane that transactions of this affinity go through now; none while none is held. A run
    /// that is written with it is found by whoever takes the lane over.
    fn lane(&self, affinity: u64) -> Option<Held>;

    /// Why nobody may change this store, if so: it is older than what is known of it, or was
    /// restored. Reads work; every commit is refused as `Held`, and nothing may be driven.
    fn hold(&self) -> Option<Hold>;

    /// What damage was met, if any was and nothing has proven since that it is over. Nothing new may be begun
    /// then. Commits are still tried: what was under way has to be written down, and pages that are whole
    /// take it.
    fn damage(&self) -> Option<Unavailable> {
        None
    }

    /// What an operator should look at though everything works: no path, no SQL. Readiness tells it.
    fn note(&self) -> Option<String> {
        None
    }

    /// Whether the store takes changes now: it proves so by committing its own lane row.
    async fn ready(&self) -> Result<(), Unavailable>;

    /// Finishes what is queued, gives up its lanes and stops. Later commits are `Unavailable`.
    async fn close(&self);
}

/// A lane that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The lane.
    pub lane: i64,
    /// Its epoch.
    pub epoch: i64,
}

/// A store that may be read and not changed, until an operator resumes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store is held: {reason}")]
pub struct Hold {
    /// What an operator should know: no path, no SQL.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

impl Hold {
    /// The error as every surface tells it.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        ErrorBody::new(Code::StoreHeld, self.to_string()).with("held_since", self.since.to_string())
    }
}

/// Proof that a transaction is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The lane it went through.
    pub lane: i64,
    /// The lane's epoch at that time.
    pub epoch: i64,
    /// Number of its first ledger entry in the lane, if it had any.
    pub first_seq: Option<i64>,
    /// Number of the lane's last entry after the commit of its batch.
    pub head_seq: i64,
}

/// Why a transaction did not commit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CommitError {
    /// Somebody else changed what it builds on.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// It can't be stored by any store.
    #[error(transparent)]
    Invalid(#[from] InvalidTx),
    /// The database refused it: a check, a foreign key, an append-only table.
    #[error("the database refused the change ({constraint})")]
    Rejected {
        /// The constraint or rule, as far as the database names it.
        constraint: String,
    },
    /// The lane was taken over by another node: nothing was changed.
    #[error("the lane was taken over by another node")]
    Fenced,
    /// Too much is waiting already: nothing was changed.
    #[error("too many changes are waiting")]
    Overloaded,
    /// The store can't be reached or can't write: nothing was changed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The store takes no change before somebody has seen to it: nothing was changed.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// The commit was sent, the answer was lost, and the lane belongs to another node now.
    #[error("the outcome of the commit is unknown")]
    Unknown,
}

/// Why the store does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record store is unavailable: {reason}")]
pub struct Unavailable {
    /// What kind of trouble it is.
    pub outage: Outage,
    /// What an operator should know: no path, no SQL.
    pub reason: String,
}

/// Why a store takes no change before somebody has seen to it. Trying again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// The schema is not the one that this process works with.
    #[error(transparent)]
    Schema(#[from] SchemaMismatch),
    /// The store is older than what is known of it, or was restored.
    #[error(transparent)]
    Held(#[from] Hold),
}

/// The schema of the store is not the one that this process works with. Trying again does not help:
/// somebody has to migrate the store, or to run another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words())]
pub struct SchemaMismatch {
    /// The version of the store; zero when it has no schema.
    pub found: i64,
    /// The version that this process works with.
    pub known: i64,
}

impl SchemaMismatch {
    fn words(self) -> String {
        let Self { found, known } = self;
        match found {
            0 => "the data has no schema yet; chimera migrate creates it".to_owned(),
            _ if found < known => format!(
                "the data has schema version {found}, this version of Chimera works with {known}; chimera migrate \
                 brings it up to date"
            ),
            _ => format!(
                "the data has schema version {found}, this version of Chimera works with {known}; use the version that \
                 migrated it, or a newer one"
            ),
        }
    }
}

/// What keeps a store from answering, by what has to happen before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Out of reach, busy, starting or stopping: it passes by itself.
    Passing,
    /// The disk is full: it passes when there is room.
    Full,
    /// The disk reports errors: nobody knows whether they stay.
    Faulty,
    /// What is stored is not what was written. It stays so until the data is restored.
    Damaged,
    /// Somebody has to act: read-only, refused credentials, a wrong version, no schema, a file
    /// that was replaced.
    Unusable,
}

impl Outage {
    /// The kind of trouble that an error of the operating system is. What no retry mends is not `Passing`.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Self::Full,
            Kind::ReadOnlyFilesystem
            | Kind::PermissionDenied
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::AlreadyExists
            | Kind::InvalidFilename => Self::Unusable,
            _ if matches!(error.raw_os_error(), Some(EIO | EUCLEAN)) => Self::Faulty,
            _ => Self::Passing,
        }
    }

    /// The code that everybody is told. Whether a retry makes sense follows from it.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::Passing | Self::Full | Self::Faulty => Code::StoreUnavailable,
            Self::Damaged => Code::StoreDamaged,
            Self::Unusable => Code::StoreUnusable,
        }
    }

    /// When a retry makes sense, if one does.
    #[must_use]
    pub const fn retry_after_seconds(self) -> Option<u64> {
        match self {
            Self::Passing => Some(1),
            Self::Full | Self::Faulty => Some(10),
            Self::Damaged | Self::Unusable => None,
        }
    }

    /// Whether what was found once is not taken back because something else works.
    #[must_use]
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::Damaged)
    }
}

impl Unavailable {
    /// Trouble of this kind, and words that hold no path and no SQL.
    #[must_use]
    pub fn new(outage: Outage, reason: impl Into<String>) -> Self {
        Self { outage, reason: reason.into() }
    }

    /// What callers are told: the words say what can't be done, the kind why not.
    #[must_use]
    pub fn body(&self, what: &str) -> ErrorBody {
        let why = match self.outage {
            Outage::Damaged => format!(": {}, and an operator has to restore it", self.reason),
            Outage::Unusable => format!(": {}, and an operator has to see to it", self.reason),
            Outage::Passing | Outage::Full | Outage::Faulty => String::new(),
        };
        let mut body = ErrorBody::new(self.outage.code(), format!("{what}{why}"));
        body.retry_after_seconds = self.outage.retry_after_seconds();
        body
    }
}

/// Why a read gave no page.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// The store can't be reached.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The schema is not the one that this process works with.
    #[error(transparent)]
    Schema(#[from] SchemaMismatch),
    /// The cursor belongs to another listing.
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
    /// The query names what the relation doesn't have, or has no tenant where it needs one.
    #[error("{table} can't be read like this: {reason}")]
    Invalid {
        /// The relation.
        table: &'static str,
        /// What is wrong.
        reason: String,
    },
}
