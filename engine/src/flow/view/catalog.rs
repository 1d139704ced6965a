//! Workflows and tools.

use super::{decoded, json};
use chimera_core::record::{DamagedRows, Json, Row};
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
    pub(in crate::flow) fn of(row: &Row, is_own: bool, shared: bool) -> Result<Self, DamagedRows> {
        Ok(Self {
            workflow_id: row.text("workflow_id").to_owned(),
            version: row.int("version"),
            digest: digest(row)?,
            description: decoded::<Described>(row, "document")?.and_then(|document| document.description),
            created_by: is_own.then(|| row.text("created_by").to_owned()),
            created_at: row.get("created_at").as_time(),
            shared,
        })
    }
}

impl WorkflowView {
    pub(in crate::flow) fn of(row: &Row, is_own: bool, shared: bool) -> Result<Self, DamagedRows> {
        Ok(Self {
            workflow_id: row.text("workflow_id").to_owned(),
            version: row.int("version"),
            digest: digest(row)?,
            created_by: is_own.then(|| row.text("created_by").to_owned()),
            created_at: row.get("created_at").as_time(),
            shared,
            document: json(row, "document"),
        })
    }
}

fn digest(row: &Row) -> Result<String, DamagedRows> {
    let damaged = || DamagedRows { what: format!("workflow {} has no digest", row.text("workflow_id")) };
    row.get("digest").as_bytes().map(hex::encode).ok_or_else(damaged)
}

impl ToolView {
    pub(in crate::flow) fn of(spec: &Spec) -> Self {
        Self {
            name: spec.name.clone(),
            version: spec.version.clone(),
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
