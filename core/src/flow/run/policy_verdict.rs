//! The verdict on a call: what the rules, the node and the level require, and whether people have approved it.
//!
//! A rule about an actor would be useless if the actor could have another actor's run make the call. So the rules
//! are evaluated for everyone who requested the call or contributed to it, and the strictest verdict counts. Whoever
//! edited or added the call is treated as if they requested it now: their change to another actor's run does not outlive
//! their right to make the request.

use super::env::Env;
use super::event::GovernanceDecision;
use super::turn_builder::TurnContext;
use super::{Run, RunPlace, answer, approvers, demands, judge, projecting, requesters};
use crate::error::{Code, ErrorBody};
use crate::flow::approval::{ApprovalRequirement, Obligation};
use crate::flow::policy::{Action, PolicyVerdict};
use crate::flow::projection::Refusal;
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::record::Unstorable;
use crate::tool::Spec;
use serde_json::json;

/// The verdict of rules, level and node on a call that is about to be made.
pub(crate) fn evaluate(run: &Run, at: RunPlace, spec: &Spec, env: &Env<'_>) -> PolicyVerdict {
    evaluate_beyond_limit(run, at, spec, None, env)
}

/// The same for a call that is beyond a limit, which requires this approval.
pub(crate) fn evaluate_beyond_limit(
    run: &Run,
    at: RunPlace,
    spec: &Spec,
    beyond: Option<ApprovalRequirement>,
    env: &Env<'_>,
) -> PolicyVerdict {
    let beyond = beyond.map_or(PolicyVerdict::Allow, PolicyVerdict::Ask);
    match evaluate_without_approvals(run, at, spec, env).and(beyond) {
        PolicyVerdict::Ask(demand) if approvers::is_met(run, at, &demand, env) => PolicyVerdict::Allow,
        PolicyVerdict::Ask(demand) => PolicyVerdict::Ask(approvers::with_lapsed_approvers(run, at, demand, env)),
        verdict => verdict,
    }
}

/// What rules, node and level require of a call, whoever has approved it.
pub(crate) fn evaluate_without_approvals(run: &Run, at: RunPlace, spec: &Spec, env: &Env<'_>) -> PolicyVerdict {
    let Some(task) = run.tasks.task(at) else { return PolicyVerdict::Allow };
    let Some(input) = task.input() else { return PolicyVerdict::Allow };
    let (tenant, actor, level) = (run.head.tenant.as_str(), run.head.actor.as_str(), run.head.level);
    let action = Action { tenant, actor, level, node: run.tasks.name(at), tool: spec, input };
    let mut demand = match evaluate_for_requesters(run, at, &action, env) {
        PolicyVerdict::Allow => None,
        PolicyVerdict::Ask(demand) => Some(demand),
        deny @ PolicyVerdict::Deny { .. } => return deny,
    };
    let own = demands::demand_of_node(run, at).into_iter().chain(demands::demand_of_level(run, at, spec, input, env));
    for further in own.chain(judge::demand_of_judge(run, at)) {
        demand = Some(match demand {
            Some(demand) => demand.and(further),
            None => further,
        });
    }
    demand.map_or(PolicyVerdict::Allow, PolicyVerdict::Ask)
}

/// Ends a place whose call the policy denies.
pub(crate) fn refuse_by_policy(
    run: &mut Run,
    at: RunPlace,
    rule: String,
    reason: String,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    run.tasks.mark_dirty(at, cx);
    cx.turn.add_decision(
        "step.refused",
        run.tasks.step_id(at),
        json!({"node": run.tasks.name(at), "rule": rule}),
        GovernanceDecision {
            source: DecisionSource::Policy,
            outcome: Outcome::Rejected,
            rationale: reason.clone(),
            policies: vec![rule.clone()],
        },
    );
    let error = ErrorBody::new(Code::PolicyDenied, reason).with("rule", rule);
    projecting::refused(run, at, Refusal::Policy, &error, cx)?;
    answer::give_up(run, at, error, cx)
}

/// The strictest verdict over all requesters of a call.
pub(crate) fn evaluate_for_requesters(run: &Run, at: RunPlace, action: &Action<'_>, env: &Env<'_>) -> PolicyVerdict {
    let mut verdict = env.policy.evaluate(action).with_obligation();
    for who in requesters::requesters_of(run, at).iter().skip(1) {
        let action = Action { actor: who, ..*action };
        let judged = match requesters::writers_of(run, at).any(|writer| writer == who) {
            true => env.policy.evaluate(&action),
            false if run.head.co_requesters.contains(who) => {
                env.policy.evaluate_contributor(&action).for_contributor(who)
            }
            false => env.policy.evaluate_contributor(&action),
        };
        verdict = verdict.and(judged.with_obligation());
    }
    verdict
}

impl PolicyVerdict {
    /// The same. What asks without a name is named by its reason.
    fn with_obligation(self) -> Self {
        match self {
            Self::Ask(demand) if demand.obligations.is_empty() => {
                let obligation = Obligation::rule(&demand.reason);
                Self::Ask(demand.because_of(obligation))
            }
            verdict => verdict,
        }
    }

    /// The stricter of two verdicts. If both ask for approval, both demands must be met.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (deny @ Self::Deny { .. }, _) | (_, deny @ Self::Deny { .. }) => deny,
            (Self::Ask(demand), Self::Ask(other)) => Self::Ask(demand.and(other)),
            (ask @ Self::Ask(_), Self::Allow) | (Self::Allow, ask) => ask,
        }
    }

    /// The verdict for someone who only contributed to the data of this call. A denial becomes a demand for
    /// approval by a person who did not contribute. Otherwise, answering a question could stop calls that only
    /// others may make.
    fn for_contributor(self, who: &str) -> Self {
        let Self::Deny { rule, .. } = self else { return self };
        let reason = format!("the rule {rule} denies this to {who}, who contributed to its data");
        let demand = ApprovalRequirement { other_than_requester: true, ..ApprovalRequirement::one_approval(reason) };
        Self::Ask(demand.because_of(Obligation::contributor(&rule, who)))
    }

    /// Refuses a change to another actor's run if the rules deny it to its author, or require more approval of them
    /// than of the run's actor, whose verdict is `of_run`.
    pub fn check_contribution(&self, of_run: &Self) -> Result<(), String> {
        match (self, of_run) {
            (Self::Deny { reason, .. }, _) => Err(reason.clone()),
            (Self::Ask(demand), Self::Ask(met)) if demand.is_covered_by(met) => Ok(()),
            (Self::Ask(demand), Self::Allow | Self::Ask(_)) => Err(format!(
                "{} for a change by you, and the run would continue without that approval; ask someone else",
                demand.reason
            )),
            (Self::Allow, _) | (_, Self::Deny { .. }) => Ok(()),
        }
    }
}
