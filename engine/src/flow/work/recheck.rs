//! Judging queued calls again when a worker claims them.
//!
//! A call may wait in its queue for days. If its requester may not make it any more, or its tool is not shared with the
//! tenant any more, no worker gets it: it goes back to its run like a call that certainly had no effect, and the run
//! is refused, or asks, where it dispatches the call again.

use super::lease::unchanged;
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{Flow, definitions};
use crate::ledger::audit::{EventRecord, Writer};
use crate::port::CommitError;
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::policy::{Action, PolicyVerdict};
use chimera_core::flow::run::{Signal, SignalKind, affinity};
use chimera_core::flow::tables::{RunBrief, StepBrief, WORK_ITEMS, WorkItemRow, runs, steps, work_items};
use chimera_core::flow::work::{Elsewhere, WorkState, WorkStatus};
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::record::{Scope, StoredRow, Tx, Update, Value as Cell};
use serde_json::json;

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
    let run: Option<RunBrief> = rows::find(records, RunBrief::select(scope()).with(runs::id, item.run_id)).await?;
    let (Some(step), Some(level)) = (step, run.and_then(|run| run.autonomy_level)) else { return Ok(None) };
    let Some(input) = &item.input else { return Ok(None) };
    // A definition that is gone is noticed by the run.
    let Some(tool) = definitions::tool_of_step(flow, permit, &step).await? else { return Ok(None) };
    let registry = flow.registry();
    if let Some(reason) = registry.refusal(&registry.snapshot(), tenant, &tool) {
        return Ok(Some(ErrorBody::new(Code::ToolUnavailable, reason)));
    }
    let input = input.value()?;
    let (actor, node) = (item.actor.as_str(), step.node_id.as_str());
    let action = Action { tenant, actor, level, node, tool: &tool, input: &input };
    Ok(match flow.inner.parts.policy.judge(&action) {
        PolicyVerdict::Deny { rule, reason } => Some(ErrorBody::new(Code::PolicyDenied, reason).with("rule", rule)),
        // People were asked before the call was dispatched.
        PolicyVerdict::Allow | PolicyVerdict::Ask(_) => None,
    })
}

/// Takes a call out of its queue and tells its run. A call that was changed meanwhile is left as it is.
async fn give_back(flow: &Flow, permit: &Permit, item: &WorkItemRow, error: ErrorBody) -> Result<(), EngineError> {
    let parts = &flow.inner.parts;
    let set = vec![
        (work_items::state, WorkState::Failed.into()),
        (work_items::settled_at, parts.clock.steady().into()),
        (work_items::input, Cell::Null),
    ];
    let update = Update::new(&WORK_ITEMS, vec![item.id.into()], unchanged(item), set)?;
    let mut tx = Tx { updates: vec![update], affinity: affinity(item.run_id), ..Tx::default() };
    let data = json!({"queue": item.queue, "tool": item.tool, "step_id": item.step_id, "reason": error.message});
    let ended = SignalKind::WorkEnded {
        step: item.step_id,
        work: Some(Elsewhere::Worker(item.id)),
        status: WorkStatus::Failed,
        result: None,
        // The run dispatches it again, and judges it then.
        error: Some(ErrorBody { retryable: true, ..error }),
        may_have_happened: item.claims > 0,
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
