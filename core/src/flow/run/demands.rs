//! When approval is required: by the node, by the level of the run, or because a call differs from what was planned.
//!
//! The rules of the policy come on top: `policy_verdict::evaluate_without_approvals` combines them all.

use super::env::Env;
use super::patches::apply;
use super::start::{self, Work};
use super::{ReplayMode, Run, RunPlace, approvers, map_calls, replay};
use crate::access::Level;
use crate::flow::air::Approval;
use crate::flow::approval::{ApprovalRequirement, GivenApproval, Obligation};
use crate::flow::policy::{Action, Because};
use crate::tool::{EffectKind, Risk, Spec, is_dry_run};
use serde_json::Value;

const DIFFERS: &str = "what would run differs from what was approved";
const UNKNOWN: &str = "the input was not known when the plan was approved";

/// The approval that the node requires.
pub(crate) fn demand_of_node(run: &Run, at: RunPlace) -> Option<ApprovalRequirement> {
    let node = &run.tasks.graph().nodes[at.node].node;
    let approval = node.requires_approval.as_ref()?;
    Some(demand(approval, "the workflow requires approval for this node").because_of(Obligation::node()))
}

/// The approval that the level requires. At L0: for every call. At L1: for a call whose input was not known
/// when the plan was approved, if it is risky by itself or riskier than it looked. At L2 and L3: for a call
/// whose tool requires it or that would have lowered the level.
pub(crate) fn demand_of_level(
    run: &Run,
    at: RunPlace,
    spec: &Spec,
    input: &Value,
    env: &Env<'_>,
) -> Option<ApprovalRequirement> {
    match run.head.level {
        Level::Ask => Some(ApprovalRequirement::one_approval("every step needs approval at L0_Ask")),
        // A frozen replay makes no calls.
        Level::Draft if replay::replay_mode(run) == Some(ReplayMode::Freeze) => None,
        Level::Draft if replay::replay_mode(run) == Some(ReplayMode::Shadow) => demand_of_shadow(run, at, spec, input),
        _ => match approvers::demand_if_lapsed(run, at, env) {
            None if is_planned(run, at) => None,
            None => demand_of_call(run, at, spec, input, env),
            lapsed => lapsed,
        },
    }
}

/// The approval that the level requires for a call that no larger approval covers.
fn demand_of_call(run: &Run, at: RunPlace, spec: &Spec, input: &Value, env: &Env<'_>) -> Option<ApprovalRequirement> {
    match run.head.level {
        Level::Ask | Level::Draft => {
            if let Some(unseen) = map_calls::demand_of_item(run, at) {
                return Some(unseen);
            }
            let capped = cap_reason(run, at, spec, input, env);
            let risky = spec.metadata.requires_approval || spec.metadata.risk_level == Risk::High || capped.is_some();
            let unknown = capped.map_or_else(|| UNKNOWN.to_owned(), |capped| format!("{capped}, and {UNKNOWN}"));
            match run.drafting.planned(run.tasks.name(at)) {
                None if run.patches.is_patched(at.node) => demand_of_patched(run, at, spec, input, env),
                None => Some(ApprovalRequirement::one_approval("the approved plan does not contain this step")),
                Some(planned) if planned.differs(at.item, spec) => Some(ApprovalRequirement::one_approval(DIFFERS)),
                Some(planned) => {
                    let rises = env.policy.score_call(spec, input).score > planned.risk;
                    (risky || rises).then(|| ApprovalRequirement::one_approval(unknown))
                }
            }
        }
        Level::ExecuteNotify | Level::ExecuteSilent => {
            let must = spec.metadata.requires_approval && !is_dry_run(input);
            let tool = must.then(|| ApprovalRequirement::one_approval("the tool requires approval for every call"));
            // A person approved the patch, because its author could not run it freely.
            let waited = run.patches.of_node(at.node).is_some_and(|patch| patch.waits());
            let patched = waited.then(|| demand_of_patched(run, at, spec, input, env)).flatten();
            let demands = [map_calls::demand_of_item(run, at), tool, demand_of_cap(run, at, spec, input, env), patched];
            demands.into_iter().flatten().reduce(ApprovalRequirement::and)
        }
    }
}

/// The approval that a call of an approved patch requires, because it differs from what people saw.
fn demand_of_patched(
    run: &Run,
    at: RunPlace,
    spec: &Spec,
    input: &Value,
    env: &Env<'_>,
) -> Option<ApprovalRequirement> {
    if apply::is_tool_changed(run, at.node, spec) {
        return Some(ApprovalRequirement::one_approval(DIFFERS));
    }
    let capped = cap_reason(run, at, spec, input, env);
    let risky = spec.metadata.requires_approval || spec.metadata.risk_level == Risk::High || capped.is_some();
    let score = |input| env.policy.score_call(spec, input).score;
    let unknown = capped.map_or_else(|| UNKNOWN.to_owned(), |capped| format!("{capped}, and {UNKNOWN}"));
    (risky || score(input) > score(&input_templates(run, at))).then(|| ApprovalRequirement::one_approval(unknown))
}

/// The approval that a read of a shadow replay requires. None if the original run made exactly this call.
fn demand_of_shadow(run: &Run, at: RunPlace, spec: &Spec, input: &Value) -> Option<ApprovalRequirement> {
    if run.tasks.reach(at, spec) == EffectKind::Pure {
        return None;
    }
    if spec.metadata.requires_approval && !is_dry_run(input) {
        return Some(ApprovalRequirement::one_approval("the tool requires approval for every call"));
    }
    let digest = run.tasks.input_digest(at);
    let reason = match replay::recording(run, at) {
        Some(recording) if recording.tool_version.as_ref() != Some(&spec.version) => {
            "the original run made this call with another version of the tool"
        }
        Some(recording) if recording.input.is_some() && recording.input == digest => return None,
        _ => "the original run made this call with another input",
    };
    Some(ApprovalRequirement::one_approval(reason))
}

/// The approval for a call that would have capped the level, had its input and current tool been known.
fn demand_of_cap(run: &Run, at: RunPlace, spec: &Spec, input: &Value, env: &Env<'_>) -> Option<ApprovalRequirement> {
    let reason = cap_reason(run, at, spec, input, env)?;
    Some(ApprovalRequirement::one_approval(format!("{reason}, which was not known when the level was decided")))
}

/// Why a call may not run at a level above L1.
fn cap_reason(run: &Run, at: RunPlace, spec: &Spec, input: &Value, env: &Env<'_>) -> Option<&'static str> {
    if is_dry_run(input) {
        return None;
    }
    let (tenant, actor, level) = (run.head.tenant.as_str(), run.head.actor.as_str(), run.head.level);
    let action = Action { tenant, actor, level, node: run.tasks.name(at), tool: spec, input };
    // No run is admitted at this level with such a tool: its risk level has changed since.
    let high = (spec.metadata.risk_level == Risk::High).then_some(Because::HighRiskTool);
    Some(match high.or_else(|| env.policy.mandatory_approval_reason(&action))? {
        Because::HighRiskTool => "the tool can do much harm",
        Because::Deletes => "the call deletes something",
        _ => "the call writes to somebody outside",
    })
}

/// The input templates of a place, which is what people see of a patch.
fn input_templates(run: &Run, at: RunPlace) -> Value {
    run.tasks.function(at).map(|function| function.inputs.clone()).unwrap_or_default().into()
}

/// Whether exactly this call was approved within the plan or with its map.
pub(crate) fn is_planned(run: &Run, at: RunPlace) -> bool {
    plan_approval(run, at).is_some()
}

/// The approval of exactly this call within the plan or with its map.
pub(crate) fn plan_approval(run: &Run, at: RunPlace) -> Option<GivenApproval<'_>> {
    let Work::Tool(spec) = start::work(run, at) else { return None };
    let digest = run.tasks.input_digest(at)?;
    let of_plan = || {
        let plan = run.drafting.approved_plan()?;
        let planned = plan.node(run.tasks.name(at)).filter(|planned| planned.covers(at.item, digest, &spec))?;
        Some(GivenApproval { by: plan.approvers(), asked_for: &planned.asked_for })
    };
    map_calls::map_approval(run, at, digest, &spec).or_else(of_plan)
}

pub(crate) fn demand(approval: &Approval, reason: &str) -> ApprovalRequirement {
    ApprovalRequirement {
        needed: approval.approvals_needed,
        approvers: approval.approvers.clone(),
        other_than_requester: approval.other_than_requester,
        expires_seconds: approval.expires_seconds,
        ..ApprovalRequirement::one_approval(reason)
    }
}
