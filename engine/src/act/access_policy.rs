//! The policy behind every request and every dispatched call: the actor's current scopes, then the rules, and the risk
//! of a call.
//!
//! Every call of a run is evaluated again: a scope that was revoked since the start stops it. A rule engine can replace
//! the configured rules behind the same port.

use crate::access::{AUTONOMY_OVERRIDE, Directory};
use chimera_core::access::scope;
use chimera_core::act::{AutonomyFacts, determine_autonomy_level, risk};
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Because, ExpandedRun, LevelDecision, Policy, PolicyVerdict};
use chimera_core::flow::reservation::Limit;
use chimera_core::flow::risk::Score;
use chimera_core::tool::Spec;
use serde_json::Value;
use std::sync::Arc;

pub struct AccessPolicy<R> {
    directory: Arc<Directory>,
    rules: R,
}

impl<R: Policy> AccessPolicy<R> {
    #[must_use]
    pub const fn new(directory: Arc<Directory>, rules: R) -> Self {
        Self { directory, rules }
    }

    /// The verdict of the rules, which name a tenant by its slug.
    fn evaluate_rules(&self, action: &Action<'_>) -> PolicyVerdict {
        if action.tenant == self.directory.settings.tenant {
            return self.rules.evaluate(action);
        }
        let snapshot = self.directory.snapshot();
        self.rules.evaluate(&Action { tenant: snapshot.slug_of(action.tenant), ..*action })
    }
}

impl<R: Policy> Policy for AccessPolicy<R> {
    fn evaluate(&self, action: &Action<'_>) -> PolicyVerdict {
        let entry = self.directory.snapshot().registry.resolve(action.actor);
        let deny = |rule: &str, reason: String| PolicyVerdict::Deny { rule: rule.to_owned(), reason };
        if let Err(refused) = self.directory.check_enabled(action.tenant) {
            return deny("tenant.disabled", refused.message);
        }
        if entry.disabled {
            return deny("actor.disabled", "the actor is disabled".to_owned());
        }
        if !self.directory.is_valid_in(&entry, action.tenant) {
            return deny("actor.tenant", "the actor belongs to another tenant".to_owned());
        }
        match scope::missing(&entry.scopes, action.tool, self.directory.settings.strict_scopes) {
            Some(scope) => deny("scopes", format!("the actor lacks the scope {scope}")),
            None => self.evaluate_rules(action),
        }
    }

    /// Contributors may be gone: workflows and notes outlive their authors, so only the rules apply. The author of the
    /// call itself counts like the actor of the run.
    fn evaluate_contributor(&self, action: &Action<'_>) -> PolicyVerdict {
        self.evaluate_rules(action)
    }

    fn has_limits(&self) -> bool {
        self.rules.has_limits()
    }

    fn limits(&self, action: &Action<'_>) -> Vec<Limit> {
        if action.tenant == self.directory.settings.tenant {
            return self.rules.limits(action);
        }
        let snapshot = self.directory.snapshot();
        self.rules.limits(&Action { tenant: snapshot.slug_of(action.tenant), ..*action })
    }

    fn may_decide(&self, tenant: &str, person: &str, requester: &str) -> bool {
        self.directory.exclusion_reason(tenant, person, requester).is_none()
    }

    fn is_same_person(&self, one: &str, other: &str) -> bool {
        self.directory.snapshot().registry.is_same_person(one, other)
    }

    fn score_call(&self, tool: &Spec, input: &Value) -> Score {
        risk::score_call(tool, input)
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }

    fn level(&self, grown: &ExpandedRun<'_>) -> LevelDecision {
        let entry = self.directory.snapshot().registry.resolve(grown.actor);
        let may_override = scope::check_scope(&entry.scopes, AUTONOMY_OVERRIDE);
        let facts = AutonomyFacts {
            actor: grown.actor,
            default: entry.level,
            may_override,
            // An override scope counts only if it was used when the run was requested, with the token of that request.
            requested: (grown.overridden && may_override).then_some(grown.level),
            tools: grown.tools,
            deletes: grown.cap == Some(Because::Deletes),
            messages_outsiders: grown.cap == Some(Because::MessageToOutsiders),
            steps: grown.calls,
            score: grown.score,
            // First-time caution was applied when the run started.
            cautious: false,
            first_time: false,
        };
        let decided = determine_autonomy_level(&facts)
            .unwrap_or_else(|forbidden| LevelDecision { level: forbidden.granted, reason: Because::ActorDefault });
        LevelDecision { level: decided.level.min(grown.level), ..decided }
    }

    fn mandatory_approval_reason(&self, action: &Action<'_>) -> Option<Because> {
        let outside = || self.directory.tenant(action.tenant).messages_outsiders(action.tool, action.input);
        match action.deletes() {
            true => Some(Because::Deletes),
            false => outside().then_some(Because::MessageToOutsiders),
        }
    }
}
