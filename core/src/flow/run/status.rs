//! The words for where a run, a step and an effect stand.
//!
//! | run                 | becomes                                                             |
//! |---------------------|---------------------------------------------------------------------|
//! | `running`           | `awaiting_approval`, `completed`, `failed`, `cancelled`             |
//! | `awaiting_approval` | `running`, `failed`, `cancelled`                                    |
//! | `completed`         | `rolled_back`, by a rollback                                        |
//! | `failed`            | `rolled_back`, by a rollback or by a person's word                  |
//! | `cancelled`         | `rolled_back`, by a rollback                                        |
//!
//! `pending` is a run that nobody has taken up yet. A paused run keeps its status and says
//! `pause_requested`; so does one that is being cancelled.

use crate::words::words;

words! {
    /// Where a run stands.
    RunStatus {
        /// Nobody has taken it up yet.
        Pending = "pending",
        /// It goes on.
        Running = "running",
        /// It can't go on before a person decides.
        AwaitingApproval = "awaiting_approval",
        /// Everything was done.
        Completed = "completed",
        /// Something failed and nothing in the graph dealt with it.
        Failed = "failed",
        /// Somebody stopped it.
        Cancelled = "cancelled",
        /// What it did was undone.
        RolledBack = "rolled_back",
    }
}

words! {
    /// Where a step stands.
    StepStatus {
        /// Not its turn yet.
        Pending = "pending",
        /// Its turn, but nothing was started.
        Ready = "ready",
        /// A person must decide first.
        AwaitingApproval = "awaiting_approval",
        /// Under way.
        Running = "running",
        /// Done, and looked over.
        Judging = "judging",
        /// Done.
        Completed = "completed",
        /// Not done, and no more tries.
        Failed = "failed",
        /// The graph took another way.
        Skipped = "skipped",
        /// Stopped by somebody.
        Cancelled = "cancelled",
        /// Done and undone.
        RolledBack = "rolled_back",
        /// To be tried again later.
        RetryWait = "retry_wait",
        /// Held back by somebody.
        Paused = "paused",
        /// It may have happened; nobody can tell.
        OutcomeUnknown = "outcome_unknown",
    }
}

words! {
    /// Where an effect stands.
    EffectStatus {
        /// Written down, never sent.
        Prepared = "prepared",
        /// It may be sent from now on.
        Dispatched = "dispatched",
        /// It happened.
        Succeeded = "succeeded",
        /// It did not happen.
        Failed = "failed",
        /// Nobody can tell.
        Unknown = "unknown",
    }
}

impl RunStatus {
    /// Whether nothing more happens by itself.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::RolledBack)
    }
}
