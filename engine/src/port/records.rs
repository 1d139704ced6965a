//! The record store: the one way to change state and the one way to read it.

use async_trait::async_trait;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::record::{Conflict, CountQuery, InvalidCursor, InvalidTx, Page, Row, RowGroup, Select, Tx};
use chimera_core::time::Timestamp;
use std::io;

/// Disk errors without an `io::ErrorKind`.
const EIO: i32 = 5;
const EUCLEAN: i32 = 117;

/// A durable store of rows and ledger entries.
///
/// **Atomic.** A `Tx` commits whole, with its ledger entries, or not at all.
/// **Durable.** A receipt means that the change survives a crash of process and machine.
/// **Isolated.** Every `expect` and every unique key is checked against the state that the change is applied to,
/// whoever else writes, in this process or another.
/// **Independent.** A `Tx` that fails does not affect those committed with it.
/// **Ordered.** Two `Tx`s of one affinity, the second sent after the first, commit in that order.
/// **Honest.** `Unavailable` means that nothing was changed. `Unknown` means that the outcome can't be determined, and
/// is returned only when a commit's reply was lost and the store can no longer say: the lane was taken over, the data file
/// is gone, or the store became held.
#[async_trait]
pub trait Records: Send + Sync {
    /// Commits `tx`.
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError>;

    /// Reads one page. A missing row is an empty page, never an error. Everything acknowledged before the call is
    /// visible. A page of large rows may be shorter than requested: to read more than its first row, continue with its
    /// cursor or use [`first`](Self::first).
    async fn read(&self, select: Select) -> Result<Page, ReadError>;

    /// The first `rows_max` rows of a query, across pages, and whether there are more.
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

    /// Counts rows by the values of a column, in no particular order. Values without rows are omitted.
    async fn count(&self, count: CountQuery) -> Result<Vec<RowGroup>, ReadError> {
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

    /// The lane that transactions of this affinity use now; `None` while none is held. A run stored with it is found by
    /// whoever takes over the lane.
    fn lane(&self, affinity: u64) -> Option<HeldLane>;

    /// Why the store is held, if it is: it was restored, or is older than the data known about it. Reads work; every
    /// commit fails with `Blocked::Held`, and no run may be driven.
    fn hold(&self) -> Option<Hold>;

    /// The damage that was found, unless something has proven since that it is repaired. No new work may start then.
    /// Commits are still attempted: work in progress has to be recorded, and intact pages accept it.
    fn damage(&self) -> Option<Unavailable> {
        None
    }

    /// A warning for operators although everything works: no path, no SQL. Shown by readiness.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Whether the store accepts changes now. Proven by committing its own lane row and by repeating
    /// what failed before.
    async fn ready(&self) -> Result<(), Unavailable>;

    /// Finishes queued commits, releases the lanes and stops. Later commits are `Unavailable`.
    async fn close(&self);
}

/// A lane that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLane {
    pub lane: i64,
    pub epoch: i64,
}

/// A read-only hold on the store, until an operator resumes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store is held: {reason}")]
pub struct Hold {
    /// What an operator should know: no path, no SQL.
    pub reason: String,
    pub since: Timestamp,
}

impl Hold {
    /// The error as clients see it.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        ErrorBody::new(Code::StoreHeld, self.to_string()).with("held_since", self.since.to_string())
    }
}

/// Proof that a transaction is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The lane that committed it.
    pub lane: i64,
    /// The lane's epoch at the commit.
    pub epoch: i64,
    /// Sequence number of its first ledger entry in the lane, if it has any.
    pub first_seq: Option<i64>,
    /// Sequence number of the lane's last entry after the batch.
    pub head_seq: i64,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CommitError {
    /// A concurrent change: an expected value or a unique key does not match.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Invalid(#[from] InvalidTx),
    /// The database refused it: a check, a foreign key, an append-only table.
    #[error("the database refused the change ({constraint})")]
    Rejected {
        /// The constraint or rule, if the database names it.
        constraint: String,
    },
    /// Nothing was changed.
    #[error("the lane was taken over by another node")]
    Fenced,
    /// The queue is full; nothing was changed.
    #[error("too many changes are queued")]
    Overloaded,
    /// Nothing was changed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The store needs an operator; nothing was changed.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// The commit was sent, its reply was lost, and the store can no longer say whether it was made.
    #[error("the outcome of the commit is unknown")]
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record store is unavailable: {reason}")]
pub struct Unavailable {
    pub outage: Outage,
    /// What an operator should know: no path, no SQL.
    pub reason: String,
}

/// Why the store refuses changes until an operator acts. Not retryable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    #[error(transparent)]
    Schema(#[from] SchemaMismatch),
    /// The store was restored, or is older than the data known about it.
    #[error(transparent)]
    Held(#[from] Hold),
}

/// The store's schema version differs from the one this process needs. Not retryable: migrate the store, or run another
/// version of Chimera.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub struct SchemaMismatch {
    /// The store's version; zero when it has no schema.
    pub found: i64,
    /// The version this process needs.
    pub known: i64,
}

impl SchemaMismatch {
    fn message(self) -> String {
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

/// Why a store is unavailable, by what has to happen before it works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Unreachable, busy, starting or stopping: passes by itself.
    Transient,
    /// The disk is full: passes once there is space.
    Full,
    /// The disk reports I/O errors, which may or may not persist.
    DiskError,
    /// Stored data is corrupt. Persists until the data is restored.
    Damaged,
    /// An operator has to act: read-only file system, refused credentials, wrong version, no schema, a replaced file.
    Unusable,
}

impl Outage {
    /// Classifies an I/O error. Whatever no retry fixes is not `Transient`.
    #[must_use]
    pub fn from_io(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Self::Full,
            Kind::ReadOnlyFilesystem
            | Kind::PermissionDenied
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::AlreadyExists
            | Kind::InvalidFilename => Self::Unusable,
            _ if matches!(error.raw_os_error(), Some(EIO | EUCLEAN)) => Self::DiskError,
            _ => Self::Transient,
        }
    }

    /// The error code for clients. It determines whether a retry makes sense.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::Transient | Self::Full | Self::DiskError => Code::StoreUnavailable,
            Self::Damaged => Code::StoreDamaged,
            Self::Unusable => Code::StoreUnusable,
        }
    }

    /// `None` if a retry does not help.
    #[must_use]
    pub const fn retry_after_seconds(self) -> Option<u64> {
        match self {
            Self::Transient => Some(1),
            Self::Full | Self::DiskError => Some(10),
            Self::Damaged | Self::Unusable => None,
        }
    }

    /// Whether the finding persists although other operations succeed.
    #[must_use]
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::Damaged)
    }
}

impl Unavailable {
    /// `reason` must hold no path and no SQL.
    #[must_use]
    pub fn new(outage: Outage, reason: impl Into<String>) -> Self {
        Self { outage, reason: reason.into() }
    }

    /// The error for clients: `what` names the failed operation, the outage adds the cause.
    #[must_use]
    pub fn body(&self, what: &str) -> ErrorBody {
        let why = match self.outage {
            Outage::Damaged => format!(": {}, and an operator has to restore it", self.reason),
            Outage::Unusable => format!(": {}, and an operator has to fix it", self.reason),
            Outage::Transient | Outage::Full | Outage::DiskError => String::new(),
        };
        let mut body = ErrorBody::new(self.outage.code(), format!("{what}{why}"));
        body.retry_after_seconds = self.outage.retry_after_seconds();
        body
    }
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(transparent)]
    Schema(#[from] SchemaMismatch),
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
    /// The query names a column that the table doesn't have, or lacks a tenant where one is required.
    #[error("{table} can't be read like this: {reason}")]
    Invalid { table: &'static str, reason: String },
}
