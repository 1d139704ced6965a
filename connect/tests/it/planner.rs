//! Goals in plain words against the real tools: the exact plans, the exact errors, and that every plan compiles as a
//! workflow, so that the wired types match.

use crate::fixtures::every_tool;
use chimera_connect::act::WordPlanner;
use chimera_core::act::PlanError;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air;
use chimera_core::flow::plan::Plan;
use chimera_core::tool::Spec;
use chimera_engine::act::port::Planner;
use chimera_engine::flow::{ToolCatalog, ToolRegistry};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;

#[derive(Deserialize)]
struct Goals {
    planned: Vec<Planned>,
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
struct Planned {
    goal: String,
    #[serde(default)]
    inputs: Value,
    steps: Vec<Value>,
}

#[derive(Deserialize)]
struct Refused {
    goal: String,
    #[serde(default)]
    inputs: Value,
    error: Value,
}

/// Typical goals, goals in plain words, and goals that are easily misread.
fn goals() -> [Goals; 3] {
    let texts = [
        include_str!("../data/goals.json"),
        include_str!("../data/goals_plain.json"),
        include_str!("../data/goals_misread.json"),
    ];
    texts.map(|text| serde_json::from_str(text).unwrap())
}

/// Every tool that is bundled with Chimera.
async fn registry(home: &TempDir) -> ToolRegistry {
    let tools = every_tool(home.path()).await;
    let mut registry = ToolRegistry::default();
    tools.into_iter().for_each(|tool| registry.add(tool).unwrap());
    registry
}

fn specs(registry: &ToolRegistry) -> Vec<Arc<Spec>> {
    registry.specs()
}

/// The workflow that runs a plan: one node per step, in sequence.
fn workflow(plan: &Plan) -> Value {
    let nodes: Vec<Value> = plan
        .steps
        .iter()
        .map(|step| json!({"id": step.id, "type": "function", "fn": step.tool, "inputs": step.input}))
        .collect();
    let edges: Vec<Value> = plan.steps.windows(2).map(|pair| json!({"from": pair[0].id, "to": pair[1].id})).collect();
    json!({"air_version": "1.0", "workflow_id": "planned", "nodes": nodes, "edges": edges})
}

#[tokio::test]
async fn a_goal_becomes_exactly_the_plan_that_people_expect() {
    let home = TempDir::new().unwrap();
    let tools = specs(&registry(&home).await);
    let [known, plain, misread] = goals();
    assert!(known.planned.len() >= 40, "{}", known.planned.len());
    assert!(known.planned.iter().filter(|goal| goal.steps.len() > 1).count() * 3 >= known.planned.len());
    assert_eq!((plain.planned.len() >= 40, plain.planned.len() + plain.refused.len()), (true, 60));
    let mut wrong = Vec::new();
    for Planned { goal, inputs, steps } in known.planned.into_iter().chain(plain.planned).chain(misread.planned) {
        let number = |(at, step): (usize, &Value)| json!({"step_id": format!("s{}", at + 1), "tool": step["tool"], "input": step["input"]});
        let expected: Vec<Value> = steps.iter().enumerate().map(number).collect();
        match WordPlanner.plan(&goal, &inputs, &tools).await {
            Ok(plan) if serde_json::to_value(&plan.steps).unwrap() == json!(expected) => {}
            Ok(plan) => wrong.push(format!("{goal}\n  {}", serde_json::to_string(&plan.steps).unwrap())),
            Err(error) => wrong.push(format!("{goal}\n  {error}")),
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn every_plan_compiles_as_a_workflow() {
    let home = TempDir::new().unwrap();
    let registry = registry(&home).await;
    let tools = specs(&registry);
    for Planned { goal, inputs, .. } in goals().into_iter().flat_map(|goals| goals.planned) {
        let plan = WordPlanner.plan(&goal, &inputs, &tools).await.unwrap();
        let document = air::parse(&workflow(&plan).to_string()).unwrap_or_else(|e| panic!("{goal}: {e:?}"));
        if let Err(problems) = air::compile(document, &ToolCatalog::running(&registry)) {
            panic!("{goal}: {problems:?}");
        }
    }
}

#[tokio::test]
async fn a_goal_that_can_not_be_planned_names_what_is_missing() {
    let home = TempDir::new().unwrap();
    let tools = specs(&registry(&home).await);
    let [known, plain, misread] = goals();
    assert!(known.refused.len() >= 15, "{}", known.refused.len());
    assert!(misread.refused.len() >= 150, "{}", misread.refused.len());
    let mut wrong = Vec::new();
    let all = known.refused.into_iter().chain(plain.refused).chain(misread.refused);
    for Refused { goal, inputs, error: expected } in all {
        let error = match WordPlanner.plan(&goal, &inputs, &tools).await {
            Ok(plan) => {
                wrong.push(format!("{goal}\n  planned: {}", serde_json::to_string(&plan.steps).unwrap()));
                continue;
            }
            Err(error) => error,
        };
        let told = serde_json::to_value(&error).unwrap();
        let same = expected.as_object().unwrap().iter().all(|(name, value)| told[name] == *value);
        if !same {
            wrong.push(format!("{goal}\n  {told}"));
        }
        let ErrorBody { code, details, .. } = error.body();
        assert_eq!((code.as_str(), Code::ValidationFailed.status()), (Code::ValidationFailed.as_str(), 422));
        assert_eq!(details["reason"], expected["kind"], "{goal}");
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn a_tool_that_is_not_given_is_not_planned_with() {
    let home = TempDir::new().unwrap();
    let mut tools = specs(&registry(&home).await);
    tools.retain(|spec| spec.name != "slack_post");
    let planned = WordPlanner.plan("Post \"done\" to #ops", &Value::Null, &tools).await;
    assert_eq!(planned, Err(PlanError::NoTool { wanted: "post".to_owned() }));
}

/// A fetched binary body is null, and can't be stored.
#[tokio::test]
async fn an_upload_of_what_is_no_text_is_refused() {
    let home = TempDir::new().unwrap();
    let tools = specs(&registry(&home).await);
    let goal = "Upload https://example.com/logo.png to bucket docs as logo.png";
    let steps = WordPlanner.plan(goal, &Value::Null, &tools).await.unwrap().steps;
    assert_eq!(steps[1].input["content"], "${nodes.s1.outputs.body}");
    let upload = tools.iter().find(|spec| spec.name == steps[1].tool).unwrap();
    let mut input = steps[1].input.clone();
    assert!(upload.input.check(&input).is_ok());
    input["content"] = Value::Null;
    assert!(upload.input.check(&input).is_err());
}
