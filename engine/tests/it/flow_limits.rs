//! Limits over time: a limited call is counted before it is made, once, and not beyond its limit.

use chimera_core::access::Level;
use chimera_core::flow::call::ToolError;
use chimera_core::flow::reservation::RESERVATIONS;
use chimera_core::tool::EffectKind;
use chimera_engine::act::rules::{Rule, Rules};
use chimera_engine::flow::{Decision, StartRun};
use chimera_testkit::flow::{EngineFixture, ScriptedTool, code_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

fn rules(rule: Value) -> Rules {
    Rules(vec![serde_json::from_value::<Rule>(rule).unwrap()])
}

fn at_most(count: u32, by: Value) -> Rules {
    rules(json!({
        "name": "few", "tool": "*", "effect": "allow", "at_most": {"count": count, "per": "1h", "by": by},
    }))
}

/// A run of one call, with its input.
async fn call(stage: &EngineFixture, actor: &str, tool: &str, input: Value) -> Uuid {
    let air = workflow(tool).function("a", tool, json!({"value": "${inputs.value}", "to": "${inputs.to}"}));
    stage.apply(&air).await;
    let ask = StartRun { level: SILENT, ..StartRun::of(air.id(), input) };
    stage.flow.start(&stage.permit(actor), ask).await.unwrap().run_id
}

fn input(value: impl Into<Value>) -> Value {
    json!({"value": value.into(), "to": "ann"})
}

fn writes(stage: &EngineFixture) -> usize {
    stage.world.outside.sent().len()
}

#[tokio::test(start_paused = true)]
async fn the_call_beyond_the_limit_is_denied_and_says_which_rule_and_until_when() {
    let stage = stage(1).policy(at_most(2, json!("actor"))).open().await;
    for _ in 0..2 {
        let run = call(&stage, "user_ann", "once", input(1)).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
    let run = call(&stage, "user_ann", "once", input(1)).await;
    let ended = stage.ended(run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("POLICY_DENIED")));
    let message = ended["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("the rule few allows at most 2 calls per 1 h; try again after 20"), "{message}");
    assert_eq!(ended["error"]["details"]["rule"], "few");
    assert_eq!(ended["error"]["details"]["limit"]["used"], 2);
    assert_eq!(writes(&stage), 2);
    // Another actor has its own count.
    let run = call(&stage, "user_bob", "once", input(1)).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    // The window slides.
    tokio::time::advance(Duration::from_secs(3_600)).await;
    let run = call(&stage, "user_ann", "once", input(1)).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}
