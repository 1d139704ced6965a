//! The configured rules: which tools are denied, which need approval, and how often they may be called.
//!
//! A rule names tools by pattern. The first rule that matches decides. Rules with effect `limit` don't decide: the
//! limits of all that match apply. Risk scores don't depend on rules.

mod limit;

pub use limit::{Beyond, RuleLimit, SubjectPart};

use chimera_core::access::matches_pattern;
use chimera_core::act::risk;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::reservation::{Limit, Measure};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::{ApprovalRequirement, Obligation};
use chimera_core::limits::{APPROVALS_NEEDED_MAX, RULE_LIMITS_MAX, RULE_NAME_CHARS_MAX, RULE_SUBJECT_BYTES_MAX};
use chimera_core::tool::Spec;
use limit::{HAS_NUL, OneOrMany};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawRule")]
pub struct Rule {
    /// Recorded in the ledger.
    pub name: String,
    /// Pattern of tool names.
    pub tool: String,
    /// Pattern of actors it applies to.
    pub actor: String,
    /// Pattern of tenant slugs it applies to.
    pub tenant: String,
    pub says: Says,
    /// Limits over time on the calls that it applies to.
    pub limits: Vec<RuleLimit>,
    /// What happens to calls beyond them.
    pub beyond: Beyond,
}

/// The effect of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    Allow,
    /// Nothing; only its limits apply.
    Limit,
    Deny {
        reason: String,
    },
    /// Allowed after approval.
    Ask {
        /// The number of approvals.
        approvals: u32,
        /// Patterns of people who may approve; anybody if empty.
        approvers: Vec<String>,
        /// Excludes the requester of the run.
        other_than_requester: bool,
    },
}

/// A rule as written in the file. Lists every member, so that misspelled ones are refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    name: String,
    tool: String,
    actor: Option<String>,
    tenant: Option<String>,
    effect: RuleEffect,
    reason: Option<String>,
    approvals: Option<u32>,
    approvers: Option<Vec<String>>,
    other_than_requester: Option<bool>,
    at_most: Option<OneOrMany<RuleLimit>>,
    sum_at_most: Option<OneOrMany<RuleLimit>>,
    beyond: Option<BeyondEffect>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum RuleEffect {
    Allow,
    Deny,
    Ask,
    Limit,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum BeyondEffect {
    Deny,
    Ask,
}

/// A rule with a member that its effect does not allow, or without one that it requires, or with a value that can't be
/// used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rule {}: {reason}", name.escape_debug())]
pub struct InvalidRule {
    name: String,
    reason: String,
}

impl TryFrom<RawRule> for Rule {
    type Error = InvalidRule;

    fn try_from(written: RawRule) -> Result<Self, InvalidRule> {
        written.check_values()?;
        let limits = written.limits()?;
        let RawRule { name, tool, actor, tenant, effect, reason, approvals, approvers, .. } = written;
        let (other_than_requester, beyond) = (written.other_than_requester, written.beyond);
        let bad = |reason: &str| InvalidRule { name: name.clone(), reason: reason.to_owned() };
        let asks_beyond = beyond == Some(BeyondEffect::Ask);
        let asks = approvals.is_some() || approvers.is_some() || other_than_requester.is_some();
        if asks && effect != RuleEffect::Ask && !asks_beyond {
            return Err(bad("only effect `ask` and beyond `ask` take approvals, approvers or other_than_requester"));
        }
        if beyond.is_some() && limits.is_empty() {
            return Err(bad("beyond requires at_most or sum_at_most"));
        }
        let needed = approvals.unwrap_or(1);
        let (approvers, other_than_requester) = (approvers.unwrap_or_default(), other_than_requester.unwrap_or(false));
        let beyond = match asks_beyond {
            false => Beyond::Deny,
            true => Beyond::Ask(ApprovalRequirement {
                needed: needed.max(1),
                approvers: approvers.clone(),
                other_than_requester,
                ..ApprovalRequirement::one_approval(String::new())
            }),
        };
        let says = match (effect, reason) {
            (RuleEffect::Deny, Some(_)) if !limits.is_empty() => return Err(bad("effect `deny` takes no limits")),
            (RuleEffect::Limit, None) if limits.is_empty() => {
                return Err(bad("effect `limit` requires at_most or sum_at_most"));
            }
            (RuleEffect::Deny, Some(reason)) => Says::Deny { reason },
            (RuleEffect::Deny, None) => return Err(bad("effect `deny` requires a reason")),
            (_, Some(_)) => return Err(bad("only effect `deny` takes a reason")),
            (RuleEffect::Allow, None) => Says::Allow,
            (RuleEffect::Limit, None) => Says::Limit,
            (RuleEffect::Ask, None) => Says::Ask { approvals: needed, approvers, other_than_requester },
        };
        let all = |pattern: Option<String>| pattern.unwrap_or_else(|| "*".to_owned());
        Ok(Self { name, tool, actor: all(actor), tenant: all(tenant), says, limits, beyond })
    }
}

impl RawRule {
    /// Its limits, each written under the name that fits it.
    fn limits(&self) -> Result<Vec<RuleLimit>, InvalidRule> {
        let bad = |reason: &str| Err(self.invalid(reason));
        let of = |limits: &Option<OneOrMany<RuleLimit>>| limits.clone().map_or_else(Vec::new, |limits| limits.0);
        let (mut counts, sums) = (of(&self.at_most), of(&self.sum_at_most));
        let is_count = |limit: &RuleLimit| limit.measure == Measure::Count;
        if !counts.iter().all(is_count) {
            return bad("at_most takes `count`; a limit on a sum is sum_at_most");
        }
        if sums.iter().any(is_count) {
            return bad("sum_at_most takes `of` and `limit`; a limit on the number of calls is at_most");
        }
        counts.extend(sums);
        if counts.len() > RULE_LIMITS_MAX {
            return bad("it has too many limits");
        }
        if !counts.is_empty() && self.name.chars().count() > RULE_NAME_CHARS_MAX {
            return bad("its name is too long for a rule with limits");
        }
        if counts.iter().any(|limit| limit.subject_bytes(&self.name) > RULE_SUBJECT_BYTES_MAX) {
            return bad("its name and the JSON pointers of a limit are too long together");
        }
        Ok(counts)
    }

    /// Refuses numbers and texts that no approval request and no store could hold. Those of limits are checked as they
    /// are read.
    fn check_values(&self) -> Result<(), InvalidRule> {
        if let Some(needed) = self.approvals.filter(|needed| *needed > APPROVALS_NEEDED_MAX) {
            let reason = format!("approvals is {needed}; a request requires at most {APPROVALS_NEEDED_MAX}");
            return Err(self.invalid(&reason));
        }
        let text = |name: &str, text: Option<&str>| {
            text.filter(|text| text.contains('\0')).map_or(Ok(()), |_| Err(self.invalid(&format!("{name} {HAS_NUL}"))))
        };
        text("name", Some(&self.name))?;
        text("tool", Some(&self.tool))?;
        text("actor", self.actor.as_deref())?;
        text("tenant", self.tenant.as_deref())?;
        text("reason", self.reason.as_deref())?;
        let approvers = self.approvers.iter().flatten().enumerate();
        approvers
            .map(|(at, pattern)| (format!("approvers[{at}]"), pattern))
            .try_for_each(|(at, pattern)| text(&at, Some(pattern)))
    }

    fn invalid(&self, reason: &str) -> InvalidRule {
        InvalidRule { name: self.name.clone(), reason: reason.to_owned() }
    }
}

/// Rules, in order of evaluation.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub Vec<Rule>);

impl Rule {
    fn fits(&self, action: &Action<'_>) -> bool {
        matches_pattern(&self.tool, &action.tool.name)
            && matches_pattern(&self.actor, action.actor)
            && matches_pattern(&self.tenant, action.tenant)
    }
}

impl Rules {
    /// Refuses two rules with limits under one name: what they count could not be told apart.
    pub fn check(&self) -> Result<(), InvalidRule> {
        let mut names = BTreeSet::new();
        match self.0.iter().find(|rule| !rule.limits.is_empty() && !names.insert(&rule.name)) {
            None => Ok(()),
            Some(rule) => {
                let reason = "another rule with limits has the same name".to_owned();
                Err(InvalidRule { name: rule.name.clone(), reason })
            }
        }
    }
}

impl Policy for Rules {
    fn evaluate(&self, action: &Action<'_>) -> PolicyVerdict {
        let decides = |rule: &&Rule| rule.says != Says::Limit && rule.fits(action);
        let Some(rule) = self.0.iter().find(decides) else { return PolicyVerdict::Allow };
        match &rule.says {
            Says::Allow | Says::Limit => PolicyVerdict::Allow,
            Says::Deny { reason } => PolicyVerdict::Deny { rule: rule.name.clone(), reason: reason.clone() },
            Says::Ask { approvals, approvers, other_than_requester } => PolicyVerdict::Ask(ApprovalRequirement {
                needed: (*approvals).max(1),
                approvers: approvers.clone(),
                other_than_requester: *other_than_requester,
                obligations: [Obligation::rule(&rule.name)].into(),
                ..ApprovalRequirement::one_approval(format!("the rule {} demands approval", rule.name))
            }),
        }
    }

    fn has_limits(&self) -> bool {
        self.0.iter().any(|rule| !rule.limits.is_empty())
    }

    fn limits(&self, action: &Action<'_>) -> Vec<Limit> {
        let mut is_decided = false;
        let mut limits = Vec::new();
        for rule in self.0.iter().filter(|rule| rule.fits(action)) {
            if rule.says == Says::Limit || !std::mem::replace(&mut is_decided, true) {
                limits.extend(rule.limits.iter().map(|limit| limit.on(&rule.name, action, &rule.beyond)));
            }
        }
        limits
    }

    fn score_call(&self, tool: &Spec, input: &Value) -> Score {
        risk::score_call(tool, input)
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(document: Value) -> Result<Rule, String> {
        serde_json::from_value(document).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rule_is_read_whole_and_a_misspelled_one_is_refused() {
        let ask = rule(json!({"name": "a", "tool": "s3_*", "effect": "ask", "approvals": 2})).unwrap();
        assert_eq!((ask.actor.as_str(), ask.tenant.as_str()), ("*", "*"));
        assert_eq!(ask.says, Says::Ask { approvals: 2, approvers: Vec::new(), other_than_requester: false });
        let deny = rule(json!({"name": "d", "tool": "*", "actor": "bot_*", "effect": "deny", "reason": "no"})).unwrap();
        assert_eq!(deny.says, Says::Deny { reason: "no".to_owned() });
        for wrong in [
            json!({"name": "x", "tool": "*", "effect": "allow", "aprovals": 1}),
            json!({"name": "x", "tool": "*", "effect": "allow", "approvals": 1}),
            json!({"name": "x", "tool": "*", "effect": "deny"}),
            json!({"name": "x", "tool": "*", "effect": "ask", "reason": "why"}),
            json!({"name": "x", "tool": "*"}),
        ] {
            assert!(rule(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_are_read_whole_and_wrong_ones_are_refused_with_a_reason() {
        let at_most = json!({"count": 3, "per": "1h", "by": ["actor", "/to"]});
        let read = rule(json!({"name": "l", "tool": "*", "effect": "limit", "at_most": at_most})).unwrap();
        let by = vec![SubjectPart::Actor, SubjectPart::Input("/to".to_owned())];
        assert_eq!(read.limits, [RuleLimit { measure: Measure::Count, most: 3, seconds: 3_600, by }]);
        let both = json!([{"of": "/a", "limit": 0.5, "per": "90s"}, {"of": "/b", "limit": "7", "per": "31d"}]);
        let read = rule(json!({"name": "l", "tool": "*", "effect": "allow", "sum_at_most": both})).unwrap();
        assert_eq!(read.limits.iter().map(|limit| limit.most).collect::<Vec<_>>(), [500_000, 7_000_000]);
        for (members, reason) in [
            (json!({"effect": "limit"}), "effect `limit` requires at_most or sum_at_most"),
            (json!({"effect": "allow", "beyond": "ask"}), "beyond requires at_most or sum_at_most"),
            (json!({"effect": "deny", "reason": "no", "at_most": {"count": 1, "per": "1h"}}), "takes no limits"),
            (json!({"effect": "limit", "at_most": {"count": 1, "per": "1h"}, "approvals": 2}), "beyond `ask` take"),
            (json!({"effect": "limit", "at_most": {"of": "/a", "limit": 1, "per": "1h"}}), "at_most takes `count`"),
            (
                json!({"effect": "limit", "sum_at_most": {"count": 1, "per": "1h"}}),
                "sum_at_most takes `of` and `limit`",
            ),
        ] {
            let mut document = json!({"name": "l", "tool": "*"});
            document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let refused = rule(document.clone()).unwrap_err();
            assert!(refused.contains(reason), "{document}: {refused}");
        }
        for wrong in [
            json!({"count": 1, "per": "1 hour"}),
            json!({"count": 1, "per": "0s"}),
            json!({"count": 1, "per": "32d"}),
            json!({"count": 1, "per": ""}),
            json!({"count": -1, "per": "1h"}),
            json!({"count": 1, "per": "1h", "by": "recipient"}),
            json!({"count": 1}),
            json!({"count": 1, "per": "1h", "max": 2}),
        ] {
            let document = json!({"name": "l", "tool": "*", "effect": "limit", "at_most": wrong});
            assert!(rule(document.clone()).is_err(), "{document}");
        }
    }

    #[test]
    fn what_no_request_and_no_store_could_hold_is_refused_with_its_place() {
        let nul = "a\0b";
        let limit = |members: Value| json!({"effect": "limit", "at_most": members});
        let long = format!("/{}", "x".repeat(2_000));
        for (members, reason) in [
            (json!({"name": nul}), "the rule a\\0b: name contains U+0000"),
            (json!({"tool": nul}), "the rule l: tool contains U+0000"),
            (json!({"actor": nul}), "actor contains U+0000"),
            (json!({"tenant": nul}), "tenant contains U+0000"),
            (json!({"effect": "deny", "reason": nul}), "reason contains U+0000"),
            (json!({"approvers": ["user_*", nul]}), "approvers[1] contains U+0000"),
            (limit(json!({"count": 1, "per": "1h", "by": "/a\0"})), "`/a\\0` contains U+0000"),
            (limit(json!({"count": 1, "per": "1h\0"})), "per is `1h\\0`"),
            (limit(json!({"count": 1, "per": "1h", "by": long})), "too long together"),
            (json!({"approvals": 11}), "the rule l: approvals is 11; a request requires at most 10"),
            (json!({"approvals": 2_147_483_648_u32}), "approvals is 2147483648"),
            (json!({"approvals": 4_294_967_296_u64}), "4294967296"),
        ] {
            let mut document = json!({"name": "l", "tool": "*", "effect": "ask"});
            document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let refused = rule(document.clone()).unwrap_err();
            assert!(refused.contains(reason), "{document}: {refused}");
        }
        let sum = json!({"of": "/a\0", "limit": 1, "per": "1h"});
        let refused = rule(json!({"name": "l", "tool": "*", "effect": "limit", "sum_at_most": sum})).unwrap_err();
        assert!(refused.contains("`/a\\0` contains U+0000"), "{refused}");
        assert!(rule(json!({"name": "l", "tool": "*", "effect": "ask", "approvals": 10})).is_ok());
    }

    #[test]
    fn two_rules_with_limits_need_two_names() {
        let limit = || rule(json!({"name": "l", "tool": "*", "effect": "limit", "at_most": {"count": 1, "per": "1h"}}));
        let allow = rule(json!({"name": "l", "tool": "*", "effect": "allow"})).unwrap();
        assert_eq!(Rules(vec![limit().unwrap(), allow]).check(), Ok(()));
        assert!(Rules(vec![limit().unwrap(), limit().unwrap()]).check().is_err());
    }
}
