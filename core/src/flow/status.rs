//! The words of the room's other tables: approval requests, patches, notifications, effects.
//!
//! The statuses of runs, steps and effects are in `run/status.rs`, with what each of them may become.

use crate::words::words;

words! {
    /// The status of an approval request. Only a pending one can still change.
    RequestStatus {
        Pending = "pending",
        Approved = "approved",
        Denied = "denied",
        /// Nobody decided in time.
        Expired = "expired",
        /// The action was changed.
        Superseded = "superseded",
        /// The run ended or took another path.
        Cancelled = "cancelled",
    }
}

words! {
    /// Whether new runs use a definition of a tool. Runs that began with it use it in any case.
    DefinitionStatus {
        Current = "current",
        /// Another definition replaced it.
        Superseded = "superseded",
        /// Nothing declares the tool any more.
        Removed = "removed",
    }
}

words! {
    PatchStatus {
        /// Waiting for its approval or for the run.
        Proposed = "proposed",
        Applied = "applied",
        Reverted = "reverted",
        Refused = "refused",
    }
}

words! {
    NotificationStatus {
        Pending = "pending",
        Sent = "sent",
        Failed = "failed",
        /// It is unknown whether it was delivered.
        Unknown = "unknown",
        /// It was not sent, because it no longer applied.
        Dropped = "dropped",
    }
}

words! {
    /// What an effect is for.
    EffectPurpose {
        Tool = "tool",
        Job = "job",
        ChildRun = "child_run",
        /// It undoes another effect.
        Compensation = "compensation",
    }
}

impl EffectPurpose {
    /// The kinds that the state of a run is rebuilt from. Undos exist only once a rollback has begun.
    #[must_use]
    pub const fn needed_to_load(has_rollback: bool) -> &'static [Self] {
        if has_rollback { &[Self::Tool, Self::Compensation] } else { &[Self::Tool] }
    }
}
