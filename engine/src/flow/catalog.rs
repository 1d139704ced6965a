//! Workflows and tools as JSON, the same for every interface.

use super::Flow;
use crate::access::{Permit, WORKFLOWS_READ};
use crate::error::EngineError;
use crate::flow::error::no_workflow;
use chimera_core::flow::tables::WorkflowRow;
use chimera_core::tool::{Rollback, Spec};
use serde_json::{Value, json};

impl Flow {
    /// The newest version of each workflow, by id.
    pub async fn list_workflows(
        &self,
        permit: &Permit,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Value, EngineError> {
        if !permit.may(WORKFLOWS_READ) {
            return Err(EngineError::missing_scope(WORKFLOWS_READ));
        }
        let (listed, more) = self.workflows().list(permit, limit, cursor).await?;
        let next = listed.last().filter(|_| more).map(|listed| listed.row.workflow_id.clone());
        let mut items: Vec<Value> = Vec::new();
        for listed in &listed {
            let mut entry = head(&listed.row, listed.is_own);
            entry["description"] = listed.row.document.value()?["description"].take();
            entry["shared"] = listed.is_shared.into();
            items.push(entry);
        }
        Ok(json!({"items": items, "next_cursor": next}))
    }

    /// A version of a workflow with its document; the newest by default.
    pub async fn show_workflow(&self, permit: &Permit, id: &str, version: Option<i64>) -> Result<Value, EngineError> {
        if !permit.may(WORKFLOWS_READ) {
            return Err(EngineError::missing_scope(WORKFLOWS_READ));
        }
        let found = self.workflows().readable(permit.tenant(), id, version).await?;
        let (row, is_own) = found.ok_or_else(|| no_workflow(id, version))?;
        let mut shown = head(&row, is_own);
        shown["shared"] = self.workflows().is_shared_with(permit.tenant(), id, is_own).await?.into();
        shown["document"] = row.document.value()?;
        Ok(shown)
    }

    /// The tools that the caller may call.
    #[must_use]
    pub fn list_tools(&self, permit: &Permit) -> Value {
        let callable = self.registry().specs_of(permit.tenant()).filter(|spec| permit.missing_scope(spec).is_none());
        let items: Vec<Value> = callable.map(|spec| tool(spec)).collect();
        json!({"items": items, "next_cursor": null})
    }
}

/// The author of a shared workflow is not shown to other tenants.
fn head(row: &WorkflowRow, is_own: bool) -> Value {
    json!({
        "workflow_id": row.workflow_id,
        "version": row.version,
        "digest": row.digest.to_string(),
        "created_by": is_own.then_some(&row.created_by),
        "created_at": row.created_at.to_string(),
    })
}

fn tool(spec: &Spec) -> Value {
    json!({
        "name": spec.name,
        "version": spec.version,
        "description": spec.description,
        "metadata": spec.metadata,
        "effect": spec.effect,
        "reads_when": spec.reads_when,
        "checkable": spec.checkable,
        "reversible": spec.is_reversible(),
        "undo_repeatable": spec.rollback == Rollback::Repeatable,
        "timeout_ms": spec.timeout_ms,
        "input_schema": spec.input.document(),
        "output_schema": spec.output.document(),
    })
}
