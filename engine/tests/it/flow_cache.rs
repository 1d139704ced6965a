//! Cached outputs: when they are used, for whom, and until when.

use chimera_core::access::Level;
use chimera_core::flow::tables::CACHE_ENTRIES;
use chimera_core::tool::EffectKind;
use chimera_engine::act::rules::{Beyond, Rule, Rules, Says};
use chimera_engine::flow::{self, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, CallLog, EngineFixture, ScriptedTool, code_of, shown, stage, workflow};
use serde_json::{Value, json};
use std::time::Duration;

fn enrich(id: &str, cache: Value) -> Air {
    workflow(id).function("enrich_A", "fetch", json!({"q": "${inputs.q}"})).with_node_member("cache", cache)
}

async fn cached(cache: Value) -> (EngineFixture, CallLog) {
    let fetch = ScriptedTool::new("fetch", EffectKind::Read);
    let asked = fetch.asked();
    let stage = stage(1).tool(fetch.build()).open().await;
    stage.apply(&enrich("w", cache)).await;
    (stage, asked)
}

async fn ask(stage: &EngineFixture, tenant: &str, workflow: &str, q: &str) -> Value {
    let ask = StartRun { level: Level::ExecuteSilent, ..StartRun::of(workflow, json!({"q": q})) };
    let run = flow::start(&stage.flow, &stage.permit_of(tenant, "user_ann"), ask).await.unwrap().run_id;
    stage.wait_for_in(tenant, run, |shown| shown["status"] == "completed").await;
    shown(flow::list_steps(&stage.flow, &stage.permit_of(tenant, "admin"), run, 1, None).await.unwrap())["steps"][0]
        .clone()
}

#[tokio::test(start_paused = true)]
async fn the_same_input_is_answered_once_and_another_one_anew() {
    let (stage, asked) = cached(json!({})).await;
    let first = ask(&stage, "acme", "w", "x").await;
    let second = ask(&stage, "acme", "w", "x").await;
    assert_eq!(first["outputs"], second["outputs"]);
    assert_eq!(second["tool_calls"][0]["outcome"], "cached");
    assert_eq!(asked.count("execute"), 1);
    ask(&stage, "acme", "w", "y").await;
    assert_eq!(asked.count("execute"), 2);
    let key = stage.rows(&CACHE_ENTRIES)[0].text("cache_key").to_owned();
    assert!(key.starts_with("enrich_A:sha256:"), "{key}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_used_again_only_for_its_time() {
    let (stage, asked) = cached(json!({"ttl_seconds": 60})).await;
    ask(&stage, "acme", "w", "x").await;
    tokio::time::advance(Duration::from_secs(59)).await;
    ask(&stage, "acme", "w", "x").await;
    assert_eq!(asked.count("execute"), 1);
    tokio::time::advance(Duration::from_secs(2)).await;
    ask(&stage, "acme", "w", "x").await;
    assert_eq!(asked.count("execute"), 2);
    ask(&stage, "acme", "w", "x").await;
    assert_eq!(asked.count("execute"), 2, "the new answer stands for the old one");
}

/// INTENT-042, INTENT-044
#[tokio::test(start_paused = true)]
async fn an_answer_is_forgotten_by_key_or_by_workflow_and_only_by_its_tenant() {
    let (stage, asked) = cached(json!({})).await;
    let text = enrich("w", json!({})).document().to_string();
    stage.flow.workflows().apply(&stage.permit_of("other", "admin"), "w", &text).await.unwrap();
    for (tenant, count) in [("acme", 1), ("other", 2)] {
        ask(&stage, tenant, "w", "x").await;
        ask(&stage, tenant, "w", "x").await;
        assert_eq!(asked.count("execute"), count, "no tenant sees another's answers");
    }
    let key = stage.rows(&CACHE_ENTRIES)[0].text("cache_key").to_owned();
    flow::invalidate_outputs(&stage.flow, &stage.permit("admin"), "w", Some(&key)).await.unwrap();
    ask(&stage, "other", "w", "x").await;
    assert_eq!(asked.count("execute"), 2);
    ask(&stage, "acme", "w", "x").await;
    assert_eq!(asked.count("execute"), 3);
    flow::invalidate_outputs(&stage.flow, &stage.permit("admin"), "w", None).await.unwrap();
    ask(&stage, "acme", "w", "x").await;
    assert_eq!(asked.count("execute"), 4);
}

#[tokio::test(start_paused = true)]
async fn an_answer_belongs_to_its_workflow_and_to_the_version_of_its_tool() {
    let (first, asked) = cached(json!({})).await;
    first.apply(&enrich("v", json!({}))).await;
    ask(&first, "acme", "w", "x").await;
    ask(&first, "acme", "v", "x").await;
    assert_eq!(asked.count("execute"), 2);
    let newer = ScriptedTool::new("fetch", EffectKind::Read).with_declaration(|tool| tool.version = "2");
    let asked = newer.asked();
    let second = first.restart(stage(1).tool(newer.build())).await;
    ask(&second, "acme", "w", "x").await;
    assert_eq!(asked.count("execute"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_ask_for_it_is_always_called() {
    let fetch = ScriptedTool::new("fetch", EffectKind::Read);
    let asked = fetch.asked();
    let stage = stage(1).tool(fetch.build()).open().await;
    stage.apply(&workflow("w").function("a", "fetch", json!({"q": "${inputs.q}"}))).await;
    ask(&stage, "acme", "w", "x").await;
    ask(&stage, "acme", "w", "x").await;
    assert_eq!(asked.count("execute"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_can_not_be_cached() {
    let stage = stage(1).open().await;
    let air = workflow("w").function("a", "again", json!({})).with_node_member("cache", json!({}));
    let applied = stage.flow.workflows().apply(&stage.permit("admin"), "w", &air.document().to_string()).await;
    assert_eq!(code_of(applied), "VALIDATION_FAILED");
}

#[tokio::test(start_paused = true)]
async fn the_rules_hold_for_a_recorded_answer_too() {
    let (first, _) = cached(json!({})).await;
    ask(&first, "acme", "w", "x").await;
    let says = Says::Deny { reason: "not today".to_owned() };
    let rule = Rule {
        name: "r".to_owned(),
        tool: "fetch".to_owned(),
        actor: "*".to_owned(),
        tenant: "*".to_owned(),
        says,
        limits: Vec::new(),
        beyond: Beyond::Deny,
    };
    let fetch = ScriptedTool::new("fetch", EffectKind::Read);
    let second = first.restart(stage(1).policy(Rules(vec![rule])).tool(fetch.build())).await;
    let run = second.start(StartRun { level: Level::ExecuteSilent, ..StartRun::of("w", json!({"q": "x"})) }).await;
    assert_eq!(second.ended(run).await["error"]["code"], "POLICY_DENIED");
}
