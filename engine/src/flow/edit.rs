//! Editing an input that waits for approval.
//!
//! The pending request is superseded in the transaction that signals the change to the run. From then on nobody can
//! approve the earlier version. Of an edit and a decision on the same request only one is accepted.

use super::{Flow, contributor_rules, definitions, signals};
use crate::access::Permit;
use crate::error::EngineError;
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air::NodeKind;
use chimera_core::flow::approval::RequestedAction;
use chimera_core::flow::run::{SignalKind, StepStatus};
use chimera_core::flow::status::RequestStatus;
use chimera_core::flow::tables::{
    APPROVAL_REQUESTS, RequestBrief, RunPlan, StepBrief, approval_requests, scoped_approvals, steps,
};
use chimera_core::json::check_depth;
use chimera_core::ledger::ActorType;
use chimera_core::limits::JSON_DEPTH_MAX;
use chimera_core::record::{Json, Scope, Select, StoredRow, Tx, Unstorable, Update};
use chimera_core::tool::Spec;
use serde_json::Value;
use uuid::Uuid;

/// Changes the input of a step that waits for approval. The step is requested again, with a new digest.
pub async fn edit_step(flow: &Flow, permit: &Permit, run: Uuid, step: Uuid, input: Value) -> Result<(), EngineError> {
    if permit.kind() != ActorType::Human {
        return Err(EngineError::refused(Code::RbacForbidden, "only a person may change what waits for approval"));
    }
    if let Some(node) = drafted_node(flow, permit, run, step).await? {
        return edit_planned(flow, permit, run, &node, input).await;
    }
    let row = signals::step_with_status(flow, permit, run, step, StepStatus::AwaitingApproval).await?;
    let is_map = row.node_type == NodeKind::Map && row.map_index.is_none();
    let tool = row.tool.as_deref().filter(|_| !is_map).ok_or_else(no_input)?;
    let tool = definitions::find_or_current(flow, permit.tenant(), tool, row.tool_version.as_deref()).await?;
    check_input(flow, permit, tool.as_deref(), &input)?;
    let pending = select_pending(permit, run).with(scoped_approvals::step_id, step);
    let approval = pending_request(flow, pending).await?;
    let kind = SignalKind::Edited { step, input, by: permit.by(), approval: Some(approval) };
    signals::send_signal_with(flow, permit, run, kind, supersede(flow, permit, approval)?).await
}

/// The node of a step that was simulated and has not started.
async fn drafted_node(flow: &Flow, permit: &Permit, run: Uuid, step: Uuid) -> Result<Option<String>, EngineError> {
    let scope = Scope::Tenant(permit.tenant().to_owned());
    let select = StepBrief::select(scope).with(steps::id, step).with(steps::run_id, run);
    let row: Option<StepBrief> = rows::find(&*flow.inner.parts.records, select).await?;
    let waits = |row: &StepBrief| row.status == StepStatus::Pending && row.retry_at.is_none();
    Ok(row.filter(waits).map(|row| row.node_id))
}

/// Changes the input of a step in a plan that waits for approval. The plan is requested again, with a new digest.
pub async fn edit_planned(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    node: &str,
    input: Value,
) -> Result<(), EngineError> {
    if permit.kind() != ActorType::Human {
        return Err(EngineError::refused(Code::RbacForbidden, "only a person may change what waits for approval"));
    }
    let row = RunPlan::from(signals::unfinished_run(flow, permit, run).await?);
    let plan = row.plan.as_ref().map(Json::value).transpose()?.unwrap_or_default();
    let lines = plan["steps"].as_array().into_iter().flatten().filter(|line| line["node"] == node);
    let lines: Vec<&Value> = lines.collect();
    if lines.is_empty() {
        return Err(EngineError::unknown("step", node));
    }
    if row.plan_digest.is_some() {
        return Err(EngineError::refused(
            Code::InvalidTransition,
            "the plan is already approved, and the step has not started",
        ));
    }
    let [line] = lines[..] else {
        return Err(EngineError::refused(Code::InvalidTransition, "the items of a map can't be changed one by one"));
    };
    let (tool, version) = (line["tool"].as_str().ok_or_else(no_input)?, line["tool_version"].as_str());
    let tool = definitions::find_or_current(flow, permit.tenant(), tool, version).await?;
    check_input(flow, permit, tool.as_deref(), &input)?;
    let pending = select_pending(permit, run).with(scoped_approvals::action_type, "plan");
    let approval = pending_request(flow, pending).await?;
    let kind = SignalKind::PlanEdited { node: node.to_owned(), input, by: permit.by(), approval };
    signals::send_signal_with(flow, permit, run, kind, supersede(flow, permit, approval)?).await
}

/// Refuses an input that the tool does not accept, and a caller who may not call the tool: it would run with the
/// requester's rights.
fn check_input(flow: &Flow, permit: &Permit, tool: Option<&Spec>, input: &Value) -> Result<(), EngineError> {
    let tool = tool.ok_or_else(no_input)?;
    permit.require_tool(tool).map_err(Box::new).map_err(EngineError::Refused)?;
    contributor_rules::check_edit(flow, permit, tool, input)?;
    check_depth(input, JSON_DEPTH_MAX).map_err(|error| {
        let body = ErrorBody::new(Code::ValidationFailed, format!("the input is {error}"));
        EngineError::Refused(Box::new(body.with("pointer", error.pointer)))
    })?;
    tool.input.check(input).map_err(|faults| {
        let body = ErrorBody::new(Code::ValidationFailed, "the input does not match the schema of the tool");
        EngineError::Refused(Box::new(body.with("faults", serde_json::to_value(faults).unwrap_or_default())))
    })
}

/// The pending requests of a run.
fn select_pending(permit: &Permit, run: Uuid) -> Select {
    let scope = Scope::Tenant(permit.tenant().to_owned());
    let select = RequestBrief::select(scope).with(scoped_approvals::run_id, run);
    select.with(scoped_approvals::status, RequestStatus::Pending)
}

/// The id of the pending request, unless it has expired.
async fn pending_request(flow: &Flow, pending: Select) -> Result<Uuid, EngineError> {
    let row: Option<RequestBrief> = rows::find(&*flow.inner.parts.records, pending).await?;
    let decided = "this was just decided or changed; fetch it again";
    let row = row.ok_or_else(|| EngineError::refused(Code::OccConflict, decided))?;
    if row.expires_at.is_some_and(|end| end <= flow.inner.parts.clock.steady()) {
        return Err(EngineError::refused(Code::InvalidTransition, "the approval request has expired"));
    }
    if RequestedAction::parse(&row.action_type) == RequestedAction::Output {
        return Err(no_input());
    }
    Ok(row.approval_request_id)
}

/// Supersedes a request, unless it was decided.
fn supersede(flow: &Flow, permit: &Permit, approval: Uuid) -> Result<Tx, EngineError> {
    let expect = vec![(approval_requests::status, RequestStatus::Pending.into())];
    let set = vec![
        (approval_requests::status, RequestStatus::Superseded.into()),
        (approval_requests::reviewed_at, flow.inner.parts.clock.steady().into()),
        (approval_requests::reviewed_by, permit.actor().into()),
    ];
    let update = Update::new(&APPROVAL_REQUESTS, vec![approval.into()], expect, set).map_err(Unstorable::from)?;
    Ok(Tx { updates: vec![update], ..Tx::default() })
}

fn no_input() -> EngineError {
    EngineError::refused(Code::InvalidTransition, "this step has no input to change")
}
