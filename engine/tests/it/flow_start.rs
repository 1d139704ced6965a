//! What is refused before a run starts, and what is recorded before anything happens.

use chimera_core::access::Level;
use chimera_core::flow::tables::{EFFECTS, RUNS, TOOL_CALLS};
use chimera_core::limits;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{ScriptedTool, chain, code_of, stage, workflow};
use chimera_testkit::memory::MemoryRecords;
use serde_json::{Value, json};
use std::sync::Arc;

const SILENT: Level = Level::ExecuteSilent;

#[tokio::test(start_paused = true)]
async fn agents_and_swarms_are_applied_and_refuse_to_start() {
    let stage = stage(1).open().await;
    for node in [json!({"id": "a", "type": "agent", "goal": "win"}), json!({"id": "a", "type": "swarm", "goal": "win"})]
    {
        let air = workflow("w").node(node);
        stage.apply(&air).await;
        let refused = flow::start(&stage.flow, &stage.permit("user_ann"), StartRun::of("w", json!({})))
            .await
            .err()
            .unwrap()
            .body();
        assert_eq!(refused.code, "VALIDATION_FAILED");
        assert_eq!(refused.details["problems"][0]["code"], "unsupported_node");
        assert_eq!(refused.details["problems"][0]["pointer"], "/nodes/0/type");
    }
    assert!(stage.rows(&RUNS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn inputs_that_the_workflow_does_not_take_are_refused() {
    let stage = stage(1).open().await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    stage.apply(&chain("w", &[("a", "pure")]).with("inputs", schema)).await;
    let start = async |id: &str, inputs: Value| {
        code_of(flow::start(&stage.flow, &stage.permit("user_ann"), StartRun::of(id, inputs)).await)
    };
    assert_eq!(start("w", json!({"n": "x"})).await, "VALIDATION_FAILED");
    assert_eq!(start("w", json!({})).await, "VALIDATION_FAILED");
    assert_eq!(start("nowhere", json!({})).await, "NOT_FOUND");
    let large = "x".repeat(limits::RUN_INPUT_BYTES_MAX);
    assert_eq!(start("w", json!({"n": 1, "x": large})).await, "PAYLOAD_TOO_LARGE");
    assert!(stage.rows(&RUNS).is_empty());
    assert_eq!(start("w", json!({"n": 1})).await, "none");
}

#[tokio::test(start_paused = true)]
async fn a_run_follows_the_version_that_it_names_or_the_newest() {
    let stage = stage(1).open().await;
    for n in 1..=3 {
        stage.apply(&workflow("w").function("a", "pure", json!({"v": n}))).await;
    }
    for (version, gave) in [(None, 3), (Some(1), 1), (Some(2), 2)] {
        let run = stage.start(StartRun { version, level: SILENT, ..StartRun::of("w", json!({})) }).await;
        assert_eq!(stage.ended(run).await["result"]["a"]["echo"]["v"], gave);
    }
    let missing = StartRun { version: Some(9), ..StartRun::of("w", json!({})) };
    assert_eq!(code_of(flow::start(&stage.flow, &stage.permit("user_ann"), missing).await), "NOT_FOUND");
}

#[tokio::test(start_paused = true)]
async fn what_reaches_outside_is_on_record_before_it_happens_and_what_does_not_needs_no_record() {
    for (reach, written) in [(EffectKind::Pure, 0), (EffectKind::Read, 1), (EffectKind::Write, 1)] {
        let records = Arc::new(MemoryRecords::new());
        let seen = Arc::clone(&records);
        let tool = ScriptedTool::new("tool", reach).answers(move |ctx, _| {
            let effects = seen.rows(&EFFECTS);
            let sent =
                effects.iter().filter(|row| row.uuid("id") == ctx.effect_id && row.text("status") == "dispatched");
            let calls = seen.rows(&TOOL_CALLS).len();
            Ok(json!({"effects": sent.count(), "calls": calls}))
        });
        let stage = stage(1).tool(tool.build()).open_on(records).await;
        let run = stage.run(&chain("w", &[("a", "tool")]), SILENT).await;
        let found = stage.ended(run).await["result"]["a"].clone();
        assert_eq!((&found["effects"], &found["calls"]), (&json!(written), &json!(written)), "{reach:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_when_it_can_not_be_recorded() {
    let tool = ScriptedTool::new("tool", EffectKind::Write);
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    stage.apply(&chain("w", &[("a", "tool")])).await;
    stage.records.refuse_writes();
    let ask = StartRun { level: SILENT, ..StartRun::of("w", json!({})) };
    assert_eq!(code_of(flow::start(&stage.flow, &stage.permit("user_ann"), ask.clone()).await), "STORE_UNAVAILABLE");
    assert!(asked.all().is_empty());
    stage.records.clear_faults();
    let run = stage.start(ask).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn three_pure_steps_take_three_commits() {
    let stage = stage(1).unkept().open().await;
    stage.apply(&chain("w", &[("a", "pure"), ("b", "pure"), ("c", "pure")])).await;
    let before = *stage.records.commits().borrow();
    let run = stage.start(StartRun { level: SILENT, ..StartRun::of("w", json!({})) }).await;
    stage.ended(run).await;
    assert_eq!(
        *stage.records.commits().borrow() - before,
        3,
        "the first result is written with the start, each before the next step"
    );
}
