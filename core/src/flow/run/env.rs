//! What a run is given when it decides: the time, fresh ids, free slots, the policy of the moment.

use super::Owner;
use super::demand::Demand;
use super::event::At;
use crate::access::risk::Score;
use crate::access::{Because, Decided, Level};
use crate::flow::air::Catalog;
use crate::flow::tool::{Class, Spec};
use crate::limits::PLAN_STEPS_FREE_MAX;
use crate::time::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// The world as a run sees it in one turn.
pub struct Env<'a> {
    /// What time it is.
    pub now: Timestamp,
    /// Gives a fresh, time-ordered id.
    pub ids: &'a mut dyn FnMut() -> Uuid,
    /// Who may call a tool now.
    pub gate: &'a mut dyn Gate,
    /// What the rules say.
    pub policy: &'a dyn Policy,
    /// Tools and workflows that a patch may name.
    pub catalog: &'a dyn Catalog,
    /// The lane that this turn is committed through: without one nothing is decided.
    pub owner: Owner,
}

/// What a slot is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// Which run.
    pub run: Uuid,
    /// Where in it.
    pub at: At,
    /// Whose it is.
    pub tenant: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// What it is called with, if the call may reach outside: the tool knows which host that is.
    pub input: Option<&'a Value>,
    /// One is most urgent, ten least.
    pub priority: i32,
}

/// Bounds how many calls are under way.
pub trait Gate {
    /// Takes a slot, or remembers who wants one: then the run gets a `Tick` when one is free.
    fn enter(&mut self, slot: Slot<'_>) -> bool;

    /// All that a run can do is wait for slots that it asked for. Gives in how many seconds it is to be
    /// looked at again if it need not stay in memory until then; when a slot is kept for it before
    /// that, it is taken up.
    fn park(&mut self, _run: Uuid) -> Option<i64> {
        None
    }
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
pub enum Verdict {
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
    fn judge(&self, action: &Action<'_>) -> Verdict;

    /// Judges one call for somebody who had a part in it beside the actor of the run and did not write the call itself: they
    /// wrote the workflow, or something that the call works with. What they may call does not matter, so that losing a scope
    /// does not stop the runs of others.
    fn judge_part(&self, action: &Action<'_>) -> Verdict {
        self.judge(action)
    }

    /// Whether somebody who approved may still decide about what `requester` asked for. Asked when what they approved
    /// is about to be done.
    fn may_decide(&self, _tenant: &str, _person: &str, _requester: &str) -> bool {
        true
    }

    /// How risky a call is, from zero.
    fn risk(&self, tool: &Spec, input: &Value) -> u32;

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
