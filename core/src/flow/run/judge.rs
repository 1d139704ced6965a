//! What the rules say about a call, for everybody who had a part in it.
//!
//! A rule about an actor would be worth nothing if that actor could have the run of another do it. So the rules are asked
//! for each who asked for a call, and the strictest answer counts. Whoever edited or added the call is judged as if they
//! asked for it now: what they wrote into the run of another does not outlive their right to ask for it.

use super::demand::Demand;
use super::env::Env;
use super::{At, Run};
use crate::flow::policy::{Action, PolicyVerdict};

impl Run {
    /// What the rules say about a call for all who asked for it.
    pub(crate) fn judge_for_all(&self, at: At, action: &Action<'_>, env: &Env<'_>) -> PolicyVerdict {
        let mut verdict = env.policy.judge(action);
        for who in self.requesters_of(at).iter().skip(1) {
            let action = Action { actor: who, ..*action };
            verdict = verdict.and(match self.writers_of(at).any(|writer| writer == who) {
                true => env.policy.judge(&action),
                false if self.head.co_requesters.contains(who) => env.policy.judge_part(&action).of_earlier_part(who),
                false => env.policy.judge_part(&action),
            });
        }
        verdict
    }
}

impl PolicyVerdict {
    /// The stricter of two; what both demand must be met.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (deny @ Self::Deny { .. }, _) | (_, deny @ Self::Deny { .. }) => deny,
            (Self::Ask(demand), Self::Ask(other)) => Self::Ask(demand.and(other)),
            (ask @ Self::Ask(_), Self::Allow) | (Self::Allow, ask) => ask,
        }
    }

    /// What a rule says about somebody who did not write this call, but something that it works with. What is denied to
    /// them may happen all the same if somebody looks at it who had no part in it: an answer to a question would stop what
    /// only others may do.
    fn of_earlier_part(self, who: &str) -> Self {
        let Self::Deny { rule, .. } = self else { return self };
        let reason = format!("the rule {rule} denies this to {who}, who had a part in what it works with");
        Self::Ask(Demand { other_than_requester: true, ..Demand::one(reason) })
    }

    /// Refuses what somebody has done in a run of another, if a rule denies it to them or makes them ask for more than the
    /// run is asked for: `of_run` is what the rules say about its actor.
    pub fn check_part(&self, of_run: &Self) -> Result<(), String> {
        match (self, of_run) {
            (Self::Deny { reason, .. }, _) => Err(reason.clone()),
            (Self::Ask(demand), Self::Ask(met)) if demand.is_covered_by(met) => Ok(()),
            (Self::Ask(demand), Self::Allow | Self::Ask(_)) => Err(format!(
                "{} of you, and the run would go on without it; ask somebody else to do this",
                demand.reason
            )),
            (Self::Allow, _) | (_, Self::Deny { .. }) => Ok(()),
        }
    }
}
