//! The statuses of runs, steps and effects.
//!
//! | run                 | becomes                                                             |
//! |---------------------|---------------------------------------------------------------------|
//! | `running`           | `awaiting_approval`, `completed`, `failed`, `cancelled`             |
//! | `awaiting_approval` | `running`, `failed`, `cancelled`                                    |
//! | `completed`         | `rolled_back`, by a rollback                                        |
//! | `failed`            | `rolled_back`, by a rollback or marked by a person                  |
//! | `cancelled`         | `rolled_back`, by a rollback                                        |
//!
//! `pending` is a run that no node has claimed yet. A paused run keeps its status and sets
//! `pause_requested`; a run being cancelled keeps its status and sets `cancel_requested`.

use crate::words::words;

words! {
    RunStatus {
        /// Not claimed yet.
        Pending = "pending",
        Running = "running",
        /// It cannot continue before a person decides.
        AwaitingApproval = "awaiting_approval",
        Completed = "completed",
        /// A step failed and the graph does not handle it.
        Failed = "failed",
        Cancelled = "cancelled",
        RolledBack = "rolled_back",
    }
}

words! {
    StepStatus {
        /// Waiting for its incoming edges or its delay.
        Pending = "pending",
        /// Ready to start.
        Ready = "ready",
        AwaitingApproval = "awaiting_approval",
        Running = "running",
        /// Done, and under review.
        Judging = "judging",
        Completed = "completed",
        /// Failed, with no retries left.
        Failed = "failed",
        /// The graph took another path.
        Skipped = "skipped",
        Cancelled = "cancelled",
        RolledBack = "rolled_back",
        /// Waiting for its next retry.
        RetryWait = "retry_wait",
        Paused = "paused",
        /// Waiting for a time or an event.
        Waiting = "waiting",
        /// It is unknown whether the call took effect.
        OutcomeUnknown = "outcome_unknown",
    }
}

words! {
    EffectStatus {
        /// Recorded, never sent.
        Prepared = "prepared",
        /// May have been sent.
        Dispatched = "dispatched",
        /// It took effect.
        Succeeded = "succeeded",
        /// It did not take effect.
        Failed = "failed",
        /// It is unknown whether it took effect.
        Unknown = "unknown",
    }
}

impl RunStatus {
    /// Whether the run has ended. Only a rollback can still change it.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::RolledBack)
    }
}
