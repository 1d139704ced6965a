//! How freely an actor, and so a run, may act.

use crate::words::words;
use serde::{Deserialize, Serialize};

words! {
    /// The four levels, in the documents' spelling. A lower one asks more often.
    #[derive(PartialOrd, Ord, Hash, Serialize, Deserialize)]
    Level {
        /// Every node waits for a person.
        #[serde(rename = "L0_Ask")]
        Ask = "L0_Ask",
        /// The whole plan is tried dry and waits once.
        #[serde(rename = "L1_Draft")]
        Draft = "L1_Draft",
        /// It runs, and the actor is told.
        #[serde(rename = "L2_ExecuteNotify")]
        ExecuteNotify = "L2_ExecuteNotify",
        /// It runs.
        #[serde(rename = "L3_ExecuteSilent")]
        ExecuteSilent = "L3_ExecuteSilent",
    }
}

impl Level {
    /// Whether a person approves before anything real happens.
    #[must_use]
    pub const fn needs_approval(self) -> bool {
        matches!(self, Self::Ask | Self::Draft)
    }
}
