//! Scopes for indirect calls: whoever causes a tool call needs its scopes, also when the call undoes or repeats another
//! actor's.

use super::{Flow, definitions, load, lookup, replay};
use crate::access::Permit;
use crate::error::EngineError;
use crate::rows;
use chimera_core::error::Code;
use chimera_core::flow::tables::{StepBrief, steps};
use chimera_core::limits::{RUN_DEPTH_MAX, RUN_ROWS_MAX, UNDO_RUNS_SEARCHED_MAX};
use chimera_core::record::{Scope, StoredRow};
use chimera_core::tool::{Rollback, Spec};
use std::sync::Arc;
use uuid::Uuid;

/// Refuses a caller who may not call the tool of a step directly.
pub(super) async fn check_call_scopes(flow: &Flow, permit: &Permit, step: &StepBrief) -> Result<(), EngineError> {
    let tool = definitions::tool_of_step(flow, permit, step).await?;
    tool.map_or(Ok(()), |tool| check_tool_scopes(permit, &tool))
}

/// Refuses a caller who may not call the tools that a rollback would call: those of these steps (or all), and of
/// the child runs.
pub(super) async fn check_undo_scopes(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    only: Option<&[Uuid]>,
) -> Result<(), EngineError> {
    if permit.may("*") {
        return Ok(());
    }
    let (mut runs, mut looked) = (vec![run], 0);
    while let Some(next) = runs.pop() {
        looked += 1;
        if looked > UNDO_RUNS_SEARCHED_MAX {
            let message = format!(
                "the run has more than {UNDO_RUNS_SEARCHED_MAX} child runs: only a holder of the scope * can roll it back"
            );
            return Err(EngineError::refused(Code::RbacForbidden, message));
        }
        let scope = Scope::Tenant(permit.tenant().to_owned());
        let select = StepBrief::select(scope).with(steps::run_id, next);
        for step in rows::list::<StepBrief>(&*flow.inner.parts.records, select, RUN_ROWS_MAX).await? {
            if next == run && only.is_some_and(|only| !only.contains(&step.id)) {
                continue;
            }
            let undone = |tool: &Arc<Spec>| tool.rollback != Rollback::Unsupported;
            if let Some(tool) = definitions::tool_of_step(flow, permit, &step).await?.filter(undone) {
                check_tool_scopes(permit, &tool)?;
            }
            runs.extend(step.child_run_id);
        }
    }
    Ok(())
}

/// Refuses a narrowed token that could not request what continues after its decision: in this run, its child runs
/// and its parent runs. The scope `else_` overrides this.
pub(super) async fn check_continue_scopes(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    else_: &'static str,
) -> Result<(), EngineError> {
    if !permit.is_narrowed() || permit.may(else_) {
        return Ok(());
    }
    check_run_scopes(flow, permit, run, else_).await?;
    check_end_scopes(flow, permit, run, else_).await
}

/// The same for ending a run: its parent runs continue when it has ended, successfully or not.
pub(super) async fn check_end_scopes(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    else_: &'static str,
) -> Result<(), EngineError> {
    if !permit.is_narrowed() || permit.may(else_) {
        return Ok(());
    }
    let mut inner = run;
    for _ in 0..=RUN_DEPTH_MAX {
        let row = load::find_run(&*flow.inner.parts.records, inner).await?;
        let Some(around) = row.and_then(|row| row.parent_run_id) else { return Ok(()) };
        check_run_scopes(flow, permit, around, else_).await?;
        inner = around;
    }
    Err(EngineError::missing_scope(else_))
}

/// Refuses a caller who may not directly call every tool of a run and of the runs it may start.
async fn check_run_scopes(flow: &Flow, permit: &Permit, run: Uuid, else_: &'static str) -> Result<(), EngineError> {
    let before = replay::original_run(flow, permit, run).await?;
    let graph = &before.workflow.graph;
    let inside = lookup::children_of(&flow.inner.workflows, permit.tenant(), graph, &before.pins).await?;
    for graph in std::iter::once(graph).chain(inside.children.values()) {
        for node in &graph.nodes {
            match (&node.tool, node.node.child()) {
                (Some(tool), _) => check_tool_scopes(permit, tool)?,
                // A child workflow that can't be checked needs the overriding scope.
                (None, Some(child)) if !inside.has(child) => return Err(EngineError::missing_scope(else_)),
                (None, _) => {}
            }
        }
    }
    Ok(())
}

fn check_tool_scopes(permit: &Permit, tool: &Spec) -> Result<(), EngineError> {
    permit.require_tool(tool).map_err(Box::new).map_err(EngineError::Refused)
}
