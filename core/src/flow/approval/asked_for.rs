//! What an approval was asked for.
//!
//! An approval answers only the obligations that people were asked about. They are stored with the request, or with the
//! plan, and a call is sent only if each obligation that it has now is among them. What the level of the run requires is
//! no obligation: any approval of exactly this call answers it.

use crate::flow::judgement::Judgement;
use crate::flow::reservation::Limit;
use crate::json::Digest32;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A reason to ask that no approval for another reason answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Obligation(String);

impl Obligation {
    const LIMIT: &'static str = "limit:";
    const JUDGE: &'static str = "judge:";

    /// A rule asks. The same rule asks once, whoever it is about.
    #[must_use]
    pub fn rule(name: &str) -> Self {
        Self(format!("rule:{name}"))
    }

    /// A rule denies the call to somebody who contributed to its data.
    pub(crate) fn contributor(rule: &str, who: &str) -> Self {
        Self(format!("contributor:{who}:{rule}"))
    }

    /// The workflow requires approval for the node.
    pub(crate) fn node() -> Self {
        Self("node".to_owned())
    }

    /// The call is beyond this limit.
    pub(crate) fn limit(limit: &Limit) -> Self {
        Self(format!("{}{}:{}:{}", Self::LIMIT, limit.rule, limit.key.seconds, limit.key.subject))
    }

    /// The judge escalated exactly this, because of these checks.
    pub(crate) fn judgement(judgement: &Judgement) -> Self {
        let failed: Vec<[&str; 2]> =
            judgement.failed.iter().map(|failure| [failure.check.as_str(), failure.message.as_str()]).collect();
        let judged = json!({"of": judgement.of, "digest": judgement.digest, "failed": failed});
        Self(format!("{}{}", Self::JUDGE, Digest32::of(&judged)))
    }

    fn is_limit(&self) -> bool {
        self.0.starts_with(Self::LIMIT)
    }

    fn is_judgement(&self) -> bool {
        self.0.starts_with(Self::JUDGE)
    }
}

/// What an approval was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskedFor {
    Recorded(BTreeSet<Obligation>),
    /// The request was stored before this was recorded. All obligations of a step were asked about together, except the
    /// limits, which were not always known.
    Unrecorded,
}

impl Default for AskedFor {
    fn default() -> Self {
        Self::Recorded(BTreeSet::new())
    }
}

impl AskedFor {
    /// Reads the stored form.
    pub(crate) fn from_value(stored: Option<&Value>) -> Self {
        let Some(listed) = stored.and_then(Value::as_array) else { return Self::Unrecorded };
        Self::Recorded(listed.iter().filter_map(|one| Some(Obligation(one.as_str()?.to_owned()))).collect())
    }

    /// Whether an approval answers all of these.
    pub(crate) fn covers(&self, obligations: &BTreeSet<Obligation>) -> bool {
        match self {
            Self::Recorded(asked) => obligations.is_subset(asked),
            Self::Unrecorded => !obligations.iter().any(Obligation::is_limit),
        }
    }

    /// Whether the judge of the step escalated.
    pub(crate) fn is_escalated(&self) -> bool {
        matches!(self, Self::Recorded(asked) if asked.iter().any(Obligation::is_judgement))
    }

    /// What the approval of a plan or a map was asked for. Where this was not recorded, that is only what the level
    /// requires.
    pub(crate) fn of_several_calls(self) -> Self {
        match self {
            Self::Unrecorded => Self::default(),
            recorded @ Self::Recorded(_) => recorded,
        }
    }

    pub(crate) fn extend(&mut self, obligations: impl IntoIterator<Item = Obligation>) {
        if let Self::Recorded(asked) = self {
            asked.extend(obligations);
        }
    }

    /// The stored form.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Recorded(asked) => stored_obligations(asked),
            Self::Unrecorded => Value::Null,
        }
    }
}

/// The stored form of obligations.
pub(crate) fn stored_obligations(obligations: &BTreeSet<Obligation>) -> Value {
    obligations.iter().map(|obligation| obligation.0.as_str()).collect()
}

/// The approval of a call, by itself or together with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenApproval<'a> {
    pub(crate) by: &'a [String],
    pub(crate) asked_for: &'a AskedFor,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_answers_only_what_it_was_asked_for() {
        let (rule, node) = (Obligation::rule("four_eyes"), Obligation::node());
        let asked = AskedFor::Recorded([rule.clone()].into());
        let read = AskedFor::from_value(Some(&asked.to_value()));
        assert_eq!(read, asked);
        assert!(read.covers(&BTreeSet::new()) && read.covers(&[rule.clone()].into()));
        assert!(!read.covers(&[rule, node].into()));
    }

    #[test]
    fn an_unrecorded_approval_of_a_plan_answers_only_the_level() {
        let (node, limit) = (Obligation::node(), Obligation(format!("{}few:60:", Obligation::LIMIT)));
        let of_step = AskedFor::from_value(None);
        assert!(of_step.covers(&[node.clone()].into()) && !of_step.covers(&[node.clone(), limit].into()));
        let of_plan = of_step.of_several_calls();
        assert!(of_plan.covers(&BTreeSet::new()) && !of_plan.covers(&[node].into()));
    }
}
