//! The outputs of every type of node are what the checker expects of them.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::air::Graph;
use chimera_core::flow::expr::Type;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::ToolError;
use chimera_testkit::flow::{Air, EngineFixture, ScriptedTool, code_of, stage, workflow};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const SILENT: Level = Level::ExecuteSilent;

/// Why a value is not what the type says, if so. A closed object has exactly the members of its type.
fn difference(value: &Value, known: &Type, at: &str) -> Option<String> {
    match (value, known) {
        (Value::Null, _) | (_, Type::Any) => None,
        (Value::Array(items), Type::List(item)) => {
            items.iter().enumerate().find_map(|(index, value)| difference(value, item, &format!("{at}/{index}")))
        }
        (Value::Object(members), Type::Object(shape)) => {
            let unknown = members.keys().find(|name| !shape.open && !shape.named.contains_key(*name));
            let missing = shape.named.keys().find(|name| !members.contains_key(*name));
            let inside = |(name, value): (&String, &Value)| {
                shape.named.get(name).and_then(|known| difference(value, known, &format!("{at}/{name}")))
            };
            let unknown = unknown.map(|name| format!("{at}/{name} is not declared"));
            unknown
                .or(missing.map(|name| format!("{at}/{name} is missing")))
                .or_else(|| members.iter().find_map(inside))
        }
        (value, known) => {
            let found = Type::from_value(value);
            (found != *known).then(|| format!("{at} is {found}, not {known}"))
        }
    }
}

async fn graph(stage: &EngineFixture, air: &Air) -> Arc<Graph> {
    stage.flow.workflows().check(&stage.permit("admin"), &air.document().to_string()).await.unwrap()
}

/// Runs the workflow, which returns the outputs of all its nodes, and compares them with their types.
async fn compare(stage: &EngineFixture, air: Air, nodes: &[&str]) -> Value {
    let outputs: BTreeMap<&str, String> =
        nodes.iter().map(|node| (*node, format!("${{nodes.{node}.outputs}}"))).collect();
    let air = air.with("outputs", json!(outputs));
    let graph = graph(stage, &air).await;
    let run = stage.run(&air, SILENT).await;
    if air.document().to_string().contains("hitl") {
        stage.status(run, "awaiting_approval").await;
        stage.approve("user_ann", run).await;
    }
    let shown = stage.ended(run).await;
    assert_eq!(shown["status"], "completed", "{shown:#}");
    for node in nodes {
        let known = &graph.nodes[graph.position(node).unwrap()].output_type;
        assert_ne!(*known, Type::Any, "{node}");
        assert_eq!(difference(&shown["result"][node], known, node), None, "{shown:#}");
    }
    assert_eq!(difference(&shown["result"], &graph.output_type, ""), None, "{shown:#}");
    shown["result"].clone()
}

/// A tool whose output schema says everything.
fn measuring(name: &'static str) -> ScriptedTool {
    let output = json!({
        "type": "object", "additionalProperties": false, "required": ["n", "words"],
        "properties": {"n": {"type": "integer"}, "words": {"type": "array", "items": {"type": "string"}}},
    });
    ScriptedTool::new(name, EffectKind::Pure)
        .answers(|_, _| Ok(json!({"n": 3, "words": ["a", "b"]})))
        .with_declaration(|tool| tool.output = output)
}

#[tokio::test(start_paused = true)]
async fn the_outputs_of_a_run_have_the_declared_shape_for_every_type_of_node() {
    let stage = stage(1).tool(measuring("measure").build()).open().await;
    let called = workflow("function").function("f", "measure", json!({}));
    compare(&stage, called, &["f"]).await;

    let asked = workflow("hitl").node(json!({"id": "h", "type": "hitl", "prompt": "now?"}));
    let result = compare(&stage, asked, &["h"]).await;
    assert_eq!((&result["h"]["decision"], &result["h"]["approved_by"]), (&json!("approve"), &json!(["user_ann"])));

    let each = |over: Value| workflow("map").map("m", over, "measure", json!({})).in_parallel(2);
    compare(&stage, each(json!([1, 2, 3])), &["m"]).await;
    compare(&stage, each(json!([])), &["m"]).await;

    stage
        .apply(
            &workflow("typed")
                .function("f", "measure", json!({}))
                .with("outputs", json!({"n": "${nodes.f.outputs.n}"})),
        )
        .await;
    stage.apply(&workflow("sinks").function("f", "measure", json!({}))).await;
    for child in ["typed", "sinks"] {
        compare(&stage, workflow("workflow").child("w", child, json!({})), &["w"]).await;
        let all = json!({"id": "m", "type": "map", "over": [1, 2], "do": {"type": "workflow", "workflow_id": child}});
        compare(&stage, workflow("maps").node(all), &["m"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_failed_node_has_the_declared_shape() {
    let broken = measuring("broken").answers(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "no")));
    let stage = stage(1).tool(broken.build()).open().await;
    let members = ["code", "message", "error_type"].map(|name| format!("nodes.f.outputs.error.{name}")).join(" + ");
    let text = format!(
        "${{{members} + string(nodes.f.outputs.error.retryable) + string(size(nodes.f.outputs.error.details))}}"
    );
    let air = workflow("w")
        .node(json!({"id": "f", "type": "function", "fn": "broken", "inputs": {}}))
        .function("rescue", "pure", json!({"text": text}))
        .edge_if("f", "rescue", "${!nodes.f.outputs.success}");
    let run = stage.run(&air, SILENT).await;
    let shown = stage.ended(run).await;
    assert_eq!(shown["result"]["rescue"]["echo"]["text"], "VALIDATION_FAILEDnovalidation_errorfalse0", "{shown:#}");
    let wrong = air.function("more", "pure", json!({"text": "${nodes.f.outputs.error.mesage}"})).edge("f", "more");
    let refused = stage.flow.workflows().check(&stage.permit("admin"), &wrong.document().to_string()).await;
    assert_eq!(code_of(refused), "VALIDATION_FAILED");
}
