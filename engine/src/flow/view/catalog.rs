//! Workflows and tools.

use crate::flow::ToolOrigin;
use chimera_core::flow::tables::WorkflowRow;
use chimera_core::record::{DamagedRows, Json};
use chimera_core::time::Timestamp;
use chimera_core::tool::{EffectKind, Metadata, ReadOnlyInputs, Rollback, Spec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The newest version of a workflow, in a list.
#[derive(Clone, Debug, Serialize)]
pub struct WorkflowEntry {
    pub workflow_id: String,
    pub version: i64,
    pub digest: String,
    pub description: Option<String>,
    /// Not shown to other tenants.
    pub created_by: Option<String>,
    pub created_at: Option<Timestamp>,
    /// Whether every tenant may start it.
    pub shared: bool,
}

/// A version of a workflow.
#[derive(Clone, Debug, Serialize)]
pub struct WorkflowView {
    pub workflow_id: String,
    pub version: i64,
    pub digest: String,
    pub created_by: Option<String>,
    pub created_at: Option<Timestamp>,
    pub shared: bool,
    /// The AIR document.
    pub document: Option<Json>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ToolView {
    pub name: String,
    pub version: String,
    pub origin: ToolOrigin,
    pub description: String,
    pub metadata: Metadata,
    pub effect: EffectKind,
    pub reads_when: Option<ReadOnlyInputs>,
    pub checkable: bool,
    pub reversible: bool,
    pub undo_repeatable: bool,
    pub timeout_ms: u64,
    /// JSON Schemas.
    pub input_schema: Value,
    pub output_schema: Value,
}

#[derive(Deserialize)]
struct Described {
    description: Option<String>,
}

impl WorkflowEntry {
    pub(in crate::flow) fn of(row: &WorkflowRow, is_own: bool, shared: bool) -> Result<Self, DamagedRows> {
        Ok(Self {
            workflow_id: row.workflow_id.clone(),
            version: row.version,
            digest: row.digest.to_string(),
            description: row.document.decode::<Described>()?.description,
            created_by: is_own.then(|| row.created_by.clone()),
            created_at: Some(row.created_at),
            shared,
        })
    }
}

impl WorkflowView {
    pub(in crate::flow) fn of(row: WorkflowRow, is_own: bool, shared: bool) -> Self {
        Self {
            workflow_id: row.workflow_id,
            version: row.version,
            digest: row.digest.to_string(),
            created_by: is_own.then_some(row.created_by),
            created_at: Some(row.created_at),
            shared,
            document: Some(row.document),
        }
    }
}

impl ToolView {
    pub(in crate::flow) fn of(spec: &Spec, origin: ToolOrigin) -> Self {
        Self {
            name: spec.name.clone(),
            version: spec.version.clone(),
            origin,
            description: spec.description.clone(),
            metadata: spec.metadata.clone(),
            effect: spec.effect,
            reads_when: spec.reads_when,
            checkable: spec.checkable,
            reversible: spec.is_reversible(),
            undo_repeatable: spec.rollback == Rollback::Repeatable,
            timeout_ms: spec.timeout_ms,
            input_schema: spec.input.document().clone(),
            output_schema: spec.output.document().clone(),
        }
    }
}
