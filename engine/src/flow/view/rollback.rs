//! The last rollback of a run: what it has undone, and what it could not.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RollbackView {
    #[serde(default)]
    pub by: String,
    #[serde(default)]
    pub by_kind: Option<String>,
    #[serde(default)]
    pub reason: Option<String>,
    /// Whether only some steps were to be undone.
    #[serde(default)]
    pub part: bool,
    #[serde(default)]
    pub ended: bool,
    /// How many rollbacks the run has had.
    #[serde(default)]
    pub round: u32,
    /// Whether the rollback of the parent run asked for it.
    #[serde(default)]
    pub for_parent: bool,
    /// Microseconds since the Unix epoch.
    #[serde(default)]
    pub began_at: Option<i64>,
    #[serde(default)]
    pub restored_at: Option<i64>,
    #[serde(default)]
    pub undone: Vec<RollbackLine>,
    #[serde(default)]
    pub left: Vec<RollbackLine>,
    /// The steps of a rollback in progress.
    #[serde(default)]
    pub steps: Vec<Uuid>,
}

/// A step of a rollback.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RollbackLine {
    pub node: String,
    #[serde(default)]
    pub item: Option<u64>,
    #[serde(default)]
    pub step_id: Option<Uuid>,
    /// Why it was not undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
