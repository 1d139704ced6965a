//! What somebody wants done, as calls of tools in their order.
//!
//! A goal in words, a list of steps and a workflow all become one before anything is decided about
//! them. An input may hold `${nodes.<id>.outputs.…}`: what an earlier step gives.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Calls of tools, in their order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The calls.
    pub steps: Vec<PlanStep>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanStep {
    /// How later steps name it: `s1`, `s2`, …
    #[serde(rename = "step_id")]
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// What it is given.
    pub input: Value,
}
