//! Patches of a run's graph.

use chimera_core::flow::status::PatchStatus;
use chimera_core::flow::tables::PatchRow;
use chimera_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

#[derive(Clone, Debug, Serialize)]
pub struct PatchView {
    pub number: i64,
    pub status: PatchStatus,
    pub actor: String,
    pub justification: Option<String>,
    /// Why it was refused.
    pub reason: Option<String>,
    pub approval_id: Option<Uuid>,
    pub created_at: Option<Timestamp>,
}

impl PatchView {
    pub(in crate::flow) fn of(patch: PatchRow) -> Self {
        Self {
            number: patch.number.into(),
            status: patch.status,
            actor: patch.actor,
            justification: patch.justification,
            reason: patch.reason,
            approval_id: patch.approval_request_id,
            created_at: Some(patch.created_at),
        }
    }
}

/// What a patch changes, and how to revert it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchChanges {
    pub diff: GraphDiff,
    pub inverse: PatchInverse,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphDiff {
    pub digest: DigestChange,
    /// Nodes of AIR documents.
    pub nodes: MemberDiff,
    /// Edges of AIR documents.
    pub edges: MemberDiff,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestChange {
    pub before: String,
    pub after: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberDiff {
    pub added: Vec<Value>,
    pub removed: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchInverse {
    pub remove_nodes: Vec<String>,
    pub remove_edges: Vec<Value>,
}
