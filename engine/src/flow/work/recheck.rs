//! Judging queued calls again when a worker claims them.
//!
//! A call may wait in its queue for days. What decides about a call when it is dispatched decides again when a worker
//! is to get it: the rules, those who take part in the run, the approvals, a pause, and whether the tool may be used. If
//! the call may not be made now, it goes back to its run, which dispatches it again and is refused there, asks, or waits.

use super::lease::unchanged;
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{Flow, definitions, load, patch, review};
use crate::ledger::audit::{EventRecord, Writer};
use crate::offload::CostFlag;
use crate::port::CommitError;
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::policy::{Action, PolicyVerdict};
use chimera_core::flow::run::{Signal, SignalKind, affinity};
use chimera_core::flow::tables::{RunRow, StepBrief, WORK_ITEMS, WorkItemRow, runs, steps, work_items};
use chimera_core::flow::work::{Elsewhere, WorkState, WorkStatus};
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::record::{Scope, StoredRow, Tx, Update, Value as Cell};
use serde_json::json;
use uuid::Uuid;

/// Those of these queued calls that may be made now. The others go back to their runs.
pub(super) async fn allowed_items(
    flow: &Flow,
    permit: &Permit,
    found: Vec<WorkItemRow>,
) -> Result<Vec<WorkItemRow>, EngineError> {
    let mut allowed = Vec::with_capacity(found.len());
    for item in found {
        match refusal(flow, permit, &item).await? {
            None => allowed.push(item),
            Some(error) => give_back(flow, permit, &item, error).await?,
        }
    }
    Ok(allowed)
}

/// Why a call may not be made now.
async fn refusal(flow: &Flow, permit: &Permit, item: &WorkItemRow) -> Result<Option<ErrorBody>, EngineError> {
    let (records, tenant) = (&*flow.inner.parts.records, permit.tenant());
    let scope = || Scope::Tenant(tenant.to_owned());
    let step: Option<StepBrief> = rows::find(records, StepBrief::select(scope()).with(steps::id, item.step_id)).await?;
    let run: Option<RunRow> = rows::find(records, RunRow::select(scope()).with(runs::id, item.run_id)).await?;
    let (Some(step), Some(run)) = (step, run) else { return Ok(None) };
    let Some(input) = &item.input else { return Ok(None) };
    if run.pause_requested {
        return Ok(Some(ErrorBody::new(Code::PolicyDenied, "the run is paused").with("rule", "run.paused")));
    }
    // A definition that is gone is noticed by the run.
    let Some(tool) = definitions::tool_of_step(flow, permit, &step).await? else { return Ok(None) };
    let registry = flow.registry();
    if let Some(reason) = registry.refusal(&registry.snapshot(), tenant, &tool) {
        return Ok(Some(ErrorBody::new(Code::ToolUnavailable, reason)));
    }
    let Some(level) = run.autonomy_level else { return Ok(None) };
    let input = input.value()?;
    let (actor, node) = (item.actor.as_str(), step.node_id.as_str());
    let action = Action { tenant, actor, level, node, tool: &tool, input: &input };
    let verdict = flow.inner.parts.policy.evaluate(&action);
    let is_plain = !level.needs_approval() && run.co_requesters.as_ref().is_none_or(Vec::is_empty);
    let verdict = match verdict {
        // Nobody else takes part in the run, and nobody had to approve anything.
        PolicyVerdict::Allow if is_plain && review::requests_of(flow, tenant, item.run_id).await?.is_empty() => {
            return Ok(None);
        }
        PolicyVerdict::Allow | PolicyVerdict::Ask(_) => verdict_of_run(flow, permit, run, item.step_id).await?,
        deny @ PolicyVerdict::Deny { .. } => deny,
    };
    Ok(match verdict {
        PolicyVerdict::Allow => None,
        PolicyVerdict::Ask(demand) => Some(ErrorBody::new(Code::PolicyDenied, demand.reason)),
        PolicyVerdict::Deny { rule, reason } => Some(ErrorBody::new(Code::PolicyDenied, reason).with("rule", rule)),
    })
}

/// What the run itself says about the call: it knows who wrote what, and what people have approved.
async fn verdict_of_run(flow: &Flow, permit: &Permit, run: RunRow, step: Uuid) -> Result<PolicyVerdict, EngineError> {
    let costly = CostFlag::default();
    let loaded = Box::pin(load::snapshot(&*flow.inner.parts.records, &flow.inner.workflows, run, &costly));
    let (_, copy) = flow.inner.offload.run_when_costly(&permit.claimant(), &costly, loaded).await?;
    let verdict = patch::on_copy(flow, copy, |run, env| run.verdict_of_step(step, env))?;
    Ok(verdict.unwrap_or(PolicyVerdict::Allow))
}

/// Takes a call out of its queue and tells its run. A call that was changed meanwhile is left as it is.
async fn give_back(flow: &Flow, permit: &Permit, item: &WorkItemRow, error: ErrorBody) -> Result<(), EngineError> {
    let parts = &flow.inner.parts;
    // A worker that had it before may still report what happened.
    let was_claimed = item.claims > 0;
    let state = if was_claimed { WorkState::Lost } else { WorkState::Failed };
    let set = vec![
        (work_items::state, state.into()),
        (work_items::settled_at, parts.clock.steady().into()),
        (work_items::input, Cell::Null),
    ];
    let update = Update::new(&WORK_ITEMS, vec![item.id.into()], unchanged(item), set)?;
    let mut tx = Tx { updates: vec![update], affinity: affinity(item.run_id), ..Tx::default() };
    let data = json!({"queue": item.queue, "tool": item.tool, "step_id": item.step_id, "reason": error.message});
    let ended = SignalKind::WorkEnded {
        step: item.step_id,
        work: Some(Elsewhere::Worker(item.id)),
        status: if was_claimed { WorkStatus::Failed } else { WorkStatus::Returned },
        result: None,
        // The run dispatches it again, and evaluates it then.
        error: Some(ErrorBody { retryable: true, ..error }),
        may_have_happened: was_claimed,
        took_ms: 0,
        changed_by: Vec::new(),
    };
    let signal = Signal::new(flow.inner.id(), ended);
    tx.inserts.push(signal.row(permit.tenant(), item.run_id, parts.clock.now())?);
    let event = EventRecord {
        tenant_id: permit.tenant().to_owned(),
        subject_type: SubjectType::Other,
        subject_id: item.id.to_string(),
        event_type: "work.withdrawn".to_owned(),
        actor_type: ActorType::System,
        actor_id: None,
        data,
        run_id: None,
        run_seq: None,
        trace_id: None,
        operator_of: None,
    };
    Writer { random: &*parts.random, clock: &*parts.clock }.event(&mut tx, event.of_run(item.run_id))?;
    match parts.records.commit(tx).await {
        Ok(_) => flow.inner.wake(item.run_id),
        Err(CommitError::Conflict(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
