//! Workflows and tools as JSON, the same for every interface.

use super::Flow;
use crate::access::{Permit, WORKFLOWS_READ};
use crate::error::EngineError;
use crate::flow::error::no_workflow;
use chimera_core::record::{Json, Row};
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
        let next = listed.last().filter(|_| more).map(|listed| listed.row.text("workflow_id").to_owned());
        let items: Vec<Value> = listed
            .iter()
            .map(|listed| {
                let mut entry = head(&listed.row, listed.is_own);
                entry["description"] = document(&listed.row)["description"].take();
                entry["shared"] = listed.is_shared.into();
                entry
            })
            .collect();
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
        shown["document"] = document(&row);
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
fn head(row: &Row, is_own: bool) -> Value {
    json!({
        "workflow_id": row.text("workflow_id"),
        "version": row.int("version"),
        "digest": row.get("digest").as_bytes().map(hex::encode),
        "created_by": is_own.then(|| row.text("created_by")),
        "created_at": row.get("created_at").as_time().map(|at| at.to_string()),
    })
}

fn document(row: &Row) -> Value {
    row.get("document").as_json().map(Json::to_value).unwrap_or_default()
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
