//! Rules for callers who take part in another actor's run.
//!
//! A rule about an actor would be worthless if that actor could make another actor's run do the same: by editing its
//! step, undoing it, or reporting that a call never happened so that it is sent again.

use super::{Flow, definitions, load};
use crate::access::Permit;
use crate::error::EngineError;
use crate::rows;
use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::policy::{Action, PolicyVerdict};
use chimera_core::flow::run::RunHead;
use chimera_core::flow::tables::{StepBrief, steps};
use chimera_core::limits::RUN_ROWS_MAX;
use chimera_core::record::{Scope, StoredRow};
use chimera_core::tool::{Rollback, Spec};
use serde_json::Value;
use uuid::Uuid;

/// Refuses to change the input of a tool that a rule denies to the caller. If a rule requires approval, it is
/// requested when the step waits again.
pub(super) fn check_edit(flow: &Flow, permit: &Permit, tool: &Spec, input: &Value) -> Result<(), EngineError> {
    // An edit is always reviewed, whatever the level of the run.
    let (tenant, actor, level) = (permit.tenant(), permit.actor(), Level::Ask);
    match flow.inner.parts.policy.evaluate_contributor(&Action { tenant, actor, level, node: "edit", tool, input }) {
        PolicyVerdict::Deny { rule, reason } => {
            Err(EngineError::Refused(Box::new(ErrorBody::new(Code::PolicyDenied, reason).with("rule", rule))))
        }
        PolicyVerdict::Allow | PolicyVerdict::Ask(_) => Ok(()),
    }
}

/// Refuses to repeat a step that a rule denies to the caller or requires approval for.
pub(super) async fn check_repeat(flow: &Flow, permit: &Permit, run: Uuid, step: &StepBrief) -> Result<(), EngineError> {
    let head = head_of(flow, permit, run).await?;
    let Some(tool) = definitions::tool_of_step(flow, permit, step).await? else { return Ok(()) };
    check_contributor(flow, permit, &head, step, &tool)
}

/// Refuses a rollback of these steps (or all) that the rules deny to the caller or require approval for. The run
/// itself evaluates its child runs when it gets there.
pub(super) async fn check_rollback(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    only: Option<&[Uuid]>,
) -> Result<(), EngineError> {
    let head = head_of(flow, permit, run).await?;
    if head.actor == permit.actor() {
        return Ok(());
    }
    let scope = Scope::Tenant(permit.tenant().to_owned());
    let select = StepBrief::select(scope).with(steps::run_id, run);
    let steps: Vec<StepBrief> = rows::list(&*flow.inner.parts.records, select, RUN_ROWS_MAX).await?;
    let named = |step: &&StepBrief| only.is_none_or(|only| only.contains(&step.id));
    for step in steps.iter().filter(named) {
        if let Some(tool) = definitions::tool_of_step(flow, permit, step).await?
            && tool.rollback != Rollback::Unsupported
        {
            check_contributor(flow, permit, &head, step, &tool)?;
        }
    }
    Ok(())
}

async fn head_of(flow: &Flow, permit: &Permit, run: Uuid) -> Result<RunHead, EngineError> {
    Ok(RunHead::of_row(&load::manageable_run(&*flow.inner.parts.records, permit, run).await?)?)
}

fn check_contributor(
    flow: &Flow,
    permit: &Permit,
    head: &RunHead,
    step: &StepBrief,
    tool: &Spec,
) -> Result<(), EngineError> {
    let (policy, tenant, level) = (&flow.inner.parts.policy, head.tenant.as_str(), head.level);
    let (node, input) = (step.node_id.as_str(), &Value::Null);
    let action = Action { tenant, actor: &head.actor, level, node, tool, input };
    let part = policy.evaluate_contributor(&Action { actor: permit.actor(), ..action });
    part.check_contribution(&policy.evaluate(&action)).map_err(|why| EngineError::refused(Code::PolicyDenied, why))
}
