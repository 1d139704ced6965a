//! Autonomy levels: how freely an actor, and therefore a run, may act.

use crate::words::words;
use serde::Deserialize;

words! {
    /// The four levels, as spelled in the specification. A lower level asks more often.
    #[derive(PartialOrd, Ord, Hash, Deserialize)]
    Level {
        /// Every node waits for approval.
        #[serde(rename = "L0_Ask")]
        Ask = "L0_Ask",
        /// The whole plan is dry-run and approved once.
        #[serde(rename = "L1_Draft")]
        Draft = "L1_Draft",
        /// Runs, and the actor is notified.
        #[serde(rename = "L2_ExecuteNotify")]
        ExecuteNotify = "L2_ExecuteNotify",
        /// Runs without notification.
        #[serde(rename = "L3_ExecuteSilent")]
        ExecuteSilent = "L3_ExecuteSilent",
    }
}

impl Level {
    /// Whether a person must approve before anything takes effect.
    #[must_use]
    pub const fn needs_approval(self) -> bool {
        matches!(self, Self::Ask | Self::Draft)
    }
}
