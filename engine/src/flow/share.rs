//! Workflows that an operator shares with all tenants.
//!
//! Only the default tenant's workflows can be shared. Another tenant reads and starts one by its name, unless it has
//! its own workflow of that name; the tenant that runs it decides what it may reach. A shared version is copied to the
//! tenant before its first run starts, so runs keep it whatever happens to the share. A tenant's own versions are
//! numbered after its copies: an id and a version never refer to two documents.

use super::lookup::{ChildWorkflows, FoundWorkflow, Origin};
use super::workflows::{PLAN_PREFIX, Workflows};
use super::{Flow, lookup, suggest};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::error::no_workflow;
use crate::ledger::audit::EventRecord;
use crate::port::CommitError;
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::tables::{
    WORKFLOW_SHARES, WORKFLOWS, WorkflowId, WorkflowRow, WorkflowShareRow, workflow_shares, workflows,
};
use chimera_core::ledger::ActorType;
use chimera_core::limits;
use chimera_core::record::{
    Comparison, Condition, Direction, Insert, RowCount, Scope, Step, StoredRow, Tx, Unstorable, Value,
};
use serde_json::json;

pub struct ListedWorkflow {
    pub row: WorkflowRow,
    /// Whether every tenant may start it.
    pub is_shared: bool,
    /// Whether it belongs to the caller's tenant.
    pub is_own: bool,
}

/// Whether a version is a tenant's own and not a copy of a shared one.
pub(super) fn is_own(row: &WorkflowRow) -> bool {
    row.shared_from.is_none()
}

/// Shares or unshares a workflow; returns whether that changed anything.
async fn set_shared(workflows: &Workflows, permit: &Permit, id: &str, shared: bool) -> Result<bool, EngineError> {
    if !permit.may("*") || is_guest(workflows, permit.tenant()) {
        let body = ErrorBody::new(Code::RbacForbidden, "only an operator may share workflows");
        return Err(EngineError::Refused(Box::new(body.with("required_scope", "*"))));
    }
    if id.starts_with(PLAN_PREFIX) || workflows.row(permit.tenant(), id, None).await?.is_none() {
        return Err(suggest::unknown_workflow(workflows, permit, id, None).await);
    }
    if share_of(workflows, id).await?.is_some() == shared {
        return Ok(false);
    }
    let mut tx = Tx::default();
    if shared {
        let cells = vec![
            (workflow_shares::workflow_id, id.into()),
            (workflow_shares::tenant_id, permit.tenant().into()),
            (workflow_shares::shared_by, permit.actor().into()),
            (workflow_shares::created_at, workflows.clock.now().into()),
        ];
        tx.inserts.push(Insert::new(&WORKFLOW_SHARES, cells).map_err(Unstorable::from)?);
    } else {
        let this = |column, value: &str| Condition { column, compare: Comparison::Is, value: value.into() };
        let conditions =
            vec![this(workflow_shares::workflow_id, id), this(workflow_shares::tenant_id, permit.tenant())];
        tx.steps.push(Step::Delete { table: &WORKFLOW_SHARES, conditions, rows: RowCount::Exactly(1) });
    }
    let what = if shared { "workflow.shared" } else { "workflow.unshared" };
    workflows.writer().event(&mut tx, permit.event(id, what, json!({})))?;
    permit.add_alongside(&mut tx);
    match workflows.records.commit(tx).await {
        Ok(_) => Ok(true),
        // The same change was made concurrently.
        Err(error @ CommitError::Conflict(_)) if !permit.is_alongside_conflict(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn is_guest(workflows: &Workflows, tenant: &str) -> bool {
    workflows.registry.is_guest(tenant)
}

/// The share of a workflow, if there is one.
async fn share_of(workflows: &Workflows, id: &str) -> Result<Option<WorkflowShareRow>, EngineError> {
    let select = WorkflowShareRow::select(Scope::System).with(workflow_shares::workflow_id, id);
    rows::find(&*workflows.records, select).await
}

/// Whether a workflow that a tenant sees is shared with all tenants.
pub(super) async fn is_shared_with(
    workflows: &Workflows,
    tenant: &str,
    id: &str,
    is_own: bool,
) -> Result<bool, EngineError> {
    Ok(!is_own || (!is_guest(workflows, tenant) && share_of(workflows, id).await?.is_some()))
}

/// Whether a tenant may start copies of a shared workflow: it is still shared, and the tenant has none of its own
/// with that name.
pub(super) async fn is_shared_to(workflows: &Workflows, tenant: &str, id: &str) -> Result<bool, EngineError> {
    Ok(share_of(workflows, id).await?.is_some() && workflows.row(tenant, id, None).await?.is_none())
}

/// A shared version, if the tenant has no workflow of its own with that name. Who asks for the newest has already
/// looked for the tenant's own.
pub(super) async fn shared_row(
    workflows: &Workflows,
    tenant: &str,
    id: &str,
    version: Option<i64>,
) -> Result<Option<WorkflowRow>, EngineError> {
    if !is_guest(workflows, tenant) || id.starts_with(PLAN_PREFIX) {
        return Ok(None);
    }
    let Some(share) = share_of(workflows, id).await? else { return Ok(None) };
    if version.is_some() && workflows.row(tenant, id, None).await?.is_some() {
        return Ok(None);
    }
    workflows.row(&share.tenant_id, id, version).await
}

/// A version that a tenant may read and start (the newest by default), and whether it is its own.
pub(super) async fn readable(
    workflows: &Workflows,
    tenant: &str,
    id: &str,
    version: Option<i64>,
) -> Result<Option<(WorkflowRow, bool)>, EngineError> {
    match workflows.row(tenant, id, version).await? {
        Some(row) if is_own(&row) => Ok(Some((row, true))),
        _ => Ok(shared_row(workflows, tenant, id, version).await?.map(|row| (row, false))),
    }
}

/// The newest version of each workflow after the id `after`, and whether there are more.
pub(super) async fn list_visible(
    workflows: &Workflows,
    permit: &Permit,
    limit: usize,
    after: Option<&str>,
) -> Result<(Vec<ListedWorkflow>, bool), EngineError> {
    let (tenant, mut after) = (permit.tenant(), after.unwrap_or_default().to_owned());
    let is_guest = is_guest(workflows, tenant);
    let mut listed = Vec::new();
    loop {
        let mut next = next_own(workflows, tenant, &after).await?;
        if is_guest {
            next = next.into_iter().chain(next_shared(workflows, &after).await?).min();
        }
        let Some(next) = next else { return Ok((listed, false)) };
        if listed.len() >= limit {
            return Ok((listed, true));
        }
        after = next;
        if after.starts_with(PLAN_PREFIX) {
            // Skip plans: nobody wrote them.
            after = PLAN_PREFIX.replace('.', "/");
            continue;
        }
        let Some((row, is_own)) = readable(workflows, tenant, &after, None).await? else { continue };
        let is_shared = is_shared_with(workflows, tenant, &after, is_own).await?;
        listed.push(ListedWorkflow { row, is_shared, is_own });
    }
}

/// The id of the tenant's next own workflow. One read finds it, however many versions there are.
async fn next_own(workflows: &Workflows, tenant: &str, after: &str) -> Result<Option<String>, EngineError> {
    let select = WorkflowId::select(Scope::Tenant(tenant.to_owned()))
        .with(workflows::shared_from, Value::Null)
        .filter(workflows::workflow_id, Comparison::Above, after)
        .by(&[workflows::workflow_id], Direction::Ascending);
    Ok(rows::find::<WorkflowId>(&*workflows.records, select).await?.map(|row| row.workflow_id))
}

/// The id of the next shared workflow.
async fn next_shared(workflows: &Workflows, after: &str) -> Result<Option<String>, EngineError> {
    let select = WorkflowShareRow::select(Scope::System)
        .filter(workflow_shares::workflow_id, Comparison::Above, after)
        .by(&[workflow_shares::workflow_id], Direction::Ascending);
    Ok(rows::find::<WorkflowShareRow>(&*workflows.records, select).await?.map(|row| row.workflow_id))
}

/// Refuses a new run that would use copies of workflows that are no longer shared, or missing ones.
pub(super) async fn check_shared(
    workflows: &Workflows,
    tenant: &str,
    outer: Option<&FoundWorkflow>,
    inside: &ChildWorkflows,
) -> Result<(), EngineError> {
    if !is_guest(workflows, tenant) {
        return Ok(());
    }
    if let Some((id, version)) = &inside.missing {
        return Err(no_workflow(id, *version, ""));
    }
    for found in inside.found.iter().chain(outer) {
        if matches!(found.origin, Origin::Copy { is_shared: false }) && share_of(workflows, found.id()).await?.is_none()
        {
            return Err(no_workflow(found.id(), Some(found.version), ""));
        }
    }
    Ok(())
}

/// Copies the shared workflows that a run uses to its tenant, unless they are already there.
pub(super) async fn copy_shared(
    workflows: &Workflows,
    tenant: &str,
    outer: Option<&FoundWorkflow>,
    inside: &ChildWorkflows,
) -> Result<(), EngineError> {
    for found in inside.found.iter().chain(outer) {
        if let Origin::Shared(row) = &found.origin {
            copy(workflows, tenant, found, row).await?;
        }
    }
    Ok(())
}

async fn copy(
    workflows: &Workflows,
    tenant: &str,
    found: &FoundWorkflow,
    row: &WorkflowRow,
) -> Result<(), EngineError> {
    for _ in 0..limits::APPLY_TRIES_MAX {
        match workflows.records.commit(copy_tx(workflows, tenant, row)?).await {
            Ok(_) => {
                lookup::cache(
                    workflows,
                    tenant,
                    FoundWorkflow { origin: Origin::Copy { is_shared: false }, ..found.clone() },
                    row,
                );
                return Ok(());
            }
            // A concurrent run of the same workflow, or a concurrent apply.
            Err(CommitError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
        match workflows.row(tenant, found.id(), Some(found.version)).await? {
            Some(taken) if taken.digest == row.digest => return Ok(()),
            // The tenant has just used this version number for its own document.
            Some(_) => break,
            None => {}
        }
    }
    Err(EngineError::refused(Code::OccConflict, "the workflow was changed concurrently; try again"))
}

/// The copy does not name the author.
fn copy_tx(workflows: &Workflows, tenant: &str, row: &WorkflowRow) -> Result<Tx, EngineError> {
    let (id, version) = (row.workflow_id.as_str(), row.version);
    let cells = vec![
        (workflows::tenant_id, tenant.into()),
        (workflows::workflow_id, id.into()),
        (workflows::version, version.into()),
        (workflows::digest, Value::Bytes(row.digest.to_vec())),
        (workflows::document, row.document.clone().into()),
        (workflows::created_by, ActorType::System.as_str().into()),
        (workflows::created_at, workflows.clock.now().into()),
        (workflows::shared_from, row.tenant_id.as_str().into()),
    ];
    let row = Insert::new(&WORKFLOWS, cells).map_err(Unstorable::from)?;
    let mut tx = Tx { inserts: vec![row], ..Tx::default() };
    let event = EventRecord::by_system(tenant, id, "workflow.copied", json!({"version": version}));
    workflows.writer().event(&mut tx, event)?;
    Ok(tx)
}

/// Shares or unshares a workflow.
pub async fn share_workflow(flow: &Flow, permit: &Permit, id: &str, shared: bool) -> Result<(), EngineError> {
    set_shared(flow.workflows(), permit, id, shared).await.map(drop)
}
