//! The policy port of a run: may this call be made, how risky is it, at which autonomy level may the run continue.
//!
//! This file defines the questions and the types of the answers. The scopes, rules and risk weights that decide are in
//! the room `act`.

use crate::access::Level;
use crate::flow::plan::Plan;
use crate::flow::reservation::Limit;
use crate::flow::risk::Score;
use crate::flow::run::ApprovalRequirement;
use crate::limits::PLAN_STEPS_FREE_MAX;
use crate::tool::{CallClass, Spec};
use crate::words::words;
use serde_json::Value;

words! {
    /// What decided the autonomy level, as recorded in the ledger.
    #[derive(Hash)]
    Because {
        /// The request set it, and the actor may override.
        Override = "override",
        /// The request asked for more supervision than required.
        AskedForLess = "asked_for_less",
        /// A tool requires approval.
        ToolRequiresApproval = "tool_requires_approval",
        ActorDefault = "actor_default",
        /// The actor has no default, so the risk score decides.
        RiskScore = "risk_score",
        HighRiskTool = "high_risk_tool",
        Deletes = "deletes",
        /// A message goes to a recipient outside the tenant's domains.
        MessageToOutsiders = "message_to_outsiders",
        ManySteps = "many_steps",
        /// This actor may never act without supervision.
        UntrustedActor = "untrusted_actor",
        /// The actor does this for the first time.
        FirstTime = "first_time",
        /// A schedule acts no more freely than when its owner made or last confirmed it.
        Schedule = "schedule",
        /// Somebody else has changed the workflow of a schedule since its owner confirmed it.
        UnconfirmedWorkflow = "unconfirmed_workflow",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelDecision {
    pub level: Level,
    /// Why the level is not higher.
    pub reason: Because,
}

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Action<'a> {
    pub tenant: &'a str,
    /// The requester of the run.
    pub actor: &'a str,
    pub level: Level,
    pub node: &'a str,
    pub tool: &'a Spec,
    /// The exact input, with all expressions rendered.
    pub input: &'a Value,
}

impl Action<'_> {
    #[must_use]
    pub fn deletes(&self) -> bool {
        self.tool.call_class(self.input) == CallClass::Delete
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyVerdict {
    Allow,
    /// Allowed after approval.
    Ask(ApprovalRequirement),
    Deny {
        rule: String,
        reason: String,
    },
}

/// A run with more known calls than when its level was decided.
#[derive(Clone, Copy, Debug)]
pub struct ExpandedRun<'a> {
    /// The requester of the run.
    pub actor: &'a str,
    /// The current level.
    pub level: Level,
    /// Whether an actor with the right to override set that level in the request.
    pub overridden: bool,
    /// The number of calls known so far.
    pub calls: usize,
    /// The risk of all known calls together.
    pub score: &'a Score,
    /// The tools of its graph.
    pub tools: &'a [&'a Spec],
    /// Why one of the newly known calls needs a person at every level.
    pub cap: Option<Because>,
}

impl ExpandedRun<'_> {
    /// The level after the cap on the number of calls.
    #[must_use]
    pub fn apply_call_cap(&self) -> LevelDecision {
        let level = if self.calls > PLAN_STEPS_FREE_MAX { self.level.min(Level::Draft) } else { self.level };
        LevelDecision { level, reason: Because::ManySteps }
    }
}

/// The rules in force now. Consulted again before every call.
pub trait Policy: Send + Sync {
    /// The verdict without limits over time.
    fn evaluate(&self, action: &Action<'_>) -> PolicyVerdict;

    /// Whether `limits` may return any. If not, calls are made without reading what was counted.
    fn has_limits(&self) -> bool {
        false
    }

    /// The limits over time on a call. The run reads what they have counted so far, and makes the call only if it fits
    /// into all of them.
    fn limits(&self, _action: &Action<'_>) -> Vec<Limit> {
        Vec::new()
    }

    /// The verdict on one call for a contributor: someone other than the run's actor who wrote the workflow or data that
    /// the call uses, but not the call itself. The contributor's scopes are not checked, so losing a scope does not
    /// stop the runs of others.
    fn evaluate_contributor(&self, action: &Action<'_>) -> PolicyVerdict {
        self.evaluate(action)
    }

    /// Whether an approver may still decide about requests of `requester`. Checked just before the approved call is
    /// made.
    fn may_decide(&self, _tenant: &str, _person: &str, _requester: &str) -> bool {
        true
    }

    /// Whether two names are one person's, who counts once and decides about nothing that they asked for themselves.
    fn is_same_person(&self, one: &str, other: &str) -> bool {
        one == other
    }

    fn score_call(&self, tool: &Spec, input: &Value) -> Score;

    /// The risk of a whole plan. A tool that is not in `tools` counts as unknown.
    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score;

    /// The level that the run would get if it were requested now, with everything known so far.
    fn level(&self, grown: &ExpandedRun<'_>) -> LevelDecision {
        grown.apply_call_cap()
    }

    /// Why this call needs a person at every level, if it does. The level was decided before all inputs were known;
    /// this is checked with the actual input.
    fn mandatory_approval_reason(&self, action: &Action<'_>) -> Option<Because> {
        action.deletes().then_some(Because::Deletes)
    }
}
