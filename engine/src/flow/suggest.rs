//! Suggests the workflow that a caller meant.
//!
//! Only callers who may list workflows get a suggestion, and only of workflows that they may start.

use super::error::no_workflow;
use super::share;
use super::workflows::{PLAN_PREFIX, Workflows};
use crate::access::{Permit, WORKFLOWS_READ};
use crate::error::EngineError;
use chimera_core::flow::tables::{WorkflowId, WorkflowShareRow, workflows};
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_core::record::{Comparison, Scope, Select, StoredRow, Value};
use chimera_core::text::did_you_mean;

/// The error for a workflow that does not exist, with the closest name.
pub(crate) async fn unknown_workflow(
    workflows: &Workflows,
    permit: &Permit,
    id: &str,
    version: Option<i64>,
) -> EngineError {
    let names = if permit.may(WORKFLOWS_READ) { names(workflows, permit.tenant()).await } else { Ok(Vec::new()) };
    let names = names.unwrap_or_default();
    let close = match names.iter().any(|name| name == id) {
        true => String::new(),
        false => did_you_mean(id, names.iter().map(String::as_str)),
    };
    no_workflow(id, version, &close)
}

/// The names of the workflows that a tenant may start, without plans: one page on each side of them.
async fn names(workflows: &Workflows, tenant: &str) -> Result<Vec<String>, EngineError> {
    let first_versions = || {
        WorkflowId::select(Scope::Tenant(tenant.to_owned()))
            .with(workflows::shared_from, Value::Null)
            .with(workflows::version, 1)
            .take(PAGE_ROWS_MAX)
    };
    let after_plans = PLAN_PREFIX.replace('.', "/");
    let before = first_versions().filter(workflows::workflow_id, Comparison::Below, PLAN_PREFIX);
    let behind = first_versions().filter(workflows::workflow_id, Comparison::AtLeast, after_plans);
    let mut names = read_names(workflows, before, |row: WorkflowId| row.workflow_id).await?;
    names.extend(read_names(workflows, behind, |row: WorkflowId| row.workflow_id).await?);
    if share::is_guest(workflows, tenant) {
        let shared = WorkflowShareRow::select(Scope::System).take(PAGE_ROWS_MAX);
        names.extend(read_names(workflows, shared, |row: WorkflowShareRow| row.workflow_id).await?);
    }
    Ok(names)
}

async fn read_names<T: StoredRow>(
    workflows: &Workflows,
    select: Select,
    name: fn(T) -> String,
) -> Result<Vec<String>, EngineError> {
    let rows = workflows.records.read(select).await?.rows;
    let rows = rows.into_iter().map(T::decode).collect::<Result<Vec<_>, _>>()?;
    Ok(rows.into_iter().map(name).collect())
}
