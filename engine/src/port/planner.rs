//! Planning: from a goal in words to calls of tools.

use async_trait::async_trait;
use chimera_core::access::Plan;
use chimera_core::error::ErrorBody;
use chimera_core::flow::tool::Spec;
use serde_json::Value;
use std::sync::Arc;

/// Makes plans.
#[async_trait]
pub trait Planner: Send + Sync {
    /// The calls that reach a goal.
    async fn plan(&self, goal: &str, inputs: &Value, tools: &[Arc<Spec>]) -> Result<Plan, ErrorBody>;
}
