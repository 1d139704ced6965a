//! How a goal in words becomes a plan.

use async_trait::async_trait;
use chimera_core::act::PlanError;
use chimera_core::flow::plan::Plan;
use chimera_core::tool::Spec;
use serde_json::Value;
use std::sync::Arc;

/// A planner.
///
/// **Tools.** It plans with the tools it is given and no others. They may be more than the actor
/// may use: whether it may is decided about the plan, so that a missing scope is not told as a
/// missing tool.
/// **Steps.** They are named `s1`, `s2`, … in their order. An input may hold
/// `${nodes.<id>.outputs.…}` of an earlier step; any other `${` is written `$${`.
/// **Inputs.** Members of `inputs`, an object or null, fill inputs of the same name. What is neither
/// there nor in the goal nor given by an earlier step is missing; nothing is made up.
/// **Harmless.** It calls no tool and changes nothing; its plan is a proposal that the door checks.
/// **Bounded.** It gives at most `PLAN_STEPS_MAX` steps and an answer in bounded time; a goal longer
/// than `GOAL_CHARS_MAX` is refused.
/// **Repeatable or not.** The same question may have another answer later; whoever needs the first
/// one keeps it.
#[async_trait]
pub trait Planner: Send + Sync {
    /// A plan for the goal, or what is missing.
    async fn plan(&self, goal: &str, inputs: &Value, tools: &[Arc<Spec>]) -> Result<Plan, PlanError>;
}
