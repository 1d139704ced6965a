//! How freely a run may act, and who decides that.
//!
//! The level is the smaller one of a choice and a cap. The choice: a level that the request asks
//! for, by an actor that may override; else a tool that demands approval; else the actor's default;
//! else the risk score. The caps hold on every branch: a high-risk tool, a deletion, a message to
//! outsiders or too many steps, an actor that isn't trusted to act in silence, and, where it is switched on, something done for the first
//! time.
//!
//! Asking for more supervision is always fine; asking for less without the permission is refused,
//! because a request that silently does something else than it says helps nobody.

use crate::access::Level;
use crate::access::registry::never_silent;
use crate::flow::policy::{Because, Decided};
use crate::flow::risk::Score;
use crate::limits::PLAN_STEPS_FREE_MAX;
use crate::tool::{Risk, Spec};

/// What the level is decided by.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Who asks.
    pub actor: &'a str,
    /// The actor's default level, where the registry has one.
    pub default: Option<Level>,
    /// The actor holds the scope `autonomy.override`.
    pub may_override: bool,
    /// The level that the request asks for.
    pub requested: Option<Level>,
    /// The plan's tools.
    pub tools: &'a [&'a Spec],
    /// A call of the plan deletes something.
    pub deletes: bool,
    /// Somebody outside the tenant's domains gets a message.
    pub outsiders: bool,
    /// How many steps the plan has.
    pub steps: usize,
    /// The plan's risk score.
    pub score: &'a Score,
    /// What is done for the first time is drafted. Off unless it is switched on.
    pub cautious: bool,
    /// The actor is new, or never used these tools together.
    pub first_time: bool,
}

/// Somebody asked for a level above their own without the permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} needs the scope autonomy.override; without it this plan gets {}", .asked.as_str(), .granted.as_str())]
pub struct OverrideForbidden {
    /// What was asked for.
    pub asked: Level,
    /// What the plan gets when nothing is asked for.
    pub granted: Level,
}

/// How freely a plan may act. The door answers `RBAC_FORBIDDEN` to a forbidden override.
pub fn determine_autonomy_level(facts: &Facts<'_>) -> Result<Decided, OverrideForbidden> {
    match facts.requested {
        Some(level) if facts.may_override => Ok(facts.capped(Decided { level, because: Because::Override })),
        Some(asked) => {
            let Decided { level: granted, because } = facts.capped(facts.choice());
            match asked {
                asked if asked > granted => Err(OverrideForbidden { asked, granted }),
                asked if asked < granted => Ok(Decided { level: asked, because: Because::AskedForLess }),
                level => Ok(Decided { level, because }),
            }
        }
        None => Ok(facts.capped(facts.choice())),
    }
}

impl Facts<'_> {
    /// The level before the caps, when the request doesn't decide it.
    fn choice(&self) -> Decided {
        if self.tools.iter().any(|tool| tool.metadata.requires_approval) {
            let level = if self.default == Some(Level::Ask) { Level::Ask } else { Level::Draft };
            return Decided { level, because: Because::ToolRequiresApproval };
        }
        match self.default {
            Some(level) => Decided { level, because: Because::ActorDefault },
            None => {
                let level = match self.score.band() {
                    Risk::Low => Level::ExecuteNotify,
                    Risk::Medium => Level::Draft,
                    Risk::High => Level::Ask,
                };
                Decided { level, because: Because::RiskScore }
            }
        }
    }

    /// The smaller one of a choice and every cap that holds. What lowers it first is why.
    fn capped(&self, choice: Decided) -> Decided {
        let high = self.tools.iter().any(|tool| tool.metadata.risk_level == Risk::High);
        let untrusted = never_silent(self.actor);
        let caps = [
            (high, Level::Draft, Because::HighRiskTool),
            (self.deletes, Level::Draft, Because::Deletes),
            (self.outsiders, Level::Draft, Because::MessageToOutsiders),
            (self.steps > PLAN_STEPS_FREE_MAX, Level::Draft, Because::ManySteps),
            (self.cautious && self.first_time, Level::Draft, Because::FirstTime),
            (untrusted, Level::ExecuteNotify, Because::UntrustedActor),
        ];
        let holding = caps.into_iter().filter(|(holds, ..)| *holds);
        holding.fold(
            choice,
            |decided, (_, level, because)| {
                if level < decided.level { Decided { level, because } } else { decided }
            },
        )
    }
}
