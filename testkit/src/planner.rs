//! A planner for tests that understands one verb and one quoted text.

use async_trait::async_trait;
use chimera_core::act::PlanError;
use chimera_core::flow::plan::{Plan, PlanStep};
use chimera_core::tool::Spec;
use chimera_engine::act::port::Planner;
use serde_json::{Value, json};
use std::sync::Arc;

/// Plans `Verb "text"` as one call of `local.verb`, if there is such a tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct VerbPlanner;

#[async_trait]
impl Planner for VerbPlanner {
    async fn plan(&self, goal: &str, _: &Value, tools: &[Arc<Spec>]) -> Result<Plan, PlanError> {
        let verb = goal.split(' ').next().unwrap_or_default().to_lowercase();
        let name = format!("local.{verb}");
        let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
            return Err(PlanError::NoTool { wanted: goal.to_owned() });
        };
        let Some(text) = goal.split('"').nth(1) else {
            let hint = format!("{verb} \"…\"");
            return Err(PlanError::MissingInput { tool: tool.name.clone(), input: "text".to_owned(), hint });
        };
        let step = PlanStep { id: "s1".to_owned(), tool: tool.name.clone(), input: json!({ "text": text }) };
        Ok(Plan { steps: vec![step], more: false })
    }
}
