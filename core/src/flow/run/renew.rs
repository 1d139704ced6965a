//! Replaces approval requests that are outdated because a tool has changed since.
//!
//! Such a request can't be approved, so when a node claims the run with the new tool, it is superseded by a new one.

use super::drafting::draft;
use super::env::Env;
use super::patches::apply;
use super::start::Work;
use super::tasks::task::TaskState;
use super::turn_builder::TurnContext;
use super::{Run, RunPlace, approve, judge, map_calls, policy_verdict, start};
use crate::flow::approval::{ApprovalRequest, ApprovalRequirement, RequestStatus};
use crate::flow::policy::PolicyVerdict;
use crate::record::Unstorable;

const CHANGED: &str = "the tool has changed since approval was requested";

/// Requests approval again for every step whose tool has changed since its request.
pub(crate) fn renew_requests(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    if run.stopping.is_stopping() {
        return Ok(());
    }
    let outdated: Vec<(RunPlace, ApprovalRequest)> =
        run.tasks.places().filter_map(|at| Some((at, outdated(run, at)?))).collect();
    for (at, asked) in outdated {
        cx.turn.close_approval_request(&asked, RequestStatus::Superseded, cx.env.now)?;
        match evaluate_again(run, at, &cx.env) {
            PolicyVerdict::Deny { rule, reason } => policy_verdict::refuse_by_policy(run, at, rule, reason, cx)?,
            PolicyVerdict::Ask(demand) => approve::request_approval(run, at, &demand, cx)?,
            PolicyVerdict::Allow => {
                approve::request_approval(run, at, &ApprovalRequirement::one_approval(CHANGED), cx)?
            }
        }
    }
    Ok(())
}

/// The pending request of a place, if its tool has changed since.
fn outdated(run: &Run, at: RunPlace) -> Option<ApprovalRequest> {
    let TaskState::AwaitingApproval(asked) = run.tasks.state(at)? else { return None };
    let calls = matches!(start::work(run, at), Work::Tool(_) | Work::Map);
    let known = calls && asked.is_pending() && !run.tasks.graph().nodes.get(at.node)?.is_tool_absent;
    (known && !asked.is_about(approve::action_digest(run, at))).then(|| asked.clone())
}

fn evaluate_again(run: &Run, at: RunPlace, env: &Env<'_>) -> PolicyVerdict {
    if let Some(demand) = judge::demand_of_held(run, at) {
        return PolicyVerdict::Ask(demand);
    }
    match start::work(run, at) {
        Work::Tool(spec) => policy_verdict::evaluate(run, at, &spec, env),
        _ => map_calls::demand_of_map(run, at.node, env).map_or(PolicyVerdict::Allow, PolicyVerdict::Ask),
    }
}

/// Drafts a pending plan again if one of its tools has changed.
pub(crate) fn renew_plan(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(plan) = run.drafting.plan().filter(|plan| plan.deadline().is_some()) else {
        return Ok(());
    };
    let changed = |node: &crate::flow::air::Node, version: &str| {
        plan.node(&node.id).is_some_and(|planned| !planned.tool_version.is_empty() && planned.tool_version != version)
    };
    let outdated = run.tasks.graph().nodes.iter().any(|compiled| {
        let tool = compiled.tool.as_ref().filter(|_| !compiled.is_tool_absent);
        tool.is_some_and(|tool| changed(&compiled.node, &tool.version))
    });
    let Some(asked) = plan.request().cloned().filter(|_| outdated && !run.stopping.is_stopping()) else {
        return Ok(());
    };
    cx.turn.close_approval_request(&asked, RequestStatus::Superseded, cx.env.now)?;
    apply::withdraw(run, |_| true, RequestStatus::Cancelled, CHANGED, cx)?;
    run.drafting.drop_plan();
    draft::begin(run, cx)
}
