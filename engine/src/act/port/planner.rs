//! The port of the planner.

use async_trait::async_trait;
use chimera_core::act::PlanError;
use chimera_core::flow::plan::Plan;
use chimera_core::tool::Spec;
use serde_json::Value;
use std::sync::Arc;

/// Turns a goal in natural language into a plan.
///
/// **Tools.** It uses the given tools and no others. They may exceed what the actor may use: access is checked on the
/// plan, so that a missing scope is not reported as a missing tool.
/// **Steps.** They are named `s1`, `s2`, … in order. An input may hold `${nodes.<id>.outputs.…}` of an earlier step;
/// any other `${` is written `$${`.
/// **Inputs.** Members of `inputs`, an object or null, fill inputs of the same name. What is neither there nor in the
/// goal nor an output of an earlier step is missing; nothing is made up.
/// **Harmless.** It calls no tool and changes nothing; its plan is a proposal that is checked before it runs.
/// **Bounded.** It returns at most `PLAN_STEPS_MAX` steps in bounded time. A goal longer than `GOAL_CHARS_MAX` is
/// refused.
/// **Not repeatable.** The same goal may give another plan later; a caller that needs the first one stores it.
#[async_trait]
pub trait Planner: Send + Sync {
    /// A plan for the goal, or what it lacks.
    async fn plan(&self, goal: &str, inputs: &Value, tools: &[Arc<Spec>]) -> Result<Plan, PlanError>;
}
