//! The configured rules: which tools are denied, and which need approval.
//!
//! A rule names tools by pattern. The first rule that matches decides. Risk scores don't depend on rules.

use chimera_core::access::matches_pattern;
use chimera_core::act::risk;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::ApprovalRequirement;
use chimera_core::tool::Spec;
use serde::Deserialize;
use serde_json::Value;

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
}

/// The effect of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    Allow,
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
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum RuleEffect {
    Allow,
    Deny,
    Ask,
}

/// A rule with a member that its effect does not allow, or without one that it requires.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rule {name}: {reason}")]
pub struct InvalidRule {
    name: String,
    reason: &'static str,
}

impl TryFrom<RawRule> for Rule {
    type Error = InvalidRule;

    fn try_from(written: RawRule) -> Result<Self, InvalidRule> {
        let RawRule { name, tool, actor, tenant, effect, reason, approvals, approvers, other_than_requester } = written;
        let bad = |reason| InvalidRule { name: name.clone(), reason };
        let asks = approvals.is_some() || approvers.is_some() || other_than_requester.is_some();
        if asks && effect != RuleEffect::Ask {
            return Err(bad("only effect `ask` takes approvals, approvers or other_than_requester"));
        }
        let says = match (effect, reason) {
            (RuleEffect::Deny, Some(reason)) => Says::Deny { reason },
            (RuleEffect::Deny, None) => return Err(bad("effect `deny` requires a reason")),
            (_, Some(_)) => return Err(bad("only effect `deny` takes a reason")),
            (RuleEffect::Allow, None) => Says::Allow,
            (RuleEffect::Ask, None) => Says::Ask {
                approvals: approvals.unwrap_or(1),
                approvers: approvers.unwrap_or_default(),
                other_than_requester: other_than_requester.unwrap_or(false),
            },
        };
        let all = |pattern: Option<String>| pattern.unwrap_or_else(|| "*".to_owned());
        Ok(Self { name, tool, actor: all(actor), tenant: all(tenant), says })
    }
}

/// Rules, in order of evaluation.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub Vec<Rule>);

impl Policy for Rules {
    fn judge(&self, action: &Action<'_>) -> PolicyVerdict {
        let fitting = |rule: &&Rule| {
            matches_pattern(&rule.tool, &action.tool.name)
                && matches_pattern(&rule.actor, action.actor)
                && matches_pattern(&rule.tenant, action.tenant)
        };
        let Some(rule) = self.0.iter().find(fitting) else { return PolicyVerdict::Allow };
        match &rule.says {
            Says::Allow => PolicyVerdict::Allow,
            Says::Deny { reason } => PolicyVerdict::Deny { rule: rule.name.clone(), reason: reason.clone() },
            Says::Ask { approvals, approvers, other_than_requester } => PolicyVerdict::Ask(ApprovalRequirement {
                needed: (*approvals).max(1),
                approvers: approvers.clone(),
                other_than_requester: *other_than_requester,
                expires_seconds: None,
                further: Vec::new(),
                reason: format!("the rule {} demands approval", rule.name),
            }),
        }
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
}
