//! What a run asks of whoever judges it: may this call be made, how risky is it, how freely may the run go on.
//!
//! The run knows the questions and the shape of the answers. Scopes, rules and weights, which make the answers, stand in
//! the room `act`.

use crate::access::Level;
use crate::flow::plan::Plan;
use crate::flow::risk::Score;
use crate::flow::run::Demand;
use crate::limits::PLAN_STEPS_FREE_MAX;
use crate::time::Timestamp;
use crate::tool::{Class, Spec};
use crate::words::words;
use serde_json::Value;

words! {
    /// What decided the level, as the ledger has it.
    #[derive(Hash)]
    Because {
        /// The request asked for it, and the actor may override.
        Override = "override",
        /// The request asked for more supervision than it needs.
        AskedForLess = "asked_for_less",
        /// A tool demands approval.
        ToolRequiresApproval = "tool_requires_approval",
        /// It is the actor's default.
        ActorDefault = "actor_default",
        /// The actor has no default, and the risk score says so.
        RiskScore = "risk_score",
        /// A tool can do much harm.
        HighRiskTool = "high_risk_tool",
        /// Something is deleted.
        Deletes = "deletes",
        /// Somebody outside the tenant's domains gets a message.
        MessageToOutsiders = "message_to_outsiders",
        /// The plan has too many steps.
        ManySteps = "many_steps",
        /// This actor never acts in silence.
        UntrustedActor = "untrusted_actor",
        /// It was never done before.
        FirstTime = "first_time",
    }
}

/// A level, and what decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// How freely the run may act.
    pub level: Level,
    /// Why not more freely.
    pub because: Because,
}

/// What is about to be done, for whoever judges it.
#[derive(Clone, Copy, Debug)]
pub struct Action<'a> {
    /// Whose run it is.
    pub tenant: &'a str,
    /// Who asked for the run.
    pub actor: &'a str,
    /// How freely it may act.
    pub level: Level,
    /// The node.
    pub node: &'a str,
    /// The tool.
    pub tool: &'a Spec,
    /// The exact input.
    pub input: &'a Value,
}

impl Action<'_> {
    /// Whether it deletes something.
    #[must_use]
    pub fn deletes(&self) -> bool {
        self.tool.class_of(self.input) == Class::Delete
    }
}

/// What a policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyVerdict {
    /// It may happen.
    Allow,
    /// It may happen once people approved.
    Ask(Demand),
    /// It may not happen.
    Deny {
        /// The rule.
        rule: String,
        /// Its reason.
        reason: String,
    },
}

/// A run of which more calls are known than when its level was decided.
#[derive(Clone, Copy, Debug)]
pub struct Grown<'a> {
    /// Who asked for the run.
    pub actor: &'a str,
    /// The level that it has.
    pub level: Level,
    /// The request asked for that level, by an actor that could override.
    pub overridden: bool,
    /// How many calls it makes, as far as that is known by now.
    pub calls: usize,
    /// How risky they are together.
    pub score: &'a Score,
    /// The tools of its graph.
    pub tools: &'a [&'a Spec],
    /// Why one of the calls that have come to be known needs a person at every level.
    pub cap: Option<Because>,
}

impl Grown<'_> {
    /// The level that the cap on many calls leaves.
    #[must_use]
    pub fn capped(&self) -> Decided {
        let level = if self.calls > PLAN_STEPS_FREE_MAX { self.level.min(Level::Draft) } else { self.level };
        Decided { level, because: Because::ManySteps }
    }
}

/// The rules of the moment. Asked again each time a call is about to be made.
pub trait Policy: Send + Sync {
    /// Judges one call.
    fn judge(&self, action: &Action<'_>) -> PolicyVerdict;

    /// Judges one call for somebody who had a part in it beside the actor of the run and did not write the call itself: they
    /// wrote the workflow, or something that the call works with. What they may call does not matter, so that losing a scope
    /// does not stop the runs of others.
    fn judge_part(&self, action: &Action<'_>) -> PolicyVerdict {
        self.judge(action)
    }

    /// Whether somebody who approved may still decide about what `requester` asked for. Asked when what they approved
    /// is about to be done.
    fn may_decide(&self, _tenant: &str, _person: &str, _requester: &str) -> bool {
        true
    }

    /// Since when a name is that of whoever has it now. What was said under the name before is somebody else's. None: nobody
    /// else had it, as far as the registry knows.
    fn held_since(&self, _actor: &str) -> Option<Timestamp> {
        None
    }

    /// Whether two names are one person's, who counts once and decides about nothing that they asked for themselves.
    fn is_same_person(&self, one: &str, other: &str) -> bool {
        one == other
    }

    /// How risky one call is.
    fn score_call(&self, tool: &Spec, input: &Value) -> Score;

    /// How risky a plan is as a whole. A tool that is not among `tools` is unknown.
    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score;

    /// The level that a run would get if it were asked for with what is known by now.
    fn level(&self, grown: &Grown<'_>) -> Decided {
        grown.capped()
    }

    /// Why this call needs a person at every level, if it does. The level was decided by inputs that were not
    /// all known; this is asked about the real one.
    fn cap(&self, action: &Action<'_>) -> Option<Because> {
        action.deletes().then_some(Because::Deletes)
    }
}
