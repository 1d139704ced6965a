//! Checks at dispatch that the approvers of a call may still decide.
//!
//! An approval is counted when it is given, but the call is dispatched later: after a slot, a timer, a retry or earlier
//! steps. The approval of a person who was disabled or lost the right to decide meanwhile no longer counts. There is no
//! search for the runs of such a person: the policy is checked at every dispatch that depends on an approval.

use super::drafting::plan::DraftedPlan;
use super::env::Env;
use super::requesters::merge_names;
use super::tasks::task::Task;
use super::{ReplayMode, Run, RunPlace, approve, demands, replay, requesters};
use crate::access::Level;
use crate::flow::approval::{ApprovalRequirement, GivenApproval, StepApproval};

/// Those of these people whose approval counts now.
pub(crate) fn valid_approvers(run: &Run, by: &[String], env: &Env<'_>) -> Vec<String> {
    let (tenant, requester) = (run.head.tenant.as_str(), run.head.actor.as_str());
    by.iter().filter(|who| env.policy.may_decide(tenant, who, requester)).cloned().collect()
}

/// Whether an approval of exactly this call, on its own or within the plan, was asked for everything that is demanded
/// and meets it with approvers who may still decide.
pub(crate) fn is_met(run: &Run, at: RunPlace, demand: &ApprovalRequirement, env: &Env<'_>) -> bool {
    let requesters = requesters::requesters_of(run, at);
    approvals_of(run, at).any(|given| is_met_by(run, given, demand, &requesters, env))
}

/// Whether this approval was asked for everything that is demanded and meets it with approvers who may still decide.
pub(crate) fn is_met_by(
    run: &Run,
    given: GivenApproval<'_>,
    demand: &ApprovalRequirement,
    requesters: &[String],
    env: &Env<'_>,
) -> bool {
    let same = |one: &str, other: &str| env.policy.is_same_person(one, other);
    given.asked_for.covers(&demand.obligations)
        && demand.is_met(&valid_approvers(run, given.by, env), requesters, &same)
}

/// An unmet demand, with the names of approvers who may no longer decide.
pub(crate) fn with_lapsed_approvers(
    run: &Run,
    at: RunPlace,
    demand: ApprovalRequirement,
    env: &Env<'_>,
) -> ApprovalRequirement {
    let (mut by, mut counting) = (Vec::new(), Vec::new());
    for approved in approvals_of(run, at).map(|given| given.by) {
        by = merge_names(by, approved.iter().map(String::as_str));
        counting.extend(valid_approvers(run, approved, env));
    }
    match by.iter().any(|who| !counting.contains(who)) {
        true => demand.and(lapsed_demand(&by, &counting)),
        false => demand,
    }
}

/// The demand of a call that is covered by an approval of something larger, if none of its approvers may still
/// decide.
pub(crate) fn demand_if_lapsed(run: &Run, at: RunPlace, env: &Env<'_>) -> Option<ApprovalRequirement> {
    let by = covering_approvers(run, at)?;
    valid_approvers(run, by, env).is_empty().then(|| lapsed_demand(by, &[]))
}

/// Whether people approved a call, by itself or as a part of something.
pub(crate) fn was_approved(run: &Run, at: RunPlace) -> bool {
    approvals_of(run, at).next().is_some() || covering_approvers(run, at).is_some()
}

/// The approvals of exactly this call: by itself, and together with others.
fn approvals_of(run: &Run, at: RunPlace) -> impl Iterator<Item = GivenApproval<'_>> {
    let content = approve::action_digest(run, at);
    let own = run.tasks.task(at).and_then(Task::approval).filter(|own| own.is_about(content));
    own.map(StepApproval::given).into_iter().chain(demands::plan_approval(run, at))
}

/// Who approved what a call is a part of: the items of its map, the patch that it came with, or the plan.
fn covering_approvers(run: &Run, at: RunPlace) -> Option<&[String]> {
    if let Some(listed) = at.item.and_then(|_| run.drafting.approved_map(at.node)) {
        return Some(&listed.by);
    }
    let simulates = matches!(replay::replay_mode(run), Some(ReplayMode::Freeze | ReplayMode::Shadow));
    let plans = run.head.level == Level::Draft && !simulates;
    match run.patches.of_node(at.node).filter(|patch| plans || patch.waits() && !simulates) {
        Some(patch) => Some(patch.approvers()),
        None => run.drafting.approved_plan().filter(|_| plans).map(DraftedPlan::approvers),
    }
}

fn lapsed_demand(by: &[String], counting: &[String]) -> ApprovalRequirement {
    let gone: Vec<&str> = by.iter().filter(|who| !counting.contains(who)).map(String::as_str).collect();
    ApprovalRequirement::one_approval(match gone.as_slice() {
        [] => "this step is not covered by any approval".to_owned(),
        gone => format!("{} approved this and may not decide any more", gone.join(", ")),
    })
}
