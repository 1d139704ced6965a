//! The autonomy level of a plan, and what determines it.
//!
//! The level is the minimum of a choice and the caps. The choice is the requested level if the actor may override;
//! else a tool that requires approval decides; else the actor's default; else the risk score. The caps always apply:
//! a high-risk tool, a deletion, a message to outsiders, too many steps, an actor that may not act silently, and, if
//! enabled, something done for the first time.
//!
//! Requesting more supervision is always allowed. Requesting less without the permission is refused rather than
//! silently ignored.

use crate::access::Level;
use crate::access::registry::is_never_silent;
use crate::flow::policy::{Because, LevelDecision};
use crate::flow::risk::Score;
use crate::limits::PLAN_STEPS_FREE_MAX;
use crate::tool::{Risk, Spec};

/// The facts that determine the level.
#[derive(Clone, Copy, Debug)]
pub struct AutonomyFacts<'a> {
    pub actor: &'a str,
    /// The default level of the actor, if the registry has one.
    pub default: Option<Level>,
    /// Whether the actor holds the scope `autonomy.override`.
    pub may_override: bool,
    pub requested: Option<Level>,
    pub tools: &'a [&'a Spec],
    /// Whether a call of the plan deletes something.
    pub deletes: bool,
    /// Whether a message goes to a destination outside the tenant's domains.
    pub messages_outsiders: bool,
    pub steps: usize,
    pub score: &'a Score,
    /// Whether first-time plans are drafted. Off by default.
    pub cautious: bool,
    /// Whether the actor never completed this exact workflow with these child workflows.
    pub first_time: bool,
}

/// The requested level is above the granted one, and the actor may not override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} needs the scope autonomy.override; without it this plan gets {}", .asked.as_str(), .granted.as_str())]
pub struct OverrideForbidden {
    pub asked: Level,
    /// The level without a request.
    pub granted: Level,
}

/// Determines the autonomy level of a plan. A forbidden override becomes `RBAC_FORBIDDEN`.
pub fn determine_autonomy_level(facts: &AutonomyFacts<'_>) -> Result<LevelDecision, OverrideForbidden> {
    match facts.requested {
        Some(level) if facts.may_override => Ok(facts.apply_caps(LevelDecision { level, reason: Because::Override })),
        Some(asked) => {
            let LevelDecision { level: granted, reason: because } = facts.apply_caps(facts.choose());
            match asked {
                asked if asked > granted => Err(OverrideForbidden { asked, granted }),
                asked if asked < granted => Ok(LevelDecision { level: asked, reason: Because::AskedForLess }),
                level => Ok(LevelDecision { level, reason: because }),
            }
        }
        None => Ok(facts.apply_caps(facts.choose())),
    }
}

impl AutonomyFacts<'_> {
    /// The level before the caps, if the request does not decide it.
    fn choose(&self) -> LevelDecision {
        if self.tools.iter().any(|tool| tool.metadata.requires_approval) {
            let level = if self.default == Some(Level::Ask) { Level::Ask } else { Level::Draft };
            return LevelDecision { level, reason: Because::ToolRequiresApproval };
        }
        match self.default {
            Some(level) => LevelDecision { level, reason: Because::ActorDefault },
            None => {
                let level = match self.score.band() {
                    Risk::Low => Level::ExecuteNotify,
                    Risk::Medium => Level::Draft,
                    Risk::High => Level::Ask,
                };
                LevelDecision { level, reason: Because::RiskScore }
            }
        }
    }

    /// The minimum of a choice and all caps that apply. The first cap that lowers it is the reason.
    fn apply_caps(&self, choice: LevelDecision) -> LevelDecision {
        let high = self.tools.iter().any(|tool| tool.metadata.risk_level == Risk::High);
        let untrusted = is_never_silent(self.actor);
        let caps = [
            (high, Level::Draft, Because::HighRiskTool),
            (self.deletes, Level::Draft, Because::Deletes),
            (self.messages_outsiders, Level::Draft, Because::MessageToOutsiders),
            (self.steps > PLAN_STEPS_FREE_MAX, Level::Draft, Because::ManySteps),
            (self.cautious && self.first_time, Level::Draft, Because::FirstTime),
            (untrusted, Level::ExecuteNotify, Because::UntrustedActor),
        ];
        let holding = caps.into_iter().filter(|(holds, ..)| *holds);
        holding.fold(
            choice,
            |decided, (_, level, because)| {
                if level < decided.level { LevelDecision { level, reason: because } } else { decided }
            },
        )
    }
}
