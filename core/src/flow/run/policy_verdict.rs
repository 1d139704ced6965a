//! Judges a call for everyone who requested it or contributed to it.
//!
//! A rule about an actor would be useless if the actor could have another actor's run make the call. So the rules
//! are evaluated for each requester, and the strictest verdict counts. Whoever edited or added the call is judged
//! as if they requested it now: their change to another actor's run does not outlive their right to make the
//! request.

use super::env::Env;
use super::{Run, RunPlace, requesters};
use crate::flow::approval::{ApprovalRequirement, Obligation};
use crate::flow::policy::{Action, PolicyVerdict};

/// The strictest verdict over all requesters of a call.
pub(crate) fn judge_for_requesters(run: &Run, at: RunPlace, action: &Action<'_>, env: &Env<'_>) -> PolicyVerdict {
    let mut verdict = env.policy.judge(action).with_obligation();
    for who in requesters::requesters_of(run, at).iter().skip(1) {
        let action = Action { actor: who, ..*action };
        let judged = match requesters::writers_of(run, at).any(|writer| writer == who) {
            true => env.policy.judge(&action),
            false if run.head.co_requesters.contains(who) => env.policy.judge_contributor(&action).for_contributor(who),
            false => env.policy.judge_contributor(&action),
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
