//! The rules that stand in the configuration: which tools nobody may call, and which need approval.
//!
//! A rule names tools by pattern. The first rule that fits decides. How risky a call is counts the
//! tool's own level, whether it reaches outside, and destructive words in its input.

use chimera_core::access::fits;
use chimera_core::flow::run::{Action, Demand, Policy, PolicyVerdict};
use chimera_core::flow::tool::{Reach, Risk, Spec};
use serde::Deserialize;
use serde_json::Value;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name, for the ledger.
    pub name: String,
    /// Pattern of tool names.
    pub tool: String,
    /// Pattern of actors it holds for.
    #[serde(default = "anybody")]
    pub actor: String,
    /// What it says.
    #[serde(flatten)]
    pub says: Says,
}

fn anybody() -> String {
    "*".to_owned()
}

/// What a rule says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Says {
    /// It may happen.
    Allow,
    /// It may not.
    Deny {
        /// Why.
        reason: String,
    },
    /// It may once people approved.
    Ask {
        /// How many.
        #[serde(default = "one")]
        approvals: u32,
        /// Patterns of those who may; anybody when empty.
        #[serde(default)]
        approvers: Vec<String>,
        /// Not the one who asked for the run.
        #[serde(default)]
        other_than_requester: bool,
    },
}

const fn one() -> u32 {
    1
}

/// Rules in their order.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub Vec<Rule>);

const DESTRUCTIVE: &[&str] = &["delete", "drop", "truncate", "rm -rf", "destroy", "wipe", "refund"];

impl Policy for Rules {
    fn judge(&self, action: &Action<'_>) -> PolicyVerdict {
        let fitting = |rule: &&Rule| fits(&rule.tool, &action.tool.name) && fits(&rule.actor, action.actor);
        let Some(rule) = self.0.iter().find(fitting) else { return PolicyVerdict::Allow };
        match &rule.says {
            Says::Allow => PolicyVerdict::Allow,
            Says::Deny { reason } => PolicyVerdict::Deny { rule: rule.name.clone(), reason: reason.clone() },
            Says::Ask { approvals, approvers, other_than_requester } => PolicyVerdict::Ask(Demand {
                needed: (*approvals).max(1),
                approvers: approvers.clone(),
                other_than_requester: *other_than_requester,
                expires_seconds: None,
                also: Vec::new(),
                reason: format!("the rule {} demands approval", rule.name),
            }),
        }
    }

    fn risk(&self, tool: &Spec, input: &Value) -> u32 {
        let level = match tool.metadata.risk_level {
            Risk::Low => 0,
            Risk::Medium => 20,
            Risk::High => 40,
        };
        let reach = match tool.effect {
            Reach::Pure => 0,
            Reach::Read => 5,
            Reach::Write => 15,
        };
        let destructive = if names_destruction(input) { 30 } else { 0 };
        level + reach + destructive
    }
}

/// Whether a destructive word stands in any text of the document, at any depth.
fn names_destruction(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let text = text.to_ascii_lowercase();
            DESTRUCTIVE.iter().any(|word| {
                text.match_indices(word).any(|(at, _)| {
                    let outside = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
                    outside(text[..at].chars().next_back()) && outside(text[at + word.len()..].chars().next())
                })
            })
        }
        Value::Array(items) => items.iter().any(names_destruction),
        Value::Object(members) => members.values().any(names_destruction),
        _ => false,
    }
}
