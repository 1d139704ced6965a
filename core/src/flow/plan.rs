//! A plan: tool calls in order.
//!
//! A goal, a list of steps and a workflow all become a plan before anything is decided about them.
//! An input may contain `${nodes.<id>.outputs.…}`, the output of an earlier step.

use crate::flow::expr::is_deferred;
use crate::json::Digest32;
use crate::limits::PLAN_CALLS_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Tool calls, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub steps: Vec<PlanStep>,
    /// Whether there are more calls than `steps` lists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanStep {
    /// The name that later steps refer to: `s1`, `s2`, …. `each[0]` is an item of a map, `child/a` a step of a
    /// child workflow.
    #[serde(rename = "step_id")]
    pub id: String,
    pub tool: String,
    pub input: Value,
}

/// A plan compiled to a workflow and its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct CompiledPlan {
    /// Derived from the document: plans with the same tools and the same data flow share it.
    pub workflow_id: String,
    /// The AIR document.
    pub document: Value,
    /// The inputs of the run.
    pub inputs: Value,
}

impl Plan {
    /// The number of calls. A plan that was not fully expanded counts as more than any cap allows.
    #[must_use]
    pub fn calls(&self) -> usize {
        if self.more { self.steps.len().max(PLAN_CALLS_MAX) + 1 } else { self.steps.len() }
    }

    /// Compiles the plan to a sequential workflow. An input without an expression is data and stays out
    /// of the document, so plans that differ only in their data share a workflow. An input with one is a template
    /// as a whole.
    #[must_use]
    pub fn compile(&self, prefix: &str) -> CompiledPlan {
        let mut inputs = Map::new();
        let nodes: Vec<Value> = self
            .steps
            .iter()
            .map(|step| {
                let given = if has_expression(&step.input) {
                    step.input.clone()
                } else {
                    let (given, data) = split_data(&step.id, &step.input);
                    inputs.insert(step.id.clone(), data);
                    given
                };
                json!({"id": step.id, "type": "function", "fn": step.tool, "inputs": given})
            })
            .collect();
        let edges: Vec<Value> =
            self.steps.windows(2).map(|pair| json!({"from": pair[0].id, "to": pair[1].id})).collect();
        let mut document = json!({"air_version": "1.0", "nodes": nodes, "edges": edges});
        let digest = Digest32::of(&document).0;
        let workflow_id = format!("{prefix}{}", hex::encode(&digest[..16]));
        document["workflow_id"] = workflow_id.as_str().into();
        CompiledPlan { workflow_id, document, inputs: inputs.into() }
    }
}

/// Splits the input of a step into references and data. A reference names the member, or its position if
/// the name is not a valid identifier.
fn split_data(step: &str, input: &Value) -> (Value, Value) {
    let Value::Object(members) = input else { return (input.clone(), Value::Null) };
    let plain = |name: &String| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.chars().all(word) && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    };
    if members.keys().all(plain) {
        let refer = |name: &String| (name.clone(), format!("${{inputs.{step}[\"{name}\"]}}").into());
        return (Value::Object(members.keys().map(refer).collect()), input.clone());
    }
    let refer = |(at, name): (usize, &String)| (name.clone(), format!("${{inputs.{step}[{at}]}}").into());
    let given = members.keys().enumerate().map(refer).collect();
    (Value::Object(given), members.values().cloned().collect())
}

/// Whether the value at a JSON pointer of a step's input is known before the run. What is not known yet is an expression,
/// a marker in its place, or a part of one.
#[must_use]
pub fn is_known(input: &Value, pointer: &str) -> bool {
    let ends = pointer.match_indices('/').map(|(at, _)| at).chain([pointer.len()]);
    let mut parts = ends.filter_map(|end| input.pointer(&pointer[..end]));
    !parts.any(|part| is_deferred(part) || part.as_str().is_some_and(|text| text.contains("${")))
}

/// Whether any string or member name contains an expression.
fn has_expression(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${"),
        Value::Array(items) => items.iter().any(has_expression),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains("${") || has_expression(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(steps: &[(&str, Value)]) -> Plan {
        let steps = steps.iter().enumerate().map(|(at, (tool, input))| PlanStep {
            id: format!("s{}", at + 1),
            tool: (*tool).to_owned(),
            input: input.clone(),
        });
        Plan { steps: steps.collect(), more: false }
    }

    #[test]
    fn a_value_is_known_unless_it_or_what_holds_it_is_yet_to_come() {
        let input = json!({"a": 1, "b": "${nodes.s1.outputs.b}", "c": {"d": {"$deferred": {}}}, "e": [{"f": "g"}]});
        for (pointer, known) in [
            ("/a", true),
            ("/b", false),
            ("/b/x", false),
            ("/c/d/e", false),
            ("/c/f", true),
            ("/e/0/f", true),
            ("/x", true),
        ] {
            assert_eq!(is_known(&input, pointer), known, "{pointer}");
        }
        assert!(!is_known(&json!({"$deferred": {}}), "/a"));
    }

    #[test]
    fn data_stays_out_of_the_document_and_references_stay_in() {
        let compiled = plan(&[("a", json!({"x": 1})), ("b", json!({"y": "${nodes.s1.outputs.z}"}))]).compile("act.");
        assert_eq!(compiled.inputs, json!({"s1": {"x": 1}}));
        assert_eq!(compiled.document["nodes"][0]["inputs"], json!({"x": "${inputs.s1[\"x\"]}"}));
        let odd = plan(&[("a", json!({"a b": 1, "\"] + x[\"": 2}))]).compile("act.");
        let given = json!({"a b": "${inputs.s1[1]}", "\"] + x[\"": "${inputs.s1[0]}"});
        assert_eq!((&odd.document["nodes"][0]["inputs"], &odd.inputs), (&given, &json!({"s1": [2, 1]})));
        assert_eq!(compiled.document["nodes"][1]["inputs"], json!({"y": "${nodes.s1.outputs.z}"}));
        assert_eq!(compiled.document["edges"], json!([{"from": "s1", "to": "s2"}]));
        let other = plan(&[("a", json!({"x": 2})), ("b", json!({"y": "${nodes.s1.outputs.z}"}))]).compile("act.");
        assert_eq!(other.workflow_id, compiled.workflow_id);
        let another = plan(&[("a", json!({"x": 2})), ("b", json!({"y": "${nodes.s1.outputs.w}"}))]).compile("act.");
        assert_ne!(another.workflow_id, compiled.workflow_id);
    }
}
