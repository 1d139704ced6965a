//! What a place does elsewhere: the child run that it started, and the work that executes its call.

use crate::flow::work::{Elsewhere, WorkKind, WorkState};
use crate::time::Timestamp;
use uuid::Uuid;

/// What a place has elsewhere, or had last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskWork {
    /// The child run that it started.
    pub(super) child: Option<Uuid>,
    /// The work that executes its call, or executed the last one.
    pub(super) call: Option<CallWork>,
    /// Its row names work that executes its call.
    pub(super) is_stored: bool,
}

/// Work elsewhere that executes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallWork {
    pub(crate) kind: WorkKind,
    /// The id of the call.
    pub(crate) id: Uuid,
    pub(crate) until: Timestamp,
    /// The last known state of the work item, if a worker executes it and it is still in the store.
    pub(crate) item: Option<StoredItem>,
}

/// The row in `work_items`. It may have changed since: whoever writes it compares state and claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredItem {
    pub(crate) state: WorkState,
    /// How often it was claimed.
    pub(crate) claims: u32,
    pub(crate) cancel_requested: bool,
    /// An earlier attempt of the call may have taken effect.
    pub(crate) in_doubt: bool,
}

impl CallWork {
    pub(crate) const fn elsewhere(&self) -> Elsewhere {
        match self.kind {
            WorkKind::Job => Elsewhere::Job(self.id),
            WorkKind::Worker => Elsewhere::Worker(self.id),
        }
    }
}
