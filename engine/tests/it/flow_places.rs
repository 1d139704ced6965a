//! A host that hangs blocks only its own callers.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::tables::RUNS;
use chimera_core::record::Row;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::call_slots::CallLimits;
use chimera_engine::flow::port::ToolError;
use chimera_engine::flow::{self, RunLimits, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, ScriptedTool, chain, stage, workflow};
use serde_json::json;
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// A tool that hangs until its host is back.
fn hung(up: &watch::Sender<bool>) -> ScriptedTool {
    let up = up.subscribe();
    let tool = ScriptedTool::new("call", EffectKind::Read)
        .with_declaration(|declared| declared.timeout_ms = 3_600_000)
        .with_host_input();
    tool.on_execute(move |_, input| {
        let mut up = up.clone();
        async move {
            if input["host"] == "dead" && up.wait_for(|up| *up).await.is_err() {
                return Err(ToolError::not_sent(Code::ExternalServiceUnavailable, "gone"));
            }
            Ok(json!({}))
        }
    })
}

async fn apply(stage: &EngineFixture) {
    stage.apply(&workflow("call").function("a", "call", json!({"host": "${inputs.host}"}))).await;
    stage.apply(&workflow("echo").function("a", "pure", json!({}))).await;
}

async fn start(stage: &EngineFixture, workflow: &str, host: &str) -> Uuid {
    let ask = StartRun { level: Level::ExecuteSilent, ..StartRun::of(workflow, json!({"host": host})) };
    stage.start(ask).await
}

#[tokio::test(start_paused = true)]
async fn runs_that_only_wait_for_a_slot_hold_no_place_and_end_when_the_host_is_back() {
    let (up, _) = watch::channel(false);
    let slots = CallLimits { per_tool: 4, ..CallLimits::default() };
    let stage = stage(1).call_limits(slots).runs_max(20).tool(hung(&up).build()).open().await;
    apply(&stage).await;
    let mut runs = Vec::new();
    for _ in 0..1_000 {
        runs.push(start(&stage, "call", "dead").await);
    }
    let echo = start(&stage, "echo", "").await;
    assert_eq!(stage.ended(echo).await["status"], "completed");
    stage.pass(Duration::from_secs(60)).await;
    assert!(stage.flow.active_runs() <= 20, "{} runs hold places", stage.flow.active_runs());
    let echo = start(&stage, "echo", "").await;
    assert_eq!(stage.ended(echo).await["status"], "completed");
    up.send_replace(true);
    for run in runs {
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
    assert!(stage.rows(&RUNS).iter().all(|row| row.get("owner_lane").is_null()));
}

/// Runs that wait in the store for a slot.
fn parked(stage: &EngineFixture) -> Vec<Row> {
    let waits = |row: &Row| row.get("owner_lane").is_null() && row.text("status") == "running";
    stage.rows(&RUNS).into_iter().filter(waits).collect()
}

async fn refused(stage: &EngineFixture, tenant: &str, workflow: &str, host: &str) -> chimera_core::error::ErrorBody {
    let ask = StartRun { level: Level::ExecuteSilent, ..StartRun::of(workflow, json!({"host": host})) };
    flow::start(&stage.flow, &stage.permit_of(tenant, "user_ann"), ask).await.err().expect("a refusal").body()
}

#[tokio::test(start_paused = true)]
async fn calls_of_the_same_tool_to_other_hosts_go_on_beside_a_dead_one() {
    let (up, _) = watch::channel(false);
    let slots = CallLimits { per_tool: 3, per_host: 2, ..CallLimits::default() };
    let stage = stage(1).call_limits(slots).tool(hung(&up).build()).open().await;
    apply(&stage).await;
    let mut dead = Vec::new();
    for _ in 0..50 {
        dead.push(start(&stage, "call", "dead").await);
    }
    let began = tokio::time::Instant::now();
    for _ in 0..50 {
        let run = start(&stage, "call", "alive").await;
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    up.send_replace(true);
    for run in dead {
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_in_the_store_goes_on_as_soon_as_a_slot_is_free() {
    let (up, _) = watch::channel(false);
    let stage =
        stage(1).call_limits(CallLimits { per_host: 1, ..CallLimits::default() }).tool(hung(&up).build()).open().await;
    apply(&stage).await;
    let runs = [start(&stage, "call", "dead").await, start(&stage, "call", "dead").await];
    stage.pass(Duration::from_secs(8)).await;
    assert_eq!(stage.flow.active_runs(), 1, "one makes its call, the other has waited long enough in memory");
    let row = parked(&stage).remove(0);
    let due = row.get("next_deadline").as_time().expect("a time to look again");
    assert!(due > stage.world.clock.now().plus_seconds(20), "{due}");
    let began = tokio::time::Instant::now();
    up.send_replace(true);
    for run in runs {
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!((stage.flow.calls_under_way(), stage.flow.calls_waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_run_hears_its_end_though_it_waited_in_the_store() {
    let (up, _) = watch::channel(false);
    let slots = CallLimits { per_host: 1, ..CallLimits::default() };
    let stage = stage(1).call_limits(slots).runs_max(2).tool(hung(&up).build()).open().await;
    apply(&stage).await;
    start(&stage, "call", "dead").await;
    let ask = StartRun { level: Level::ExecuteSilent, ..StartRun::of("call", json!({"host": "dead"})) };
    let mut started = flow::start(&stage.flow, &stage.permit("user_ann"), ask).await.unwrap();
    stage.pass(Duration::from_secs(120)).await;
    assert_eq!(parked(&stage).len(), 1);
    assert!(!started.progress.borrow().is_resting, "it goes on by itself");
    up.send_replace(true);
    let progress = started.progress.wait_for(|progress| progress.is_resting).await.unwrap().clone();
    assert!(progress.ended.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_while_it_waits_in_the_store_leaves_its_turn_to_the_next() {
    let (up, _) = watch::channel(false);
    let slots = CallLimits { per_host: 1, ..CallLimits::default() };
    let stage = stage(1).call_limits(slots).runs_max(2).tool(hung(&up).build()).open().await;
    apply(&stage).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(start(&stage, "call", "dead").await);
    }
    stage.until(runs[2], |_| parked(&stage).len() == 2).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), runs[1], None).await.unwrap();
    assert_eq!(stage.ended(runs[1]).await["status"], "cancelled");
    let began = tokio::time::Instant::now();
    up.send_replace(true);
    assert_eq!(stage.ended(runs[2]).await["status"], "completed");
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn another_engine_finds_runs_that_wait_in_the_store_by_their_time() {
    let (up, _) = watch::channel(false);
    let slots = || CallLimits { per_host: 1, ..CallLimits::default() };
    let first = stage(1).call_limits(slots()).runs_max(2).tool(hung(&up).build()).open().await;
    apply(&first).await;
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(start(&first, "call", "dead").await);
    }
    first.until(runs[19], |_| parked(&first).len() == 19).await;
    let second = first.restart(stage(1).call_limits(slots()).runs_max(2).tool(hung(&up).build())).await;
    up.send_replace(true);
    let began = tokio::time::Instant::now();
    for run in runs {
        assert_eq!(second.ended(run).await["status"], "completed");
    }
    assert!(began.elapsed() < Duration::from_secs(70), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_a_process_does_not_remember_comes_back_by_its_time() {
    let (up, _) = watch::channel(false);
    let slots = CallLimits { per_host: 2, remembered: 3, ..CallLimits::default() };
    let stage = stage(1).call_limits(slots).runs_max(4).tool(hung(&up).build()).open().await;
    apply(&stage).await;
    let mut runs = Vec::new();
    for _ in 0..50 {
        runs.push(start(&stage, "call", "dead").await);
    }
    assert_eq!(stage.flow.calls_waiting(), 3);
    up.send_replace(true);
    for run in runs {
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_looks_for_a_recorded_output_keeps_the_slot_that_was_kept_for_it() {
    let (up, _) = watch::channel(false);
    let slots = CallLimits { per_host: 1, ..CallLimits::default() };
    let stage = stage(1).call_limits(slots).tool(hung(&up).build()).open().await;
    let cached = json!({"ttl_seconds": 60});
    let air = workflow("call").function("a", "call", json!({"host": "${inputs.host}", "n": "${inputs.n}"}));
    let air = air.with_node_member("cache", cached);
    stage.apply(&air).await;
    let mut runs = Vec::new();
    for n in 0..30 {
        let ask = StartRun { level: Level::ExecuteSilent, ..StartRun::of("call", json!({"host": "dead", "n": n})) };
        runs.push(stage.start(ask).await);
    }
    stage.pass(Duration::from_secs(8)).await;
    assert_eq!(parked(&stage).len(), 29);
    up.send_replace(true);
    let began = tokio::time::Instant::now();
    for run in runs {
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn when_too_many_wait_for_a_host_a_new_run_is_refused_with_its_name_and_others_are_not() {
    let (up, _) = watch::channel(false);
    let slots = CallLimits { per_host: 1, waiting: 5, ..CallLimits::default() };
    let stage = stage(1).call_limits(slots).tool(hung(&up).build()).open().await;
    apply(&stage).await;
    for _ in 0..6 {
        start(&stage, "call", "dead").await;
    }
    let body = refused(&stage, "acme", "call", "dead").await;
    assert_eq!((body.code.as_str(), body.retryable), ("OVERLOADED", true));
    assert_eq!(body.message, "the queue for host dead is full (5 calls are waiting); try again later");
    assert_eq!((&body.details["host"], &body.details["tool"]), (&json!("dead"), &json!("call")));
    assert_eq!(stage.rows(&RUNS).len(), 6, "nothing of it was written");
    for (workflow, host) in [("call", "alive"), ("echo", "")] {
        let run = start(&stage, workflow, host).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn one_tenant_can_not_take_all_places() {
    let (up, _) = watch::channel(false);
    let places = RunLimits { total: 10, per_tenant: 4, ..RunLimits::default() };
    let stage = stage(1).run_limits(places).tool(hung(&up).build()).open().await;
    apply(&stage).await;
    for _ in 0..4 {
        start(&stage, "call", "dead").await;
    }
    let body = refused(&stage, "acme", "call", "dead").await;
    assert_eq!((body.code.as_str(), body.retryable), ("OVERLOADED", true));
    assert!(body.message.contains("4 runs of tenant acme are active"), "{}", body.message);
    let permit = stage.permit_of("other", "user_ann");
    let air = chain("w", &[("a", "pure")]);
    stage.flow.workflows().apply(&stage.permit_of("other", "admin"), "w", &air.document().to_string()).await.unwrap();
    let run = flow::start(&stage.flow, &permit, StartRun::of("w", json!({}))).await.unwrap().run_id;
    stage.wait_for_in("other", run, |shown| shown["status"] == "completed").await;
}
