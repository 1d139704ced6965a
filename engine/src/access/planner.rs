//! The planner that needs no model: it reads the goal's words, and is repeatable.

use crate::port::Planner;
use async_trait::async_trait;
use chimera_core::access::{Plan, PlanError, planner};
use chimera_core::flow::tool::Spec;
use serde_json::Value;
use std::sync::Arc;

/// Plans by the words of a goal and the schemas of the tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordPlanner;

#[async_trait]
impl Planner for WordPlanner {
    async fn plan(&self, goal: &str, inputs: &Value, tools: &[Arc<Spec>]) -> Result<Plan, PlanError> {
        planner::plan(goal, inputs, tools)
    }
}
