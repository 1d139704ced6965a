//! Call slots: limits for tools and tenants, priority, fairness, backpressure.

use async_trait::async_trait;
use chimera_core::access::{Guest, Level, SharedResources};
use chimera_core::flow::run::RunHead;
use chimera_core::tool::EffectKind;
use chimera_engine::access::port::Tenancy;
use chimera_engine::flow::call_slots::CallLimits;
use chimera_engine::flow::port::{Recipient, Recipients};
use chimera_engine::flow::{self, Asking, StartRun};
use chimera_testkit::flow::{ConcurrencyProbe, EngineFixture, ScriptedTool, chain, code_of, stage, until, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A tool whose calls take a second.
fn busy(watch: &ConcurrencyProbe, name: &'static str) -> ScriptedTool {
    ScriptedTool::new(name, EffectKind::Read).with_delay(|_| Duration::from_secs(1)).with_probe(watch)
}

/// The numbers that calls started with, in order.
fn order(watch: &ConcurrencyProbe) -> Vec<Value> {
    watch.order().iter().map(|input| input["n"].clone()).collect()
}

fn slots(total: usize, per_tenant: usize, per_tool: usize) -> CallLimits {
    CallLimits { total, per_tenant, per_tool, ..CallLimits::default() }
}

async fn apply(stage: &EngineFixture, tenant: &str, tool: &str) {
    let air = workflow("w").function("a", tool, json!({"n": "${inputs.n}"}));
    let permit = stage.permit_of(tenant, "admin");
    stage.flow.workflows().apply(&permit, "w", &air.document().to_string()).await.unwrap();
}

async fn start(stage: &EngineFixture, tenant: &str, n: i64, priority: i32) -> Uuid {
    let ask = StartRun { level: Level::ExecuteSilent, priority, ..StartRun::of("w", json!({"n": n})) };
    flow::start(&stage.flow, &stage.permit_of(tenant, "user_ann"), ask).await.unwrap().run_id
}

async fn all_ended(stage: &EngineFixture, tenant: &str, runs: &[Uuid]) {
    for run in runs {
        stage.wait_for_in(tenant, *run, |shown| shown["status"] == "completed").await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_of_a_tool_are_under_way_than_it_allows() {
    let watch = ConcurrencyProbe::default();
    let mut slots = slots(100, 100, 5);
    slots.tools.insert("narrow".to_owned(), 2);
    let stage = stage(1)
        .call_limits(slots)
        .tool(busy(&watch, "narrow").build())
        .tool(busy(&watch, "wide").build())
        .open()
        .await;
    let air = (0..12).fold(workflow("w"), |air, n| {
        air.function(&format!("n{n}"), "narrow", json!({})).function(&format!("w{n}"), "wide", json!({}))
    });
    let run = stage.run(&air, Level::ExecuteSilent).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!((watch.most("narrow"), watch.most("wide")), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_of_a_tenant_are_under_way_than_it_may_have() {
    let watch = ConcurrencyProbe::default();
    let stage = stage(1).call_limits(slots(100, 3, 100)).tool(busy(&watch, "t").build()).open().await;
    apply(&stage, "acme", "t").await;
    let mut runs = Vec::new();
    for n in 0..10 {
        runs.push(start(&stage, "acme", n, 5).await);
    }
    all_ended(&stage, "acme", &runs).await;
    assert_eq!(watch.most("acme"), 3);
}

#[tokio::test(start_paused = true)]
async fn the_more_urgent_run_goes_first() {
    let watch = ConcurrencyProbe::default();
    let stage = stage(1).call_limits(slots(1, 1, 1)).tool(busy(&watch, "t").build()).open().await;
    apply(&stage, "acme", "t").await;
    let mut runs = Vec::new();
    for (n, priority) in [(0, 5), (1, 9), (2, 5), (3, 1), (4, 5)] {
        runs.push(start(&stage, "acme", n, priority).await);
    }
    all_ended(&stage, "acme", &runs).await;
    assert_eq!(order(&watch), [0, 3, 2, 4, 1]);
    let wrong = StartRun { priority: 11, ..StartRun::of("w", json!({"n": 1})) };
    assert_eq!(code_of(flow::start(&stage.flow, &stage.permit("user_ann"), wrong).await), "VALIDATION_FAILED");
}

#[tokio::test(start_paused = true)]
async fn a_loud_tenant_does_not_starve_a_quiet_one() {
    let watch = ConcurrencyProbe::default();
    let stage = stage(1).call_limits(slots(2, 2, 2)).tool(busy(&watch, "t").build()).open().await;
    apply(&stage, "acme", "t").await;
    apply(&stage, "other", "t").await;
    let mut loud = Vec::new();
    for n in 0..20 {
        loud.push(start(&stage, "acme", n, 1).await);
    }
    let quiet = start(&stage, "other", 100, 9).await;
    all_ended(&stage, "other", &[quiet]).await;
    let place = order(&watch).iter().position(|n| *n == 100).unwrap();
    assert!(place <= 3, "it came {place} calls after the first, though it asked last and is not urgent");
    all_ended(&stage, "acme", &loud).await;
}

/// Several tenants that share all tools.
struct ManyTenants;

impl Tenancy for ManyTenants {
    fn guest(&self, tenant: &str) -> Option<Arc<Guest>> {
        let shared = SharedResources { tools: vec!["*".to_owned()], ..SharedResources::default() };
        Some(Arc::new(Guest { id: tenant.to_owned(), slug: tenant.to_owned(), shared }))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// Calls of the loud tenant never end.
#[tokio::test(start_paused = true)]
async fn calls_of_a_tenant_that_never_end_hold_up_no_other_tenant() {
    let watch = ConcurrencyProbe::default();
    let tool = ScriptedTool::new("t", EffectKind::Read).with_declaration(|declared| declared.timeout_ms = 3_600_000);
    let tool =
        tool.with_delay(|input| Duration::from_secs(if input["n"] == 100 { 1 } else { 3_600 })).with_probe(&watch);
    let stage = stage(1).call_limits(slots(100, 100, 8)).tenancy(Arc::new(ManyTenants)).tool(tool.build()).open().await;
    apply(&stage, "acme", "t").await;
    apply(&stage, "other", "t").await;
    for n in 0..20 {
        start(&stage, "acme", n, 1).await;
    }
    until("its share is under way", || watch.most("acme") == 6).await;
    let quiet = start(&stage, "other", 100, 9).await;
    all_ended(&stage, "other", &[quiet]).await;
    assert_eq!(watch.most("acme"), 6);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_children_holds_no_slot() {
    let stage = stage(1).call_limits(slots(1, 1, 1)).open().await;
    stage.apply(&chain("leaf", &[("a", "again")])).await;
    stage.apply(&workflow("middle").child("c", "leaf", json!({}))).await;
    let air = workflow("top").child("c", "middle", json!({})).child("d", "middle", json!({}));
    let run = stage.run(&air, Level::ExecuteSilent).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_drives_as_many_runs_as_it_may_refuses_more_until_some_end() {
    let watch = ConcurrencyProbe::default();
    let stage = stage(1).runs_max(3).tool(busy(&watch, "t").build()).open().await;
    apply(&stage, "acme", "t").await;
    let mut runs = Vec::new();
    for n in 0..3 {
        runs.push(start(&stage, "acme", n, 5).await);
    }
    let one_more = StartRun { level: Level::ExecuteSilent, ..StartRun::of("w", json!({"n": 4})) };
    let refused = flow::start(&stage.flow, &stage.permit("user_ann"), one_more.clone()).await.err().unwrap().body();
    assert_eq!((refused.code.as_str(), refused.retryable, refused.retry_after_seconds), ("OVERLOADED", true, Some(1)));
    all_ended(&stage, "acme", &runs).await;
    until("no run is driven", || stage.flow.active_runs() == 0).await;
    flow::start(&stage.flow, &stage.permit("user_ann"), one_more).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_gives_the_slot_that_was_kept_for_it_to_the_next() {
    let watch = ConcurrencyProbe::default();
    let stage = stage(1).call_limits(slots(1, 1, 1)).tool(busy(&watch, "t").build()).open().await;
    apply(&stage, "acme", "t").await;
    let first = start(&stage, "acme", 0, 5).await;
    let second = start(&stage, "acme", 1, 5).await;
    let third = start(&stage, "acme", 2, 5).await;
    flow::pause(&stage.flow, &stage.permit("user_ann"), second).await.unwrap();
    all_ended(&stage, "acme", &[first, third]).await;
    flow::resume(&stage.flow, &stage.permit("user_ann"), second).await.unwrap();
    all_ended(&stage, "acme", &[second]).await;
    assert_eq!(order(&watch), [0, 2, 1]);
}

/// Never finishes resolving recipients.
struct HangingRecipients;

#[async_trait]
impl Recipients for HangingRecipients {
    async fn of(&self, _: &RunHead) -> Vec<Recipient> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_or_is_given_up_keeps_no_slot() {
    let watch = ConcurrencyProbe::default();
    let asking = Asking { recipients: Arc::new(HangingRecipients), ..Asking::default() };
    let stage = stage(1).call_limits(slots(4, 4, 4)).asking(asking).tool(busy(&watch, "t").build()).open().await;
    let air = workflow("ask").function("a", "t", json!({"n": 1})).node(json!({"id": "h", "type": "hitl"}));
    stage.apply(&air).await;
    let ann = stage.permit("user_ann");
    let ask = |level| StartRun { level, ..StartRun::of("ask", json!({})) };
    for _ in 0..5 {
        // The caller disconnects while recipients are resolved.
        let start = flow::start(&stage.flow, &ann, ask(Level::ExecuteNotify));
        assert!(tokio::time::timeout(Duration::from_secs(1), start).await.is_err());
    }
    assert_eq!((stage.flow.calls_under_way(), stage.flow.calls_waiting()), (0, 0));
    for _ in 0..5 {
        stage.records.refuse_writes();
        assert!(flow::start(&stage.flow, &ann, ask(Level::ExecuteSilent)).await.is_err());
        stage.records.clear_faults();
    }
    assert_eq!((stage.flow.calls_under_way(), stage.flow.calls_waiting()), (0, 0));
    apply(&stage, "acme", "t").await;
    let run = start(&stage, "acme", 1, 5).await;
    all_ended(&stage, "acme", &[run]).await;
}

/// The priority of a node counts instead of the run's, also for the items of a map and for child runs.
#[tokio::test(start_paused = true)]
async fn a_node_may_be_more_urgent_than_its_run() {
    let watch = ConcurrencyProbe::default();
    let stage = stage(1).call_limits(slots(1, 1, 1)).tool(busy(&watch, "t").build()).open().await;
    let child = workflow("kid").function("k", "t", json!({"n": 5}));
    stage.apply(&child).await;
    let air = workflow("w")
        .function("first", "t", json!({"n": 1}))
        .function("late", "t", json!({"n": 2}))
        .with_node_member("priority", json!(9))
        .function("usual", "t", json!({"n": 3}))
        .map("each", json!([1]), "t", json!({"n": 4}))
        .with_node_member("priority", json!(2))
        .child("kid", "kid", json!({}))
        .with_node_member("priority", json!(1));
    let run = stage.run(&air, Level::ExecuteSilent).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let order = order(&watch);
    let at = |n: i64| order.iter().position(|seen| *seen == json!(n)).expect("a call");
    assert!(at(4) < at(3) && at(3) < at(2), "{order:?}");
    assert!(at(5) < at(3), "a child run has the priority of its node: {order:?}");
}
