//! An approval requirement: how many people must approve, and who.
//!
//! The level, the node and a rule may each have a requirement for the same action. All must be met; one
//! person may count for several of them.

use super::Obligation;
use crate::access::{DeciderRefusal, matches_pattern};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Whether two names belong to the same person. Comparing names is not enough: a person may have two registry entries.
pub type SamePerson<'a> = &'a dyn Fn(&str, &str) -> bool;

/// An approval requirement, of one or several parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequirement {
    /// The number of people.
    pub needed: u32,
    /// Patterns of those who may approve. Empty: anyone.
    pub approvers: Vec<String>,
    /// Requesters don't count: neither the requesters of the run nor those who changed what would run.
    pub other_than_requester: bool,
    /// The lifetime of the approval request.
    pub expires_seconds: Option<u32>,
    pub reason: String,
    /// What people are asked about. Approvals that were asked for something else don't count.
    pub obligations: BTreeSet<Obligation>,
    /// Further parts that must be met too.
    pub further: Vec<Self>,
}

impl ApprovalRequirement {
    /// One approval by anyone.
    #[must_use]
    pub fn one_approval(reason: impl Into<String>) -> Self {
        Self {
            needed: 1,
            approvers: Vec::new(),
            other_than_requester: false,
            expires_seconds: None,
            reason: reason.into(),
            obligations: BTreeSet::new(),
            further: Vec::new(),
        }
    }

    /// Both requirements. Parts that another part implies are dropped.
    #[must_use]
    pub fn and(mut self, mut other: Self) -> Self {
        let mut obligations = std::mem::take(&mut self.obligations);
        obligations.append(&mut other.obligations);
        let expires_seconds = [self.expires_seconds, other.expires_seconds].into_iter().flatten().min();
        let reason = if self.reason.split("; ").any(|reason| reason == other.reason) {
            self.reason.clone()
        } else {
            format!("{}; {}", self.reason, other.reason)
        };
        let mut parts: Vec<Self> = Vec::new();
        for part in self.into_parts().chain(other.into_parts()) {
            if !parts.iter().any(|kept| part.is_implied_by(kept)) {
                parts.retain(|kept| !kept.is_implied_by(&part));
                parts.push(part);
            }
        }
        let also = parts.split_off(1.min(parts.len()));
        let first = parts.pop().unwrap_or_else(|| Self::one_approval(""));
        Self { further: also, expires_seconds, reason, obligations, ..first }
    }

    /// The same, because of this.
    #[must_use]
    pub fn because_of(mut self, obligation: Obligation) -> Self {
        self.obligations.insert(obligation);
        self
    }

    fn into_parts(mut self) -> impl Iterator<Item = Self> {
        let also = std::mem::take(&mut self.further);
        std::iter::once(self).chain(also)
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.further)
    }

    /// Whether meeting `other` meets this part too.
    fn is_implied_by(&self, other: &Self) -> bool {
        self.needed <= other.needed
            && (self.approvers.is_empty() || self.approvers == other.approvers)
            && (!self.other_than_requester || other.other_than_requester)
    }

    /// Whether meeting `other` meets all of this.
    pub(crate) fn is_covered_by(&self, other: &Self) -> bool {
        self.parts().all(|part| other.parts().any(|kept| part.is_implied_by(kept)))
    }

    /// Whether `who` counts for this part.
    fn counts(&self, who: &str, requesters: &[String], same: SamePerson<'_>) -> bool {
        let fitting = self.approvers.is_empty() || self.approvers.iter().any(|pattern| matches_pattern(pattern, who));
        fitting && !(self.other_than_requester && requesters.iter().any(|requester| same(requester, who)))
    }

    /// The number of people missing for this part.
    fn missing(&self, by: &[String], requesters: &[String], same: SamePerson<'_>) -> u32 {
        let mut counting: Vec<&str> = Vec::new();
        for who in by.iter().filter(|who| self.counts(who, requesters, same)) {
            if !counting.iter().any(|counted| same(counted, who)) {
                counting.push(who);
            }
        }
        self.needed.saturating_sub(u32::try_from(counting.len()).unwrap_or(u32::MAX))
    }

    /// Whether `who` may decide about a request of `requesters`.
    #[must_use]
    pub fn allows(&self, who: &str, requesters: &[String], same: SamePerson<'_>) -> bool {
        self.parts().any(|part| part.counts(who, requesters, same))
    }

    /// Whether these approvers are enough.
    #[must_use]
    pub fn is_met(&self, by: &[String], requesters: &[String], same: SamePerson<'_>) -> bool {
        self.parts().all(|part| part.missing(by, requesters, same) == 0)
    }

    /// Whether the last approver adds nothing, because they are the same person as an earlier one.
    #[must_use]
    pub fn adds_no_approver(&self, by: &[String], requesters: &[String], same: SamePerson<'_>) -> bool {
        let Some((last, before)) = by.split_last() else { return false };
        let nearer = |part: &Self| part.missing(by, requesters, same) < part.missing(before, requesters, same);
        before.iter().any(|who| same(who, last)) && !self.parts().any(nearer)
    }

    /// The minimum number of people.
    #[must_use]
    pub fn people(&self) -> u32 {
        self.parts().map(|part| part.needed).max().unwrap_or(1)
    }

    /// The minimum number of people, given those who have approved, each named once. It can grow, because an
    /// approver may count for one part and not for another. Approvals beyond what was needed are not counted.
    #[must_use]
    pub fn people_needed_after(&self, by: &[String], requesters: &[String], same: SamePerson<'_>) -> i64 {
        let missing = self.parts().map(|part| i64::from(part.missing(by, requesters, same))).max().unwrap_or(0);
        let enough = (0..=by.len()).find(|people| self.is_met(&by[..*people], requesters, same));
        enough.map_or_else(|| count(by.len()).saturating_add(missing), count)
    }

    /// Patterns of everyone who may decide. Empty: anyone.
    pub(crate) fn approver_patterns(&self) -> Vec<String> {
        if self.parts().any(|part| part.approvers.is_empty()) {
            return Vec::new();
        }
        self.parts().flat_map(|part| part.approvers.iter().cloned()).collect()
    }

    /// The form stored in a request.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let parts = self.parts().map(|part| {
            json!({
                "needed": part.needed, "approvers": part.approvers, "other_than_requester": part.other_than_requester,
            })
        });
        parts.collect()
    }

    /// Reads the form stored in a request.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        let read = |part: &Value| {
            let approvers = part.get("approvers")?.as_array()?.iter();
            Some(Self {
                needed: u32::try_from(part.get("needed")?.as_u64()?).ok()?,
                approvers: approvers.map(|pattern| pattern.as_str().map(str::to_owned)).collect::<Option<_>>()?,
                other_than_requester: part.get("other_than_requester")?.as_bool()?,
                ..Self::one_approval("")
            })
        };
        let mut parts = value.as_array()?.iter().map(read).collect::<Option<Vec<_>>>()?.into_iter();
        let first = parts.next()?;
        Some(Self { further: parts.collect(), ..first })
    }
}

fn count(people: usize) -> i64 {
    i64::try_from(people).unwrap_or(i64::MAX)
}

impl ApprovalRequirement {
    /// Whether a person other than the requesters must decide.
    #[must_use]
    pub fn excludes_requesters(&self) -> bool {
        self.parts().any(|part| part.other_than_requester)
    }

    /// Who may decide about a request of `requesters`, in words.
    #[must_use]
    pub fn describe_deciders(&self, requesters: &[String]) -> String {
        let others =
            if self.excludes_requesters() { format!(" other than {}", requesters.join(", ")) } else { String::new() };
        match self.approver_patterns().as_slice() {
            [] => format!("a person with the scope approvals.decide{others}"),
            named => format!("{}{others}", named.join(", ")),
        }
    }

    /// Why `who` may not decide about a request of `requesters`, if so. It distinguishes a requester, who would
    /// otherwise count, from a person who is not named.
    #[must_use]
    pub fn exclusion_reason(&self, who: &str, requesters: &[String], same: SamePerson<'_>) -> Option<DeciderRefusal> {
        let is_named =
            |part: &Self| part.approvers.is_empty() || part.approvers.iter().any(|name| matches_pattern(name, who));
        if self.allows(who, requesters, same) {
            return None;
        }
        let other = || requesters.iter().find(|requester| same(requester, who));
        Some(match self.parts().any(is_named) {
            true if requesters.iter().any(|requester| requester == who) => DeciderRefusal::Requester,
            true => other().map_or(DeciderRefusal::Requester, |name| DeciderRefusal::SameAsRequester(name.clone())),
            false => DeciderRefusal::NotNamed(self.approver_patterns()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(needed: u32, approvers: &[&str], other_than_requester: bool) -> ApprovalRequirement {
        let approvers = approvers.iter().map(|pattern| (*pattern).to_owned()).collect();
        ApprovalRequirement { needed, approvers, other_than_requester, ..ApprovalRequirement::one_approval("why") }
    }

    fn met(demand: &ApprovalRequirement, by: &[&str]) -> bool {
        demand.is_met(&names(by), &["user_ann".to_owned()], &same)
    }

    fn names(by: &[&str]) -> Vec<String> {
        by.iter().map(|who| (*who).to_owned()).collect()
    }

    /// Ann has a second entry.
    fn same(one: &str, other: &str) -> bool {
        let person = |name: &str| if name == "user_second" { "user_ann".to_owned() } else { name.to_owned() };
        person(one) == person(other)
    }

    #[test]
    fn two_names_of_one_person_are_one_person() {
        let (four, two) = (of(1, &[], true), of(2, &["user_*"], false));
        let ann = names(&["user_ann"]);
        assert!(!four.allows("user_second", &ann, &same) && !met(&four, &["user_second"]));
        assert_eq!(
            four.exclusion_reason("user_second", &ann, &same),
            Some(DeciderRefusal::SameAsRequester("user_ann".to_owned()))
        );
        assert_eq!(four.exclusion_reason("user_ann", &ann, &same), Some(DeciderRefusal::Requester));
        assert!(four.allows("user_ann", &names(&["user_bob"]), &same));
        assert!(!met(&two, &["user_ann", "user_second"]) && met(&two, &["user_ann", "user_second", "user_bob"]));
        let both = names(&["user_ann", "user_second"]);
        assert_eq!(two.people_needed_after(&both, &[], &same), 3, "one of these two counts for nothing");
        assert!(
            two.adds_no_approver(&both, &[], &same)
                && !two.adds_no_approver(&names(&["user_ann", "user_bob"]), &[], &same)
        );
        let other = of(1, &["user_ann"], false).and(of(1, &["user_second"], false));
        assert!(!other.adds_no_approver(&both, &[], &same) && met(&other, &["user_ann", "user_second"]));
    }

    #[test]
    fn two_demands_are_met_by_people_that_fit_each() {
        let both = of(2, &["user_*"], false).and(of(1, &["user_boss"], true));
        assert!(!met(&both, &["user_ann", "user_bob"]), "the boss is missing");
        assert!(met(&both, &["user_ann", "user_boss"]));
        assert!(!met(&both, &["user_boss"]), "two people are needed");
        assert_eq!(both.people(), 2);
        let after = |by: &[&str]| both.people_needed_after(&names(by), &["user_ann".to_owned()], &same);
        assert_eq!((after(&[]), after(&["user_ann"]), after(&["user_boss"])), (2, 2, 2));
        assert_eq!(after(&["user_ann", "user_bob"]), 3, "the boss is still missing");
        assert_eq!(after(&["user_ann", "user_bob", "user_boss"]), 3);
        assert_eq!(
            ApprovalRequirement::from_value(&both.to_value()).map(|read| read.to_value()),
            Some(both.to_value())
        );
    }

    #[test]
    fn a_weaker_demand_adds_nothing() {
        let strong = of(1, &[], true);
        let both = ApprovalRequirement::one_approval("every step").and(strong.clone());
        let ann = ["user_ann".to_owned()];
        assert!(both.further.is_empty() && !both.allows("user_ann", &ann, &same));
        assert!(both.allows("user_bob", &ann, &same) && met(&both, &["user_bob"]));
    }

    #[test]
    fn whoever_changed_what_would_run_asked_for_it_too() {
        let asked = ["user_ann".to_owned(), "user_bob".to_owned()];
        let strict = of(1, &[], true);
        assert!(!strict.allows("user_ann", &asked, &same) && !strict.allows("user_bob", &asked, &same));
        assert!(strict.allows("user_cat", &asked, &same) && of(1, &[], false).allows("user_bob", &asked, &same));
        assert!(!strict.is_met(&asked, &asked, &same), "nobody counts who asked for it");
    }
}
