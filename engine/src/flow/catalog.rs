//! Lists workflows and tools.

use super::view::{ListPage, ToolView, WorkflowEntry, WorkflowView};
use super::{Flow, share, suggest};
use crate::access::{Permit, WORKFLOWS_READ};
use crate::error::EngineError;
use chimera_core::text::did_you_mean;

/// The newest version of each workflow, by id.
pub async fn list_workflows(
    flow: &Flow,
    permit: &Permit,
    limit: usize,
    cursor: Option<&str>,
) -> Result<ListPage<WorkflowEntry>, EngineError> {
    if !permit.may(WORKFLOWS_READ) {
        return Err(EngineError::missing_scope(WORKFLOWS_READ));
    }
    let (listed, more) = share::list_visible(flow.workflows(), permit, limit, cursor).await?;
    let next_cursor = listed.last().filter(|_| more).map(|listed| listed.row.workflow_id.clone());
    let entries = listed.iter().map(|listed| WorkflowEntry::of(&listed.row, listed.is_own, listed.is_shared));
    // What an entry shows is small, whatever its document.
    Ok(ListPage { items: entries.collect::<Result<_, _>>()?, next_cursor, bytes: 0 })
}

/// A version of a workflow with its document; the newest by default.
pub async fn show_workflow(
    flow: &Flow,
    permit: &Permit,
    id: &str,
    version: Option<i64>,
) -> Result<WorkflowView, EngineError> {
    if !permit.may(WORKFLOWS_READ) {
        return Err(EngineError::missing_scope(WORKFLOWS_READ));
    }
    let found = share::readable(flow.workflows(), permit.tenant(), id, version).await?;
    let Some((row, is_own)) = found else {
        return Err(suggest::unknown_workflow(flow.workflows(), permit, id, version).await);
    };
    let shared = share::is_shared_with(flow.workflows(), permit.tenant(), id, is_own).await?;
    Ok(WorkflowView::of(row, is_own, shared))
}

/// The tools that the caller may call.
#[must_use]
pub fn list_tools(flow: &Flow, permit: &Permit) -> Vec<ToolView> {
    let tools = flow.registry().tools_of(permit.tenant()).into_iter();
    let callable = tools.filter(|(spec, _)| permit.missing_scope(spec).is_none());
    callable.map(|(spec, origin)| ToolView::of(&spec, origin)).collect()
}

/// Says that a tool does not exist, with the closest name that the caller may call.
pub(crate) fn no_tool(flow: &Flow, permit: &Permit, name: &str) -> String {
    let specs = flow.registry().specs_of(permit.tenant());
    let callable = specs.iter().filter(|spec| permit.missing_scope(spec).is_none());
    let close = did_you_mean(name, callable.map(|spec| spec.name.as_str()));
    format!("no tool `{name}`{close}")
}
